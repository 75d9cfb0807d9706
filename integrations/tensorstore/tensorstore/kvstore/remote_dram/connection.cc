// SPDX-License-Identifier: Apache-2.0
#include "tensorstore/kvstore/remote_dram/connection.h"

#include <errno.h>
#include <penstock/penstock.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <thread>  // NOLINT
#include <tuple>
#include <utility>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tensorstore/internal/thread/thread_pool.h"
#include "tensorstore/kvstore/remote_dram/buffers.h"
#include "tensorstore/kvstore/remote_dram/status.h"
#include "tensorstore/util/executor.h"
#include "tensorstore/util/result.h"
#include "tensorstore/util/status.h"

namespace tensorstore {
namespace internal_remote_dram {
namespace {

constexpr size_t kIdleBufferBytes = size_t{64} << 20;
constexpr size_t kBlockingThreads = 16;
constexpr int kReapAtOnce = 64;
// How long operations that come meanwhile may have to wait to be sent.
constexpr int kReapMs = 1;
// Enough to keep a fabric busy.  What is asked for beyond would only take more
// memory at once than the pool keeps, and than caches hold.
constexpr uint64_t kBytesUnderway = 16 << 20;
// An operation that moves no more than this is soon over.
constexpr uint64_t kSmallBytes = 16 << 10;
// As many as this are worth a message of their own.
constexpr size_t kFullMessage = 64;
// What one task of an executor takes on: enough to be worth its wake-up, little
// enough to leave work for other threads.
constexpr uint64_t kTaskBytes = 128 << 10;
constexpr size_t kTaskOperations = 32;

uint32_t Milliseconds(absl::Duration duration) {
  return static_cast<uint32_t>(std::clamp<int64_t>(
      absl::ToInt64Milliseconds(duration), 1, int64_t{UINT32_MAX}));
}

uint64_t BytesMoved(const penstock_op& op) {
  if (op.code == PENSTOCK_PUT || op.flags & PENSTOCK_RANGE) return op.bytes;
  return op.code == PENSTOCK_GET ? op.value_bytes : 0;
}

}  // namespace

bool operator<(const ConnectionOptions& a, const ConnectionOptions& b) {
  return std::tie(a.url, a.secret_file, a.deadline, a.concurrency) <
         std::tie(b.url, b.secret_file, b.deadline, b.concurrency);
}

const Executor& BlockingExecutor() {
  static const Executor* const executor =
      new Executor(internal::DetachedThreadPool(kBlockingThreads));
  return *executor;
}

// Operations that were sent together; lives until the last of them is done.
struct Connection::Batch {
  explicit Batch(size_t count) : ops(count), operations(count) {}
  std::vector<penstock_op> ops;
  std::vector<std::unique_ptr<Operation>> operations;
  std::vector<uint64_t> bytes;
  size_t underway = 0;
  std::shared_ptr<Batch> self;  // while some are underway
};

struct Connection::Ended {
  std::shared_ptr<Batch> batch;
  size_t index;

