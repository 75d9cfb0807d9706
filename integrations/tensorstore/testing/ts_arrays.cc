// SPDX-License-Identifier: Apache-2.0
// A two-dimensional array of float32, as another client of the same store has
// to see it:
//   ts_arrays write|check|churn SPEC
// write: creates it, element i * 1000 + j; then rows 10 to 20 of columns 30 to
// 33 are 7.  check: reads it back.  churn: creates it and writes it anew until
// it is killed, all elements 1, then all 2, ..., and says which it has written.
// SPEC is TensorStore's, as JSON, with metadata.

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensorstore/array.h"
#include "tensorstore/box.h"
#include "tensorstore/index.h"
#include "tensorstore/open.h"
#include "tensorstore/open_mode.h"
#include "tensorstore/tensorstore.h"
#include "tensorstore/util/result.h"
#include "tensorstore/util/status.h"

namespace {

using ::tensorstore::Index;
using Array = tensorstore::TensorStore<float, 2>;

float Element(Index i, Index j) {
  return i >= 10 && i < 20 && j >= 30 && j < 33 ? 7 : i * 1000 + j;
}

template <typename Function>
tensorstore::SharedArray<float, 2> Filled(const Array& array,
                                          Function&& element) {
  const auto shape = array.domain().shape();
  auto filled = tensorstore::AllocateArray<float>({shape[0], shape[1]});
  for (Index i = 0; i < shape[0]; ++i) {
    for (Index j = 0; j < shape[1]; ++j) filled(i, j) = element(i, j);
  }
  return filled;
}

absl::Status WriteArray(const Array& array) {
  auto whole = Filled(array, [](Index i, Index j) { return i * 1000 + j; });
  TENSORSTORE_RETURN_IF_ERROR(tensorstore::Write(whole, array).result());
  // A part of a chunk: what is there is read, changed and written back.
  auto part = array | tensorstore::Box<2>({10, 30}, {10, 3});
  return tensorstore::Write(tensorstore::MakeScalarArray<float>(7), part)
      .result()
      .status();
}

absl::Status CheckArray(const Array& array) {
  TENSORSTORE_ASSIGN_OR_RETURN(
      auto got, tensorstore::Read<tensorstore::zero_origin>(array).result());
  if (got == Filled(array, Element)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("not what was written: ", got));
}

absl::Status Churn(const Array& array) {
  for (int pass = 1;; ++pass) {
    auto whole = Filled(array, [=](Index, Index) { return pass; });
    TENSORSTORE_RETURN_IF_ERROR(tensorstore::Write(whole, array).result());
    std::cout << pass << std::endl;
  }
}

absl::Status Run(std::string_view what, std::string_view spec) {
  TENSORSTORE_ASSIGN_OR_RETURN(
      auto array, (tensorstore::Open<float, 2>(
                       ::nlohmann::json::parse(spec),
                       what == "check" ? tensorstore::OpenMode::open
                                       : tensorstore::OpenMode::create,
                       tensorstore::ReadWriteMode::read_write)
                       .result()));
  if (what == "write") return WriteArray(array);
  return what == "check" ? CheckArray(array) : Churn(array);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc == 3 ? argv[1] : "";
  if (what != "write" && what != "check" && what != "churn") {
    std::cerr << "usage: ts_arrays write|check|churn SPEC\n";
    return 2;
  }
  const absl::Status status = Run(what, argv[2]);
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
