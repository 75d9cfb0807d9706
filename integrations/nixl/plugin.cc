// SPDX-License-Identifier: Apache-2.0
// plugin.cc: NIXL's back end "PENSTOCK": objects of a store (OBJ_SEG) from and to memory of the host (DRAM_SEG).
// An object's key is the descriptor's metaInfo, or without one its devId, behind the prefix of all keys. A
// transfer is one batch of the store's operations. NIXL asks from any thread; one at a time uses the queue.

#include <penstock/penstock.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/backend_plugin.h"

namespace {

constexpr const char *kName = "PENSTOCK";
constexpr int kReapMax = 64;
constexpr int kTurnMs = 10;

nixl_status_t StatusOf(int result) {
  switch (result) {
    case 0: return NIXL_SUCCESS;
    case PENSTOCK_MISS: return NIXL_ERR_NOT_FOUND;
    case -EACCES: return NIXL_ERR_NOT_ALLOWED;
    case -EINVAL: return NIXL_ERR_INVALID_PARAM;
    case -ERANGE: return NIXL_ERR_MISMATCH;  // not all of the range is inside of the object
    case -ECONNRESET: return NIXL_ERR_REMOTE_DISCONNECT;
    default: return NIXL_ERR_BACKEND;
  }
}

class Object : public nixlBackendMD {
 public:
  Object(uint64_t object_id, std::shared_ptr<const std::string> name)
      : nixlBackendMD(true), id(object_id), key(std::move(name)) {}

  const uint64_t id;  // its devId
  // Its transfers', too: it may be deregistered before they end.
  const std::shared_ptr<const std::string> key;
};

// Memory that the transport knows of, if it has room for more; else it moves more slowly.
class Memory : public nixlBackendMD {
 public:
  Memory(penstock *store, void *addr, bool known)
      : nixlBackendMD(true), store_(store), addr_(addr), known_(known) {}
  ~Memory() override {
    if (known_) penstock_deregister(store_, addr_);
  }

 private:
  penstock *store_;
  void *addr_;
  bool known_;
};

class Transfer : public nixlBackendReqH {
 public:
  std::vector<penstock_op> ops;
  std::vector<std::shared_ptr<const std::string>> keys;
  size_t underway = 0;
  nixl_status_t status = NIXL_SUCCESS;  // of the first operation that failed
};

class Engine : public nixlBackendEngine {
 public:
  explicit Engine(const nixlBackendInitParams *init);
  ~Engine() override;

  bool supportsRemote() const override { return false; }
  bool supportsLocal() const override { return true; }
  bool supportsNotif() const override { return false; }
  nixl_mem_list_t getSupportedMems() const override { return {DRAM_SEG, OBJ_SEG}; }

  nixl_status_t registerMem(const nixlBlobDesc &mem, const nixl_mem_t &kind, nixlBackendMD *&out) override;
  nixl_status_t deregisterMem(nixlBackendMD *meta) override;
  nixl_status_t queryMem(const nixl_reg_dlist_t &descs, std::vector<nixl_query_resp_t> &found) const override;
  nixl_status_t loadLocalMD(nixlBackendMD *input, nixlBackendMD *&output) override {
    output = input;
    return NIXL_SUCCESS;
  }
  nixl_status_t unloadMD(nixlBackendMD *) override { return NIXL_SUCCESS; }
  nixl_status_t connect(const std::string &) override { return NIXL_SUCCESS; }
  nixl_status_t disconnect(const std::string &) override { return NIXL_SUCCESS; }

  nixl_status_t prepXfer(const nixl_xfer_op_t &operation, const nixl_meta_dlist_t &local,
                         const nixl_meta_dlist_t &remote, const std::string &remote_agent,
                         nixlBackendReqH *&handle, const nixl_opt_b_args_t *) const override;
  nixl_status_t postXfer(const nixl_xfer_op_t &, const nixl_meta_dlist_t &, const nixl_meta_dlist_t &,
                         const std::string &, nixlBackendReqH *&handle, const nixl_opt_b_args_t *) const override;
  nixl_status_t checkXfer(nixlBackendReqH *handle) const override;
  nixl_status_t releaseReqH(nixlBackendReqH *handle) const override;

 private:
  std::string Param(const char *name, const char *variable, const char *otherwise) const;
  std::string KeyOf(const nixlBlobDesc &object) const;
  int Reap(int timeout_ms) const;

  nixl_status_t RegisterObject(const nixlBlobDesc &object, nixlBackendMD *&out);

