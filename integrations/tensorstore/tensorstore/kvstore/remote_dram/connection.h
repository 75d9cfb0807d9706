/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENSORSTORE_KVSTORE_REMOTE_DRAM_CONNECTION_H_
#define TENSORSTORE_KVSTORE_REMOTE_DRAM_CONNECTION_H_

/// \file
/// A connection to one node: a handle of libpenstock, a queue of operations and
/// the one thread that sends and reaps them.  What comes while a message of
/// small operations is underway goes out together behind it, as one message.

#include <penstock/penstock.h>
#include <stddef.h>
#include <stdint.h>

#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tensorstore/kvstore/remote_dram/buffers.h"
#include "tensorstore/util/executor.h"
#include "tensorstore/util/result.h"

namespace tensorstore {
namespace internal_remote_dram {

/// What distinguishes one connection from another.
struct ConnectionOptions {
  std::string url;  // as penstock_open() takes it
  std::string secret_file;
  absl::Duration deadline;
  size_t concurrency;  // operations underway at once; others wait their turn

  friend bool operator<(const ConnectionOptions& a, const ConnectionOptions& b);
};

/// One request on its way.  It is owned by the connection until `Done`.
class Operation {
 public:
  virtual ~Operation() = default;
  /// Fills in `op`, which is zeroed; what it points to stays valid until
  /// `Done`. Runs on the connection's thread right before the operation is
  /// sent. Returns false when nobody wants the outcome any more; then it is not
  /// sent.
  virtual bool Prepare(penstock_op& op) = 0;
  /// How many bytes of a value it moves, as far as that is known before.
  virtual uint64_t bytes() const = 0;
  /// Takes the outcome.  Runs on `executor`.
  virtual void Done(const penstock_op& op, std::unique_ptr<Operation> self) = 0;
  /// Where `Done` runs, and where an operation that was not sent is destroyed.
  virtual const Executor& executor() const = 0;
};

class Connection {
 public:
  /// Connects; takes as long as that takes.
  static Result<std::shared_ptr<Connection>> Open(
      const ConnectionOptions& options, const std::string& address);
  /// Not on the thread of an `Operation::Prepare`.
  ~Connection();

  void Submit(std::unique_ptr<Operation> operation);

  /// For calls that wait for their outcome: listings, commits.
  penstock* store() const { return store_; }
  const std::string& address() const { return address_; }
  const std::string& lane() const { return lane_; }
  BufferPool& buffers() const { return *buffers_; }

 private:
  struct Batch;
  struct Ended;

  explicit Connection(const std::string& address) : address_(address) {}
  absl::Status Start(const ConnectionOptions& options);
  void Run();
  bool TakePending(std::vector<std::unique_ptr<Operation>>& operations);
  size_t SendAt() const;
  void Forget(const Batch& batch, size_t index);
  bool MaySend();
  void Send(std::vector<std::unique_ptr<Operation>>& operations);
  bool Reap(int timeout_ms);
  void Dispatch(std::vector<Ended>& ended);
  void Sleep();

  const std::string address_;
  std::string lane_;
  size_t concurrency_ = 0;
  penstock* store_ = nullptr;
  penstock_queue* queue_ = nullptr;
  std::shared_ptr<BufferPool> buffers_;
  std::thread thread_;

  // The connection's thread alone.
  size_t underway_ = 0;
  size_t small_underway_ = 0;
  uint64_t bytes_underway_ = 0;
  bool quiet_ = false;  // nothing has ended for kReapMs

  absl::Mutex mutex_;
  std::deque<std::unique_ptr<Operation>> pending_ ABSL_GUARDED_BY(mutex_);
  // How many have to be pending for the thread to wake up; 0: it is awake.
  size_t wake_at_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int wake_fd_ = -1;
  int queue_fd_ = -1;  // the queue's
};

/// Where calls of libpenstock that wait run: never on the threads that
/// TensorStore encodes and copies with.
const Executor& BlockingExecutor();

}  // namespace internal_remote_dram
}  // namespace tensorstore

#endif  // TENSORSTORE_KVSTORE_REMOTE_DRAM_CONNECTION_H_
