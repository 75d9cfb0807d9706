/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_BASE_TYPES_H_
#define PENSTOCK_RIEGELI_BASE_TYPES_H_

#include <stdint.h>

namespace riegeli {

using Position = uint64_t;

struct Closed {};
inline constexpr Closed kClosed{};

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_BASE_TYPES_H_
