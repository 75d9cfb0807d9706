// SPDX-License-Identifier: Apache-2.0
#include "tensorstore/kvstore/remote_dram/remote_dram_kvstore.h"

#include <penstock/penstock.h>
#include <stddef.h>
#include <stdint.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/log/absl_log.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensorstore/internal/intrusive_ptr.h"
#include "tensorstore/internal/log/verbose_flag.h"
#include "tensorstore/kvstore/driver.h"
#include "tensorstore/kvstore/generation.h"
#include "tensorstore/kvstore/key_range.h"
#include "tensorstore/kvstore/operations.h"
#include "tensorstore/kvstore/read_result.h"
#include "tensorstore/kvstore/remote_dram/connection.h"
#include "tensorstore/kvstore/remote_dram/operations.h"
#include "tensorstore/kvstore/remote_dram/status.h"
#include "tensorstore/transaction.h"
#include "tensorstore/util/execution/execution.h"
#include "tensorstore/util/future.h"
#include "tensorstore/util/quote_string.h"
#include "tensorstore/util/result.h"

namespace tensorstore {
namespace internal_remote_dram {

using ::tensorstore::internal::IntrusivePtr;
using ::tensorstore::kvstore::ListEntry;
using ::tensorstore::kvstore::ListReceiver;

ABSL_CONST_INIT internal_log::VerboseFlag verbose_logging("remote_dram");

uint64_t ToNodeGeneration(const StorageGeneration& generation) {
  if (StorageGeneration::IsNoValue(generation)) return 0;
  return StorageGeneration::IsUint64(generation)
             ? StorageGeneration::ToUint64(generation)
             : std::numeric_limits<uint64_t>::max();
}

// Too large a guess costs a copy of a small value, too small a one another
// message: so it follows values upwards at once, and downwards slowly.
void RemoteDramDriver::LearnSize(size_t bytes) {
  const size_t guess = GuessSize();
  if (bytes == guess) return;
  size_guess_.store(std::max(bytes, guess - guess / 8),
                    std::memory_order_relaxed);
}

std::string RemoteDramDriver::DescribeKey(std::string_view key) {
  return absl::StrCat(QuoteString(key), " at ", connection_->address());
}

Future<kvstore::ReadResult> RemoteDramDriver::Read(Key key,
                                                   ReadOptions options) {
  return StartRead(*this, std::move(key), std::move(options));
}

Future<TimestampedStorageGeneration> RemoteDramDriver::Write(
    Key key, std::optional<Value> value, WriteOptions options) {
  return StartWrite(*this, std::move(key), std::move(value),
                    std::move(options));
}

Future<const void> RemoteDramDriver::DeleteRange(KeyRange range) {
  if (range.empty()) return absl::OkStatus();
  auto [promise, future] = PromiseFuturePair<void>::Make();
  BlockingExecutor()([self = IntrusivePtr<RemoteDramDriver>(this),
                      promise = std::move(promise),
                      range = std::move(range)]() mutable {
    if (!promise.result_needed()) return;
    const auto& [min, max] = range;
    uint64_t deleted = 0;
    const int r =
        penstock_delete_range(self->connection_->store(), min.data(),
                              min.size(), max.data(), max.size(), &deleted);
    ABSL_LOG_IF(INFO, verbose_logging)
        << "DeleteRangeRemote: from=" << QuoteString(min)
        << " to=" << QuoteString(max)
        << " endpoint=" << self->connection_->address() << " keys=" << deleted
        << " (" << penstock_result_text(r) << ")";
    absl::Status status;
    if (r != 0) {
      status = CallError(r, absl::StrCat("deleting from ", QuoteString(min)),
                         self->connection_->address());
    }
    self->executor()(
        [promise = std::move(promise), status = std::move(status)] {
          promise.SetResult(MakeResult(status));
        });
  });
  return std::move(future);
}

namespace {

// Sends the entries of a range to the receiver until it has had enough.
absl::Status ListAll(const Connection& connection,
                     const kvstore::ListOptions& options,
                     const std::atomic<bool>& cancelled,
                     ListReceiver& receiver) {
  penstock_list_options range = {};
  range.size = sizeof(range);
  range.start = options.range.inclusive_min.data();
  range.start_bytes = options.range.inclusive_min.size();
  range.end = options.range.exclusive_max.data();
  range.end_bytes = options.range.exclusive_max.size();
  penstock_list* list = nullptr;
  int r = penstock_list_open(connection.store(), &range, &list);
  penstock_entry entry;
  size_t count = 0;
  while (r == 0 && !cancelled.load(std::memory_order_relaxed)) {
    r = penstock_list_next(list, &entry);
    if (r != 1) break;
    std::string_view key(static_cast<const char*>(entry.key), entry.key_bytes);
    key.remove_prefix(std::min(options.strip_prefix_length, key.size()));
    execution::set_value(receiver,
                         ListEntry{std::string(key),
                                   ListEntry::checked_size(entry.value_bytes)});
    ++count;
    r = 0;
  }
  absl::Status status;
  if (r < 0) status = CallError(r, "listing", connection.address());
  penstock_list_close(list);
  ABSL_LOG_IF(INFO, verbose_logging)
      << "ListRemote: from=" << QuoteString(options.range.inclusive_min)
      << " endpoint=" << connection.address() << " keys=" << count << " ("
      << penstock_result_text(r) << ")";
  return status;
}

}  // namespace

void RemoteDramDriver::ListImpl(ListOptions options, ListReceiver receiver) {
  auto cancelled = std::make_shared<std::atomic<bool>>(false);
  execution::set_starting(receiver, [cancelled] {
    cancelled->store(true, std::memory_order_relaxed);
  });
  BlockingExecutor()([self = IntrusivePtr<RemoteDramDriver>(this), cancelled,
                      options = std::move(options),
                      receiver = std::move(receiver)]() mutable {
    absl::Status status;
    if (!options.range.empty()) {
      status = ListAll(*self->connection_, options, *cancelled, receiver);
    }
    if (status.ok()) {
      execution::set_done(receiver);
    } else {
      execution::set_error(receiver, std::move(status));
    }
    execution::set_stopping(receiver);
  });
}

absl::Status RemoteDramDriver::ReadModifyWrite(
    internal::OpenTransactionPtr& transaction, size_t& phase, Key key,
    ReadModifyWriteSource& source) {
  if (!transaction || !transaction->atomic()) {
    return Driver::ReadModifyWrite(transaction, phase, std::move(key), source);
  }
  return AddAtomicReadModifyWrite(*this, transaction, phase, std::move(key),
                                  source);
}

absl::Status RemoteDramDriver::TransactionalDeleteRange(
    const internal::OpenTransactionPtr& transaction, KeyRange range) {
  if (!transaction || !transaction->atomic()) {
    return Driver::TransactionalDeleteRange(transaction, std::move(range));
  }
  return AddAtomicDeleteRange(*this, transaction, std::move(range));
}

}  // namespace internal_remote_dram
}  // namespace tensorstore
