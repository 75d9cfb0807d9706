/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_BYTES_LIMITING_READER_H_
#define PENSTOCK_RIEGELI_BYTES_LIMITING_READER_H_

#include <stddef.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "riegeli/base/types.h"
#include "riegeli/bytes/reader.h"

namespace riegeli {

class LimitingReaderBase : public Reader {
 public:
  class Options {
   public:
    Options() {}
    Options& set_exact_length(std::optional<Position> n) & {
      n_ = n;
      exact_ = true;
      return *this;
    }
    Options&& set_exact_length(std::optional<Position> n) && {
      n_ = n;
      exact_ = true;
      return std::move(*this);
    }
    Options& set_max_length(std::optional<Position> n) & {
      n_ = n;
      exact_ = false;
      return *this;
    }
    Options&& set_max_length(std::optional<Position> n) && {
      n_ = n;
      exact_ = false;
      return std::move(*this);
    }
    std::optional<Position> n_;
    bool exact_ = false;
  };
  using Reader::Reader;
};

template <typename Src = Reader*>
class LimitingReader : public LimitingReaderBase {
 public:
  explicit LimitingReader(Closed) : LimitingReaderBase(kClosed) {}
  LimitingReader(Reader* src, Options options) { Init(src, options); }
  void Reset(Reader* src, Options options) {
    ReOpen();
    Init(src, options);
  }
  Reader* src() const { return src_; }
  Position max_pos() const { return max_pos_; }
  Options options() const {
    return exact_ ? Options().set_exact_length(max_pos_ - pos())
                  : Options().set_max_length(max_pos_ - pos());
  }
  bool SupportsRewind() override { return src_ && src_->SupportsRewind(); }
  bool SupportsSize() override { return exact_; }

 protected:
  void Init(Reader* src, const Options& o) {
    src_ = src;
    exact_ = o.exact_;
    max_pos_ = o.n_ ? src->pos() + *o.n_ : std::numeric_limits<Position>::max();
    Make();
  }
  void Sync() { src_->set_cursor(cursor_); }
  void Make() {
    const Position p = src_->pos();
    const size_t n = std::min<Position>(src_->available(), max_pos_ - p);
    set_buffer(src_->cursor(), n);
    limit_pos_ = p + n;
    if (!src_->status().ok() && src_->is_open()) Fail(src_->status());
  }
  bool CheckEnd(bool r, Position want_end) {
    if (!r && exact_ && ok() && want_end <= max_pos_)
      Fail(absl::InvalidArgumentError("Not enough data: premature end"));
    return r;
  }
  bool PullSlow(size_t min_length, size_t recommended) override {
    Sync();
    const Position p = pos();
    const Position left = max_pos_ - p;
    bool r = min_length <= left &&
             src_->Pull(min_length, std::min<Position>(recommended, left));
    Make();
    return CheckEnd(r, p + min_length);
  }
  bool ReadSlow(size_t n, char* dest) override {
    Sync();
    const Position p = pos();
    const size_t k = std::min<Position>(n, max_pos_ - p);
    bool r = src_->Read(k, dest);
    Make();
    return CheckEnd(r, p + k) && k == n;
  }
  bool SeekSlow(Position np) override {
    Sync();
    bool r = np <= max_pos_ && src_->Seek(np);
    Make();
    return r;
  }
  absl::optional<Position> SizeImpl() override {
    if (exact_) return max_pos_;
    return absl::nullopt;
  }
  void Done() override {
    Sync();
    set_buffer();
    limit_pos_ = src_->pos();
  }
  Reader* src_ = nullptr;
  Position max_pos_ = 0;
  bool exact_ = false;
};
LimitingReader(Reader*, LimitingReaderBase::Options)->LimitingReader<Reader*>;

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_BYTES_LIMITING_READER_H_
