/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENSORSTORE_KVSTORE_REMOTE_DRAM_SPEC_H_
#define TENSORSTORE_KVSTORE_REMOTE_DRAM_SPEC_H_

#include <stdint.h>

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tensorstore/context.h"
#include "tensorstore/internal/cache_key/absl_time.h"     // IWYU pragma: keep
#include "tensorstore/internal/cache_key/std_optional.h"  // IWYU pragma: keep
#include "tensorstore/internal/data_copy_concurrency_resource.h"
#include "tensorstore/internal/json_binding/absl_time.h"  // IWYU pragma: keep
#include "tensorstore/internal/json_binding/json_binding.h"
#include "tensorstore/internal/json_binding/std_optional.h"  // IWYU pragma: keep
#include "tensorstore/kvstore/driver.h"
#include "tensorstore/kvstore/registry.h"
#include "tensorstore/kvstore/remote_dram/resource.h"
#include "tensorstore/kvstore/spec.h"
#include "tensorstore/serialization/absl_time.h"     // IWYU pragma: keep
#include "tensorstore/serialization/std_optional.h"  // IWYU pragma: keep
#include "tensorstore/util/future.h"
#include "tensorstore/util/garbage_collection/std_optional.h"  // IWYU pragma: keep
#include "tensorstore/util/result.h"

namespace tensorstore {
namespace internal_remote_dram {

/// Members of the JSON specification; README.md describes each.
struct RemoteDramSpecData {
  std::optional<std::string> remote_addr;
  std::optional<std::string> listen_addr;
  std::optional<std::string> secret_file;
  std::optional<std::string> fabric;
  std::optional<std::string> lane;
  std::optional<std::string> dram;
  std::optional<absl::Duration> deadline;
  std::optional<int64_t> concurrency;
  Context::Resource<RemoteDramResource> client;
  Context::Resource<internal::DataCopyConcurrencyResource>
      data_copy_concurrency;

  constexpr static auto ApplyMembers = [](auto&& x, auto f) {
    return f(x.remote_addr, x.listen_addr, x.secret_file, x.fabric, x.lane,
             x.dram, x.deadline, x.concurrency, x.client,
             x.data_copy_concurrency);
  };

  constexpr static auto default_json_binder = [](auto is_loading,
                                                 const auto& options, auto* obj,
                                                 auto* j) -> absl::Status {
    namespace jb = tensorstore::internal_json_binding;
    using Self = RemoteDramSpecData;
    return jb::Validate(
        [](const auto& options, auto* x) { return x->Validate(); },
        jb::Object(
            jb::Member("remote_addr", jb::Projection<&Self::remote_addr>()),
            jb::Member("listen_addr", jb::Projection<&Self::listen_addr>()),
            jb::Member("secret_file", jb::Projection<&Self::secret_file>()),
            jb::Member("fabric", jb::Projection<&Self::fabric>()),
            jb::Member("lane", jb::Projection<&Self::lane>()),
            jb::Member("dram", jb::Projection<&Self::dram>()),
            jb::Member("deadline", jb::Projection<&Self::deadline>()),
            jb::Member("concurrency", jb::Projection<&Self::concurrency>()),
            jb::Member(RemoteDramResource::id, jb::Projection<&Self::client>()),
            jb::Member(internal::DataCopyConcurrencyResource::id,
                       jb::Projection<&Self::data_copy_concurrency>())))(
        is_loading, options, obj, j);
  };

  /// What is wrong with the members, taken together or each by itself.
  absl::Status Validate() const;
};

class RemoteDramSpec
    : public internal_kvstore::RegisteredDriverSpec<RemoteDramSpec,
                                                    RemoteDramSpecData> {
 public:
  static constexpr char id[] = "remote_dram";

  Future<kvstore::DriverPtr> DoOpen() const override;
  Result<std::string> ToUrl(std::string_view path) const override;
};

/// Parses "remote_dram://ADDRESS/PATH".
Result<kvstore::Spec> ParseRemoteDramUrl(std::string_view url);

}  // namespace internal_remote_dram
}  // namespace tensorstore

#endif  // TENSORSTORE_KVSTORE_REMOTE_DRAM_SPEC_H_
