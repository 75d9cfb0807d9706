/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_BASE_BYTE_FILL_H_
#define PENSTOCK_RIEGELI_BASE_BYTE_FILL_H_

#include <stddef.h>

#include <string>
#include <string_view>

#include "absl/strings/cord.h"

namespace riegeli {

class ByteFill {
 public:
  explicit ByteFill(size_t n, char c = '\0') : s_(n, c) {}
  void AppendTo(absl::Cord& d) const { d.Append(s_); }
  operator std::string_view() const { return s_; }

 private:
  std::string s_;
};

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_BASE_BYTE_FILL_H_
