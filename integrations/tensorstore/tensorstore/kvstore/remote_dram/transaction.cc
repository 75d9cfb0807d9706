// SPDX-License-Identifier: Apache-2.0
#include "tensorstore/kvstore/transaction.h"

#include <penstock/penstock.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/log/absl_log.h"
#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tensorstore/kvstore/driver.h"
#include "tensorstore/kvstore/generation.h"
#include "tensorstore/kvstore/key_range.h"
#include "tensorstore/kvstore/read_modify_write.h"
#include "tensorstore/kvstore/read_result.h"
#include "tensorstore/kvstore/remote_dram/connection.h"
#include "tensorstore/kvstore/remote_dram/operations.h"
#include "tensorstore/kvstore/remote_dram/remote_dram_kvstore.h"
#include "tensorstore/kvstore/remote_dram/status.h"
#include "tensorstore/transaction.h"
#include "tensorstore/util/quote_string.h"
#include "tensorstore/util/status.h"

namespace tensorstore {
namespace internal_remote_dram {
namespace {

using ::tensorstore::internal_kvstore::AtomicMultiPhaseMutation;
using ::tensorstore::internal_kvstore::DeleteRangeEntry;
using ::tensorstore::internal_kvstore::kReadModifyWrite;
using ::tensorstore::internal_kvstore::SinglePhaseMutation;
using ::tensorstore::kvstore::ReadResult;
using Entry = AtomicMultiPhaseMutation::BufferedReadModifyWriteEntry;

// What the keys of one commit may take together.
constexpr size_t kKeyBytesMax = 120 << 10;

bool StandsInTheWay(int result) {
  return result == PENSTOCK_STALE || result == PENSTOCK_EXISTS ||
         result == PENSTOCK_MISS;
}

// The operations of one commit, made from the entries of a phase.
class NodeCommit {
 public:
  explicit NodeCommit(Connection& connection) : connection_(connection) {}

  absl::Status AddPhase(SinglePhaseMutation& phase) {
    for (auto& entry : phase.entries_) {
      if (entry.entry_type() == kReadModifyWrite) {
        Add(static_cast<Entry&>(entry), /*deleted=*/false);
      } else {
        TENSORSTORE_RETURN_IF_ERROR(
            AddRange(static_cast<DeleteRangeEntry&>(entry)));
      }
    }
    return CheckLimits();
  }

  // A positive result stands for what is in the way; nothing was done then.
  int Run() {
    return ops_.empty()
               ? 0
               : penstock_commit(connection_.store(), ops_.data(), ops_.size());
  }

  size_t size() const { return ops_.size(); }

  // After a success: what the entry's key has become.
  void SetStamp(Entry& entry, absl::Time time) {
    auto& stamp = entry.stamp();
    stamp.time = time;
    if (!StorageGeneration::IsDirty(stamp.generation)) {
      entry.orig_generation_ = stamp.generation;
      return;
    }
    entry.orig_generation_ = std::exchange(
        stamp.generation,
        entry.value_state_ == ReadResult::kValue
            ? StorageGeneration::FromUint64(ops_[index_[&entry]].generation)
            : StorageGeneration::NoValue());
  }

 private:
  penstock_op& AddOp(penstock_code code, std::string_view key) {
    key_bytes_ += key.size();
    penstock_op& op = ops_.emplace_back();
    penstock_prep(&op, code, key.data(), key.size());
    return op;
  }

  // `deleted`: what the entry would have written is deleted by a later step of
  // the transaction, which leaves its condition.
  void Add(Entry& entry, bool deleted) {
    const StorageGeneration base =
        StorageGeneration::Clean(entry.stamp().generation);
    const bool conditional = !StorageGeneration::IsUnknown(base);
    const bool dirty = StorageGeneration::IsDirty(entry.stamp().generation);
    if (!deleted && !dirty && !conditional) return;
    penstock_code code = PENSTOCK_CHECK;
    if (deleted || (dirty && entry.value_state_ != ReadResult::kValue)) {
      // A node takes no delete of what must not be there.
      if (!StorageGeneration::IsNoValue(base)) code = PENSTOCK_DELETE;
    } else if (dirty) {
      code = PENSTOCK_PUT;
    }
    index_[&entry] = ops_.size();
    penstock_op& op = AddOp(code, entry.key_);
    if (code == PENSTOCK_PUT) {
      SetValue(op, entry.value_, chunks_.emplace_back());
    }
    if (conditional) {
      op.flags = code == PENSTOCK_CHECK ? 0 : PENSTOCK_IF_GENERATION;
      op.if_generation = ToNodeGeneration(base);
    }
  }

