// SPDX-License-Identifier: Apache-2.0
// The smallest server: simple_remote_dram_server [host:port]

#include <string>

#include "examples/remote_dram_common.h"

int main(int argc, char** argv) {
  const std::string listen_addr = argc > 1 ? argv[1] : "0.0.0.0:12345";
  return remote_dram_examples::Conclude(
      "Server", remote_dram_examples::RunServer(listen_addr));
}
