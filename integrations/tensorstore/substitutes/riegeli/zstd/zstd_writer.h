/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_ZSTD_ZSTD_WRITER_H_
#define PENSTOCK_RIEGELI_ZSTD_ZSTD_WRITER_H_

#include <stddef.h>
#include <zstd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "riegeli/bytes/writer.h"

namespace riegeli {

class ZstdWriterBase : public Writer {
 public:
  class Options {
   public:
    static constexpr int kMinCompressionLevel = -(1 << 17);
    static constexpr int kMaxCompressionLevel = 22;
    Options() {}
    Options&& set_compression_level(int level) && {
      level_ = level;
      return std::move(*this);
    }
    int compression_level() const { return level_; }

   private:
    int level_ = 3;
  };
};

// Keeps all that it is given and compresses it at the end: a node of a tree.
template <typename Dest = Writer*>
class ZstdWriter : public ZstdWriterBase {
 public:
  ZstdWriter(Writer* dest, Options options)
      : dest_(dest), level_(options.compression_level()) {}

 protected:
  bool PushSlow(size_t min_length, size_t recommended) override {
    const size_t used = buffer_.size() - available();
    buffer_.resize(
        std::max({used + min_length, buffer_.size() * 2, size_t{4096}}));
    set_buffer(buffer_.data(), buffer_.size());
    cursor_ += used;
    return true;
  }
  void Done() override {
    buffer_.resize(buffer_.size() - available());
    set_buffer();
    std::string out(ZSTD_compressBound(buffer_.size()), '\0');
    const size_t n = ZSTD_compress(out.data(), out.size(), buffer_.data(),
                                   buffer_.size(), level_);
    if (ZSTD_isError(n)) {
      Fail(absl::InternalError(ZSTD_getErrorName(n)));
      return;
    }
    out.resize(n);
    if (!dest_->Write(out)) Fail(dest_->status());
  }

 private:
  Writer* dest_;
  int level_;
  std::string buffer_;
};
ZstdWriter(Writer*, ZstdWriterBase::Options)->ZstdWriter<Writer*>;

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_ZSTD_ZSTD_WRITER_H_
