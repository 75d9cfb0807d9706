/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENSORSTORE_KVSTORE_REMOTE_DRAM_SERVER_H_
#define TENSORSTORE_KVSTORE_REMOTE_DRAM_SERVER_H_

#include <penstock/penstock.h>
#include <stdint.h>

#include <memory>
#include <string>
#include <thread>  // NOLINT
#include <vector>

#include "tensorstore/kvstore/remote_dram/address.h"
#include "tensorstore/util/result.h"

namespace tensorstore {
namespace internal_remote_dram {

/// Settings of a node in this process; empty ones are the node's defaults.
struct ServerOptions {
  Address address;
  std::string dram;
  std::string secret_file;
  std::string fabric;

  friend bool operator==(const ServerOptions& a, const ServerOptions& b);
};

/// A node in this process, which serves until the last reference to it is gone.
class Server {
 public:
  /// The process's server on this address, started when there is none.  It is
  /// an error to open one that runs with other settings.
  static Result<std::shared_ptr<Server>> Open(const ServerOptions& options);
  ~Server();

  /// The address, where a client of this process reaches it.
  const Address& address() const { return address_; }

 private:
  Server() = default;
  std::vector<std::string> Settings();
  void StartLog();
  void Log();
  void LogEvent(const penstock_event& event);
  uint64_t KeysStored();

  ServerOptions options_;
  Address address_;
  penstock_node* node_ = nullptr;
  // Of the log of what is stored.
  penstock* log_store_ = nullptr;
  penstock_watch* watch_ = nullptr;
  int stop_fd_ = -1;
  std::thread log_thread_;
};

}  // namespace internal_remote_dram
}  // namespace tensorstore

#endif  // TENSORSTORE_KVSTORE_REMOTE_DRAM_SERVER_H_
