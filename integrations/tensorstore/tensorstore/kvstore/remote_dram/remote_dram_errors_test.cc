// SPDX-License-Identifier: Apache-2.0
// Bad specs, servers that fail, and what else can go wrong: the status a user
// gets, within the deadline, and that nothing is lost.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stddef.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/log/absl_log.h"
#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tensorstore/context.h"
#include "tensorstore/kvstore/byte_range.h"
#include "tensorstore/kvstore/generation.h"
#include "tensorstore/kvstore/key_range.h"
#include "tensorstore/kvstore/kvstore.h"
#include "tensorstore/kvstore/operations.h"
#include "tensorstore/kvstore/remote_dram/test_node.h"
#include "tensorstore/kvstore/spec.h"
#include "tensorstore/kvstore/test_matchers.h"
#include "tensorstore/transaction.h"
#include "tensorstore/util/future.h"
#include "tensorstore/util/status_testutil.h"

namespace {

namespace kvstore = tensorstore::kvstore;
using ::tensorstore::KvStore;
using ::tensorstore::OptionalByteRangeRequest;
using ::tensorstore::StatusIs;
using ::tensorstore::StorageGeneration;
using ::tensorstore::internal::MatchesKvsReadResult;
using ::tensorstore::internal::MatchesKvsReadResultNotFound;
using ::tensorstore::internal_remote_dram::FreePort;
using ::tensorstore::internal_remote_dram::TestFolder;
using ::tensorstore::internal_remote_dram::TestNode;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using Json = ::nlohmann::json;

constexpr size_t kMiB = size_t{1} << 20;

KvStore OpenClient(const std::string& address, Json members = {}) {
  Json spec = {{"driver", "remote_dram"},
               {"remote_addr", address},
               {"deadline", "60s"}};  // on a busy machine, too
  for (auto& [name, value] : members.items()) spec[name] = value;
  auto store = kvstore::Open(spec).result();
  EXPECT_TRUE(store.ok()) << store.status();
  return store.value();
}

absl::Status SpecError(Json members) {
  members["driver"] = "remote_dram";
  return kvstore::Spec::FromJson(members).status();
}

absl::Status OpenError(Json members) {
  members["driver"] = "remote_dram";
  return kvstore::Open(members).status();
}

// ---- specs ----

TEST(RemoteDramSpecTest, NeitherAddress) {
  EXPECT_THAT(OpenError(Json::object()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("remote_addr"), HasSubstr("listen_addr"),
                             HasSubstr("needs"))));
}

TEST(RemoteDramSpecTest, BothAddresses) {
  EXPECT_THAT(
      SpecError({{"remote_addr", "a:1"}, {"listen_addr", "127.0.0.1:1"}}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("exclude each other")));
}

TEST(RemoteDramSpecTest, MalformedAddress) {
  for (const char* address :
       {"", "host", ":12345", "1:2:3", "::1", "::1:12345", "[::1]", "[::1",
        "a/b:1", "u@h:1", "unix:", "unix:relative", "h?lane=tcp:1"}) {
    for (const char* member : {"remote_addr", "listen_addr"}) {
      EXPECT_THAT(
          SpecError({{member, address}}),
          StatusIs(absl::StatusCode::kInvalidArgument,
                   HasSubstr("Server address must be in format host:port")))
          << address;
    }
  }
}

TEST(RemoteDramSpecTest, MalformedPort) {
  for (const char* port : {"", "0", "65536", "99999999999", "x", "12x", "-1"}) {
    EXPECT_THAT(SpecError({{"remote_addr", absl::StrCat("host:", port)}}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("Invalid port number")))
        << port;
  }
}

