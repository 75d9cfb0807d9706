/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_BASE_CHAIN_H_
#define PENSTOCK_RIEGELI_BASE_CHAIN_H_

#include <stddef.h>

#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/cord.h"

namespace riegeli {

class Chain {
 public:
  Chain() = default;
  explicit Chain(absl::Cord c) : cord_(std::move(c)) {}
  std::optional<std::string_view> TryFlat() const {
    auto f = cord_.TryFlat();
    if (!f) return std::nullopt;
    return *f;
  }
  size_t size() const { return cord_.size(); }
  const absl::Cord& cord() const { return cord_; }

 private:
  absl::Cord cord_;
};

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_BASE_CHAIN_H_
