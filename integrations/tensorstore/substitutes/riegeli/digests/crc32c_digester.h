/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_DIGESTS_CRC32C_DIGESTER_H_
#define PENSTOCK_RIEGELI_DIGESTS_CRC32C_DIGESTER_H_

#include <stdint.h>

#include <string_view>

#include "absl/crc/crc32c.h"

namespace riegeli {

class Crc32cDigester {
 public:
  using DigestType = uint32_t;
  void Write(std::string_view s) { crc_ = absl::ExtendCrc32c(crc_, s); }
  DigestType Digest() const { return static_cast<uint32_t>(crc_); }

 private:
  absl::crc32c_t crc_{0};
};

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_DIGESTS_CRC32C_DIGESTER_H_
