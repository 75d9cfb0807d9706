/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENSORSTORE_KVSTORE_REMOTE_DRAM_BUFFERS_H_
#define TENSORSTORE_KVSTORE_REMOTE_DRAM_BUFFERS_H_

#include <stddef.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/cord.h"
#include "absl/synchronization/mutex.h"

namespace tensorstore {
namespace internal_remote_dram {

class BufferPool;

/// Memory that a value is received into.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  char* data() const { return data_; }
  size_t capacity() const { return capacity_; }

 private:
  friend class BufferPool;
  std::shared_ptr<BufferPool> pool_;
  char* data_ = nullptr;
  size_t capacity_ = 0;
};

/// Keeps buffers that values were received into for later ones: the first touch
/// of fresh memory takes longer than a copy of the value.  Thread-safe; lives
/// until the last value that it holds does.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  /// At most `idle_bytes_max` are kept while nobody needs them.
  static std::shared_ptr<BufferPool> Make(size_t idle_bytes_max);
  ~BufferPool();

  /// At least `bytes`, with the alignment of any element type; without data
  /// when there is no memory.
  Buffer Take(size_t bytes);

 private:
  friend class Buffer;
  void Give(char* data, size_t capacity);

  size_t idle_bytes_max_ = 0;
  absl::Mutex mutex_;
  size_t idle_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // By capacity.
  std::map<size_t, std::vector<char*>> idle_ ABSL_GUARDED_BY(mutex_);
};

/// The first `bytes` of `buffer` as a value: without a copy, unless that would
/// hold on to much more memory than the value has.
absl::Cord ToCord(Buffer buffer, size_t bytes);

}  // namespace internal_remote_dram
}  // namespace tensorstore

#endif  // TENSORSTORE_KVSTORE_REMOTE_DRAM_BUFFERS_H_