  Operation& operation() const { return *batch->operations[index]; }
  const penstock_op& op() const { return batch->ops[index]; }
  void Done() {
    auto self = std::move(batch->operations[index]);
    Operation& operation = *self;
    operation.Done(op(), std::move(self));
  }
};

Result<std::shared_ptr<Connection>> Connection::Open(
    const ConnectionOptions& options, const std::string& address) {
  std::shared_ptr<Connection> connection(new Connection(address));
  TENSORSTORE_RETURN_IF_ERROR(connection->Start(options));
  return connection;
}

absl::Status Connection::Start(const ConnectionOptions& options) {
  penstock_options settings = {};
  settings.size = sizeof(settings);
  settings.secret_file =
      options.secret_file.empty() ? nullptr : options.secret_file.c_str();
  settings.timeout_ms = Milliseconds(options.deadline);
  settings.connect_ms = settings.timeout_ms;
  int r = penstock_open(options.url.c_str(), &settings, &store_);
  if (r == 0) r = penstock_queue_open(store_, &queue_);
  if (r != 0) {
    // A handshake that is refused says who we are not.
    absl::Status status = CallError(r, "connecting to the server", address_);
    if (r == -EACCES) {
      return absl::UnauthenticatedError(status.message());
    }
    return r == -ENOENT ? absl::UnavailableError(status.message()) : status;
  }
  // Made now, so that every reap arms it.
  queue_fd_ = penstock_queue_fd(queue_);
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (queue_fd_ < 0 || wake_fd_ < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("No descriptor for ", address_, ": ", strerror(errno)));
  }
  lane_ = penstock_lane(store_);
  concurrency_ = options.concurrency;
  buffers_ = BufferPool::Make(kIdleBufferBytes);
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

Connection::~Connection() {
  if (thread_.joinable()) {
    ABSL_CHECK(thread_.get_id() != std::this_thread::get_id());
    {
      absl::MutexLock lock(mutex_);
      stopping_ = true;
    }
    eventfd_write(wake_fd_, 1);
    thread_.join();
  }
  penstock_queue_close(queue_);
  penstock_close(store_);
  if (wake_fd_ >= 0) close(wake_fd_);
}

void Connection::Submit(std::unique_ptr<Operation> operation) {
  bool wake;
  {
    absl::MutexLock lock(mutex_);
    pending_.push_back(std::move(operation));
    wake = wake_at_ > 0 && pending_.size() >= wake_at_;
    if (wake) wake_at_ = 0;
  }
  if (wake) eventfd_write(wake_fd_, 1);
}

// ---- the connection's thread ----

void Connection::Run() {
  std::vector<std::unique_ptr<Operation>> operations;
  while (TakePending(operations)) {
    if (!operations.empty()) Send(operations);
    // The second look arms the descriptor that Sleep waits for.
    if (!Reap(MaySend() ? 0 : kReapMs) && !Reap(0)) Sleep();
  }
}

// How many have to be pending before they are sent: small operations wait for
// those underway, whose answer is near, unless they fill a message by
// themselves, or the answer was not near after all.
size_t Connection::SendAt() const {
  if (underway_ >= concurrency_ || bytes_underway_ >= kBytesUnderway) {
    return SIZE_MAX;
  }
  return small_underway_ > 0 && small_underway_ == underway_ && !quiet_
             ? kFullMessage
             : 1;
}

bool Connection::MaySend() {
  absl::MutexLock lock(mutex_);
  return pending_.size() >= SendAt();
}

bool Connection::TakePending(
    std::vector<std::unique_ptr<Operation>>& operations) {
  absl::MutexLock lock(mutex_);
  operations.clear();
  if (pending_.size() < SendAt()) {
    return !(stopping_ && pending_.empty() && underway_ == 0);
  }
  uint64_t bytes = bytes_underway_;
  while (!pending_.empty() && bytes < kBytesUnderway &&
         underway_ + operations.size() < concurrency_) {
    bytes += pending_.front()->bytes();
    operations.push_back(std::move(pending_.front()));
    pending_.pop_front();
  }
  return true;
}

void Connection::Send(std::vector<std::unique_ptr<Operation>>& operations) {
  auto batch = std::make_shared<Batch>(operations.size());
  size_t count = 0;
  for (auto& operation : operations) {
    penstock_op& op = batch->ops[count];
    op = penstock_op{};
    if (operation->Prepare(op)) {
      op.user = batch.get();
      batch->bytes.push_back(op.bytes);
      small_underway_ += op.bytes <= kSmallBytes;
      bytes_underway_ += op.bytes;
      batch->operations[count++] = std::move(operation);
    } else {
      // Its end may be the end of the driver, and so of this connection.
      Executor executor = operation->executor();
      executor([operation = std::move(operation)] {});
    }
  }
  if (count == 0) return;
  batch->underway = count;
  batch->self = batch;
  underway_ += count;
  quiet_ = false;
  const int r = penstock_submit(queue_, batch->ops.data(), count);
  if (r == 0) return;
  // After a fork: nothing was begun.
  std::vector<Ended> ended;
  for (size_t i = 0; i < count; ++i) {
    batch->ops[i].result = r;
    Forget(*batch, i);
    ended.push_back({batch, i});
  }
  underway_ -= count;
  batch->self = nullptr;
  Dispatch(ended);
}

void Connection::Forget(const Batch& batch, size_t index) {
  small_underway_ -= batch.bytes[index] <= kSmallBytes;
  bytes_underway_ -= batch.bytes[index];
}

// Waits for what ends soon: the library spins for it, and a transfer in pieces
// needs us for each of them.  Returns whether something has ended.
bool Connection::Reap(int timeout_ms) {
  if (underway_ == 0) return false;
  penstock_op* ops[kReapAtOnce];
  const int count = penstock_reap(queue_, ops, kReapAtOnce, timeout_ms);
  quiet_ = count <= 0 && (quiet_ || timeout_ms > 0);
  if (count <= 0) return false;
  std::vector<Ended> ended;
  ended.reserve(count);
  for (int i = 0; i < count; ++i) {
    Batch* batch = static_cast<Batch*>(ops[i]->user);
    const size_t index = ops[i] - batch->ops.data();
    ended.push_back({batch->self, index});
    Forget(*batch, index);
    if (--batch->underway == 0) batch->self = nullptr;
  }
  underway_ -= count;
  Dispatch(ended);
  return true;
}

// Hands what has ended to its executor, some at a time.
void Connection::Dispatch(std::vector<Ended>& ended) {
  for (size_t begin = 0, end; begin < ended.size(); begin = end) {
    Executor executor = ended[begin].operation().executor();
    uint64_t bytes = 0;
    for (end = begin; end < ended.size() && bytes < kTaskBytes &&
                      end - begin < kTaskOperations;
         ++end) {
      bytes += BytesMoved(ended[end].op());
    }
    executor([task = std::vector<Ended>(
                  std::make_move_iterator(ended.begin() + begin),
                  std::make_move_iterator(ended.begin() + end))]() mutable {
      for (Ended& one : task) one.Done();
    });
  }
}

// Until something has ended or come.
void Connection::Sleep() {
  pollfd fds[2] = {{wake_fd_, POLLIN, 0}, {-1, POLLIN, 0}};
  {
    absl::MutexLock lock(mutex_);
    if (stopping_ && underway_ == 0) return;
    if (pending_.size() >= SendAt()) return;
    wake_at_ = SendAt();
  }
  if (underway_ > 0) fds[1].fd = queue_fd_;
  poll(fds, 2, -1);
  if (fds[0].revents) {
    eventfd_t count;
    eventfd_read(wake_fd_, &count);
  }
  absl::MutexLock lock(mutex_);
  wake_at_ = 0;
}

}  // namespace internal_remote_dram
}  // namespace tensorstore
