// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Creating, connecting, and what is refused: options, handles, and what handles name.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "segments.hpp"
#include "world.hpp"

namespace sar::testing {
namespace {

std::string path_of(const std::string &name) { return "/dev/shm/" + name; }

// Two ranks that have been created but not connected.
class Connecting : public ::testing::Test {
 protected:
  Connecting() {
    const uint64_t session = new_session();
    for (uint32_t rank = 0; rank < 2; rank++) {
      const sar_options options = options_for(rank, 2, {}, session);
      EXPECT_EQ(sar_comm_create(&options, &comms_[rank]), SAR_OK) << sar_last_error();
      handles_[rank] = handle_of(comms_[rank]);
    }
  }
  ~Connecting() override {
    for (sar_comm *comm : comms_) {
      sar_comm_destroy(comm);
    }
    for (const std::string &name : made_) {
      unlink(path_of(name).c_str());
    }
  }

  // Rank 0 connects with rank 1's handle changed.
  void expect_refused(const std::function<void(Handle &)> &change, const char *why) {
    Handle forged[2] = {handles_[0], handles_[1]};
    change(forged[1]);
    EXPECT_EQ(sar_comm_connect(comms_[0], forged, kPatience), SAR_INVALID_ARGUMENT);
    EXPECT_TRUE(says(last_failure().message, {"rank 1", why}));
    EXPECT_EQ(sar_comm_state(comms_[0]), SAR_STATE_OPENING);
  }

