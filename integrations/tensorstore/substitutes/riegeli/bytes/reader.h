/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_BYTES_READER_H_
#define PENSTOCK_RIEGELI_BYTES_READER_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/types/optional.h"
#include "riegeli/base/object.h"
#include "riegeli/base/types.h"
#include "riegeli/bytes/writer.h"

namespace riegeli {

class Reader : public Object {
 public:
  using Object::Object;
  Reader() = default;
  const char* start() const { return start_; }
  const char* cursor() const { return cursor_; }
  const char* limit() const { return limit_; }
  size_t available() const { return static_cast<size_t>(limit_ - cursor_); }
  size_t start_to_cursor() const {
    return static_cast<size_t>(cursor_ - start_);
  }
  void set_cursor(const char* c) { cursor_ = c; }
  void move_cursor(size_t n) { cursor_ += n; }
  Position pos() const { return limit_pos_ - available(); }
  Position limit_pos() const { return limit_pos_; }

  bool Pull(size_t min_length = 1, size_t recommended_length = 0) {
    if (available() >= min_length) return true;
    if (!ok()) return false;
    return PullSlow(min_length, recommended_length);
  }
  bool Read(char& c) {
    if (!Pull()) return false;
    c = *cursor_++;
    return true;
  }
  bool ReadByte(uint8_t& b) {
    char c;
    if (!Read(c)) return false;
    b = static_cast<uint8_t>(c);
    return true;
  }
  bool Read(size_t n, char* dest, size_t* length_read = nullptr) {
    if (available() >= n) {
      if (n) memcpy(dest, cursor_, n);
      cursor_ += n;
      if (length_read) *length_read = n;
      return true;
    }
    const Position before = pos();
    bool r = ok() && ReadSlow(n, dest);
    if (length_read) *length_read = r ? n : static_cast<size_t>(pos() - before);
    return r;
  }
  bool Read(size_t n, std::string& dest) {
    dest.clear();
    // Grow in steps: `n` may come from corrupt input.
    while (n > 0) {
      const size_t step = std::min<size_t>(n, size_t{1} << 20);
      const size_t old = dest.size();
      dest.resize(old + step);
      size_t got;
      if (!Read(step, dest.data() + old, &got)) {
        dest.resize(old + got);
        return false;
      }
      n -= step;
    }
    return true;
  }
  bool Read(size_t n, std::string_view& dest) {
    dest = {};
    if (!Pull(n)) return false;
    dest = std::string_view(cursor_, n);
    cursor_ += n;
    return true;
  }
  bool Read(size_t n, absl::Cord& dest) {
    dest.Clear();
    return ReadAndAppend(n, dest);
  }
  bool ReadAndAppend(size_t n, absl::Cord& dest) {
    return ok() && ReadCordSlow(n, dest);
  }
  bool Skip(Position n) {
    while (n > available()) {
      n -= available();
      cursor_ = limit_;
      if (!Pull()) return false;
    }
    cursor_ += n;
    return true;
  }
  virtual bool ToleratesReadingAhead() { return false; }
  virtual bool SupportsRandomAccess() { return false; }
  virtual bool SupportsRewind() { return SupportsRandomAccess(); }
  virtual bool SupportsSize() { return SupportsRandomAccess(); }
  std::optional<Position> Size() { return SizeImpl(); }
  bool Seek(Position new_pos) {
    if (new_pos <= limit_pos_ &&
        limit_pos_ - new_pos <= static_cast<Position>(limit_ - start_)) {
      cursor_ = limit_ - (limit_pos_ - new_pos);
      return true;
    }
    return ok() && SeekSlow(new_pos);
  }
  bool VerifyEnd() {
    if (!ok()) return false;
    if (Pull()) return Fail(absl::InvalidArgumentError("End of data expected"));
    return ok();
  }
  bool VerifyEndAndClose() {
    VerifyEnd();
    return Close();
  }
  void SetReadAllHint(bool hint) { SetReadAllHintImpl(hint); }
  // Copies exactly `n` bytes to `dest`.
  virtual bool CopyTo(Position n, Writer& dest);

 protected:
  virtual bool PullSlow(size_t min_length, size_t recommended_length) {
    return false;
  }
  virtual bool ReadSlow(size_t length, char* dest) {
    while (length > 0) {
      if (available() == 0 && !(ok() && PullSlow(1, length))) return false;
      const size_t k = std::min(length, available());
      if (k) memcpy(dest, cursor_, k);
      cursor_ += k;
      dest += k;
      length -= k;
    }
    return true;
  }
  virtual bool ReadCordSlow(size_t n, absl::Cord& dest) {
    while (n > 0) {
      if (available() == 0 && !PullSlow(1, n)) return false;
      const size_t k = std::min(n, available());
      dest.Append(std::string_view(cursor_, k));
      cursor_ += k;
      n -= k;
    }
    return true;
  }
  virtual bool SeekSlow(Position new_pos) {
    return Fail(absl::UnimplementedError("Reader::Seek() not supported"));
  }
  virtual absl::optional<Position> SizeImpl() { return absl::nullopt; }
  virtual void SetReadAllHintImpl(bool) {}
  void set_buffer(const char* start = nullptr, size_t length = 0,
                  size_t start_to_cursor = 0) {
    start_ = start;
    cursor_ = start + start_to_cursor;
    limit_ = start + length;
  }
  void set_limit_pos(Position p) { limit_pos_ = p; }
  void move_limit_pos(Position n) { limit_pos_ += n; }

  const char* start_ = nullptr;
  const char* cursor_ = nullptr;
  const char* limit_ = nullptr;
  Position limit_pos_ = 0;
};

inline bool Reader::CopyTo(Position n, Writer& dest) {
  while (n > 0) {
    if (!Pull(1, n)) return false;
    const size_t k = std::min<Position>(n, available());
    if (!dest.Write(std::string_view(cursor_, k))) return false;
    cursor_ += k;
    n -= k;
  }
  return true;
}

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_BYTES_READER_H_
