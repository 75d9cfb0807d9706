// SPDX-License-Identifier: Apache-2.0
// The server of the two-node test: keeps what clients store, and says so.
//
//   remote_dram_server --listen_addr=0.0.0.0:12345

#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "examples/remote_dram_common.h"

ABSL_FLAG(std::string, listen_addr, "0.0.0.0:12345",
          "address to listen on, host:port");

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return remote_dram_examples::Conclude(
      "Server",
      remote_dram_examples::RunServer(absl::GetFlag(FLAGS_listen_addr)));
}
