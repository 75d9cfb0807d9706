/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_ENDIAN_ENDIAN_WRITING_H_
#define PENSTOCK_RIEGELI_ENDIAN_ENDIAN_WRITING_H_

#include <stddef.h>

#include <string_view>

#include "riegeli/bytes/writer.h"

namespace riegeli {

template <typename T>
bool WriteLittleEndian(T v, Writer& w) {
  char b[sizeof(T)];
  for (size_t i = 0; i < sizeof(T); ++i) b[i] = static_cast<char>(v >> (8 * i));
  return w.Write(std::string_view(b, sizeof(T)));
}

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_ENDIAN_ENDIAN_WRITING_H_
