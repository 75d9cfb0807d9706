/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_VARINT_VARINT_READING_H_
#define PENSTOCK_RIEGELI_VARINT_VARINT_READING_H_

#include <stdint.h>

#include "riegeli/bytes/reader.h"

namespace riegeli {

inline bool ReadVarint64(Reader& r, uint64_t& dest) {
  uint64_t v = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    char c;
    if (!r.Read(c)) return false;
    const uint64_t b = static_cast<unsigned char>(c);
    if (shift == 63 && b > 1) return false;
    v |= (b & 0x7f) << shift;
    if (!(b & 0x80)) {
      dest = v;
      return true;
    }
  }
  return false;
}
inline bool ReadVarint32(Reader& r, uint32_t& dest) {
  uint64_t v;
  if (!ReadVarint64(r, v) || v > 0xffffffffu) return false;
  dest = static_cast<uint32_t>(v);
  return true;
}

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_VARINT_VARINT_READING_H_
