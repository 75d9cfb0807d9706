// SPDX-License-Identifier: Apache-2.0
#include "tensorstore/kvstore/remote_dram/spec.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tensorstore/context.h"
#include "tensorstore/internal/data_copy_concurrency_resource.h"
#include "tensorstore/internal/intrusive_ptr.h"
#include "tensorstore/internal/uri/parse.h"
#include "tensorstore/internal/uri/percent_coder.h"
#include "tensorstore/kvstore/driver.h"
#include "tensorstore/kvstore/remote_dram/address.h"
#include "tensorstore/kvstore/remote_dram/connection.h"
#include "tensorstore/kvstore/remote_dram/remote_dram_kvstore.h"
#include "tensorstore/kvstore/remote_dram/resource.h"
#include "tensorstore/kvstore/remote_dram/server.h"
#include "tensorstore/kvstore/spec.h"
#include "tensorstore/util/future.h"
#include "tensorstore/util/quote_string.h"
#include "tensorstore/util/result.h"
#include "tensorstore/util/status.h"

namespace tensorstore {
namespace internal_remote_dram {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(10);
constexpr absl::Duration kDeadlineMax = absl::Hours(24);
constexpr int64_t kConcurrency = 1024;
constexpr int64_t kConcurrencyMax = 1 << 20;

absl::Status CheckWord(std::string_view member,
                       const std::optional<std::string>& value,
                       std::string_view only) {
  if (!value || *value == only) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(QuoteString(member), " is ", QuoteString(*value),
                   ", which is not ", QuoteString(only)));
}

std::string FirstSet(const std::optional<std::string>& a,
                     const std::optional<std::string>& b) {
  return a ? *a : b.value_or("");
}

// All that a driver stands on; made on a thread that may wait.
struct Opened {
  std::shared_ptr<Server> server;
  std::shared_ptr<Connection> connection;
};

Result<Opened> OpenAll(const RemoteDramSpecData& spec) {
  const auto& shared = spec.client->spec;
  const std::string secret_file =
      FirstSet(spec.secret_file, shared.secret_file);
  const std::string fabric = FirstSet(spec.fabric, shared.fabric);
  TENSORSTORE_RETURN_IF_ERROR(CheckWord("fabric", shared.fabric, "trusted"));
  Opened opened;
  TENSORSTORE_ASSIGN_OR_RETURN(
      Address address,
      ParseAddress(spec.listen_addr ? *spec.listen_addr : *spec.remote_addr));
  if (spec.listen_addr) {
    ServerOptions options;
    options.address = address;
    options.dram = spec.dram.value_or("");
    options.secret_file = secret_file;
    options.fabric = fabric;
    TENSORSTORE_ASSIGN_OR_RETURN(opened.server, Server::Open(options));
    address = opened.server->address();
  }
  ConnectionOptions options;
  options.url = AddressToUrl(address);
  std::string_view separator = "?";
  for (const auto& [name, value] :
       {std::pair{"fabric", fabric},
        std::pair{"lane", spec.lane.value_or("")}}) {
    if (value.empty()) continue;
    absl::StrAppend(&options.url, std::exchange(separator, "&"), name, "=",
                    value);
  }
  options.secret_file = secret_file;
  options.deadline = spec.deadline.value_or(kDeadline);
  options.concurrency = spec.concurrency.value_or(kConcurrency);
  TENSORSTORE_ASSIGN_OR_RETURN(
      opened.connection,
      spec.client->pool->Get(options, FormatAddress(address)));
  return opened;
}

}  // namespace

