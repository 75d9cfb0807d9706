/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_ZSTD_ZSTD_READER_H_
#define PENSTOCK_RIEGELI_ZSTD_ZSTD_READER_H_

#include <stddef.h>
#include <zstd.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "riegeli/bytes/reader.h"

namespace riegeli {

// Decompresses all that its source has when it is first asked.
template <typename Src = Reader*>
class ZstdReader : public Reader {
 public:
  explicit ZstdReader(Reader* src) : src_(src) {}

 protected:
  bool PullSlow(size_t min_length, size_t recommended) override {
    if (!read_) {
      read_ = true;
      if (!ReadAll()) return false;
    }
    return available() >= min_length;
  }

 private:
  bool ReadAll() {
    std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(
        ZSTD_createDCtx(), ZSTD_freeDCtx);
    std::string block(size_t{1} << 16, '\0');
    size_t used = 0, left = 1;  // of a frame
    for (bool more = true; more;) {
      size_t got;
      more = src_->Read(block.size(), block.data(), &got);
      ZSTD_inBuffer in = {block.data(), got, 0};
      for (bool full = false; in.pos < in.size || full;) {
        if (used == buffer_.size()) buffer_.resize(used * 2 + block.size());
        ZSTD_outBuffer out = {buffer_.data(), buffer_.size(), used};
        left = ZSTD_decompressStream(context.get(), &out, &in);
        if (ZSTD_isError(left)) {
          return Fail(absl::DataLossError(ZSTD_getErrorName(left)));
        }
        used = out.pos;
        full = left != 0 && used == out.size;
      }
    }
    if (!src_->status().ok()) return Fail(src_->status());
    if (left != 0) return Fail(absl::DataLossError("zstd: a frame ends early"));
    buffer_.resize(used);
    set_buffer(buffer_.data(), used);
    limit_pos_ = used;
    return true;
  }

  Reader* src_;
  bool read_ = false;
  std::string buffer_;
};
ZstdReader(Reader*)->ZstdReader<Reader*>;

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_ZSTD_ZSTD_READER_H_
