// SPDX-License-Identifier: Apache-2.0
#include "tensorstore/kvstore/remote_dram/buffers.h"

#include <stddef.h>

#include <algorithm>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include "absl/numeric/bits.h"
#include "absl/strings/cord.h"
#include "absl/synchronization/mutex.h"

namespace tensorstore {
namespace internal_remote_dram {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr size_t kCapacityMin = 512;

// Four steps from one power of two to the next, so that values of nearly the
// same size share buffers.
size_t RoundUp(size_t bytes) {
  bytes = std::max(bytes, kCapacityMin);
  const size_t step = absl::bit_floor(bytes) / 4;
  return (bytes + step - 1) / step * step;
}

}  // namespace

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(data_, other.data_);
  std::swap(capacity_, other.capacity_);
  return *this;
}

Buffer::~Buffer() {
  if (data_) pool_->Give(data_, capacity_);
}

std::shared_ptr<BufferPool> BufferPool::Make(size_t idle_bytes_max) {
  auto pool = std::make_shared<BufferPool>();
  pool->idle_bytes_max_ = idle_bytes_max;
  return pool;
}

BufferPool::~BufferPool() {
  for (auto& [capacity, buffers] : idle_) {
    for (char* data : buffers) ::operator delete(data, kAlignment);
  }
}

Buffer BufferPool::Take(size_t bytes) {
  Buffer buffer;
  buffer.pool_ = shared_from_this();
  buffer.capacity_ = RoundUp(bytes);
  {
    absl::MutexLock lock(mutex_);
    auto it = idle_.find(buffer.capacity_);
    if (it != idle_.end() && !it->second.empty()) {
      buffer.data_ = it->second.back();
      it->second.pop_back();
      idle_bytes_ -= buffer.capacity_;
      return buffer;
    }
  }
  buffer.data_ = static_cast<char*>(
      ::operator new(buffer.capacity_, kAlignment, std::nothrow));
  return buffer;
}

void BufferPool::Give(char* data, size_t capacity) {
  {
    absl::MutexLock lock(mutex_);
    if (idle_bytes_ + capacity <= idle_bytes_max_) {
      idle_[capacity].push_back(data);
      idle_bytes_ += capacity;
      return;
    }
  }
  ::operator delete(data, kAlignment);
}

absl::Cord ToCord(Buffer buffer, size_t bytes) {
  const std::string_view value(buffer.data(), bytes);
  if (bytes < kCapacityMin || bytes < buffer.capacity() / 2) {
    return absl::Cord(value);
  }
  return absl::MakeCordFromExternal(value, [buffer = std::move(buffer)] {});
}

}  // namespace internal_remote_dram
}  // namespace tensorstore
