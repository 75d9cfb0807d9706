// SPDX-License-Identifier: Apache-2.0
#include "tensorstore/kvstore/remote_dram/test_node.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>  // NOLINT
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/log/absl_log.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tensorstore {
namespace internal_remote_dram {
namespace {

std::string Program() {
  const char* build = getenv("PENSTOCK_BUILD");
  return absl::StrCat(build ? build : "build", "/penstockd");
}

// Whether the log says, in time, that the node listens.
bool AwaitListening(int log_fd) {
  const absl::Time until = absl::Now() + absl::Seconds(20);
  char text[65536];
  ssize_t bytes = 0;
  while (absl::Now() < until) {
    bytes = pread(log_fd, text, sizeof(text), 0);
    if (bytes > 0 &&
        absl::StrContains(std::string_view(text, bytes), "listening on ")) {
      return true;
    }
    absl::SleepFor(absl::Milliseconds(2));
  }
  ABSL_LOG(ERROR) << std::string_view(text, std::max<ssize_t>(bytes, 0));
  return false;
}

}  // namespace

int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ABSL_CHECK_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  ABSL_CHECK_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length),
                0);
  close(fd);
  return ntohs(address.sin_port);
}

TestFolder::TestFolder() {
  path_ = "/tmp/remote_dram_test-XXXXXX";
  ABSL_CHECK(mkdtemp(path_.data()));
}

TestFolder::~TestFolder() { std::filesystem::remove_all(path_); }

std::string TestFolder::WriteSecret(const std::string& name,
                                    const std::string& text) {
  const std::string file = path(name);
  std::ofstream(file) << text;
  ABSL_CHECK_EQ(chmod(file.c_str(), 0600), 0);
  return file;
}

TestNode::TestNode(std::vector<std::string> settings)
    : settings_(std::move(settings)), port_(FreePort()) {}

std::string TestNode::address() const {
  return absl::StrCat("127.0.0.1:", port_);
}

void TestNode::Start() {
  ABSL_CHECK_EQ(pid_, -1);
  std::vector<std::string> arguments = {Program(), "--listen", address(),
                                        "--dram", "64M"};
  arguments.insert(arguments.end(), settings_.begin(), settings_.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const int log_fd = memfd_create("log", MFD_CLOEXEC);
  ABSL_CHECK_GE(log_fd, 0);
  pid_ = fork();
  ABSL_CHECK_GE(pid_, 0);
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(log_fd, STDERR_FILENO);
    execv(argv[0], argv.data());
    dprintf(STDERR_FILENO, "%s: %s\n", argv[0], strerror(errno));
    _exit(127);
  }
  ABSL_CHECK(AwaitListening(log_fd)) << Program() << " does not listen";
  close(log_fd);
}

void TestNode::Signal(int signal) { ABSL_CHECK_EQ(kill(pid_, signal), 0); }

void TestNode::Stop() {
  if (pid_ < 0) return;
  Signal(SIGKILL);
  int status;
  ABSL_CHECK_EQ(waitpid(pid_, &status, 0), pid_);
  pid_ = -1;
}

}  // namespace internal_remote_dram
}  // namespace tensorstore
