// SPDX-License-Identifier: Apache-2.0
// What the remote_dram examples share: specs, arrays of known content, and
// words about each step. TensorStore's API is all they use; the driver behind
// "remote_dram" is linked in.

#ifndef EXAMPLES_REMOTE_DRAM_COMMON_H_
#define EXAMPLES_REMOTE_DRAM_COMMON_H_

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tensorstore/index.h"
#include "tensorstore/kvstore/kvstore.h"
#include "tensorstore/util/result.h"

namespace remote_dram_examples {

inline constexpr char kTestKey[] = "test_key_1";
inline constexpr char kTestValue[] = "Hello from TensorStore remote DRAM!";

/// An array of float32 in three dimensions, and what each element is.
struct Tensor {
  std::string name;
  std::vector<tensorstore::Index> shape;
  std::vector<tensorstore::Index> chunk_shape;
  std::function<float(tensorstore::Index i, tensorstore::Index j,
                      tensorstore::Index k)>
      element;
};

/// 4x4x3, element i*10 + j + 0.1k.
Tensor SmallTensor();
/// 8x6x4, element i*100 + j*10 + k.
Tensor TwoNodeTensor();
/// `mebibytes` x 512 x 512 in chunks of 4 MiB, counting up to 2^24 and
/// around.
Tensor LargeTensor(tensorstore::Index mebibytes);

/// Prints one line at once, so that a log shows what happened before a crash.
void Say(std::string_view line);

/// Specs with what the flags --secret_file, --fabric and, for a server, --dram
/// say.
nlohmann::json ServerSpec(std::string_view listen_addr);
nlohmann::json ClientSpec(std::string_view server_addr);

/// Opens the key-value store of `spec` and says so.
tensorstore::Result<tensorstore::kvstore::KvStore> OpenKvStore(
    const nlohmann::json& spec);

/// Creates the array with `driver` ("zarr", "zarr3") below `kvstore`, replacing
/// one that is there, and writes every element.
absl::Status WriteTensor(std::string_view driver, const nlohmann::json& kvstore,
                         const Tensor& tensor);
/// Reads the array back and compares it element by element.
absl::Status VerifyTensor(std::string_view driver,
                          const nlohmann::json& kvstore, const Tensor& tensor);

/// Writes `kTestKey`, or reads it and compares.
absl::Status WriteTestKey(const tensorstore::kvstore::KvStore& store);
absl::Status VerifyTestKey(const tensorstore::kvstore::KvStore& store);

/// Serves at `listen_addr` until SIGINT or SIGTERM, and says what is stored.
absl::Status RunServer(std::string_view listen_addr);

/// Prints the outcome; what `main` returns.
int Conclude(std::string_view what, const absl::Status& status);

}  // namespace remote_dram_examples

#endif  // EXAMPLES_REMOTE_DRAM_COMMON_H_
