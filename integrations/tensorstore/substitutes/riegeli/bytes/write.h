/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_BYTES_WRITE_H_
#define PENSTOCK_RIEGELI_BYTES_WRITE_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "riegeli/bytes/writer.h"

namespace riegeli {

template <typename T>
absl::Status Write(T&& src, std::unique_ptr<Writer> w) {
  w->Write(std::forward<T>(src));
  if (!w->Close()) return w->status();
  return absl::OkStatus();
}

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_BYTES_WRITE_H_
