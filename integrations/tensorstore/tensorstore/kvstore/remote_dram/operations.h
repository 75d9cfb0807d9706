/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENSORSTORE_KVSTORE_REMOTE_DRAM_OPERATIONS_H_
#define TENSORSTORE_KVSTORE_REMOTE_DRAM_OPERATIONS_H_

#include <penstock/penstock.h>
#include <stdint.h>
#include <sys/uio.h>

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "tensorstore/internal/log/verbose_flag.h"
#include "tensorstore/kvstore/driver.h"
#include "tensorstore/kvstore/generation.h"
#include "tensorstore/kvstore/key_range.h"
#include "tensorstore/kvstore/operations.h"
#include "tensorstore/kvstore/read_modify_write.h"
#include "tensorstore/kvstore/read_result.h"
#include "tensorstore/kvstore/remote_dram/remote_dram_kvstore.h"
#include "tensorstore/transaction.h"
#include "tensorstore/util/future.h"
#include "tensorstore/util/result.h"

namespace tensorstore {
namespace internal_remote_dram {

/// TENSORSTORE_VERBOSE_LOGGING=remote_dram shows every step.
extern internal_log::VerboseFlag verbose_logging;

/// A generation as the node has it: 0 for none; one that no value has where
/// another driver made it.
uint64_t ToNodeGeneration(const StorageGeneration& generation);

/// The chunks of a value, for `penstock_op`.  The value is made contiguous
/// where it has more chunks than libpenstock takes.
void SetValue(penstock_op& op, absl::Cord& value, std::vector<iovec>& chunks);

Future<kvstore::ReadResult> StartRead(RemoteDramDriver& driver,
                                      kvstore::Key key,
                                      kvstore::ReadOptions options);

Future<TimestampedStorageGeneration> StartWrite(RemoteDramDriver& driver,
                                                kvstore::Key key,
                                                std::optional<absl::Cord> value,
                                                kvstore::WriteOptions options);

absl::Status AddAtomicReadModifyWrite(RemoteDramDriver& driver,
                                      internal::OpenTransactionPtr& transaction,
                                      size_t& phase, kvstore::Key key,
                                      kvstore::ReadModifyWriteSource& source);
absl::Status AddAtomicDeleteRange(
    RemoteDramDriver& driver, const internal::OpenTransactionPtr& transaction,
    KeyRange range);

}  // namespace internal_remote_dram
}  // namespace tensorstore

#endif  // TENSORSTORE_KVSTORE_REMOTE_DRAM_OPERATIONS_H_
