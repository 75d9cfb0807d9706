/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_BASE_MAKER_H_
#define PENSTOCK_RIEGELI_BASE_MAKER_H_

#include <tuple>
#include <type_traits>
#include <utility>

namespace riegeli {

template <typename... Args>
struct MakerType {
  std::tuple<Args...> args;
};
template <typename... Args>
MakerType<std::decay_t<Args>...> Maker(Args&&... args) {
  return {std::tuple<std::decay_t<Args>...>(std::forward<Args>(args)...)};
}

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_BASE_MAKER_H_