  // A name that rank 1's process could have chosen, removed at the end.
  std::string new_name(char digit) {
    std::string name = handles_[1].name;
    name.replace(name.size() - 32, 32, 32, digit);
    made_.push_back(name);
    return name;
  }
  static void rename(Handle &handle, const std::string &name) {
    std::strncpy(handle.name, name.c_str(), sizeof handle.name - 1);
  }
  // A file there with the given content size and permissions, all zeros.
  std::string make_file(char digit, uint64_t bytes, mode_t mode) {
    const std::string name = new_name(digit);
    const int fd = open(path_of(name).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    EXPECT_GE(fd, 0);
    EXPECT_EQ(ftruncate(fd, static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(fchmod(fd, mode), 0);
    close(fd);
    return name;
  }

  void expect_connects() {
    on_threads(2, [&](uint32_t rank) {
      EXPECT_EQ(sar_comm_connect(comms_[rank], handles_, kPatience), SAR_OK) << sar_last_error();
    });
    EXPECT_EQ(sar_comm_state(comms_[0]), SAR_STATE_OPEN);
  }

  sar_comm *comms_[2] = {};
  Handle handles_[2];
  std::vector<std::string> made_;
};

TEST_F(Connecting, RemovesTheNamesOnceAllHaveMapped) {
  EXPECT_EQ(leftover_names().size(), 2u);
  expect_connects();
  EXPECT_EQ(leftover_names().size(), 0u);
}

TEST_F(Connecting, RefusesForgedFieldsAndConnectsWithTheRightOnesLater) {
  expect_refused([](Handle &h) { h.magic++; }, "not a handle");
  expect_refused([](Handle &h) { std::memset(&h, 0, sizeof h); }, "not a handle");
  expect_refused([](Handle &h) { std::memset(&h, 0xff, sizeof h); }, "not a handle");
  expect_refused([](Handle &h) { h.layout_version++; }, "another version");
  expect_refused([](Handle &h) { h.session_high++; }, "another session");
  expect_refused([](Handle &h) { h.session_low++; }, "another session");
  expect_refused([](Handle &h) { h.rank = 0; }, "rank 0");
  expect_refused([](Handle &h) { h.rank = UINT32_MAX; }, "rank 4294967295");
  expect_refused([](Handle &h) { h.world_size = 3; }, "world_size 3");
  expect_refused([](Handle &h) { h.first_epoch = 9; }, "first_epoch 9");
  expect_refused([](Handle &h) { h.arena_bytes *= 2; }, "arena_bytes");
  expect_refused([](Handle &h) { h.arena_bytes = UINT64_MAX; }, "arena_bytes");
  expect_refused([](Handle &h) { h.staging_bytes = 1; }, "staging_bytes 1");
  expect_refused([](Handle &h) { h.segment_bytes = UINT64_MAX; }, "segment_bytes");
  expect_refused([](Handle &h) { h.segment_bytes = 0; }, "segment_bytes 0");
  expect_refused([&](Handle &h) { h = handles_[0]; }, "rank 0");
  expect_connects();
}

TEST_F(Connecting, RefusesNamesThatTheProcessWouldNotHaveChosen) {
  const char *why = "would not have chosen";
  expect_refused([](Handle &h) { std::memset(h.name, 'a', sizeof h.name); }, why);
  expect_refused([](Handle &h) { h.name[0] = 0; }, why);
  expect_refused([](Handle &h) { std::strcpy(h.name, "../../etc/passwd"); }, why);
  expect_refused([](Handle &h) { h.name[std::strlen(h.name) - 1] = '/'; }, why);
  expect_refused([](Handle &h) { h.name[std::strlen(h.name) - 1] = 0; }, why);
  expect_refused([](Handle &h) { std::strcat(h.name, "0"); }, why);
  expect_refused([](Handle &h) { h.pid++; }, why);
  expect_refused([](Handle &h) { h.start_time++; }, why);
  expect_refused([](Handle &h) { h.pid_namespace++; }, why);
  // No terminator within the field.
  expect_refused(
      [](Handle &h) {
        const size_t length = std::strlen(h.name);
        std::memset(h.name + length, '0', sizeof h.name - length);
      },
      why);
  expect_connects();
}

TEST_F(Connecting, RefusesASegmentThatIsNotThePeersOwn) {
  const uint64_t bytes = handles_[1].segment_bytes;
  const std::string link = new_name('a');
  ASSERT_EQ(symlink(path_of(handles_[1].name).c_str(), path_of(link).c_str()), 0);
  const std::string folder = new_name('b');
  ASSERT_EQ(mkfifo(path_of(folder).c_str(), 0600), 0);
  const auto named = [](const std::string &name) { return [=](Handle &h) { rename(h, name); }; };
  expect_refused(named(link), "symbolic link");
  expect_refused(named(folder), "no regular file");
  expect_refused(named(make_file('c', bytes, 0644)), "other users may access");
  expect_refused(named(make_file('d', bytes - 4096, 0600)), "another size");
  expect_refused(named(make_file('e', bytes + 4096, 0600)), "another size");
  expect_refused(named(make_file('f', bytes, 0600)), "another session or rank");
  expect_refused(named(handles_[0].name), "names the segment of rank 0");
  expect_connects();
}

TEST_F(Connecting, RefusesASegmentOfAnotherUser) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root can make a file of another user";
  }
  const std::string name = make_file('a', handles_[1].segment_bytes, 0600);
  ASSERT_EQ(chown(path_of(name).c_str(), 65534, 65534), 0);
  expect_refused([&](Handle &h) { rename(h, name); }, "another user");
}

TEST_F(Connecting, FailsOnAllIfASegmentIsGone) {
  sar_comm_destroy(comms_[1]);
  comms_[1] = nullptr;
  EXPECT_EQ(sar_comm_connect(comms_[0], handles_, kPatience), SAR_PEER_LOST);
  EXPECT_TRUE(says(last_failure().message, {"rank 1", "/dev/shm"}));
  EXPECT_EQ(last_failure().facts.culprit_rank, 1);
  EXPECT_EQ(sar_comm_state(comms_[0]), SAR_STATE_ABORTED);
}

TEST_F(Connecting, EndsWhenAPeerIsDestroyedInTheMeantime) {
  on_threads(2, [&](uint32_t thread) {
    if (thread == 0) {
      EXPECT_EQ(sar_comm_connect(comms_[0], handles_, kPatience), SAR_PEER_LOST);
      EXPECT_TRUE(says(last_failure().message, {"rank 1"}));
    } else {
      sar_comm_destroy(comms_[1]);
      comms_[1] = nullptr;
    }
  });
}

// Rank 1 has not mapped rank 0, so cannot tell it; rank 0 looks.
TEST_F(Connecting, EndsWhenAPeerAbortsInTheMeantime) {
  on_threads(2, [&](uint32_t thread) {
    if (thread == 0) {
      EXPECT_EQ(sar_comm_connect(comms_[0], handles_, kPatience), SAR_ABORTED);
      EXPECT_TRUE(says(last_failure().message, {"rank 1 reports: never mind"}));
    } else {
      EXPECT_EQ(sar_abort(comms_[1], 1, "never mind"), SAR_OK);
    }
  });
  EXPECT_EQ(sar_comm_connect(comms_[1], handles_, kPatience), SAR_ABORTED);
}

TEST_F(Connecting, TimesOutNamingWhoHasNotMapped) {
  EXPECT_EQ(sar_comm_connect(comms_[0], handles_, 5 * kMillisecond), SAR_TIMEOUT);
  EXPECT_TRUE(says(last_failure().message, {"connect", "rank 1"}));
  EXPECT_EQ(last_failure().facts.missing_ranks, 0b10u);
}

TEST_F(Connecting, ComesBeforeCollectivesAndHappensOnce) {
  EXPECT_EQ(sar_barrier(comms_[0], kPatience), SAR_INVALID_ARGUMENT);
  EXPECT_TRUE(says(last_failure().message, {"connect it first"}));
  EXPECT_EQ(sar_comm_detach(comms_[0]), SAR_INVALID_ARGUMENT);
  EXPECT_EQ(sar_comm_connect(comms_[0], handles_, 0), SAR_INVALID_ARGUMENT);
  expect_connects();
  EXPECT_EQ(sar_comm_connect(comms_[0], handles_, kPatience), SAR_INVALID_ARGUMENT);
  EXPECT_TRUE(says(last_failure().message, {"already"}));
}

class Creating : public ::testing::Test {
 protected:
  void expect_refused(const std::function<void(sar_options &)> &change, const char *why,
                      sar_status status = SAR_INVALID_ARGUMENT) {
    sar_options options = options_for(0, 2, {}, new_session());
    change(options);
    sar_comm *comm = reinterpret_cast<sar_comm *>(8);
    EXPECT_EQ(sar_comm_create(&options, &comm), status);
    EXPECT_EQ(comm, nullptr);
    EXPECT_TRUE(says(last_failure().message, {why}));
  }
};

TEST_F(Creating, RefusesOptionsThatMakeNoSense) {
  expect_refused([](sar_options &o) { o.struct_bytes--; }, "different versions");
  expect_refused([](sar_options &o) { o.world_size = 0; }, "world_size is 0");
  expect_refused([](sar_options &o) { o.world_size = 17; }, "world_size is 17");
  expect_refused([](sar_options &o) { o.rank = 2; }, "rank is 2");
  expect_refused([](sar_options &o) { o.staging_bytes = 65535; }, "staging_bytes is 65535");
}

TEST_F(Creating, SaysTheCureWhenSharedMemoryIsShort) {
  for (const uint64_t bytes : {uint64_t{1} << 50, uint64_t{1} << 62, UINT64_MAX}) {
    expect_refused([&](sar_options &o) { o.arena_bytes = bytes; }, "enlarge /dev/shm",
                   SAR_OUT_OF_MEMORY);
    expect_refused([&](sar_options &o) { o.staging_bytes = bytes; }, "smaller arena",
                   SAR_OUT_OF_MEMORY);
  }
}

TEST_F(Creating, GivesAZeroedPageAlignedArenaAndRoundsUp) {
  WorldOptions options;
  options.arena_bytes = 70'000;
  const World world(1, options);
  void *base = nullptr;
  uint64_t bytes = 0;
  ASSERT_EQ(sar_comm_arena(world.comm(0), &base, &bytes), SAR_OK);
  EXPECT_EQ(bytes, 73'728u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(base) % 4096, 0u);
  const auto *arena = static_cast<const unsigned char *>(base);
  EXPECT_TRUE(std::all_of(arena, arena + bytes, [](unsigned char byte) { return byte == 0; }));
}

TEST(Constants, AreWhatTheHeaderSays) {
  size_t count = 0;
  const sar_constant *constants = sar_constants(&count);
  const auto value = [&](const std::string &name) -> uint64_t {
    for (size_t i = 0; i < count; i++) {
      if (name == constants[i].name) {
        return constants[i].value;
      }
    }
    ADD_FAILURE() << name << " is missing";
    return UINT64_MAX;
  };
  EXPECT_EQ(sar_abi_version(), SAR_ABI_VERSION);
  EXPECT_EQ(value("SAR_ABI_VERSION"), SAR_ABI_VERSION);
  EXPECT_EQ(value("SAR_UNSUPPORTED"), 8u);
  EXPECT_EQ(value("SAR_LOAD_REDUCE_STORE"), 5u);
  EXPECT_EQ(value("sizeof(sar_options)"), sizeof(sar_options));
  EXPECT_EQ(value("sar_options.spin_ns"), offsetof(sar_options, spin_ns));
  EXPECT_EQ(value("sizeof(sar_failure)"), sizeof(sar_failure));
  EXPECT_EQ(value("sar_failure.waited_ns"), offsetof(sar_failure, waited_ns));
  EXPECT_EQ(value("sar_statistics.unregistered"), offsetof(sar_statistics, unregistered));
  EXPECT_EQ(value("sar_statistics.peer_wait_ns"), offsetof(sar_statistics, peer_wait_ns));
  EXPECT_TRUE(says(sar_build_info(), {"spark-allreduce", "host"}));
}

}  // namespace
}  // namespace sar::testing
