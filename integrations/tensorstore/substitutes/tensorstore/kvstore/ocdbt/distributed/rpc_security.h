/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENSORSTORE_KVSTORE_OCDBT_DISTRIBUTED_RPC_SECURITY_H_
#define TENSORSTORE_KVSTORE_OCDBT_DISTRIBUTED_RPC_SECURITY_H_

#include <string>

#include "tensorstore/internal/cache_key/fwd.h"
#include "tensorstore/internal/intrusive_ptr.h"

// ocdbt for one writing process at a time: its coordinators talk gRPC.

namespace tensorstore {
namespace internal_ocdbt {

class RpcSecurityMethod
    : public internal::AtomicReferenceCount<RpcSecurityMethod> {
 public:
  using Ptr = internal::IntrusivePtr<const RpcSecurityMethod>;
  virtual void EncodeCacheKey(std::string* out) const = 0;
  virtual ~RpcSecurityMethod() = default;
};

inline RpcSecurityMethod::Ptr GetInsecureRpcSecurityMethod() { return {}; }

}  // namespace internal_ocdbt
namespace internal {
template <>
struct CacheKeyEncoder<internal_ocdbt::RpcSecurityMethod::Ptr> {
  static void Encode(std::string* out,
                     const internal_ocdbt::RpcSecurityMethod::Ptr& value) {
    *out += '\1';
  }
};
}  // namespace internal
}  // namespace tensorstore

#endif  // TENSORSTORE_KVSTORE_OCDBT_DISTRIBUTED_RPC_SECURITY_H_
