/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_DIGESTS_DIGESTING_WRITER_H_
#define PENSTOCK_RIEGELI_DIGESTS_DIGESTING_WRITER_H_

#include <stddef.h>
#include <stdint.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/strings/cord.h"
#include "riegeli/bytes/writer.h"

namespace riegeli {

template <typename Digester, typename Dest = Writer*>
class DigestingWriter : public Writer {
 public:
  using DigestType = uint32_t;
  explicit DigestingWriter(Writer* dest, Digester digester = Digester())
      : dest_(dest), digester_(digester) {}
  Writer* dest() const { return dest_; }
  DigestType Digest() const { return digester_.Digest(); }

 protected:
  void Flush() {
    const size_t n = start_to_cursor();
    if (!n) return;
    start_pos_ += n;
    std::string_view s(start_, n);
    digester_.Write(s);
    if (!dest_->Write(s)) Fail(dest_->status());
    cursor_ = start_;
  }
  bool PushSlow(size_t a, size_t b) override {
    Flush();
    if (!ok()) return false;
    const size_t want =
        std::max({a, std::min(b, size_t{1} << 16), size_t{256}});
    if (buf_.size() < want) buf_.resize(want);
    set_buffer(buf_.data(), buf_.size());
    return true;
  }
  bool WriteSlow(const absl::Cord& c) override {
    Flush();
    for (auto chunk : c.Chunks()) digester_.Write(std::string_view(chunk));
    start_pos_ += c.size();
    if (!dest_->Write(c)) return Fail(dest_->status());
    return true;
  }
  using Writer::WriteSlow;
  void Done() override {
    Flush();
    set_buffer();
  }
  Writer* dest_;
  Digester digester_;
  std::string buf_;
};

template <typename Digester>
DigestingWriter(Writer*, Digester) -> DigestingWriter<Digester>;

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_DIGESTS_DIGESTING_WRITER_H_
