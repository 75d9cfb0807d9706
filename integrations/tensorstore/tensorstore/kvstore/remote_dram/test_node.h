/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENSORSTORE_KVSTORE_REMOTE_DRAM_TEST_NODE_H_
#define TENSORSTORE_KVSTORE_REMOTE_DRAM_TEST_NODE_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace tensorstore {
namespace internal_remote_dram {

/// A port of the loopback device that nothing listened on a moment ago.
int FreePort();

/// A folder for the files of one test, removed at its end.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  std::string path(const std::string& name) const { return path_ + "/" + name; }
  /// A file that only its owner may read.
  std::string WriteSecret(const std::string& name, const std::string& text);

 private:
  std::string path_;
};

/// penstockd in a process of its own, on one address all its life.
class TestNode {
 public:
  /// `settings`: further arguments of penstockd.
  explicit TestNode(std::vector<std::string> settings = {});
  ~TestNode() { Stop(); }

  /// Starts it, or starts it again, and waits until it listens.
  void Start();
  /// Kills it and waits for its end.
  void Stop();
  void Signal(int signal);

  std::string address() const;

 private:
  std::vector<std::string> settings_;
  int port_;
  pid_t pid_ = -1;
};

}  // namespace internal_remote_dram
}  // namespace tensorstore

#endif  // TENSORSTORE_KVSTORE_REMOTE_DRAM_TEST_NODE_H_
