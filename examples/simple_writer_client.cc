// SPDX-License-Identifier: Apache-2.0
// The smallest writer: simple_writer_client [host:port]
// What it writes stays with the server when it has ended.

#include <string>

#include "absl/status/status.h"
#include "examples/remote_dram_common.h"
#include "tensorstore/util/result.h"
#include "tensorstore/util/status.h"

namespace {

using namespace remote_dram_examples;  // NOLINT

absl::Status RunWriter(const std::string& server_addr) {
  auto spec = ClientSpec(server_addr);
  TENSORSTORE_ASSIGN_OR_RETURN(auto store, OpenKvStore(spec));
  TENSORSTORE_RETURN_IF_ERROR(WriteTestKey(store));
  return WriteTensor("zarr", spec, SmallTensor());
}

}  // namespace

int main(int argc, char** argv) {
  return Conclude("Writer", RunWriter(argc > 1 ? argv[1] : "127.0.0.1:12345"));
}
