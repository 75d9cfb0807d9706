// SPDX-License-Identifier: Apache-2.0
// One program for both sides: a server that keeps tensors in its memory, and a
// client that stores arrays and a key there and reads them back.
//
//   remote_dram_example --mode=server --listen_addr=0.0.0.0:12345
//   remote_dram_example --mode=client --server_addr=127.0.0.1:12345

#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "examples/remote_dram_common.h"
#include "tensorstore/util/result.h"
#include "tensorstore/util/status.h"

ABSL_FLAG(std::string, mode, "", "server or client");
ABSL_FLAG(std::string, listen_addr, "0.0.0.0:12345",
          "server: address to listen on, host:port");
ABSL_FLAG(std::string, server_addr, "127.0.0.1:12345",
          "client: the server's address, host:port");

namespace {

using namespace remote_dram_examples;  // NOLINT

absl::Status RunClient(const std::string& server_addr) {
  Say(absl::StrCat("Starting remote DRAM client, connecting to ", server_addr));
  auto spec = ClientSpec(server_addr);
  TENSORSTORE_ASSIGN_OR_RETURN(auto store, OpenKvStore(spec));
  for (const char* driver : {"zarr", "zarr3"}) {
    TENSORSTORE_RETURN_IF_ERROR(WriteTensor(driver, spec, SmallTensor()));
    TENSORSTORE_RETURN_IF_ERROR(VerifyTensor(driver, spec, SmallTensor()));
  }
  Say("Testing direct kvstore operations...");
  TENSORSTORE_RETURN_IF_ERROR(WriteTestKey(store));
  return VerifyTestKey(store);
}

}  // namespace

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const std::string mode = absl::GetFlag(FLAGS_mode);
  Say("=== TensorStore Remote DRAM Example ===");
  Say(absl::StrCat("Mode: ", mode));
  if (mode == "server") {
    return Conclude("Server", RunServer(absl::GetFlag(FLAGS_listen_addr)));
  }
  if (mode == "client") {
    return Conclude("Client operations",
                    RunClient(absl::GetFlag(FLAGS_server_addr)));
  }
  return Conclude("Example", absl::InvalidArgumentError(absl::StrCat(
                                 "--mode must be server or client, not '", mode,
                                 "'")));
}
