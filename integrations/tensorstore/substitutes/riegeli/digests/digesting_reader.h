/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_DIGESTS_DIGESTING_READER_H_
#define PENSTOCK_RIEGELI_DIGESTS_DIGESTING_READER_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "riegeli/base/initializer.h"
#include "riegeli/base/maker.h"
#include "riegeli/base/types.h"
#include "riegeli/bytes/limiting_reader.h"
#include "riegeli/bytes/reader.h"

namespace riegeli {

template <typename Digester, typename Src = Reader*>
class DigestingReader;
template <typename Digester>
class DigestingReader<Digester, LimitingReader<>> : public Reader {
 public:
  using DigestType = uint32_t;
  explicit DigestingReader(Closed) : Reader(kClosed), src_(kClosed) {}
  DigestingReader(const LimitingReader<>& src, Digester digester)
      : src_(src.src(), src.options()), digester_(std::move(digester)) {
    limit_pos_ = src_.pos();
  }
  template <typename... A>
  void Reset(MakerType<A...> m, Initializer<Digester> d) {
    ReOpen();
    std::apply([&](auto&&... a) { src_.Reset(a...); }, std::move(m.args));
    digester_ = std::move(d).Get();
    set_buffer();
    limit_pos_ = src_.pos();
  }
  LimitingReader<>& src() { return src_; }
  DigestType Digest() const { return digester_.Digest(); }
  bool SupportsRewind() override { return false; }

 protected:
  // Everything handed out has been digested already: hand out whole pulls.
  bool PullSlow(size_t min_length, size_t recommended) override {
    const size_t keep = available();
    std::string next(cursor_, keep);
    next.resize(std::max(min_length, keep));
    const size_t need = next.size() - keep;
    size_t got;
    src_.Read(need, next.data() + keep, &got);
    digester_.Write(std::string_view(next).substr(keep, got));
    next.resize(keep + got);
    buf_ = std::move(next);
    set_buffer(buf_.data(), buf_.size());
    limit_pos_ += got;
    return available() >= min_length;
  }
  bool ReadSlow(size_t n, char* dest) override {
    const size_t k = available();
    if (k) memcpy(dest, cursor_, k);
    set_buffer();
    size_t got;
    bool r = src_.Read(n - k, dest + k, &got);
    digester_.Write(std::string_view(dest + k, got));
    limit_pos_ += got;
    return r;
  }
  void Done() override {
    if (!src_.VerifyEnd()) Fail(src_.status());
    src_.Close();
  }
  LimitingReader<> src_;
  Digester digester_;
  std::string buf_;
};

template <typename Digester>
DigestingReader(const LimitingReader<>&, Digester)
    -> DigestingReader<Digester, LimitingReader<>>;

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_DIGESTS_DIGESTING_READER_H_