TEST(RemoteDramSpecTest, MalformedMembers) {
  const Json bad[] = {
      {{"remote_addr", 7}},
      {{"remote_addr", "h:1"}, {"colour", "red"}},
      {{"remote_addr", "h:1"}, {"fabric", "mine"}},
      {{"remote_addr", "h:1"}, {"lane", "pigeon"}},
      {{"remote_addr", "h:1"}, {"dram", "1G"}},
      {{"remote_addr", "h:1"}, {"deadline", "0s"}},
      {{"remote_addr", "h:1"}, {"deadline", 10}},
      {{"remote_addr", "h:1"}, {"concurrency", 0}},
      {{"remote_addr", "h:1"}, {"remote_dram_client", {{"secret", "x"}}}},
  };
  for (const Json& members : bad) {
    EXPECT_THAT(SpecError(members),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << members;
  }
}

TEST(RemoteDramSpecTest, MalformedUrl) {
  for (const char* url : {"remote_dram://", "remote_dram://host/path",
                          "remote_dram://host:0/", "remote_dram://h:1/?a=b"}) {
    EXPECT_THAT(kvstore::Spec::FromUrl(url),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << url;
  }
}

// ---- connecting ----

TEST(RemoteDramConnectTest, NobodyThere) {
  const std::string address = absl::StrCat("127.0.0.1:", FreePort());
  EXPECT_THAT(OpenError({{"remote_addr", address}}),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(address)));
  EXPECT_THAT(
      OpenError({{"remote_addr", "/nowhere/at/all"}}),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("/nowhere/at/all")));
}

TEST(RemoteDramConnectTest, Secrets) {
  TestFolder folder;
  const std::string right = folder.WriteSecret("right", "open sesame");
  const std::string wrong = folder.WriteSecret("wrong", "open barley");
  TestNode node({"--secret-file", right});
  node.Start();
  const auto with = [&](const std::string& file) {
    return Json{{"remote_addr", node.address()}, {"secret_file", file}};
  };
  EXPECT_THAT(
      OpenError(with(wrong)),
      StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr(node.address())));
  EXPECT_THAT(OpenError({{"remote_addr", node.address()}}),
              StatusIs(absl::StatusCode::kUnauthenticated));
  EXPECT_FALSE(OpenError(with(folder.path("none"))).ok());
  KvStore store = OpenClient(node.address(), {{"secret_file", right}});
  TENSORSTORE_EXPECT_OK(kvstore::Write(store, "k", absl::Cord("v")).result());
}

// ---- serving ----

TEST(RemoteDramServerTest, WildcardServesThisMachine) {
  const int port = FreePort();
  auto server = kvstore::Open({{"driver", "remote_dram"},
                               {"listen_addr", absl::StrCat("0.0.0.0:", port)},
                               {"dram", "16M"}})
                    .result();
  TENSORSTORE_ASSERT_OK(server);
  KvStore client = OpenClient(absl::StrCat("127.0.0.1:", port));
  TENSORSTORE_EXPECT_OK(kvstore::Write(client, "k", absl::Cord("v")).result());
  EXPECT_THAT(kvstore::Read(*server, "k").result(),
              MatchesKvsReadResult(absl::Cord("v")));
}

TEST(RemoteDramServerTest, EndsWithItsLastHandle) {
  const std::string address = absl::StrCat("127.0.0.1:", FreePort());
  const Json spec = {
      {"driver", "remote_dram"}, {"listen_addr", address}, {"dram", "16M"}};
  {
    TENSORSTORE_ASSERT_OK_AND_ASSIGN(auto a, kvstore::Open(spec).result());
    {
      TENSORSTORE_ASSERT_OK_AND_ASSIGN(auto b, kvstore::Open(spec).result());
      TENSORSTORE_EXPECT_OK(kvstore::Write(b, "k", absl::Cord("v")).result());
    }
    EXPECT_THAT(kvstore::Read(a, "k").result(),
                MatchesKvsReadResult(absl::Cord("v")));
    Json other = spec;
    other["dram"] = "32M";
    EXPECT_THAT(kvstore::Open(other).result(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("other settings")));
  }
  EXPECT_THAT(OpenError({{"remote_addr", address}}),
              StatusIs(absl::StatusCode::kUnavailable));
  // The address is free again, and the new node is empty.
  TENSORSTORE_ASSERT_OK_AND_ASSIGN(auto store, kvstore::Open(spec).result());
  EXPECT_THAT(kvstore::Read(store, "k").result(),
              MatchesKvsReadResultNotFound());
}

