/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_BYTES_STRING_WRITER_H_
#define PENSTOCK_RIEGELI_BYTES_STRING_WRITER_H_

#include <stddef.h>

#include <algorithm>
#include <string>

#include "riegeli/bytes/writer.h"

namespace riegeli {

template <typename Dest = std::string*>
class StringWriter : public Writer {
 public:
  explicit StringWriter(std::string* dest) : dest_(dest) { dest_->clear(); }

 protected:
  bool PushSlow(size_t min_length, size_t recommended) override {
    const size_t used = start_to_cursor();
    const size_t want =
        std::max({used + min_length, used + recommended, used * 2, size_t{64}});
    dest_->resize(used);
    dest_->resize(want);
    start_ = dest_->data();
    cursor_ = start_ + used;
    limit_ = start_ + want;
    return true;
  }
  void Done() override {
    dest_->resize(start_to_cursor());
    set_buffer();
  }

 private:
  std::string* dest_;
};
StringWriter(std::string*)->StringWriter<std::string*>;

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_BYTES_STRING_WRITER_H_
