// SPDX-License-Identifier: Apache-2.0
#include "tensorstore/kvstore/remote_dram/resource.h"

#include <memory>
#include <string>

#include "absl/synchronization/mutex.h"
#include "tensorstore/kvstore/remote_dram/connection.h"
#include "tensorstore/util/result.h"
#include "tensorstore/util/status.h"

namespace tensorstore {
namespace internal_remote_dram {

Result<std::shared_ptr<Connection>> ConnectionPool::Get(
    const ConnectionOptions& options, const std::string& address) {
  std::shared_ptr<Entry> entry;
  {
    absl::MutexLock lock(mutex_);
    auto& slot = entries_[options];
    if (!slot) slot = std::make_shared<Entry>();
    entry = slot;
  }
  absl::MutexLock lock(entry->mutex);
  auto connection = entry->connection.lock();
  if (!connection) {
    TENSORSTORE_ASSIGN_OR_RETURN(connection,
                                 Connection::Open(options, address));
    entry->connection = connection;
  }
  return connection;
}

}  // namespace internal_remote_dram
}  // namespace tensorstore
