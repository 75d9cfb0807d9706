/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENSORSTORE_KVSTORE_REMOTE_DRAM_ADDRESS_H_
#define TENSORSTORE_KVSTORE_REMOTE_DRAM_ADDRESS_H_

#include <string>
#include <string_view>

#include "tensorstore/util/result.h"

namespace tensorstore {
namespace internal_remote_dram {

/// Where a node is: "host:port", "[v6]:port", "unix:/path" or "/path".
struct Address {
  std::string host;  // without brackets; empty for a unix socket
  std::string port;
  std::string path;  // of the unix socket

  bool is_unix() const { return !path.empty(); }
  /// An address that stands for all of a machine's: "0.0.0.0", "::", or none.
  bool is_wildcard() const;
};

/// Parses an address of a spec. The error says what is wrong with it.
Result<Address> ParseAddress(std::string_view text);

/// "host:port", "[v6]:port" or the path.
std::string FormatAddress(const Address& address);

/// The address as penstock_open() takes it, without options.
std::string AddressToUrl(const Address& address);

}  // namespace internal_remote_dram
}  // namespace tensorstore

#endif  // TENSORSTORE_KVSTORE_REMOTE_DRAM_ADDRESS_H_
