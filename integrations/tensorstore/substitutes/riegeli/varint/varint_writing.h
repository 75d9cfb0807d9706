/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_VARINT_VARINT_WRITING_H_
#define PENSTOCK_RIEGELI_VARINT_VARINT_WRITING_H_

#include <stddef.h>
#include <stdint.h>

#include <string_view>

#include "riegeli/bytes/writer.h"

namespace riegeli {

inline bool WriteVarint64(uint64_t v, Writer& w) {
  char b[10];
  size_t n = 0;
  while (v >= 0x80) {
    b[n++] = static_cast<char>(v | 0x80);
    v >>= 7;
  }
  b[n++] = static_cast<char>(v);
  return w.Write(std::string_view(b, n));
}
inline bool WriteVarint32(uint32_t v, Writer& w) { return WriteVarint64(v, w); }

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_VARINT_VARINT_WRITING_H_