TEST(RemoteDramServerTest, AddressInUse) {
  TestNode node;
  node.Start();
  EXPECT_THAT(OpenError({{"listen_addr", node.address()}, {"dram", "16M"}}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr(node.address())));
  EXPECT_THAT(
      OpenError({{"listen_addr", absl::StrCat("127.0.0.1:", FreePort())},
                 {"dram", "lots"}}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("lots")));
}

// ---- values ----

class RemoteDramValueTest : public ::testing::Test {
 protected:
  void SetUp() override { node_.Start(); }

  TestNode node_;
};

TEST_F(RemoteDramValueTest, RangeOutside) {
  KvStore store = OpenClient(node_.address());
  for (size_t bytes : {size_t{100}, 3 * kMiB}) {
    TENSORSTORE_ASSERT_OK(
        kvstore::Write(store, "k", absl::Cord(std::string(bytes, 'x')))
            .result());
    const int64_t end = bytes;
    for (const auto& range :
         {OptionalByteRangeRequest::Range(0, end + 1),
          OptionalByteRangeRequest::Range(end, end + 1),
          OptionalByteRangeRequest::Range(end + 1, end + 1),
          OptionalByteRangeRequest::Suffix(end + 1),
          OptionalByteRangeRequest::SuffixLength(end + 1)}) {
      kvstore::ReadOptions options;
      options.byte_range = range;
      EXPECT_THAT(
          kvstore::Read(store, "k", options).result(),
          StatusIs(absl::StatusCode::kOutOfRange,
                   AllOf(HasSubstr("\"k\""), HasSubstr(node_.address()))))
          << range;
      EXPECT_THAT(kvstore::Read(store, "absent", options).result(),
                  MatchesKvsReadResultNotFound());
    }
  }
}

TEST_F(RemoteDramValueTest, Ranges) {
  KvStore store = OpenClient(node_.address());
  std::string value;
  for (size_t i = 0; i < 200000; ++i) value.push_back(static_cast<char>(i * 7));
  TENSORSTORE_ASSERT_OK(kvstore::Write(store, "k", absl::Cord(value)).result());
  const int64_t end = value.size();
  for (const auto& range :
       {OptionalByteRangeRequest(), OptionalByteRangeRequest::Stat(),
        OptionalByteRangeRequest::Range(5, 5),
        OptionalByteRangeRequest::Range(end, end),
        OptionalByteRangeRequest::Range(17, 150000),
        OptionalByteRangeRequest::Suffix(3),
        OptionalByteRangeRequest::Suffix(end),
        OptionalByteRangeRequest::SuffixLength(1),
        OptionalByteRangeRequest::SuffixLength(end)}) {
    kvstore::ReadOptions options;
    options.byte_range = range;
    TENSORSTORE_ASSERT_OK_AND_ASSIGN(auto expected, range.Validate(end));
    EXPECT_THAT(kvstore::Read(store, "k", options).result(),
                MatchesKvsReadResult(absl::Cord(
                    value.substr(expected.inclusive_min, expected.size()))))
        << range;
  }
}

