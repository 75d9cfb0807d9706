/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_BASE_EXTERNAL_REF_H_
#define PENSTOCK_RIEGELI_BASE_EXTERNAL_REF_H_

#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/strings/cord.h"

namespace riegeli {

class ExternalRef {
 public:
  template <typename Owner>
  ExternalRef(Owner&& owner, std::string_view data)
      : cord_(absl::MakeCordFromExternal(
            data, [o = std::decay_t<Owner>(std::forward<Owner>(owner))] {})) {}
  const absl::Cord& cord() const& { return cord_; }
  absl::Cord cord() && { return std::move(cord_); }

 private:
  absl::Cord cord_;
};

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_BASE_EXTERNAL_REF_H_
