/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENSORSTORE_KVSTORE_REMOTE_DRAM_REMOTE_DRAM_KVSTORE_H_
#define TENSORSTORE_KVSTORE_REMOTE_DRAM_REMOTE_DRAM_KVSTORE_H_

/// \file
/// The `remote_dram` key-value store driver: values in the memory of a penstock
/// node, over UCX.

#include <stddef.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "tensorstore/kvstore/driver.h"
#include "tensorstore/kvstore/generation.h"
#include "tensorstore/kvstore/key_range.h"
#include "tensorstore/kvstore/operations.h"
#include "tensorstore/kvstore/read_modify_write.h"
#include "tensorstore/kvstore/read_result.h"
#include "tensorstore/kvstore/registry.h"
#include "tensorstore/kvstore/remote_dram/connection.h"
#include "tensorstore/kvstore/remote_dram/server.h"
#include "tensorstore/kvstore/remote_dram/spec.h"
#include "tensorstore/kvstore/spec.h"
#include "tensorstore/kvstore/supported_features.h"
#include "tensorstore/transaction.h"
#include "tensorstore/util/executor.h"
#include "tensorstore/util/future.h"
#include "tensorstore/util/garbage_collection/fwd.h"
#include "tensorstore/util/result.h"

namespace tensorstore {
namespace internal_remote_dram {

class RemoteDramDriver
    : public internal_kvstore::RegisteredDriver<RemoteDramDriver,
                                                RemoteDramSpec> {
 public:
  Future<ReadResult> Read(Key key, ReadOptions options) override;

  Future<TimestampedStorageGeneration> Write(Key key,
                                             std::optional<Value> value,
                                             WriteOptions options) override;

  Future<const void> DeleteRange(KeyRange range) override;

  void ListImpl(ListOptions options, ListReceiver receiver) override;

  /// Transactions that are not atomic write key by key, as many as there are;
  /// atomic ones are one commit of the node's.
  absl::Status ReadModifyWrite(internal::OpenTransactionPtr& transaction,
                               size_t& phase, Key key,
                               ReadModifyWriteSource& source) override;
  absl::Status TransactionalDeleteRange(
      const internal::OpenTransactionPtr& transaction, KeyRange range) override;

  std::string DescribeKey(std::string_view key) override;

  kvstore::SupportedFeatures GetSupportedFeatures(
      const KeyRange& range) const override {
    return kvstore::SupportedFeatures::kSingleKeyAtomicReadModifyWrite |
           kvstore::SupportedFeatures::kAtomicWriteWithoutOverwrite;
  }

  absl::Status GetBoundSpecData(RemoteDramSpecData& spec) const {
    spec = spec_;
    return absl::OkStatus();
  }

  Connection& connection() const { return *connection_; }
  const Executor& executor() const {
    return spec_.data_copy_concurrency->executor;
  }
  /// The size that the next value of unknown size may have.
  size_t GuessSize() const {
    return size_guess_.load(std::memory_order_relaxed);
  }
  void LearnSize(size_t bytes);

 private:
  friend class RemoteDramSpec;

  RemoteDramSpecData spec_;
  // Declared first: the node outlives the connection to it.
  std::shared_ptr<Server> server_;
  std::shared_ptr<Connection> connection_;
  std::atomic<size_t> size_guess_{4096};
};

}  // namespace internal_remote_dram
}  // namespace tensorstore

TENSORSTORE_DECLARE_GARBAGE_COLLECTION_NOT_REQUIRED(
    tensorstore::internal_remote_dram::RemoteDramDriver)

#endif  // TENSORSTORE_KVSTORE_REMOTE_DRAM_REMOTE_DRAM_KVSTORE_H_
