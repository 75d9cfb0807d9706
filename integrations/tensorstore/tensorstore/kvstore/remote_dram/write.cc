// SPDX-License-Identifier: Apache-2.0
#include <penstock/penstock.h>
#include <stddef.h>
#include <sys/uio.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/log/absl_log.h"
#include "absl/strings/cord.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tensorstore/internal/intrusive_ptr.h"
#include "tensorstore/kvstore/generation.h"
#include "tensorstore/kvstore/operations.h"
#include "tensorstore/kvstore/remote_dram/connection.h"
#include "tensorstore/kvstore/remote_dram/operations.h"
#include "tensorstore/kvstore/remote_dram/remote_dram_kvstore.h"
#include "tensorstore/kvstore/remote_dram/status.h"
#include "tensorstore/util/executor.h"
#include "tensorstore/util/future.h"
#include "tensorstore/util/quote_string.h"
#include "tensorstore/util/result.h"

namespace tensorstore {
namespace internal_remote_dram {
namespace {

using ::tensorstore::internal::IntrusivePtr;
using ::tensorstore::kvstore::Key;
using ::tensorstore::kvstore::WriteOptions;

constexpr size_t kChunksMax = 1024;

// A put or a delete.  A delete of what must not be there is a look.
class WriteOperation : public Operation {
 public:
  WriteOperation(RemoteDramDriver& driver, Key key,
                 std::optional<absl::Cord> value, WriteOptions options,
                 Promise<TimestampedStorageGeneration> promise)
      : driver_(&driver),
        key_(std::move(key)),
        value_(std::move(value)),
        if_equal_(std::move(options.generation_conditions.if_equal)),
        promise_(std::move(promise)) {}

  bool Prepare(penstock_op& op) override {
    if (!promise_.result_needed()) return false;
    const bool conditional = !StorageGeneration::IsUnknown(if_equal_);
    time_ = absl::Now();
    if (!value_ && StorageGeneration::IsNoValue(if_equal_)) {
      penstock_prep(&op, PENSTOCK_STAT_KEY, key_.data(), key_.size());
      return true;
    }
    penstock_prep(&op, value_ ? PENSTOCK_PUT : PENSTOCK_DELETE, key_.data(),
                  key_.size());
    if (value_) SetValue(op, *value_, chunks_);
    op.flags = conditional ? PENSTOCK_IF_GENERATION : 0;
    op.if_generation = conditional ? ToNodeGeneration(if_equal_) : 0;
    return true;
  }

  uint64_t bytes() const override { return value_ ? value_->size() : 0; }

  void Done(const penstock_op& op, std::unique_ptr<Operation> self) override {
    ABSL_LOG_IF(INFO, verbose_logging)
        << "WriteRemote: key=" << QuoteString(key_)
        << (value_ ? " bytes=" : " deleted, bytes=") << op.bytes
        << " endpoint=" << connection().address()
        << " transport=" << connection().lane() << " " << DescribeOutcome(op);
    promise_.SetResult(Outcome(op));
  }

  const Executor& executor() const override { return driver_->executor(); }

 private:
  Connection& connection() const { return driver_->connection(); }

  Result<TimestampedStorageGeneration> Outcome(const penstock_op& op) const {
    switch (op.result) {
      case 0:
        if (op.code == PENSTOCK_STAT_KEY) break;  // it is there
        return TimestampedStorageGeneration{
            value_ ? StorageGeneration::FromUint64(op.generation)
                   : StorageGeneration::NoValue(),
            time_};
      case PENSTOCK_MISS:
        if (!StorageGeneration::IsUnknown(if_equal_) &&
            op.code == PENSTOCK_DELETE) {
          break;  // it should have been there
        }
        return TimestampedStorageGeneration{StorageGeneration::NoValue(),
                                            time_};
      case PENSTOCK_STALE:
      case PENSTOCK_EXISTS:
        break;
      default:
        return OperationError(op, value_ ? "writing" : "deleting",
                              connection().address());
    }
    return TimestampedStorageGeneration{StorageGeneration::Unknown(), time_};
  }

  const IntrusivePtr<RemoteDramDriver> driver_;
  const Key key_;
  std::optional<absl::Cord> value_;
  const StorageGeneration if_equal_;
  const Promise<TimestampedStorageGeneration> promise_;
  std::vector<iovec> chunks_;
  absl::Time time_;
};

}  // namespace

void SetValue(penstock_op& op, absl::Cord& value, std::vector<iovec>& chunks) {
  op.bytes = value.size();
  const auto add_chunks = [&] {
    chunks.clear();
    for (std::string_view chunk : value.Chunks()) {
      chunks.push_back({const_cast<char*>(chunk.data()), chunk.size()});
    }
  };
  add_chunks();
  if (chunks.size() > kChunksMax) {
    value.Flatten();
    add_chunks();
  }
  if (chunks.size() == 1) {
    op.data = chunks[0].iov_base;
  } else if (chunks.size() > 1) {
    op.iov = chunks.data();
    op.iov_count = chunks.size();
  }
}

Future<TimestampedStorageGeneration> StartWrite(RemoteDramDriver& driver,
                                                Key key,
                                                std::optional<absl::Cord> value,
                                                WriteOptions options) {
  auto [promise, future] =
      PromiseFuturePair<TimestampedStorageGeneration>::Make();
  driver.connection().Submit(
      std::make_unique<WriteOperation>(driver, std::move(key), std::move(value),
                                       std::move(options), std::move(promise)));
  return std::move(future);
}

}  // namespace internal_remote_dram
}  // namespace tensorstore
