// SPDX-License-Identifier: Apache-2.0
// The client of the two-node test: an 8x6x4 array through zarr and zarr3, a key,
// and with --mebibytes a large array, each read back and compared.
//
//   remote_dram_client --server_addr=127.0.0.1:12345 --mebibytes=1024

#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "examples/remote_dram_common.h"
#include "tensorstore/util/result.h"
#include "tensorstore/util/status.h"

ABSL_FLAG(std::string, server_addr, "127.0.0.1:12345",
          "the server's address, host:port");
ABSL_FLAG(int, mebibytes, 0, "size of the large array in MiB; 0: none");

namespace {

using namespace remote_dram_examples;  // NOLINT

absl::Status RunClient(const std::string& server_addr, int mebibytes) {
  Say(absl::StrCat("Connecting to ", server_addr));
  auto spec = ClientSpec(server_addr);
  TENSORSTORE_ASSIGN_OR_RETURN(auto store, OpenKvStore(spec));
  TENSORSTORE_RETURN_IF_ERROR(WriteTestKey(store));
  TENSORSTORE_RETURN_IF_ERROR(VerifyTestKey(store));
  for (const char* driver : {"zarr", "zarr3"}) {
    TENSORSTORE_RETURN_IF_ERROR(WriteTensor(driver, spec, TwoNodeTensor()));
    TENSORSTORE_RETURN_IF_ERROR(VerifyTensor(driver, spec, TwoNodeTensor()));
  }
  if (mebibytes == 0) return absl::OkStatus();
  TENSORSTORE_RETURN_IF_ERROR(
      WriteTensor("zarr", spec, LargeTensor(mebibytes)));
  return VerifyTensor("zarr", spec, LargeTensor(mebibytes));
}

}  // namespace

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const int mebibytes = absl::GetFlag(FLAGS_mebibytes);
  if (mebibytes < 0) {
    return Conclude("Client", absl::InvalidArgumentError(absl::StrCat(
                                  "--mebibytes must not be negative: ",
                                  mebibytes)));
  }
  return Conclude("Client",
                  RunClient(absl::GetFlag(FLAGS_server_addr), mebibytes));
}
