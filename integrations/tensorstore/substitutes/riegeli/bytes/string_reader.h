/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_BYTES_STRING_READER_H_
#define PENSTOCK_RIEGELI_BYTES_STRING_READER_H_

#include <string>
#include <string_view>

#include "absl/types/optional.h"
#include "riegeli/base/types.h"
#include "riegeli/bytes/reader.h"

namespace riegeli {

template <typename Src = std::string_view>
class StringReader : public Reader {
 public:
  explicit StringReader(std::string_view s) {
    set_buffer(s.data(), s.size());
    limit_pos_ = s.size();
  }
  bool SupportsRandomAccess() override { return true; }

 protected:
  absl::optional<Position> SizeImpl() override { return limit_pos_; }
};
StringReader(std::string_view)->StringReader<std::string_view>;
StringReader(const std::string&)->StringReader<std::string_view>;

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_BYTES_STRING_READER_H_
