// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <penstock/penstock.h>
#include <stddef.h>
#include <stdint.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/log/absl_log.h"
#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tensorstore/internal/intrusive_ptr.h"
#include "tensorstore/kvstore/byte_range.h"
#include "tensorstore/kvstore/generation.h"
#include "tensorstore/kvstore/operations.h"
#include "tensorstore/kvstore/read_result.h"
#include "tensorstore/kvstore/remote_dram/buffers.h"
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
using ::tensorstore::kvstore::ReadOptions;
using ::tensorstore::kvstore::ReadResult;

// How often a value may change between two steps of one read.
constexpr int kStepsMax = 100;

// A read is one get where the get says it all.  Otherwise, for a range that
// reaches from somewhere to an end that is not known, it first asks for size
// and generation, and then gets a range of just this generation.
class ReadOperation : public Operation {
 public:
  ReadOperation(RemoteDramDriver& driver, Key key, ReadOptions options,
                Promise<ReadResult> promise)
      : driver_(&driver),
        key_(std::move(key)),
        options_(std::move(options)),
        promise_(std::move(promise)) {
    const OptionalByteRangeRequest& range = options_.byte_range;
    const bool whole_or_tail = range.IsFull() || range.IsSuffixLength();
    step_ = whole_or_tail || (range.IsRange() && range.size() > 0)
                ? Step::kGet
                : Step::kLook;
    room_ = range.IsFull() ? driver.GuessSize() : 0;
  }

  bool Prepare(penstock_op& op) override {
    if (!promise_.result_needed()) return false;
    time_ = absl::Now();
    if (step_ == Step::kLook) {
      penstock_prep(&op, PENSTOCK_STAT_KEY, key_.data(), key_.size());
      return true;
    }
    if (step_ == Step::kGet) {
      PrepareGet(op);
    } else {
      PrepareRange(op, range_.inclusive_min, range_.size());
      op.flags |= PENSTOCK_IF_GENERATION;
      op.if_generation = generation_;
    }
    return true;
  }

  uint64_t bytes() const override {
    if (step_ == Step::kLook) return 0;
    if (step_ == Step::kRange) return range_.size();
    return options_.byte_range.IsFull() ? room_ : options_.byte_range.size();
  }

  void Done(const penstock_op& op, std::unique_ptr<Operation> self) override {
    ABSL_LOG_IF(INFO, verbose_logging)
        << "ReadRemote: key=" << QuoteString(key_)
        << " bytes=" << op.value_bytes << " endpoint=" << connection().address()
        << " transport=" << connection().lane()
        << " found=" << (op.result == 0 ? "yes" : "no") << " "
        << DescribeOutcome(op);
    if (Again(op)) {
      if (++steps_ < kStepsMax) return connection().Submit(std::move(self));
      promise_.SetResult(absl::AbortedError(
          absl::StrFormat("Error reading %v at %s: the value changes too often",
                          QuoteString(key_), connection().address())));
      return;
    }
    promise_.SetResult(Outcome(op));
  }

  const Executor& executor() const override { return driver_->executor(); }

 private:
  enum class Step {
    kGet,   // all at once
    kLook,  // size and generation
    kRange  // of the generation that was there
  };

  Connection& connection() const { return driver_->connection(); }

  void PrepareBuffer(penstock_op& op, size_t bytes) {
    if (bytes > 0 && buffer_.capacity() < bytes) {
      buffer_ = connection().buffers().Take(bytes);
    }
    penstock_prep_get(&op, key_.data(), key_.size(), buffer_.data(), bytes);
  }

  void PrepareRange(penstock_op& op, int64_t offset, int64_t bytes) {
    PrepareBuffer(op, bytes);
    op.flags |= PENSTOCK_RANGE;
    op.offset = offset;
  }

