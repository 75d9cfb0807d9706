// SPDX-License-Identifier: Apache-2.0
#include "tensorstore/kvstore/remote_dram/server.h"

#include <penstock/penstock.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>  // NOLINT
#include <tuple>
#include <vector>

#include "absl/base/attributes.h"
#include "absl/base/const_init.h"
#include "absl/log/absl_log.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "tensorstore/kvstore/remote_dram/address.h"
#include "tensorstore/kvstore/remote_dram/operations.h"
#include "tensorstore/kvstore/remote_dram/status.h"
#include "tensorstore/util/quote_string.h"
#include "tensorstore/util/result.h"
#include "tensorstore/util/status.h"

namespace tensorstore {
namespace internal_remote_dram {
namespace {

// One process has one server on an address, whatever contexts ask for it.
ABSL_CONST_INIT absl::Mutex servers_mutex(absl::kConstInit);

struct Slot {
  std::weak_ptr<Server> server;
  // Longer than it has references: until the address is free again.
  bool running = false;
  bool closing() const { return running && server.expired(); }
};

std::map<std::string, Slot>& Slots() {
  static auto* slots = new std::map<std::string, Slot>;
  return *slots;
}

void LogNodeLine(void* context, const char* line) {
  ABSL_LOG_IF(INFO, verbose_logging) << "remote_dram server: " << line;
}

// Without a trusted fabric a node serves its own machine alone.
Address OnThisMachine(const Address& wildcard) {
  Address address = wildcard;
  address.host = wildcard.host == "::" ? "::1" : "127.0.0.1";
  return address;
}

}  // namespace

bool operator==(const ServerOptions& a, const ServerOptions& b) {
  return std::make_tuple(FormatAddress(a.address), a.dram, a.secret_file,
                         a.fabric) == std::make_tuple(FormatAddress(b.address),
                                                      b.dram, b.secret_file,
                                                      b.fabric);
}

std::vector<std::string> Server::Settings() {
  const ServerOptions& o = options_;
  Address listen = o.address;
  if (listen.is_wildcard() && o.fabric.empty()) {
    listen = OnThisMachine(listen);
    ABSL_LOG(WARNING)
        << "remote_dram: no \"fabric\" is named, so that "
        << FormatAddress(o.address) << " serves this machine alone, on "
        << FormatAddress(listen)
        << "; \"fabric\": \"trusted\" and a \"secret_file\" serve others";
  }
  address_ = listen.is_wildcard() ? OnThisMachine(listen) : listen;
  std::vector<std::string> settings;
  settings.push_back(absl::StrCat(listen.is_unix() ? "unix=" : "listen=",
                                  FormatAddress(listen)));
  if (!o.dram.empty()) settings.push_back(absl::StrCat("dram=", o.dram));
  if (!o.secret_file.empty()) {
    settings.push_back(absl::StrCat("secret_file=", o.secret_file));
  }
  if (!o.fabric.empty()) settings.push_back(absl::StrCat("fabric=", o.fabric));
  return settings;
}

Result<std::shared_ptr<Server>> Server::Open(const ServerOptions& options) {
  const std::string name = FormatAddress(options.address);
  absl::MutexLock lock(servers_mutex);
  Slot& slot = Slots()[name];
  servers_mutex.Await(absl::Condition(
      +[](Slot* slot) { return !slot->closing(); }, &slot));
  if (auto server = slot.server.lock()) {
    if (server->options_ == options) return server;
    return absl::FailedPreconditionError(absl::StrCat(
        "This process serves ", name, " already, with other settings"));
  }
  std::shared_ptr<Server> server(new Server);
  server->options_ = options;
  const std::vector<std::string> settings = server->Settings();
  std::vector<const char*> pairs;
  for (const std::string& setting : settings) pairs.push_back(setting.c_str());
  pairs.push_back(nullptr);
  penstock_node_options node_options = {};
  node_options.size = sizeof(node_options);
  node_options.settings = pairs.data();
  node_options.log = LogNodeLine;
  if (int r = penstock_node_open(&node_options, &server->node_); r != 0) {
    return CallError(r, "starting a server", name);
  }
  ABSL_LOG_IF(INFO, verbose_logging)
      << "remote_dram server: started on " << FormatAddress(server->address_);
  if (verbose_logging) server->StartLog();
  slot.server = server;
  slot.running = true;
  return server;
}

Server::~Server() {
  if (log_thread_.joinable()) {
    eventfd_write(stop_fd_, 1);
    log_thread_.join();
  }
  penstock_watch_close(watch_);
  penstock_close(log_store_);
  if (stop_fd_ >= 0) close(stop_fd_);
  if (!node_) return;
  penstock_node_close(node_);
  ABSL_LOG_IF(INFO, verbose_logging)
      << "remote_dram server: stopped on " << FormatAddress(address_);
  absl::MutexLock lock(servers_mutex);
  Slots()[FormatAddress(options_.address)].running = false;
}

// ---- the log of what is stored ----

void Server::StartLog() {
  penstock_options options = {};
  options.size = sizeof(options);
  options.secret_file =
      options_.secret_file.empty() ? nullptr : options_.secret_file.c_str();
  std::string url = AddressToUrl(address_);
  if (!options_.fabric.empty())
    absl::StrAppend(&url, "?fabric=", options_.fabric);
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  if (stop_fd_ < 0 || penstock_open(url.c_str(), &options, &log_store_) != 0 ||
      penstock_watch_open(log_store_, nullptr, 0, &watch_) != 0) {
    ABSL_LOG(WARNING) << "remote_dram server: does not log what it stores: "
                      << penstock_error();
    return;
  }
  log_thread_ = std::thread([this] { Log(); });
}

// Asked of the shards: the node's own count follows a moment later.
uint64_t Server::KeysStored() {
  struct penstock_stat stat = {};
  stat.size = sizeof(stat);
  return penstock_stat(log_store_, &stat) == 0 ? stat.keys
                                               : penstock_node_keys(node_);
}

void Server::LogEvent(const penstock_event& event) {
  if (event.what == PENSTOCK_EVENT_RESET) return;
  if (event.what == PENSTOCK_EVENT_MISSED) {
    ABSL_LOG(INFO) << "Server: " << event.missed
                   << " changes came too fast to be logged, " << KeysStored()
                   << " keys stored";
    return;
  }
  const char* did = event.what == PENSTOCK_EVENT_PUT ? "stored" : "dropped";
  std::string_view key(static_cast<const char*>(event.key), event.key_bytes);
  ABSL_LOG(INFO) << "Server " << did
                 << " key-value pair: key=" << QuoteString(key)
                 << " bytes=" << event.value_bytes << ", " << KeysStored()
                 << " keys stored";
}

void Server::Log() {
  pollfd fds[2] = {{penstock_watch_fd(watch_), POLLIN, 0},
                   {stop_fd_, POLLIN, 0}};
  do {
    penstock_event event;
    while (penstock_watch_next(watch_, 0, &event) > 0) LogEvent(event);
    poll(fds, 2, -1);
  } while (!fds[1].revents);
}

}  // namespace internal_remote_dram
}  // namespace tensorstore
