// SPDX-License-Identifier: Apache-2.0
#include "tensorstore/kvstore/registry.h"

#include "tensorstore/context_resource_provider.h"
#include "tensorstore/kvstore/remote_dram/remote_dram_kvstore.h"
#include "tensorstore/kvstore/remote_dram/resource.h"
#include "tensorstore/kvstore/remote_dram/spec.h"
#include "tensorstore/kvstore/url_registry.h"

namespace {

using ::tensorstore::internal_remote_dram::ParseRemoteDramUrl;
using ::tensorstore::internal_remote_dram::RemoteDramResource;
using ::tensorstore::internal_remote_dram::RemoteDramSpec;

const tensorstore::internal::ContextResourceRegistration<RemoteDramResource>
    resource_registration;

const tensorstore::internal_kvstore::DriverRegistration<RemoteDramSpec>
    registration;

const tensorstore::internal_kvstore::UrlSchemeRegistration url_registration{
    RemoteDramSpec::id, ParseRemoteDramUrl};

}  // namespace
