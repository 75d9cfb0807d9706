// SPDX-License-Identifier: Apache-2.0
// In place of ocdbt's coordinators: who asks for one is told that there is
// none.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/base/no_destructor.h"
#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "tensorstore/internal/json_binding/bindable.h"
#include "tensorstore/internal/json_binding/json_binding.h"
#include "tensorstore/kvstore/generation.h"
#include "tensorstore/kvstore/key_range.h"
#include "tensorstore/kvstore/ocdbt/btree_writer.h"
#include "tensorstore/kvstore/ocdbt/distributed/btree_writer.h"
#include "tensorstore/kvstore/ocdbt/distributed/rpc_security_registry.h"
#include "tensorstore/kvstore/operations.h"
#include "tensorstore/util/future.h"

namespace tensorstore {
namespace internal_ocdbt {
namespace {

absl::Status None() {
  return absl::UnimplementedError("This build of ocdbt has no coordinators");
}

class NoWriter : public BtreeWriter {
 public:
  Future<TimestampedStorageGeneration> Write(std::string,
                                             std::optional<absl::Cord>,
                                             kvstore::WriteOptions) override {
    return None();
  }
  Future<const void> CopySubtree(CopySubtreeOptions&&) override {
    return None();
  }
  Future<const void> DeleteRange(KeyRange) override { return None(); }
};

}  // namespace

BtreeWriterPtr MakeDistributedBtreeWriter(DistributedBtreeWriterOptions&&) {
  return internal::MakeIntrusivePtr<NoWriter>();
}

RpcSecurityMethodRegistry& GetRpcSecurityMethodRegistry() {
  static absl::NoDestructor<RpcSecurityMethodRegistry> registry;
  return *registry;
}

TENSORSTORE_DEFINE_JSON_BINDER(RpcSecurityMethodJsonBinder,
                               [](auto is_loading, const auto& options,
                                  auto* obj, ::nlohmann::json* j) {
                                 if constexpr (is_loading) {
                                   if (!j->is_discarded()) return None();
                                 } else {
                                   *j = ::nlohmann::json::value_t::discarded;
                                 }
                                 return absl::OkStatus();
                               })

}  // namespace internal_ocdbt
}  // namespace tensorstore