TEST_F(RemoteDramValueTest, Keys) {
  KvStore store = OpenClient(node_.address());
  for (const std::string& key : {std::string(), std::string(4097, 'k')}) {
    EXPECT_THAT(kvstore::Write(store, key, absl::Cord("v")).result(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(node_.address())));
    EXPECT_THAT(kvstore::Read(store, key).result(),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  const std::string longest(4096, 'k');
  TENSORSTORE_EXPECT_OK(
      kvstore::Write(store, longest, absl::Cord("v")).result());
  EXPECT_THAT(kvstore::Read(store, longest).result(),
              MatchesKvsReadResult(absl::Cord("v")));
}

// A value in thousands of pieces, of no size limit but the node's memory.
TEST_F(RemoteDramValueTest, ScatteredValue) {
  KvStore store = OpenClient(node_.address());
  absl::Cord value;
  for (int i = 0; i < 5000; ++i) {
    auto text = std::make_unique<std::string>(1000 + i % 7, 'a' + i % 26);
    const std::string_view chunk = *text;
    value.Append(
        absl::MakeCordFromExternal(chunk, [text = std::move(text)] {}));
  }
  TENSORSTORE_ASSERT_OK(kvstore::Write(store, "k", value).result());
  EXPECT_THAT(kvstore::Read(store, "k").result(), MatchesKvsReadResult(value));
}

TEST_F(RemoteDramValueTest, OutOfMemory) {
  KvStore store = OpenClient(node_.address());
  TENSORSTORE_ASSERT_OK(
      kvstore::Write(store, "kept", absl::Cord("v")).result());
  const absl::Cord part(std::string(8 * kMiB, 'x'));
  absl::Status status;
  for (int i = 0; i < 9 && status.ok(); ++i) {
    status = kvstore::Write(store, absl::StrCat("k", i), part).status();
  }
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr(node_.address()), HasSubstr("\"k"))));
  EXPECT_THAT(
      kvstore::Write(store, "huge", absl::Cord(std::string(65 * kMiB, 'x')))
          .result(),
      StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(kvstore::Read(store, "k0").result(), MatchesKvsReadResult(part));
  EXPECT_THAT(kvstore::Read(store, "kept").result(),
              MatchesKvsReadResult(absl::Cord("v")));
  TENSORSTORE_EXPECT_OK(
      kvstore::DeleteRange(store, tensorstore::KeyRange::Prefix("k")).result());
  TENSORSTORE_EXPECT_OK(kvstore::Write(store, "k", part).result());
}

// Small values, large ones, and none: guesses of their sizes never matter.
TEST_F(RemoteDramValueTest, ManySizesAtOnce) {
  KvStore store = OpenClient(node_.address(), {{"concurrency", 50}});
  std::vector<tensorstore::AnyFuture> writes;
  const auto value = [](int i) {
    return absl::Cord(std::string(size_t{1} << (i % 19), 'a' + i % 26));
  };
  for (int i = 0; i < 300; ++i) {
    writes.push_back(kvstore::Write(store, absl::StrCat("k", i), value(i)));
  }
  for (auto& write : writes) TENSORSTORE_ASSERT_OK(write.status());
  std::vector<tensorstore::Future<kvstore::ReadResult>> reads;
  for (int i = 0; i < 300; ++i) {
    reads.push_back(kvstore::Read(store, absl::StrCat("k", i)));
  }
  for (int i = 0; i < 300; ++i) {
    EXPECT_THAT(reads[i].result(), MatchesKvsReadResult(value(i)));
  }
}

// What nobody waits for any more does no harm.
TEST_F(RemoteDramValueTest, Cancelled) {
  KvStore store = OpenClient(node_.address(), {{"concurrency", 1}});
  const absl::Cord value(std::string(kMiB, 'x'));
  for (int i = 0; i < 50; ++i) {
    auto dropped = kvstore::Write(store, "k", value);
    auto read = kvstore::Read(store, "k");
  }
  store = {};
  KvStore other = OpenClient(node_.address());
  TENSORSTORE_EXPECT_OK(kvstore::Write(other, "k", value).result());
}

// Futures complete on TensorStore's threads: what runs there may wait for
// others of the same store.
TEST_F(RemoteDramValueTest, CallbackWaits) {
  TENSORSTORE_ASSERT_OK_AND_ASSIGN(
      auto context, tensorstore::Context::FromJson(
                        {{"data_copy_concurrency", {{"limit", 4}}}}));
  TENSORSTORE_ASSERT_OK_AND_ASSIGN(
      auto store, kvstore::Open({{"driver", "remote_dram"},
                                 {"remote_addr", node_.address()}},
                                context)
                      .result());
  TENSORSTORE_ASSERT_OK(kvstore::Write(store, "k", absl::Cord("v")).result());
  absl::Notification done;
  kvstore::Read(store, "k")
      .ExecuteWhenReady([&](tensorstore::ReadyFuture<kvstore::ReadResult>) {
        EXPECT_THAT(kvstore::Read(store, "k").result(),
                    MatchesKvsReadResult(absl::Cord("v")));
        done.Notify();
      });
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(20)));
}

// ---- servers that fail ----

constexpr char kDeadline[] = "2s";

