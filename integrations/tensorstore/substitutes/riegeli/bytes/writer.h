/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_BYTES_WRITER_H_
#define PENSTOCK_RIEGELI_BYTES_WRITER_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "riegeli/base/chain.h"
#include "riegeli/base/external_ref.h"
#include "riegeli/base/object.h"
#include "riegeli/base/types.h"

namespace riegeli {

class Writer : public Object {
 public:
  using Object::Object;
  Writer() = default;
  char* start() const { return start_; }
  char* cursor() const { return cursor_; }
  char* limit() const { return limit_; }
  size_t available() const { return static_cast<size_t>(limit_ - cursor_); }
  size_t start_to_cursor() const {
    return static_cast<size_t>(cursor_ - start_);
  }
  void set_cursor(char* c) { cursor_ = c; }
  void move_cursor(size_t n) { cursor_ += n; }
  Position pos() const { return start_pos_ + start_to_cursor(); }
  bool Push(size_t min_length = 1, size_t recommended_length = 0) {
    if (available() >= min_length) return true;
    if (!ok()) return false;
    return PushSlow(min_length, recommended_length);
  }
  bool Write(char c) {
    if (!Push()) return false;
    *cursor_++ = c;
    return true;
  }
  bool WriteByte(uint8_t b) { return Write(static_cast<char>(b)); }
  bool Write(std::string_view s) {
    if (available() >= s.size()) {
      if (!s.empty()) memcpy(cursor_, s.data(), s.size());
      cursor_ += s.size();
      return true;
    }
    return ok() && WriteSlow(s);
  }
  bool Write(const std::string& s) { return Write(std::string_view(s)); }
  bool Write(const char* s) { return Write(std::string_view(s)); }
  bool Write(const Chain& c) { return ok() && WriteSlow(c); }
  bool Write(const absl::Cord& c) { return ok() && WriteSlow(c); }
  bool Write(ExternalRef r) { return ok() && WriteSlow(std::move(r).cord()); }
  void SetWriteSizeHint(std::optional<Position>) {}
  bool Seek(Position pos) { return ok() && SeekSlow(pos); }

 protected:
  virtual bool PushSlow(size_t min_length, size_t recommended_length) = 0;
  virtual bool WriteSlow(absl::string_view s) {
    while (!s.empty()) {
      if (available() == 0 && !PushSlow(1, s.size())) return false;
      const size_t k = std::min(s.size(), available());
      memcpy(cursor_, s.data(), k);
      cursor_ += k;
      s.remove_prefix(k);
    }
    return true;
  }
  virtual bool WriteSlow(const Chain& c) { return WriteSlow(c.cord()); }
  virtual bool WriteSlow(const absl::Cord& c) {
    for (auto chunk : c.Chunks()) {
      if (!Write(std::string_view(chunk))) return false;
    }
    return true;
  }
  virtual bool SeekSlow(Position) {
    return Fail(absl::UnimplementedError("Writer::Seek() not supported"));
  }
  void set_buffer(char* start = nullptr, size_t length = 0) {
    start_ = cursor_ = start;
    limit_ = start + length;
  }
  char* start_ = nullptr;
  char* cursor_ = nullptr;
  char* limit_ = nullptr;
  Position start_pos_ = 0;
};

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_BYTES_WRITER_H_
