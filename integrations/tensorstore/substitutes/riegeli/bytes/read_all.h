/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_BYTES_READ_ALL_H_
#define PENSTOCK_RIEGELI_BYTES_READ_ALL_H_

#include <stddef.h>

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "riegeli/bytes/reader.h"

namespace riegeli {

inline absl::Status ReadAndAppendAll(Reader& r, absl::Cord& dest) {
  while (r.Pull()) {
    if (!r.ReadAndAppend(r.available(), dest)) break;
  }
  return r.ok() ? absl::OkStatus() : r.status();
}
inline absl::Status ReadAndAppendAll(Reader* r, absl::Cord& dest) {
  return ReadAndAppendAll(*r, dest);
}
inline absl::Status ReadAndAppendAll(std::unique_ptr<Reader> r,
                                     absl::Cord& dest) {
  absl::Status s = ReadAndAppendAll(*r, dest);
  if (!r->VerifyEndAndClose() && s.ok()) s = r->status();
  return s;
}
template <typename R>
absl::Status ReadAll(R&& r, absl::Cord& dest) {
  absl::Cord out;
  absl::Status s = ReadAndAppendAll(std::forward<R>(r), out);
  dest = std::move(out);
  return s;
}
inline absl::Status ReadAll(Reader& r, absl::string_view& dest) {
  // The leaf readers here expose what remains as one buffer once
  // pulled, except streaming ones: pull growing amounts until the end.
  r.Pull();
  while (r.ok()) {
    const size_t n = r.available();
    if (!r.Pull(n + 1)) break;
  }
  dest = absl::string_view(r.cursor(), r.available());
  r.move_cursor(r.available());
  return r.ok() ? absl::OkStatus() : r.status();
}

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_BYTES_READ_ALL_H_