// Reads under way when `signal` comes: each ends in time, with the value or
// with an error that is none of "not found".
void FailInMidRead(TestNode& node, int signal) {
  // Only what fails is in a hurry, so that a busy machine passes.
  KvStore patient = OpenClient(node.address());
  KvStore store = OpenClient(node.address(), {{"deadline", kDeadline}});
  const absl::Cord value(std::string(8 * kMiB, 'x'));
  for (int i = 0; i < 4; ++i) {
    TENSORSTORE_ASSERT_OK(
        kvstore::Write(patient, absl::StrCat("k", i), value).result());
  }
  std::vector<tensorstore::Future<kvstore::ReadResult>> reads;
  for (int i = 0; i < 40; ++i) {
    reads.push_back(kvstore::Read(store, absl::StrCat("k", i % 4)));
  }
  node.Signal(signal);
  const absl::Time begin = absl::Now();
  reads.push_back(kvstore::Read(store, "k0"));  // which comes too late
  int failed = 0;
  for (auto& read : reads) {
    if (read.result().ok()) {
      EXPECT_THAT(read.result(), MatchesKvsReadResult(value));
      continue;
    }
    ++failed;
    EXPECT_THAT(read.status(),
                StatusIs(AnyOf(absl::StatusCode::kDeadlineExceeded,
                               absl::StatusCode::kUnavailable),
                         AllOf(HasSubstr(node.address()), HasSubstr("\"k"))));
  }
  EXPECT_GT(failed, 0);
  ABSL_LOG(INFO) << failed << " of " << reads.size() << " reads failed after "
                 << absl::Now() - begin;
  EXPECT_THAT(kvstore::Write(store, "k9", absl::Cord("v")).result(),
              StatusIs(AnyOf(absl::StatusCode::kDeadlineExceeded,
                             absl::StatusCode::kUnavailable)));
  // Twice the deadline, and what connecting takes, with room for a busy
  // machine.
  EXPECT_LT(absl::Now() - begin, absl::Seconds(30));
}

TEST(RemoteDramFailureTest, KilledInMidRead) {
  TestNode node;
  node.Start();
  FailInMidRead(node, SIGKILL);
  // Clients of a node that is there again carry on.
  KvStore late;
  node.Stop();
  node.Start();
  late = OpenClient(node.address());
  TENSORSTORE_EXPECT_OK(kvstore::Write(late, "k", absl::Cord("v")).result());
}

TEST(RemoteDramFailureTest, StoppedInMidRead) {
  TestNode node;
  node.Start();
  FailInMidRead(node, SIGSTOP);
  node.Signal(SIGCONT);
  KvStore store = OpenClient(node.address());
  TENSORSTORE_EXPECT_OK(kvstore::Read(store, "k0").result());
}

// A client that had nothing underway when its server ended has lost nothing:
// its next write finds the one that is there now.
TEST(RemoteDramFailureTest, WritesAfterRestarts) {
  TestNode node;
  node.Start();
  KvStore store = OpenClient(node.address());
  for (int i = 0; i < 3; ++i) {
    TENSORSTORE_EXPECT_OK(kvstore::Write(store, "k", absl::Cord("v")).result());
    node.Stop();
    node.Start();
    TENSORSTORE_EXPECT_OK(kvstore::Write(store, "k", absl::Cord("w")).result());
    EXPECT_THAT(kvstore::Read(store, "k").result(),
                MatchesKvsReadResult(absl::Cord("w")));
    node.Stop();
    node.Start();
    auto transaction = tensorstore::Transaction(tensorstore::atomic_isolated);
    TENSORSTORE_ASSERT_OK(
        kvstore::Write((store | transaction).value(), "t", absl::Cord("v")));
    TENSORSTORE_EXPECT_OK(transaction.CommitAsync().result());
  }
}

TEST(RemoteDramFailureTest, ListAndDeleteWithoutServer) {
  TestNode node;
  node.Start();
  KvStore store = OpenClient(node.address(), {{"deadline", kDeadline}});
  node.Stop();
  const auto failed = StatusIs(AnyOf(absl::StatusCode::kDeadlineExceeded,
                                     absl::StatusCode::kUnavailable),
                               HasSubstr(node.address()));
  EXPECT_THAT(kvstore::ListFuture(store).result(), failed);
  EXPECT_THAT(kvstore::DeleteRange(store, {}).result(), failed);
  auto transaction = tensorstore::Transaction(tensorstore::atomic_isolated);
  TENSORSTORE_ASSERT_OK(
      kvstore::Write((store | transaction).value(), "k", absl::Cord("v")));
  EXPECT_THAT(transaction.CommitAsync().result(), failed);
}

