// SPDX-License-Identifier: Apache-2.0
#include "tensorstore/kvstore/remote_dram/status.h"

#include <errno.h>
#include <penstock/penstock.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tensorstore/util/quote_string.h"

namespace tensorstore {
namespace internal_remote_dram {
namespace {

constexpr size_t kKeyBytesShown = 200;

bool MayBeInServerLog(int result) {
  return result == PENSTOCK_UNKNOWN || result == PENSTOCK_BUSY ||
         result == -ETIMEDOUT || result == -ECONNRESET;
}

std::string DescribeKey(const penstock_op& op) {
  std::string_view key(static_cast<const char*>(op.key), op.key_bytes);
  return QuoteString(key.substr(0, kKeyBytesShown)).ToString();
}

}  // namespace

absl::StatusCode StatusCodeOf(int result) {
  switch (result) {
    case PENSTOCK_BUSY:     // other work, until the deadline
    case PENSTOCK_UNKNOWN:  // the connection was lost behind a write
    case -ECONNREFUSED:
    case -EHOSTUNREACH:
    case -ENETUNREACH:
    case -EREMCHG:  // no master leads
    case -ECONNRESET:
    case -EPIPE:
    case -ESTALE:
      return absl::StatusCode::kUnavailable;
    case -ETIMEDOUT:
      return absl::StatusCode::kDeadlineExceeded;
    case -ENOSPC:
    case -EFBIG:
    case -EDQUOT:
    case -ENOMEM:
    case -EMFILE:
    case -ENFILE:
      return absl::StatusCode::kResourceExhausted;
    case -EACCES:
    case -EPERM:
      return absl::StatusCode::kPermissionDenied;
    case -EBADMSG:
      return absl::StatusCode::kDataLoss;
    case -ERANGE:
      return absl::StatusCode::kOutOfRange;
    case -EINVAL:
    case -ENAMETOOLONG:
    case -E2BIG:
      return absl::StatusCode::kInvalidArgument;
    case -EOPNOTSUPP:
      return absl::StatusCode::kUnimplemented;
    case -EPROTO:
    case -EPROTONOSUPPORT:
    case -ECHILD:
    case -EADDRINUSE:
    case -EADDRNOTAVAIL:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

std::string DescribeOutcome(const penstock_op& op) {
  return absl::StrFormat("request=%012x (%s)", penstock_request_id(&op),
                         penstock_result_text(op.result));
}

absl::Status OperationError(const penstock_op& op, std::string_view action,
                            std::string_view address) {
  std::string message =
      absl::StrCat("Error ", action, " ", DescribeKey(op), " at ", address,
                   ": ", penstock_result_text(op.result));
  if (MayBeInServerLog(op.result) && penstock_request_id(&op)) {
    absl::StrAppendFormat(&message, " (request %012x)",
                          penstock_request_id(&op));
  }
  return absl::Status(StatusCodeOf(op.result), message);
}

absl::Status CallError(int result, std::string_view action,
                       std::string_view address) {
  return absl::Status(
      StatusCodeOf(result),
      absl::StrCat("Error ", action, " at ", address, ": ", penstock_error()));
}

}  // namespace internal_remote_dram
}  // namespace tensorstore
