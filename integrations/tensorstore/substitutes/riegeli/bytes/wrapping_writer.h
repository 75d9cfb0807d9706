/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_BYTES_WRAPPING_WRITER_H_
#define PENSTOCK_RIEGELI_BYTES_WRAPPING_WRITER_H_

#include <stddef.h>

#include <string_view>

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "riegeli/bytes/writer.h"

namespace riegeli {

template <typename Dest = Writer*>
class WrappingWriter : public Writer {
 public:
  explicit WrappingWriter(Writer* dest) : dest_(dest) { Make(); }
  Writer* dest() const { return dest_; }

 protected:
  void Sync() { dest_->set_cursor(cursor_); }
  void Make() {
    start_ = cursor_ = dest_->cursor();
    limit_ = dest_->limit();
    start_pos_ = dest_->pos();
    if (!dest_->ok() && status_.ok() && dest_->is_open()) Fail(dest_->status());
  }
  bool PushSlow(size_t a, size_t b) override {
    Sync();
    bool r = dest_->Push(a, b);
    Make();
    return r;
  }
  bool WriteSlow(absl::string_view s) override {
    Sync();
    bool r = dest_->Write(std::string_view(s));
    Make();
    return r;
  }
  bool WriteSlow(const absl::Cord& c) override {
    Sync();
    bool r = dest_->Write(c);
    Make();
    return r;
  }
  using Writer::WriteSlow;
  void Done() override {
    Sync();
    set_buffer();
  }
  Writer* dest_;
};
WrappingWriter(Writer*)->WrappingWriter<Writer*>;

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_BYTES_WRAPPING_WRITER_H_