  // The keys that are there now, each by itself: a node's commit has no ranges.
  absl::Status AddRange(DeleteRangeEntry& entry) {
    absl::flat_hash_map<std::string_view, bool> superseded;
    for (auto& e : entry.superseded_) {
      superseded.emplace(e.key_, true);
      Add(static_cast<Entry&>(e), /*deleted=*/true);
    }
    penstock_list_options range = {};
    range.size = sizeof(range);
    range.start = entry.key_.data();
    range.start_bytes = entry.key_.size();
    range.end = entry.exclusive_max_.data();
    range.end_bytes = entry.exclusive_max_.size();
    penstock_list* list = nullptr;
    penstock_entry found;
    int r = penstock_list_open(connection_.store(), &range, &list);
    if (r == 0) {
      while (ops_.size() <= PENSTOCK_COMMIT_OPS_MAX &&
             (r = penstock_list_next(list, &found)) == 1) {
        std::string_view key(static_cast<const char*>(found.key),
                             found.key_bytes);
        if (superseded.contains(key)) continue;
        AddOp(PENSTOCK_DELETE, keys_.emplace_back(key));
      }
    }
    absl::Status status;
    if (r < 0) {
      status = CallError(r, "listing what a transaction deletes",
                         connection_.address());
    }
    penstock_list_close(list);
    return status;
  }

  absl::Status CheckLimits() const {
    if (ops_.size() <= PENSTOCK_COMMIT_OPS_MAX && key_bytes_ <= kKeyBytesMax) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "Atomic transaction over more keys than ", connection_.address(),
        " commits at once (at most ", int{PENSTOCK_COMMIT_OPS_MAX}, " keys of ",
        kKeyBytesMax,
        " bytes together); an isolated transaction that is not atomic has no "
        "such limit"));
  }

  Connection& connection_;
  std::vector<penstock_op> ops_;
  absl::flat_hash_map<const Entry*, size_t> index_;
  std::deque<std::vector<iovec>> chunks_;
  std::deque<std::string> keys_;  // that no entry has
  size_t key_bytes_ = 0;
};

class TransactionNode : public internal_kvstore::AtomicTransactionNode {
  using Base = internal_kvstore::AtomicTransactionNode;

 public:
  using Base::Base;

  // All entries have their values: the transaction becomes one commit of the
  // node's.  Conditions that do not hold any more are read again, and what was
  // made from them is made anew.
  void AllEntriesDone(SinglePhaseMutation& phase) override {
    if (phase.remaining_entries_.HasError()) {
      internal_kvstore::WritebackError(phase);
      MultiPhaseMutation::AllEntriesDone(phase);
      return;
    }
    // The transaction keeps this node until the phase is done.
    BlockingExecutor()([this, &phase] { CommitPhase(phase); });
  }

 private:
  RemoteDramDriver& remote_driver() {
    return static_cast<RemoteDramDriver&>(*this->driver());
  }

  void CommitPhase(SinglePhaseMutation& phase) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    Connection& connection = remote_driver().connection();
    const absl::Time time = absl::Now();
    NodeCommit commit(connection);
    absl::Status status = commit.AddPhase(phase);
    int r = 0;
    if (status.ok()) {
      r = commit.Run();
      ABSL_LOG_IF(INFO, verbose_logging)
          << "CommitRemote: keys=" << commit.size()
          << " endpoint=" << connection.address()
          << " transport=" << connection.lane() << " ("
          << penstock_result_text(r) << ")";
      if (r != 0 && !StandsInTheWay(r)) {
        status = CallError(r, "committing a transaction", connection.address());
      }
    }
    Finish(phase, commit, r, time, std::move(status));
  }

  void Finish(SinglePhaseMutation& phase, NodeCommit& commit, int result,
              absl::Time time, absl::Status status) {
    if (!status.ok()) {
      this->SetError(status);
      internal_kvstore::WritebackError(phase);
    } else if (result != 0) {
      this->RetryAtomicWriteback(time);
      return;
    } else {
      for (auto& entry : phase.entries_) {
        if (entry.entry_type() != kReadModifyWrite) continue;
        commit.SetStamp(static_cast<Entry&>(entry), time);
      }
      this->AtomicCommitWritebackSuccess();
    }
    MultiPhaseMutation::AllEntriesDone(phase);
  }
};

}  // namespace

absl::Status AddAtomicReadModifyWrite(RemoteDramDriver& driver,
                                      internal::OpenTransactionPtr& transaction,
                                      size_t& phase, kvstore::Key key,
                                      kvstore::ReadModifyWriteSource& source) {
  return internal_kvstore::AddReadModifyWrite<TransactionNode>(
      &driver, transaction, phase, std::move(key), source);
}

absl::Status AddAtomicDeleteRange(
    RemoteDramDriver& driver, const internal::OpenTransactionPtr& transaction,
    KeyRange range) {
  return internal_kvstore::AddDeleteRange<TransactionNode>(&driver, transaction,
                                                           std::move(range));
}

}  // namespace internal_remote_dram
}  // namespace tensorstore
