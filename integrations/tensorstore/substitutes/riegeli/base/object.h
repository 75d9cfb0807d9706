/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_RIEGELI_BASE_OBJECT_H_
#define PENSTOCK_RIEGELI_BASE_OBJECT_H_

#include <utility>

#include "absl/status/status.h"
#include "riegeli/base/types.h"

namespace riegeli {

class Object {
 public:
  Object() = default;
  explicit Object(Closed) : open_(false) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
  bool is_open() const { return open_; }
  bool ok() const { return open_ && status_.ok(); }
  absl::Status status() const {
    if (!status_.ok()) return status_;
    return open_ ? absl::OkStatus()
                 : absl::FailedPreconditionError("Object closed");
  }
  bool Fail(absl::Status s) { return FailWithoutAnnotation(std::move(s)); }
  bool FailWithoutAnnotation(absl::Status s) {
    if (status_.ok()) status_ = std::move(s);
    return false;
  }
  absl::Status AnnotateStatus(absl::Status s) { return s; }
  absl::Status StatusOrAnnotate(absl::Status s) {
    return status_.ok() ? s : status_;
  }
  bool Close() {
    if (!open_) return status_.ok();
    Done();
    open_ = false;
    return status_.ok();
  }

 protected:
  virtual void Done() {}
  void ReOpen() {
    open_ = true;
    status_ = absl::OkStatus();
  }
  bool open_ = true;
  absl::Status status_;
};

}  // namespace riegeli

#endif  // PENSTOCK_RIEGELI_BASE_OBJECT_H_
