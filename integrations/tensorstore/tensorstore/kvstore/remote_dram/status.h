/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENSORSTORE_KVSTORE_REMOTE_DRAM_STATUS_H_
#define TENSORSTORE_KVSTORE_REMOTE_DRAM_STATUS_H_

#include <penstock/penstock.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tensorstore {
namespace internal_remote_dram {

/// The code for a result of libpenstock's other than 0.
absl::StatusCode StatusCodeOf(int result);

/// The request that `op`, which has ended, travelled in, as the server's log
/// names it, and its result: for the log.
std::string DescribeOutcome(const penstock_op& op);

/// What went wrong with `op`, which has ended: names the address, the key and,
/// where the server's log may know more, the request.
absl::Status OperationError(const penstock_op& op, std::string_view action,
                            std::string_view address);

/// What went wrong with a call that returned `result` just now, on this
/// thread.
absl::Status CallError(int result, std::string_view action,
                       std::string_view address);

}  // namespace internal_remote_dram
}  // namespace tensorstore

#endif  // TENSORSTORE_KVSTORE_REMOTE_DRAM_STATUS_H_
