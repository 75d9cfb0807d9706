/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_ENDIAN_ENDIAN_READING_H_
#define PENSTOCK_RIEGELI_ENDIAN_ENDIAN_READING_H_

#include <stddef.h>

#include "riegeli/bytes/reader.h"

namespace riegeli {

template <typename T>
bool ReadLittleEndian(Reader& r, T& v) {
  unsigned char b[sizeof(T)];
  if (!r.Read(sizeof(T), reinterpret_cast<char*>(b))) return false;
  v = 0;
  for (size_t i = 0; i < sizeof(T); ++i) v |= static_cast<T>(b[i]) << (8 * i);
  return true;
}

template <typename T>
bool ReadBigEndian(Reader& r, T& v) {
  unsigned char b[sizeof(T)];
  if (!r.Read(sizeof(T), reinterpret_cast<char*>(b))) return false;
  v = 0;
  for (size_t i = 0; i < sizeof(T); ++i) v = static_cast<T>(v << 8 | b[i]);
  return true;
}

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_ENDIAN_ENDIAN_READING_H_
