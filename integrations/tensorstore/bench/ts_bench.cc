// SPDX-License-Identifier: Apache-2.0
// Measures one kind of access to a key-value store through TensorStore, for
// some seconds:
//   ts_bench KVSTORE write|read CHUNK_BYTES SECONDS
//       whole 256 MiB arrays of float32, zarr, uncompressed
//   ts_bench KVSTORE get VALUE_BYTES SECONDS
//       values of their own, 256 at a time
// KVSTORE is a JSON specification.  Prints one JSON object.

#include <stddef.h>
#include <stdint.h>

#include <cmath>
#include <deque>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "absl/log/absl_check.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tensorstore/array.h"
#include "tensorstore/context.h"
#include "tensorstore/index.h"
#include "tensorstore/kvstore/kvstore.h"
#include "tensorstore/kvstore/operations.h"
#include "tensorstore/open.h"
#include "tensorstore/open_mode.h"
#include "tensorstore/tensorstore.h"
#include "tensorstore/util/future.h"
#include "tensorstore/util/status.h"

namespace {

namespace kvstore = tensorstore::kvstore;
using ::tensorstore::Index;
using Json = ::nlohmann::json;

constexpr Index kSide = 8192;  // elements; 256 MiB in all
constexpr int64_t kArrayBytes = kSide * kSide * sizeof(float);
constexpr int kValues = 4096;
constexpr size_t kWindow = 256;

class Clock {
 public:
  explicit Clock(double seconds) : end_(begin_ + absl::Seconds(seconds)) {}
  bool Over() const { return absl::Now() >= end_; }
  double Elapsed() const { return absl::ToDoubleSeconds(absl::Now() - begin_); }

 private:
  const absl::Time begin_ = absl::Now();
  const absl::Time end_;
};

tensorstore::TensorStore<float, 2> OpenArray(Json store, int64_t chunk_bytes) {
  const Index side = std::sqrt(chunk_bytes / sizeof(float));
  store["path"] =
      absl::StrCat(store.value("path", ""), "array", chunk_bytes, "/");
  const Json spec = {{"driver", "zarr"},
                     {"kvstore", store},
                     {"metadata",
                      {{"dtype", "<f4"},
                       {"shape", {kSide, kSide}},
                       {"chunks", {side, side}},
                       {"compressor", nullptr}}}};
  return tensorstore::Open<float, 2>(spec,
                                     tensorstore::OpenMode::open_or_create,
                                     tensorstore::ReadWriteMode::read_write)
      .value();
}

float Element(Index i, Index j) { return i * 31 + j; }

// Bytes a second.
double Arrays(const Json& store, bool write, int64_t chunk_bytes,
              double seconds) {
  auto array = OpenArray(store, chunk_bytes);
  auto local = tensorstore::AllocateArray<float>({kSide, kSide});
  for (Index i = 0; i < kSide; ++i) {
    for (Index j = 0; j < kSide; ++j) local(i, j) = Element(i, j);
  }
  ABSL_CHECK_OK(tensorstore::Write(local, array).status());
  ABSL_CHECK_OK(tensorstore::Read(array, local).status());
  for (Index i = 0; i < kSide; i += 97) {
    for (Index j = 0; j < kSide; j += 101) {
      ABSL_CHECK_EQ(local(i, j), Element(i, j));
    }
  }
  int64_t passes = 0;
  Clock clock(seconds);
  do {
    if (write) {
      ABSL_CHECK_OK(tensorstore::Write(local, array).status());
    } else {
      ABSL_CHECK_OK(tensorstore::Read(array, local).status());
    }
    ++passes;
  } while (!clock.Over());
  return passes * kArrayBytes / clock.Elapsed();
}

// Values a second.
double Gets(const Json& spec, int64_t value_bytes, double seconds) {
  auto store = kvstore::Open(spec).value();
  const absl::Cord value(std::string(value_bytes, 'x'));
  const auto key = [](int64_t i) { return absl::StrCat("value", i % kValues); };
  for (int i = 0; i < kValues; ++i) {
    ABSL_CHECK_OK(kvstore::Write(store, key(i), value).status());
  }
  std::deque<tensorstore::Future<kvstore::ReadResult>> underway;
  int64_t begun = 0, ended = 0;
  Clock clock(seconds);
  while (ended == 0 || !clock.Over()) {
    while (underway.size() < kWindow) {
      underway.push_back(kvstore::Read(store, key(begun++ * 7)));
    }
    for (size_t i = 0; i < kWindow / 4; ++i, ++ended) {
      ABSL_CHECK_EQ(underway.front().value().value.size(), value_bytes);
      underway.pop_front();
    }
  }
  return ended / clock.Elapsed();
}

int64_t Number(const char* text) {
  int64_t number;
  ABSL_CHECK(absl::SimpleAtoi(text, &number) && number > 0) << text;
  return number;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: ts_bench KVSTORE write|read|get BYTES SECONDS\n";
    return 2;
  }
  const Json store = Json::parse(argv[1]);
  const std::string_view what = argv[2];
  const int64_t bytes = Number(argv[3]);
  const double seconds = Number(argv[4]);
  // The libraries are built with assertions, which is not how they are used.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  if (what == "get") {
    std::cout << Json{{"values_per_s", Gets(store, bytes, seconds)}} << "\n";
  } else {
    ABSL_CHECK(what == "write" || what == "read") << what;
    std::cout << Json{{"bytes_per_s",
                       Arrays(store, what == "write", bytes, seconds)}}
              << "\n";
  }
  return 0;
}