  // What a devId names. NIXL finds the object of a transfer by its devId.
  struct Named {
    std::shared_ptr<const std::string> key;
    size_t count = 0;  // of its objects
  };

  std::map<uint64_t, Named> objects_;  // the lock's
  std::string prefix_;
  penstock *store_ = nullptr;
  mutable std::mutex lock_;  // of the queue, of objects, and of what transfers know of their operations
  penstock_queue *queue_ = nullptr;
};

std::string Engine::Param(const char *name, const char *variable, const char *otherwise) const {
  auto found = getCustomParams().find(name);
  const bool given = found != getCustomParams().end();
  // An empty one is what NIXL tells of the back end's parameters, and what its callers give back.
  if (given && !(variable && found->second.empty())) return found->second;
  const char *value = variable ? getenv(variable) : nullptr;
  return value ? value : otherwise;
}

Engine::Engine(const nixlBackendInitParams *init) : nixlBackendEngine(init) {
  const std::string url = Param("url", "PENSTOCK_URL", "");
  const std::string secret_file = Param("secret_file", "PENSTOCK_SECRET_FILE", "");
  prefix_ = Param("prefix", nullptr, "nixl/");
  penstock_options options = {};
  options.size = sizeof(options);
  options.secret_file = secret_file.empty() ? nullptr : secret_file.c_str();
  if (url.empty()) {
    NIXL_ERROR << "the back end has no url, and PENSTOCK_URL is not set: where is the store?\n";
    initErr = true;
  } else if (penstock_open(url.c_str(), &options, &store_) != 0 || penstock_queue_open(store_, &queue_) != 0) {
    NIXL_ERROR << penstock_error() << "\n";
    initErr = true;
  }
}

Engine::~Engine() {
  penstock_queue_close(queue_);
  penstock_close(store_);
}

std::string Engine::KeyOf(const nixlBlobDesc &object) const {
  return prefix_ + (object.metaInfo.empty() ? std::to_string(object.devId) : object.metaInfo);
}

nixl_status_t Engine::RegisterObject(const nixlBlobDesc &object, nixlBackendMD *&out) {
  const std::lock_guard<std::mutex> locked(lock_);
  auto key = std::make_shared<const std::string>(KeyOf(object));
  Named &named = objects_.try_emplace(object.devId, Named{key}).first->second;
  if (*named.key != *key) {
    NIXL_ERROR << "devId " << object.devId << " names '" << *named.key << "', and cannot name '" << *key << "', too\n";
    return NIXL_ERR_INVALID_PARAM;
  }
  out = new Object(object.devId, named.key);
  named.count++;
  return NIXL_SUCCESS;
}

nixl_status_t Engine::registerMem(const nixlBlobDesc &mem, const nixl_mem_t &kind, nixlBackendMD *&out) {
  if (kind == OBJ_SEG) return RegisterObject(mem, out);
  if (kind != DRAM_SEG) return NIXL_ERR_NOT_SUPPORTED;
  void *addr = reinterpret_cast<void *>(mem.addr);
  const int result = penstock_register(store_, addr, mem.len);
  if (result != 0 && result != -ENOSPC) return StatusOf(result);
  out = new Memory(store_, addr, result == 0);
  return NIXL_SUCCESS;
}

nixl_status_t Engine::deregisterMem(nixlBackendMD *meta) {
  if (const auto *object = dynamic_cast<const Object *>(meta)) {
    const std::lock_guard<std::mutex> locked(lock_);
    const auto named = objects_.find(object->id);
    if (--named->second.count == 0) objects_.erase(named);
  }
  delete meta;
  return NIXL_SUCCESS;
}

nixl_status_t Engine::queryMem(const nixl_reg_dlist_t &descs, std::vector<nixl_query_resp_t> &found) const {
  std::vector<std::string> keys;
  for (const nixlBlobDesc &object : descs) keys.push_back(KeyOf(object));
  std::vector<penstock_op> ops(keys.size());
  for (size_t i = 0; i < keys.size(); i++)
    penstock_prep(&ops[i], PENSTOCK_STAT_KEY, keys[i].data(), keys[i].size());
  if (penstock_batch(store_, ops.data(), ops.size()) < 0) return NIXL_ERR_BACKEND;
  found.assign(ops.size(), std::nullopt);
  for (size_t i = 0; i < ops.size(); i++) {
    if (ops[i].result == 0) {
      found[i] = nixl_b_params_t{{"bytes", std::to_string(ops[i].value_bytes)}};
    } else if (ops[i].result != PENSTOCK_MISS) {
      return StatusOf(ops[i].result);
    }
  }
  return NIXL_SUCCESS;
}

nixl_status_t Engine::prepXfer(const nixl_xfer_op_t &operation, const nixl_meta_dlist_t &local,
                               const nixl_meta_dlist_t &remote, const std::string &remote_agent,
                               nixlBackendReqH *&handle, const nixl_opt_b_args_t *) const {
  if (local.getType() != DRAM_SEG || remote.getType() != OBJ_SEG || remote_agent != localAgent ||
      local.descCount() != remote.descCount()) {
    return NIXL_ERR_INVALID_PARAM;
  }
  auto transfer = std::make_unique<Transfer>();
  transfer->ops.resize(local.descCount());
  for (int i = 0; i < local.descCount(); i++) {
    const auto *object = dynamic_cast<const Object *>(remote[i].metadataP);
    if (!object || local[i].len != remote[i].len) return NIXL_ERR_INVALID_PARAM;
    const std::string &key = *transfer->keys.emplace_back(object->key);
    void *data = reinterpret_cast<void *>(local[i].addr);
    penstock_op &op = transfer->ops[i];
    if (operation == NIXL_READ) {
      penstock_prep_get_range(&op, key.data(), key.size(), remote[i].addr, data, local[i].len);
    } else if (remote[i].addr == 0) {
      penstock_prep_put(&op, key.data(), key.size(), data, local[i].len);
    } else {
      return NIXL_ERR_NOT_SUPPORTED;  // an object is written as a whole
    }
    op.user = transfer.get();
  }
  handle = transfer.release();
  return NIXL_SUCCESS;
}

nixl_status_t Engine::postXfer(const nixl_xfer_op_t &, const nixl_meta_dlist_t &, const nixl_meta_dlist_t &,
                               const std::string &, nixlBackendReqH *&handle, const nixl_opt_b_args_t *) const {
  auto *transfer = static_cast<Transfer *>(handle);
  const std::lock_guard<std::mutex> locked(lock_);
  if (transfer->underway > 0) return NIXL_ERR_REPOST_ACTIVE;
  transfer->status = NIXL_SUCCESS;
  const int result = penstock_submit(queue_, transfer->ops.data(), transfer->ops.size());
  if (result != 0) return StatusOf(result);
  transfer->underway = transfer->ops.size();
  return NIXL_IN_PROG;
}

// Takes note of operations that have ended, of any transfer. Return: 0, -ECHILD: after a fork there is no queue.
int Engine::Reap(int timeout_ms) const {
  penstock_op *ended[kReapMax];
  int count;
  while ((count = penstock_reap(queue_, ended, kReapMax, timeout_ms)) > 0) {
    for (int i = 0; i < count; i++) {
      auto *transfer = static_cast<Transfer *>(ended[i]->user);
      transfer->underway--;
      if (transfer->status == NIXL_SUCCESS) transfer->status = StatusOf(ended[i]->result);
    }
    timeout_ms = 0;
  }
  return count;
}

nixl_status_t Engine::checkXfer(nixlBackendReqH *handle) const {
  auto *transfer = static_cast<Transfer *>(handle);
  const std::lock_guard<std::mutex> locked(lock_);
  if (transfer->underway > 0) {
    if (const int result = Reap(0); result < 0) return StatusOf(result);
  }
  return transfer->underway > 0 ? NIXL_IN_PROG : transfer->status;
}

nixl_status_t Engine::releaseReqH(nixlBackendReqH *handle) const {
  std::unique_ptr<Transfer> transfer(static_cast<Transfer *>(handle));
  std::unique_lock<std::mutex> locked(lock_);
  while (transfer->underway > 0) {  // its memory is in use until then
    if (Reap(kTurnMs) < 0) {
      transfer.release();  // the queue, which will not be heard of again, has it
      break;
    }
    locked.unlock();  // other threads look after their transfers
    std::this_thread::yield();
    locked.lock();
  }
  return NIXL_SUCCESS;
}

}  // namespace

extern "C" NIXL_PLUGIN_EXPORT nixlBackendPlugin *nixl_plugin_init() {
  return nixlBackendPluginCreator<Engine>::create(NIXL_PLUGIN_API_VERSION, kName, "0.1.0",
                                                  {{"url", ""}, {"secret_file", ""}, {"prefix", "nixl/"}},
                                                  {DRAM_SEG, OBJ_SEG});
}

extern "C" NIXL_PLUGIN_EXPORT void nixl_plugin_fini() {}
