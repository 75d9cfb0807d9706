// SPDX-License-Identifier: Apache-2.0
// TensorStore's own tests of a key-value store, on a node in another process,
// on one that is killed and started anew between the cases, and on one in this
// process.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stddef.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "tensorstore/context.h"
#include "tensorstore/internal/cache_key/cache_key.h"
#include "tensorstore/internal/global_initializer.h"
#include "tensorstore/kvstore/kvstore.h"
#include "tensorstore/kvstore/memory/memory_key_value_store.h"
#include "tensorstore/kvstore/operations.h"
#include "tensorstore/kvstore/remote_dram/test_node.h"
#include "tensorstore/kvstore/spec.h"
#include "tensorstore/kvstore/test_util.h"
#include "tensorstore/transaction.h"
#include "tensorstore/util/status_testutil.h"

namespace {

namespace kvstore = tensorstore::kvstore;
using ::tensorstore::Context;
using ::tensorstore::KvStore;
using ::tensorstore::internal::KeyValueStoreOpsTestParameters;
using ::tensorstore::internal_remote_dram::FreePort;
using ::tensorstore::internal_remote_dram::TestFolder;
using ::tensorstore::internal_remote_dram::TestNode;

using Callback = absl::FunctionRef<void(const KvStore&)>;

TestNode& Node() {
  static TestNode* node = [] {
    auto* node = new TestNode;
    node->Start();
    return node;
  }();
  return *node;
}

::nlohmann::json ClientSpec(const TestNode& node) {
  return {{"driver", "remote_dram"}, {"remote_addr", node.address()}};
}

void WithEmptyStore(::nlohmann::json spec, Callback callback) {
  spec["deadline"] = "60s";  // on a busy machine, too
  TENSORSTORE_ASSERT_OK_AND_ASSIGN(auto store, kvstore::Open(spec).result());
  TENSORSTORE_ASSERT_OK(kvstore::DeleteRange(store, {}).result());
  callback(store);
}

void WithNode(Callback callback) {
  WithEmptyStore(ClientSpec(Node()), callback);
}

void WithNodeOverTcp(Callback callback) {
  auto spec = ClientSpec(Node());
  spec["lane"] = "tcp";
  WithEmptyStore(spec, callback);
}

// The client connects to the new node by itself.
void WithRestartedNode(Callback callback) {
  static TestNode* node = new TestNode;
  static KvStore* store = nullptr;
  node->Stop();
  node->Start();
  if (!store) {
    store = new KvStore(kvstore::Open(ClientSpec(*node)).value());
  }
  callback(*store);
}

void WithOwnServer(Callback callback) {
  static const std::string address = absl::StrCat("127.0.0.1:", FreePort());
  WithEmptyStore(
      {{"driver", "remote_dram"}, {"listen_addr", address}, {"dram", "64M"}},
      callback);
}

// TensorStore's own driver without faults, as it is registered in its own test.
void WithMemory(Callback callback) {
  callback(tensorstore::GetMemoryKeyValueStore(/*atomic=*/true));
}

void Register(std::string name, size_t value_size,
              void (*get_store)(Callback)) {
  KeyValueStoreOpsTestParameters params;
  params.test_name = std::move(name);
  params.get_store = get_store;
  params.value_size = value_size;
  params.atomic_transaction = true;
  RegisterKeyValueStoreOpsTests(params);
}

TENSORSTORE_GLOBAL_INITIALIZER {
  Register("Node", 0, WithNode);
  Register("NodeLargeValues", 300000, WithNode);
  Register("NodeOverTcp", 100000, WithNodeOverTcp);
  Register("RestartedNode", 0, WithRestartedNode);
  Register("OwnServer", 0, WithOwnServer);
  Register("Memory", 0, WithMemory);
}

int Cases(std::string_view name) {
  const auto& all = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const auto& suite = *all.GetTestSuite(i);
    if (suite.name() == name) return suite.total_test_count();
  }
  return 0;
}

// What a driver says of itself decides which cases it gets.
TEST(RemoteDramTest, AsManyCasesAsTheMemoryDriver) {
  EXPECT_EQ(Cases("Memory"), 82);  // of TensorStore 0.1.86
  for (const char* name : {"Node", "NodeLargeValues", "NodeOverTcp",
                           "RestartedNode", "OwnServer"}) {
    EXPECT_EQ(Cases(name), Cases("Memory")) << name;
  }
}

TEST(RemoteDramTest, SpecRoundtrip) {
  tensorstore::internal::KeyValueStoreSpecRoundtripOptions options;
  options.full_spec = ClientSpec(Node());
  options.full_spec["path"] = "round/";
  options.url = absl::StrCat("remote_dram://", Node().address(), "/round/");
  tensorstore::internal::TestKeyValueStoreSpecRoundtrip(options);
}

TEST(RemoteDramTest, SpecRoundtripWithAllMembers) {
  TestFolder folder;
  TestNode node({"--secret-file", folder.WriteSecret("secret", "open sesame")});
  node.Start();
  tensorstore::internal::KeyValueStoreSpecRoundtripOptions options;
  options.spec_request_options.Set(tensorstore::unbind_context).IgnoreError();
  options.full_spec = {
      {"driver", "remote_dram"},
      {"remote_addr", node.address()},
      {"lane", "tcp"},
      {"deadline", "3s"},
      {"concurrency", 7},
      {"path", "all/"},
      {"remote_dram_client", "remote_dram_client#a"},
      {"context",
       {{"remote_dram_client#a", {{"secret_file", folder.path("secret")}}},
        {"data_copy_concurrency", ::nlohmann::json::object_t()}}},
  };
  tensorstore::internal::TestKeyValueStoreSpecRoundtrip(options);
}

TEST(RemoteDramTest, UrlRoundtrip) {
  tensorstore::internal::TestKeyValueStoreUrlRoundtrip(
      {{"driver", "remote_dram"}, {"remote_addr", "h:1"}, {"path", "a b/"}},
      "remote_dram://h:1/a%20b/");
  tensorstore::internal::TestKeyValueStoreUrlRoundtrip(
      {{"driver", "remote_dram"}, {"remote_addr", "[::1]:7000"}, {"path", "x"}},
      "remote_dram://[::1]:7000/x");
  tensorstore::internal::TestKeyValueStoreUrlRoundtrip(
      {{"driver", "remote_dram"},
       {"remote_addr", "unix:/run/penstock.sock"},
       {"path", "x/"}},
      "remote_dram://unix%3A%2Frun%2Fpenstock.sock/x/");
}

// Drivers of one context and spec are one, and so are their connections.
TEST(RemoteDramTest, OpenTwice) {
  auto context = Context::Default();
  const auto spec = ClientSpec(Node());
  TENSORSTORE_ASSERT_OK_AND_ASSIGN(auto store1,
                                   kvstore::Open(spec, context).result());
  TENSORSTORE_ASSERT_OK_AND_ASSIGN(auto store2,
                                   kvstore::Open(spec, context).result());
  EXPECT_EQ(store1.driver.get(), store2.driver.get());
  std::string key1, key3;
  TENSORSTORE_ASSERT_OK_AND_ASSIGN(auto store3, kvstore::Open(spec).result());
  tensorstore::internal::EncodeCacheKey(&key1, store1.driver);
  tensorstore::internal::EncodeCacheKey(&key3, store3.driver);
  EXPECT_NE(key1, key3);
}

}  // namespace
