/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_BYTES_CORD_READER_H_
#define PENSTOCK_RIEGELI_BYTES_CORD_READER_H_

#include <stddef.h>

#include <algorithm>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/types/optional.h"
#include "riegeli/base/types.h"
#include "riegeli/bytes/reader.h"
#include "riegeli/bytes/writer.h"

namespace riegeli {

template <typename Src = const absl::Cord*>
class CordReader : public Reader {
 public:
  explicit CordReader(Closed) : Reader(kClosed) {}
  explicit CordReader(const absl::Cord* src) { Init(*src); }
  explicit CordReader(absl::Cord src) { Init(std::move(src)); }
  void Reset(absl::Cord src) {
    ReOpen();
    Init(std::move(src));
  }
  bool ToleratesReadingAhead() override { return true; }
  bool SupportsRandomAccess() override { return true; }
  bool CopyTo(Position n, Writer& dest) override {
    if (available() < n) return Reader::CopyTo(n, dest);
    const size_t p = pos();
    cursor_ += n;
    if (p == 0 && n == cord_.size()) return dest.Write(cord_);
    return dest.Write(cord_.Subcord(p, n));
  }

 protected:
  bool ReadCordSlow(size_t n, absl::Cord& dest) override {
    const size_t k = std::min(n, available());
    dest.Append(cord_.Subcord(pos(), k));
    cursor_ += k;
    return k == n;
  }
  absl::optional<Position> SizeImpl() override { return limit_pos_; }

 private:
  void Init(absl::Cord src) {
    cord_ = std::move(src);
    // A fragmented cord is flattened once; everything else is by reference.
    auto flat = cord_.Flatten();
    set_buffer(flat.data(), flat.size());
    limit_pos_ = flat.size();
  }
  absl::Cord cord_;
};
CordReader(const absl::Cord*)->CordReader<const absl::Cord*>;
CordReader(absl::Cord*)->CordReader<const absl::Cord*>;
CordReader(Closed)->CordReader<const absl::Cord*>;

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_BYTES_CORD_READER_H_
