/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_BYTES_CORD_WRITER_H_
#define PENSTOCK_RIEGELI_BYTES_CORD_WRITER_H_

#include <stddef.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/strings/cord.h"
#include "riegeli/base/types.h"
#include "riegeli/bytes/writer.h"

namespace riegeli {

class CordWriterBase : public Writer {
 public:
  class Options {
   public:
    Options() {}
    Options& set_append(bool v) & {
      append_ = v;
      return *this;
    }
    Options&& set_append(bool v) && {
      append_ = v;
      return std::move(*this);
    }
    Options& set_max_block_size(size_t) & { return *this; }
    Options&& set_max_block_size(size_t) && { return std::move(*this); }
    bool append() const { return append_; }

   private:
    bool append_ = false;
  };
  using Writer::Writer;

 protected:
  virtual absl::Cord& cord() = 0;
  void Sync() {
    const size_t n = start_to_cursor();
    if (n == 0) return;
    start_pos_ += n;
    if (n < 512 || n < capacity_ / 2) {
      cord().Append(std::string_view(start_, n));
      cursor_ = start_;
    } else {
      std::shared_ptr<char[]> b(buffer_.release());
      cord().Append(
          absl::MakeCordFromExternal(std::string_view(b.get(), n), [b] {}));
      capacity_ = 0;
      set_buffer();
    }
  }
  bool PushSlow(size_t min_length, size_t recommended) override {
    Sync();
    const size_t want = std::max(
        {min_length, std::min(recommended, size_t{1} << 26),
         std::min<size_t>(std::max<Position>(start_pos_, 256), 1 << 20)});
    if (capacity_ < want) {
      buffer_.reset(new char[want]);
      capacity_ = want;
    }
    set_buffer(buffer_.get(), capacity_);
    return true;
  }
  bool WriteSlow(const absl::Cord& c) override {
    if (c.size() <= available()) return Writer::WriteSlow(c);
    Sync();
    start_pos_ += c.size();
    cord().Append(c);
    return true;
  }
  using Writer::WriteSlow;
  // Back to the beginning only: what is written then replaces what was.
  bool SeekSlow(Position pos) override {
    Sync();
    if (pos != 0) return Writer::SeekSlow(pos);
    replaced_ = std::move(cord());
    cord().Clear();
    start_pos_ = 0;
    return true;
  }
  void Done() override {
    Sync();
    set_buffer();
    const size_t written = cord().size();
    if (written < replaced_.size()) {
      cord().Append(replaced_.Subcord(written, replaced_.size() - written));
    }
  }
  std::unique_ptr<char[]> buffer_;
  size_t capacity_ = 0;
  absl::Cord replaced_;
};

template <typename Dest = absl::Cord*>
class CordWriter : public CordWriterBase {
 public:
  explicit CordWriter(absl::Cord* dest, Options options = Options())
      : dest_(dest) {
    if (!options.append()) dest_->Clear();
  }
  absl::Cord& dest() { return *dest_; }

 protected:
  absl::Cord& cord() override { return *dest_; }

 private:
  absl::Cord* dest_;
};
template <>
class CordWriter<absl::Cord> : public CordWriterBase {
 public:
  explicit CordWriter(Options = Options()) {}
  absl::Cord& dest() { return dest_; }

 protected:
  absl::Cord& cord() override { return dest_; }

 private:
  absl::Cord dest_;
};
CordWriter(absl::Cord*)->CordWriter<absl::Cord*>;
CordWriter(absl::Cord*, CordWriterBase::Options)->CordWriter<absl::Cord*>;

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_BYTES_CORD_WRITER_H_
