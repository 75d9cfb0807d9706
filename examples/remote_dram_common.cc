// SPDX-License-Identifier: Apache-2.0
#include "examples/remote_dram_common.h"

#include <signal.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include <nlohmann/json.hpp>
#include "tensorstore/array.h"
#include "tensorstore/index.h"
#include "tensorstore/kvstore/kvstore.h"
#include "tensorstore/kvstore/operations.h"
#include "tensorstore/open.h"
#include "tensorstore/open_mode.h"
#include "tensorstore/tensorstore.h"
#include "tensorstore/util/result.h"
#include "tensorstore/util/status.h"

ABSL_FLAG(std::string, secret_file, "",
          "file with the secret that server and clients share");
ABSL_FLAG(std::string, fabric, "",
          "'trusted': also use other devices than loopback; everyone who "
          "reaches that network is trusted");
ABSL_FLAG(std::string, dram, "", "server: memory for values, as in 4G");

namespace remote_dram_examples {
namespace {

using ::tensorstore::Index;
namespace kvstore = ::tensorstore::kvstore;

std::string ShapeText(const Tensor& tensor) {
  return absl::StrJoin(tensor.shape, "x");
}

tensorstore::SharedArray<float, 3> MakeArray(const Tensor& tensor) {
  auto array = tensorstore::AllocateArray<float>(
      {tensor.shape[0], tensor.shape[1], tensor.shape[2]});
  for (Index i = 0; i < tensor.shape[0]; ++i) {
    for (Index j = 0; j < tensor.shape[1]; ++j) {
      for (Index k = 0; k < tensor.shape[2]; ++k) {
        array(i, j, k) = tensor.element(i, j, k);
      }
    }
  }
  return array;
}

// One line a plane and one bracket a row, where that fits a screen.
void Show(const Tensor& tensor) {
  if (tensor.shape[0] * tensor.shape[1] * tensor.shape[2] > 200) return;
  for (Index i = 0; i < tensor.shape[0]; ++i) {
    std::string line;
    for (Index j = 0; j < tensor.shape[1]; ++j) {
      std::string row;
      for (Index k = 0; k < tensor.shape[2]; ++k) {
        absl::StrAppend(&row, k ? ", " : "", tensor.element(i, j, k));
      }
      absl::StrAppend(&line, "[", row, "] ");
    }
    Say(line);
  }
}

nlohmann::json MetadataSpec(std::string_view driver, const Tensor& tensor) {
  if (driver == "zarr") {
    return {{"shape", tensor.shape},
            {"chunks", tensor.chunk_shape},
            {"dtype", "<f4"},
            {"compressor", nullptr}};
  }
  return {{"shape", tensor.shape},
          {"data_type", "float32"},
          {"chunk_grid",
           {{"name", "regular"},
            {"configuration", {{"chunk_shape", tensor.chunk_shape}}}}}};
}

nlohmann::json TensorSpec(std::string_view driver,
                          const nlohmann::json& kvstore, const Tensor& tensor) {
  nlohmann::json spec{{"driver", driver}, {"kvstore", kvstore}};
  spec["kvstore"]["path"] = absl::StrCat(kvstore.value("path", std::string()),
                                         tensor.name, ".", driver, "/");
  return spec;
}

std::string Rate(double bytes, absl::Duration time) {
  return absl::StrCat(static_cast<size_t>(
                          bytes / (1 << 20) / absl::ToDoubleSeconds(time)),
                      " MiB/s");
}

double Bytes(const Tensor& tensor) {
  return 4.0 * tensor.shape[0] * tensor.shape[1] * tensor.shape[2];
}

void SetFromFlag(const absl::Flag<std::string>& flag, nlohmann::json& spec) {
  std::string value = absl::GetFlag(flag);
  if (!value.empty()) spec[std::string(flag.Name())] = value;
}

nlohmann::json SharedSpec() {
  nlohmann::json spec{{"driver", "remote_dram"}};
  SetFromFlag(FLAGS_secret_file, spec);
  SetFromFlag(FLAGS_fabric, spec);
  return spec;
}

// What came since the last look, and how many keys there are now.
absl::Status TellNews(const kvstore::KvStore& store,
                      std::map<std::string, std::string>& known) {
  TENSORSTORE_ASSIGN_OR_RETURN(auto entries,
                               kvstore::ListFuture(store).result());
  std::map<std::string, std::string> now;
  bool changed = entries.size() != known.size();
  for (const auto& entry : entries) {
    std::string size = absl::StrCat(entry.size);
    auto before = known.find(entry.key);
    if (before == known.end() || before->second != size) {
      Say(absl::StrCat("Server stored key-value pair: key '", entry.key, "', ",
                       size, " bytes"));
      changed = true;
    }
    now.emplace(entry.key, std::move(size));
  }
  known = std::move(now);
  if (changed) Say(absl::StrCat(known.size(), " keys stored"));
  return absl::OkStatus();
}

}  // namespace

Tensor SmallTensor() {
  return {"small", {4, 4, 3}, {2, 2, 3}, [](Index i, Index j, Index k) {
            return static_cast<float>(i * 10 + j + 0.1 * k);
          }};
}

Tensor TwoNodeTensor() {
  return {"two_node", {8, 6, 4}, {4, 3, 4}, [](Index i, Index j, Index k) {
            return static_cast<float>(i * 100 + j * 10 + k);
          }};
}

Tensor LargeTensor(Index mebibytes) {
  return {"large",
          {mebibytes, 512, 512},
          {4, 512, 512},
          [](Index i, Index j, Index k) {
            return static_cast<float>(((i * 512 + j) * 512 + k) % (1 << 24));
          }};
}

void Say(std::string_view line) { std::cout << line << std::endl; }

nlohmann::json ServerSpec(std::string_view listen_addr) {
  nlohmann::json spec = SharedSpec();
  spec["listen_addr"] = listen_addr;
  SetFromFlag(FLAGS_dram, spec);
  return spec;
}

nlohmann::json ClientSpec(std::string_view server_addr) {
  nlohmann::json spec = SharedSpec();
  spec["remote_addr"] = server_addr;
  return spec;
}

tensorstore::Result<kvstore::KvStore> OpenKvStore(const nlohmann::json& spec) {
  Say(absl::StrCat("Opening key-value store ", spec.dump()));
  return kvstore::Open(spec).result();
}

absl::Status WriteTensor(std::string_view driver, const nlohmann::json& kvstore,
                         const Tensor& tensor) {
  nlohmann::json spec = TensorSpec(driver, kvstore, tensor);
  spec["metadata"] = MetadataSpec(driver, tensor);
  spec["create"] = true;
  spec["delete_existing"] = true;
  Say(absl::StrCat("Original Tensor (shape: ", ShapeText(tensor), "):"));
  Show(tensor);
  Say(absl::StrCat("Creating ", driver, " array '", tensor.name,
                   "' with remote DRAM backend..."));
  TENSORSTORE_ASSIGN_OR_RETURN(
      auto store,
      tensorstore::Open(spec, tensorstore::ReadWriteMode::read_write).result());
  Say("TensorStore opened successfully!");
  auto array = MakeArray(tensor);
  absl::Time start = absl::Now();
  TENSORSTORE_RETURN_IF_ERROR(tensorstore::Write(array, store).result());
  Say(absl::StrCat("✓ Tensor data written to remote DRAM successfully: ",
                   static_cast<size_t>(Bytes(tensor)), " bytes, ",
                   Rate(Bytes(tensor), absl::Now() - start)));
  return absl::OkStatus();
}

absl::Status VerifyTensor(std::string_view driver,
                          const nlohmann::json& kvstore, const Tensor& tensor) {
  TENSORSTORE_ASSIGN_OR_RETURN(
      auto store, tensorstore::Open(TensorSpec(driver, kvstore, tensor),
                                    tensorstore::OpenMode::open,
                                    tensorstore::ReadWriteMode::read)
                      .result());
  absl::Time start = absl::Now();
  TENSORSTORE_ASSIGN_OR_RETURN(
      auto read, tensorstore::Read<tensorstore::zero_origin>(store).result());
  absl::Duration time = absl::Now() - start;
  if (!std::equal(read.shape().begin(), read.shape().end(),
                  tensor.shape.begin(), tensor.shape.end())) {
    return absl::DataLossError(absl::StrCat(
        "array '", tensor.name, "' is not of shape ", ShapeText(tensor)));
  }
  TENSORSTORE_ASSIGN_OR_RETURN(auto array,
                               tensorstore::StaticDataTypeCast<float>(read));
  for (Index i = 0; i < tensor.shape[0]; ++i) {
    for (Index j = 0; j < tensor.shape[1]; ++j) {
      for (Index k = 0; k < tensor.shape[2]; ++k) {
        if (array(i, j, k) != tensor.element(i, j, k)) {
          return absl::DataLossError(absl::StrCat(
              "element (", i, ", ", j, ", ", k, ") of '", tensor.name, "' is ",
              array(i, j, k), " instead of ", tensor.element(i, j, k)));
        }
      }
    }
  }
  Say(absl::StrCat("✓ ", driver, " array '", tensor.name, "' (",
                   ShapeText(tensor), ") verified element by element, read at ",
                   Rate(Bytes(tensor), time)));
  return absl::OkStatus();
}

absl::Status WriteTestKey(const kvstore::KvStore& store) {
  TENSORSTORE_RETURN_IF_ERROR(
      kvstore::Write(store, kTestKey, absl::Cord(kTestValue)).result());
  Say("✓ Key-value pair written successfully!");
  Say(absl::StrCat("  Key: ", kTestKey));
  Say(absl::StrCat("  Value: ", kTestValue));
  return absl::OkStatus();
}

absl::Status VerifyTestKey(const kvstore::KvStore& store) {
  TENSORSTORE_ASSIGN_OR_RETURN(auto read,
                               kvstore::Read(store, kTestKey).result());
  if (!read.has_value()) {
    return absl::NotFoundError(
        absl::StrCat("key '", kTestKey, "' is not stored"));
  }
  if (read.value != kTestValue) {
    return absl::DataLossError(
        absl::StrCat("key '", kTestKey, "' has another value: ",
                     std::string(read.value)));
  }
  Say("✓ Key-value pair read back successfully!");
  Say(absl::StrCat("  Key: ", kTestKey));
  Say(absl::StrCat("  Value: ", std::string(read.value)));
  return absl::OkStatus();
}

absl::Status RunServer(std::string_view listen_addr) {
  std::map<std::string, std::string> known;
  sigset_t ends;
  const timespec second{1, 0};

  // Before the first thread, so that all of them leave the signals to
  // sigtimedwait.
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  Say(absl::StrCat("Starting remote DRAM server on ", listen_addr));
  TENSORSTORE_ASSIGN_OR_RETURN(auto store,
                               OpenKvStore(ServerSpec(listen_addr)));
  Say("Remote DRAM server started successfully!");
  Say("Server is ready to receive tensor data...");
  Say("0 keys stored");
  while (sigtimedwait(&ends, nullptr, &second) < 0) {
    TENSORSTORE_RETURN_IF_ERROR(TellNews(store, known));
  }
  TENSORSTORE_RETURN_IF_ERROR(TellNews(store, known));
  return absl::OkStatus();
}

int Conclude(std::string_view what, const absl::Status& status) {
  if (!status.ok()) {
    std::cerr << what << " failed: " << status << std::endl;
    return 1;
  }
  Say(absl::StrCat(what, " completed successfully!"));
  return 0;
}

}  // namespace remote_dram_examples