  void PrepareGet(penstock_op& op) {
    const OptionalByteRangeRequest& range = options_.byte_range;
    if (range.IsFull()) {
      PrepareBuffer(op, room_);
      op.bytes = buffer_.capacity();
    } else if (range.IsSuffixLength()) {
      PrepareRange(op, range.size(), range.size());
      op.flags |= PENSTOCK_FROM_END;
    } else {
      PrepareRange(op, range.inclusive_min, range.size());
    }
    // No value is both of a generation and not of another: one condition
    // suffices.
    const auto& conditions = options_.generation_conditions;
    if (!StorageGeneration::IsUnknown(conditions.if_equal)) {
      op.flags |= PENSTOCK_IF_GENERATION;
      op.if_generation = ToNodeGeneration(conditions.if_equal);
    } else if (!StorageGeneration::IsUnknown(conditions.if_not_equal)) {
      op.flags |= PENSTOCK_UNLESS_GENERATION;
      op.if_generation = ToNodeGeneration(conditions.if_not_equal);
    }
  }

  // Whether there is another step.
  bool Again(const penstock_op& op) {
    if (step_ == Step::kGet && op.result == -ENOBUFS) {
      room_ = op.value_bytes;
      return true;
    }
    if (step_ == Step::kRange && op.result == PENSTOCK_STALE) {
      step_ = Step::kLook;
      return true;
    }
    return step_ == Step::kLook && op.result == 0 && LookedGood(op);
  }

  // After a look: whether there are bytes to get.
  bool LookedGood(const penstock_op& op) {
    if (!options_.generation_conditions.Matches(
            StorageGeneration::FromUint64(op.generation))) {
      return false;
    }
    auto range = options_.byte_range.Validate(op.value_bytes);
    if (!range.ok() || range->size() == 0) return false;
    range_ = *range;
    generation_ = op.generation;
    step_ = Step::kRange;
    return true;
  }

  Result<ReadResult> Outcome(const penstock_op& op) {
    TimestampedStorageGeneration stamp{
        StorageGeneration::FromUint64(op.generation), time_};
    switch (op.result) {
      case 0:
        break;
      case PENSTOCK_MISS:
        return ReadResult::Missing(time_);
      case PENSTOCK_STALE:
      case PENSTOCK_EXISTS:
        return ReadResult::Unspecified(std::move(stamp));
      case -ERANGE:
        return RangeError(op);
      default:
        return OperationError(op, "reading", connection().address());
    }
    if (!options_.generation_conditions.Matches(stamp.generation)) {
      return ReadResult::Unspecified(std::move(stamp));
    }
    if (step_ == Step::kLook) {  // there was nothing to get
      if (!options_.byte_range.Validate(op.value_bytes).ok()) {
        return RangeError(op);
      }
      return ReadResult::Value({}, std::move(stamp));
    }
    const bool whole = !(op.flags & PENSTOCK_RANGE);
    if (whole) driver_->LearnSize(op.value_bytes);
    return ReadResult::Value(
        ToCord(std::move(buffer_), whole ? op.value_bytes : op.bytes),
        std::move(stamp));
  }

  absl::Status RangeError(const penstock_op& op) const {
    return absl::OutOfRangeError(absl::StrFormat(
        "Error reading %v at %s: Requested byte range %v is not valid for "
        "value of size %d",
        QuoteString(key_), connection().address(), options_.byte_range,
        op.value_bytes));
  }

  const IntrusivePtr<RemoteDramDriver> driver_;
  const Key key_;
  const ReadOptions options_;
  const Promise<ReadResult> promise_;
  Step step_;
  int steps_ = 0;
  size_t room_;  // for a value of unknown size
  Buffer buffer_;
  absl::Time time_;
  ByteRange range_;          // found by a look
  uint64_t generation_ = 0;  // found by a look
};

}  // namespace

Future<ReadResult> StartRead(RemoteDramDriver& driver, Key key,
                             ReadOptions options) {
  auto [promise, future] = PromiseFuturePair<ReadResult>::Make();
  driver.connection().Submit(std::make_unique<ReadOperation>(
      driver, std::move(key), std::move(options), std::move(promise)));
  return std::move(future);
}

}  // namespace internal_remote_dram
}  // namespace tensorstore
