/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_BASE_ARITHMETIC_H_
#define PENSTOCK_RIEGELI_BASE_ARITHMETIC_H_

#include <type_traits>

namespace riegeli {

template <typename A, typename B>
constexpr std::common_type_t<A, B> UnsignedMin(A a, B b) {
  return a < b ? a : b;
}

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_BASE_ARITHMETIC_H_