absl::Status RemoteDramSpecData::Validate() const {
  if (remote_addr && listen_addr) {
    return absl::InvalidArgumentError(
        "\"remote_addr\" and \"listen_addr\" exclude each other: a "
        "\"remote_dram\" store is either a client or the server");
  }
  if (!remote_addr && !listen_addr) {
    return absl::InvalidArgumentError(
        "\"remote_dram\" needs \"remote_addr\", the server to use, or "
        "\"listen_addr\", to be the server");
  }
  if (dram && !listen_addr) {
    return absl::InvalidArgumentError(
        "\"dram\" is the memory of a server and needs \"listen_addr\"");
  }
  TENSORSTORE_RETURN_IF_ERROR(
      ParseAddress(listen_addr ? *listen_addr : *remote_addr));
  TENSORSTORE_RETURN_IF_ERROR(CheckWord("fabric", fabric, "trusted"));
  TENSORSTORE_RETURN_IF_ERROR(CheckWord("lane", lane, "tcp"));
  if (deadline &&
      (*deadline < absl::Milliseconds(1) || *deadline > kDeadlineMax)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"deadline\" is ", absl::FormatDuration(*deadline),
        ", which is not between 1ms and ", absl::FormatDuration(kDeadlineMax)));
  }
  if (concurrency && (*concurrency < 1 || *concurrency > kConcurrencyMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"concurrency\" is ", *concurrency,
                     ", which is not between 1 and ", kConcurrencyMax));
  }
  return absl::OkStatus();
}

Future<kvstore::DriverPtr> RemoteDramSpec::DoOpen() const {
  return MapFuture(
      BlockingExecutor(),
      [data = data_](const Result<void>&) -> Result<kvstore::DriverPtr> {
        TENSORSTORE_ASSIGN_OR_RETURN(Opened opened, OpenAll(data));
        auto driver = internal::MakeIntrusivePtr<RemoteDramDriver>();
        driver->spec_ = data;
        driver->server_ = std::move(opened.server);
        driver->connection_ = std::move(opened.connection);
        return kvstore::DriverPtr(std::move(driver));
      },
      MakeReadyFuture());
}

Result<std::string> RemoteDramSpec::ToUrl(std::string_view path) const {
  if (!data_.remote_addr) {
    return absl::InvalidArgumentError(
        "\"remote_dram\" with \"listen_addr\" has no URL");
  }
  if (data_.secret_file || data_.fabric || data_.lane || data_.deadline ||
      data_.concurrency) {
    return absl::InvalidArgumentError(
        "\"remote_dram\" with members other than \"remote_addr\" and \"path\" "
        "has no URL");
  }
  std::string authority = *data_.remote_addr;
  // What a host and a port do not have: the slashes of a unix socket's path.
  if (authority.find('/') != std::string::npos) {
    authority =
        internal_uri::PercentEncode(authority, internal_uri::kUnreserved);
  }
  return absl::StrCat(id, "://", authority, "/",
                      internal_uri::PercentEncodeKvStoreUriPath(path));
}

Result<kvstore::Spec> ParseRemoteDramUrl(std::string_view url) {
  const auto parsed = internal_uri::ParseGenericUri(url);
  TENSORSTORE_RETURN_IF_ERROR(internal_uri::EnsureSchemaWithAuthorityDelimiter(
      parsed, RemoteDramSpec::id));
  TENSORSTORE_RETURN_IF_ERROR(internal_uri::EnsureNoQueryOrFragment(parsed));
  auto spec = internal::MakeIntrusivePtr<RemoteDramSpec>();
  TENSORSTORE_ASSIGN_OR_RETURN(spec->data_.remote_addr,
                               internal_uri::PercentDecode(parsed.authority));
  TENSORSTORE_RETURN_IF_ERROR(spec->data_.Validate());
  spec->data_.client = Context::Resource<RemoteDramResource>::DefaultSpec();
  spec->data_.data_copy_concurrency =
      Context::Resource<internal::DataCopyConcurrencyResource>::DefaultSpec();
  std::string path;
  if (!parsed.path.empty()) {
    TENSORSTORE_ASSIGN_OR_RETURN(
        path, internal_uri::PercentDecode(parsed.path.substr(1)));
  }
  return {std::in_place, std::move(spec), std::move(path)};
}

}  // namespace internal_remote_dram
}  // namespace tensorstore