// ---- transactions ----

TEST_F(RemoteDramValueTest, AtomicOverManyKeys) {
  KvStore store = OpenClient(node_.address());
  const auto write_keys = [&](int count, tensorstore::TransactionMode mode) {
    auto transaction = tensorstore::Transaction(mode);
    KvStore inside = (store | transaction).value();
    for (int i = 0; i < count; ++i) {
      kvstore::Write(inside, absl::StrCat("t", i),
                     absl::Cord(std::string(i * 20, 'x')))
          .IgnoreFuture();
    }
    return transaction.CommitAsync().status();
  };
  TENSORSTORE_EXPECT_OK(write_keys(255, tensorstore::atomic_isolated));
  EXPECT_THAT(kvstore::ListFuture(store).value(), ::testing::SizeIs(255));
  EXPECT_THAT(write_keys(256, tensorstore::atomic_isolated),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("255"), HasSubstr(node_.address()))));
  EXPECT_THAT(kvstore::ListFuture(store).value(), ::testing::SizeIs(255));
  TENSORSTORE_EXPECT_OK(write_keys(256, tensorstore::isolated));
  EXPECT_THAT(kvstore::ListFuture(store).value(), ::testing::SizeIs(256));
}

// A condition that fails keeps all of the transaction away.
TEST_F(RemoteDramValueTest, AtomicWithConditions) {
  KvStore store = OpenClient(node_.address());
  TENSORSTORE_ASSERT_OK_AND_ASSIGN(
      auto first, kvstore::Write(store, "a", absl::Cord("1")).result());
  auto transaction = tensorstore::Transaction(tensorstore::atomic_isolated);
  KvStore inside = (store | transaction).value();
  TENSORSTORE_ASSERT_OK(
      kvstore::Write(inside, "a", absl::Cord("2"), {first.generation}));
  TENSORSTORE_ASSERT_OK(kvstore::Write(inside, "b", absl::Cord("2")));
  TENSORSTORE_ASSERT_OK(kvstore::Write(store, "a", absl::Cord("3")).result());
  EXPECT_THAT(transaction.CommitAsync().result(),
              StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(kvstore::Read(store, "a").result(),
              MatchesKvsReadResult(absl::Cord("3")));
  EXPECT_THAT(kvstore::Read(store, "b").result(),
              MatchesKvsReadResultNotFound());
}

TEST_F(RemoteDramValueTest, AtomicDeleteRange) {
  KvStore store = OpenClient(node_.address());
  for (const char* key : {"a", "p/1", "p/2", "p/3", "q"}) {
    TENSORSTORE_ASSERT_OK(kvstore::Write(store, key, absl::Cord("v")).result());
  }
  auto transaction = tensorstore::Transaction(tensorstore::atomic_isolated);
  KvStore inside = (store | transaction).value();
  TENSORSTORE_ASSERT_OK(kvstore::Write(inside, "p/2", absl::Cord("gone")));
  TENSORSTORE_ASSERT_OK(
      kvstore::DeleteRange(inside, tensorstore::KeyRange::Prefix("p/")));
  TENSORSTORE_ASSERT_OK(kvstore::Write(inside, "p/4", absl::Cord("new")));
  EXPECT_THAT(kvstore::ListFuture(store).value(), ::testing::SizeIs(5));
  TENSORSTORE_ASSERT_OK(transaction.CommitAsync().result());
  TENSORSTORE_ASSERT_OK_AND_ASSIGN(auto entries,
                                   kvstore::ListFuture(store).result());
  std::vector<std::string> keys;
  for (auto& entry : entries) keys.push_back(entry.key);
  EXPECT_THAT(keys, ::testing::UnorderedElementsAre("a", "p/4", "q"));
}

}  // namespace
