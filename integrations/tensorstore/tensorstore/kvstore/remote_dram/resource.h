/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENSORSTORE_KVSTORE_REMOTE_DRAM_RESOURCE_H_
#define TENSORSTORE_KVSTORE_REMOTE_DRAM_RESOURCE_H_

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "tensorstore/context.h"
#include "tensorstore/context_resource_provider.h"
#include "tensorstore/internal/cache_key/std_optional.h"  // IWYU pragma: keep
#include "tensorstore/internal/json_binding/json_binding.h"
#include "tensorstore/internal/json_binding/std_optional.h"
#include "tensorstore/kvstore/remote_dram/connection.h"
#include "tensorstore/util/result.h"

namespace tensorstore {
namespace internal_remote_dram {

/// The open connections of a context.  A connection is closed with the last
/// driver that uses it.
class ConnectionPool {
 public:
  /// Waits for a connection to be made where there is none.
  Result<std::shared_ptr<Connection>> Get(const ConnectionOptions& options,
                                          const std::string& address);

 private:
  // Held while one connects, so that the others get the same one.
  struct Entry {
    absl::Mutex mutex;
    std::weak_ptr<Connection> connection ABSL_GUARDED_BY(mutex);
  };

  absl::Mutex mutex_;
  std::map<ConnectionOptions, std::shared_ptr<Entry>> entries_
      ABSL_GUARDED_BY(mutex_);
};

/// What specs of one context share: their connections, and the secret and the
/// fabric where a spec does not name its own.
struct RemoteDramResource
    : public internal::ContextResourceTraits<RemoteDramResource> {
  static constexpr char id[] = "remote_dram_client";

  struct Spec {
    std::optional<std::string> secret_file;
    std::optional<std::string> fabric;
    constexpr static auto ApplyMembers = [](auto&& x, auto f) {
      return f(x.secret_file, x.fabric);
    };
  };
  struct Resource {
    Spec spec;
    std::shared_ptr<ConnectionPool> pool;
  };

  static Spec Default() { return {}; }
  static constexpr auto JsonBinder() {
    namespace jb = tensorstore::internal_json_binding;
    return jb::Object(
        jb::Member("secret_file", jb::Projection<&Spec::secret_file>()),
        jb::Member("fabric", jb::Projection<&Spec::fabric>()));
  }
  static Result<Resource> Create(
      const Spec& spec, internal::ContextResourceCreationContext context) {
    return Resource{spec, std::make_shared<ConnectionPool>()};
  }
  static Spec GetSpec(const Resource& resource,
                      const internal::ContextSpecBuilder& builder) {
    return resource.spec;
  }
};

}  // namespace internal_remote_dram
}  // namespace tensorstore

#endif  // TENSORSTORE_KVSTORE_REMOTE_DRAM_RESOURCE_H_
