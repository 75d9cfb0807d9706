/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_BASE_INITIALIZER_H_
#define PENSTOCK_RIEGELI_BASE_INITIALIZER_H_

#include <tuple>
#include <utility>

#include "riegeli/base/maker.h"

namespace riegeli {

template <typename T>
class Initializer {
 public:
  template <typename... A>
  Initializer(MakerType<A...> m)  // NOLINT
      : value_(std::make_from_tuple<T>(std::move(m.args))) {}
  Initializer(T v) : value_(std::move(v)) {}  // NOLINT
  T Get() && { return std::move(value_); }

 private:
  T value_;
};

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_BASE_INITIALIZER_H_
