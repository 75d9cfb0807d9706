/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_BYTES_COPY_ALL_H_
#define PENSTOCK_RIEGELI_BYTES_COPY_ALL_H_

#include <algorithm>
#include <optional>

#include "absl/status/status.h"
#include "riegeli/base/types.h"
#include "riegeli/bytes/reader.h"
#include "riegeli/bytes/writer.h"

namespace riegeli {

inline absl::Status CopyAll(Reader& src, Writer& dest, Position max_length) {
  Position left = max_length;
  if (auto size = src.SupportsSize() ? src.Size() : std::nullopt; size) {
    const Position n = *size - std::min(*size, src.pos());
    if (n > max_length)
      return absl::ResourceExhaustedError("Maximum length exceeded");
    if (!src.CopyTo(n, dest))
      return dest.ok()
                 ? (src.ok() ? absl::DataLossError("short copy") : src.status())
                 : dest.status();
    return absl::OkStatus();
  }
  while (src.Pull()) {
    const Position k = std::min<Position>(left, src.available());
    if (k == 0) return absl::ResourceExhaustedError("Maximum length exceeded");
    if (!src.CopyTo(k, dest)) return dest.ok() ? src.status() : dest.status();
    left -= k;
  }
  return src.ok() ? absl::OkStatus() : src.status();
}

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_BYTES_COPY_ALL_H_
