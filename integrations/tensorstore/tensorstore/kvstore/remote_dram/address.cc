// SPDX-License-Identifier: Apache-2.0
#include "tensorstore/kvstore/remote_dram/address.h"

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tensorstore/internal/uri/parse.h"
#include "tensorstore/util/quote_string.h"
#include "tensorstore/util/result.h"

namespace tensorstore {
namespace internal_remote_dram {
namespace {

absl::Status FormatError(std::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(
      "Server address must be in format host:port: ", QuoteString(text)));
}

}  // namespace

bool Address::is_wildcard() const {
  return !is_unix() && (host.empty() || host == "0.0.0.0" || host == "::");
}

Result<Address> ParseAddress(std::string_view text) {
  Address address;
  std::string_view path = text;
  if (absl::ConsumePrefix(&path, "unix:") && absl::StartsWith(path, "///")) {
    path.remove_prefix(2);
  }
  if (absl::StartsWith(path, "/")) {
    address.path = std::string(path);
    return address;
  }
  const auto split = internal_uri::SplitHostPort(text);
  if (!split || split->host.empty() || split->port.data() == nullptr ||
      absl::StartsWith(text, "unix:") ||
      split->host.find_first_of("/@?#& ") != std::string_view::npos) {
    return FormatError(text);
  }
  const std::string_view host = internal_uri::StripIpv6Brackets(split->host);
  const bool v6 = host.find(':') != std::string_view::npos;
  // "1:2:3" could be a host with a port or an IPv6 address without one.
  if (v6 != (host.size() != split->host.size())) return FormatError(text);
  if (!internal_uri::IsValidHttpPort(split->port)) {
    return absl::InvalidArgumentError(
        absl::StrCat("Invalid port number: ", QuoteString(split->port), " in ",
                     QuoteString(text)));
  }
  address.host = std::string(host);
  address.port = std::string(split->port);
  return address;
}

std::string FormatAddress(const Address& address) {
  return address.is_unix()
             ? address.path
             : internal_uri::FormatHostPort(address.host, address.port);
}

std::string AddressToUrl(const Address& address) {
  return absl::StrCat(address.is_unix() ? "node+unix://" : "node://",
                      FormatAddress(address));
}

}  // namespace internal_remote_dram
}  // namespace tensorstore
