// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Nobody gets in. Another user cannot reach a segment at all. A process of the same user can write
// into everything that ranks share, so it can spoil a result or end a communicator; it never makes
// a rank read or write outside of registered memory, whatever it writes and whenever.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>

#include "cases.hpp"
#include "segments.hpp"
#include "world.hpp"

namespace sar::testing {
namespace {

// A field of what ranks share: where it is in a segment, and how wide.
struct SharedField {
  const char *name;
  uint64_t offset;
  uint64_t bytes;
};

#define HEADER(field) \
  { "header_" #field, offsetof(Header, field), sizeof(Header::field) }
#define ABORT(field) \
  { "abort_" #field, kAbortOffset + offsetof(AbortRecord, field), sizeof(AbortRecord::field) }
#define CALL(line, field)                                                         \
  {                                                                               \
    "call" #line "_" #field,                                                      \
        kSignalPadOffset + (line) * sizeof(CallLine) + offsetof(CallLine, field), \
        sizeof(CallLine::field)                                                   \
  }
#define ANNOUNCEMENT(number, field)                                                 \
  {                                                                                 \
    "announcement" #number "_" #field,                                              \
        kSignalPadOffset + kAnnouncementsOffset + (number) * sizeof(Announcement) + \
            offsetof(Announcement, field),                                          \
        sizeof(Announcement::field)                                                 \
  }
#define CALL_LINE(line)                                                                        \
  CALL(line, sequence), CALL(line, count), CALL(line, total), CALL(line, input_offset),        \
      CALL(line, output_offset), CALL(line, collective), CALL(line, flags), CALL(line, epoch), \
      CALL(line, type), CALL(line, op), CALL(line, schedule), CALL(line, root), CALL(line, chosen)
#define ANNOUNCEMENT_OF(number)                                                                \
  ANNOUNCEMENT(number, opened_status), ANNOUNCEMENT(number, mapped_status),                    \
      ANNOUNCEMENT(number, device), ANNOUNCEMENT(number, inode), ANNOUNCEMENT(number, offset), \
      ANNOUNCEMENT(number, path), ANNOUNCEMENT(number, message)

const SharedField kFields[] = {
    HEADER(magic),
    HEADER(layout_version),
    HEADER(rank),
    HEADER(session_high),
    HEADER(session_low),
    HEADER(world_size),
    HEADER(first_epoch),
    HEADER(pid),
    HEADER(start_time),
    HEADER(pid_namespace),
    HEADER(segment_bytes),
    HEADER(arena_bytes),
    HEADER(staging_bytes),
    HEADER(attached_ranks),
    HEADER(presence),
    HEADER(doorbell),
    HEADER(waiting_for),
    HEADER(core),
    ABORT(state),
    ABORT(status),
    ABORT(origin_rank),
    ABORT(culprit_rank),
    ABORT(collective),
    ABORT(missing_ranks),
    ABORT(dead_ranks),
    ABORT(step),
    ABORT(sequence),
    ABORT(waited_ns),
    ABORT(message),
    CALL_LINE(0),
    CALL_LINE(1),
    {"step_epoch", kSignalPadOffset + kStepLineOffset, sizeof(StepLine::epoch)},
    ANNOUNCEMENT_OF(0),
    ANNOUNCEMENT_OF(1),
};

// Repeats until the bytes of the field are full.
const uint64_t kPatterns[] = {
    0,
    1,
    0x7fff'ffff'ffff'ffff,
    0xffff'ffff'ffff'ffff,
    0x0100'0000'0000'0040,  // region 1, which is registered only sometimes
    0x4000'0000'0000'0000,  // region 64
    0x0000'0000'0000'ffc0,  // near the end of the arena
    0x9e37'79b9'7f4a'7c15,
};

// Writes `pattern` and what was there, in turns, until it is told to stop: so that it also comes
// between a rank's look and its use.
class Intruder {
 public:
  Intruder(char *segment, const SharedField &field, uint64_t pattern)
      : field_(segment + field.offset), bytes_(field.bytes), thread_([this, pattern] {
          std::vector<char> was(field_, field_ + bytes_);
          std::vector<char> garbage(bytes_);
          for (uint64_t i = 0; i < bytes_; i++) {
            garbage[i] = static_cast<char>(pattern >> (8 * (i % 8)));
          }
          for (uint32_t turn = 0; !stop_; turn++) {
            write(turn % 2 == 0 ? garbage : was);
            for (uint32_t i = 0; i < 5 && !stop_; i++) {
              std::this_thread::yield();
            }
          }
        }) {}
  ~Intruder() {
    stop_ = true;
    thread_.join();
  }
  Intruder(const Intruder &) = delete;
  Intruder &operator=(const Intruder &) = delete;

 private:
  void write(const std::vector<char> &from) {
    for (uint64_t i = 0; i < bytes_; i++) {
      __atomic_store_n(field_ + i, from[i], __ATOMIC_RELAXED);
    }
  }

  char *field_;
  uint64_t bytes_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// A file that a rank can register; gone with the object.
class OwnFile {
 public:
  explicit OwnFile(uint32_t rank)
      // In the build's folder: a run that is killed leaves nothing in shared memory.
      : path_(std::filesystem::current_path().string() + "/intruder-test-" +
              std::to_string(getpid()) + "-" + std::to_string(rank)) {
    std::ofstream(path_) << std::string(kPageBytes, 'x');
  }
  ~OwnFile() { unlink(path_.c_str()); }
  OwnFile(const OwnFile &) = delete;
  OwnFile &operator=(const OwnFile &) = delete;

  const char *path() const { return path_.c_str(); }

 private:
  std::string path_;
};

// All collectives once, on registered memory and on heap memory; ends with the first failure.
class Program {
 public:
  Program(sar_comm *comm, uint32_t rank, unsigned char *arena) : comm_(comm), file_(rank) {
    for (unsigned char *memory : {arena, heap_.data()}) {
      const GuardedBuffer output(memory + kHalf, kBytes);
      output.poison();
      outputs_.push_back(output);
    }
    inputs_ = {arena, heap_.data()};
  }

  void run() {
    for (int round = 0; round < 3 && ok_; round++) {
      for (uint32_t memory = 0; memory < 2; memory++) {
        once(inputs_[memory], outputs_[memory].data());
      }
      with_registered_file();
    }
    // The peers' writes can land anywhere in the arena, but never in this process's heap.
    EXPECT_TRUE(outputs_[1].canaries_alive());
  }

 private:
  static constexpr uint64_t kCount = 2048;  // of float64 in a buffer: more than a staging slot
  static constexpr uint64_t kBytes = kCount * 8;
  static constexpr uint64_t kHalf = 24 * 1024;
  static constexpr int64_t kDeadline = 3 * kMillisecond;

  void once(void *in, void *out) {
    for (const sar_schedule schedule : kSchedules) {
      note(sar_all_reduce(comm_, in, out, kCount, SAR_FLOAT64, SAR_SUM, schedule, kDeadline));
    }
    const uint64_t part = kCount / 4;  // world size 2
    note(sar_reduce_scatter(comm_, in, out, part, SAR_FLOAT64, SAR_MAX, kDeadline));
    note(sar_all_gather(comm_, in, out, part, SAR_FLOAT64, kDeadline));
    note(sar_broadcast(comm_, in, out, part, SAR_FLOAT64, 1, kDeadline));
    note(sar_barrier(comm_, kDeadline));
  }

  void with_registered_file() {
    void *memory = nullptr;
    const sar_status status = sar_register(comm_, file_.path(), 0, kPageBytes, kDeadline, &memory);
    note(status);
    if (status == SAR_OK) {
      ASSERT_NE(memory, nullptr);
      note(sar_all_reduce(comm_, memory, memory, 512, SAR_FLOAT64, SAR_SUM, SAR_TWO_SHOT_READ,
                          kDeadline));
      note(sar_all_reduce(comm_, memory, memory, 512, SAR_FLOAT64, SAR_SUM, SAR_DIRECT_WRITE,
                          kDeadline));
      note(sar_deregister(comm_, memory, kDeadline));
    }
  }

  // A status of the header's, with facts that can be true and a text that ends.
  void note(sar_status status) {
    if (status == SAR_OK) {
      return;
    }
    ok_ = false;
    const LastFailure failure = last_failure();
    EXPECT_LE(static_cast<uint32_t>(status), static_cast<uint32_t>(SAR_UNSUPPORTED));
    EXPECT_EQ(failure.facts.status, static_cast<uint32_t>(status));
    EXPECT_LT(failure.facts.culprit_rank, 2);
    EXPECT_LT(failure.facts.origin_rank, 2);
    EXPECT_LT(failure.facts.missing_ranks, 4u);
    EXPECT_LT(failure.facts.dead_ranks, 4u);
    EXPECT_LT(failure.message.size(), size_t{SAR_MESSAGE_BYTES});
  }

  sar_comm *comm_;
  OwnFile file_;
  bool ok_ = true;
  std::vector<unsigned char> heap_ = std::vector<unsigned char>(2 * kHalf);
  std::vector<GuardedBuffer> outputs_;
  std::vector<unsigned char *> inputs_;
};

class Intrusion : public ::testing::TestWithParam<SharedField> {};

TEST_P(Intrusion, SpoilsAResultOrEndsTheCommunicatorAndNeverMore) {
  WorldOptions options;
  options.arena_bytes = SAR_MIN_STAGING_BYTES;
  options.spin_ns = 0;  // leaves the core to the intruder
  for (const uint64_t pattern : kPatterns) {
    const World world(2, options);
    const Intruder intruder(segment_of(world, 0), GetParam(), pattern);
    world.each_rank([&](uint32_t rank) {
      Program program(world.comm(rank), rank, world.arena(rank));
      program.run();
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Fields, Intrusion, ::testing::ValuesIn(kFields),
                         [](const auto &suite) { return std::string(suite.param.name); });

TEST(Intruders, CannotHideThatARankCouldNotMapItsFile) {
  const World world(2);
  const SharedField opened = ANNOUNCEMENT(1, opened_status);
  const Intruder intruder(segment_of(world, 1), opened, 0);
  const OwnFile file(0);
  world.each_rank([&](uint32_t rank) {
    void *memory = nullptr;
    const char *path = rank == 0 ? file.path() : "/dev/shm/there-is-no-such-file";
    // Rank 0 may believe the lie, and then waits for rank 1 until its deadline.
    EXPECT_NE(sar_register(world.comm(rank), path, 0, kPageBytes, 200 * kMillisecond, &memory),
              SAR_OK);
    EXPECT_EQ(memory, nullptr);
  });
}

TEST(Intruders, CannotHideThatARankCouldNotMapAPeersFile) {
  for (int round = 0; round < 20; round++) {
    const World world(2);
    // Rank 0 is shown another inode than rank 1's file has, and told that all is well.
    const SharedField inode = ANNOUNCEMENT(1, inode);
    const SharedField mapped = ANNOUNCEMENT(1, mapped_status);
    const Intruder liar(segment_of(world, 1), inode, 1);
    const Intruder flatterer(segment_of(world, 0), mapped, 0);
    world.each_rank([&](uint32_t rank) {
      const OwnFile file(rank);
      void *memory = nullptr;
      if (sar_register(world.comm(rank), file.path(), 0, kPageBytes, kPatience, &memory) ==
          SAR_OK) {
        ASSERT_NE(memory, nullptr);
        std::fill_n(static_cast<double *>(memory), 512, 1.0);
        // Its peers' parts must be mapped, or this would end the process.
        sar_all_reduce(world.comm(rank), memory, memory, 512, SAR_FLOAT64, SAR_SUM,
                       SAR_LOAD_REDUCE_STORE, 20 * kMillisecond);
      }
    });
  }
}

// What a process of the user `nobody` finds, as an exit code.
int as_nobody(const std::function<int()> &body) {
  const pid_t child = fork();
  if (child == 0) {
    constexpr uid_t nobody = 65534;
    _exit(setgid(nobody) == 0 && setuid(nobody) == 0 ? body() : 99);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(AnotherUser, CannotOpenMapReplaceOrRemoveASegmentNorSignalItsOwner) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root can become another user";
  }
  const sar_options options = options_for(0, 2, {}, new_session());
  sar_comm *comm = nullptr;
  ASSERT_EQ(sar_comm_create(&options, &comm), SAR_OK);
  const Handle handle = handle_of(comm);
  const std::string path = "/dev/shm/" + std::string(handle.name);
  const pid_t owner = getpid();
  EXPECT_EQ(as_nobody([&] {
              const bool shut = open(path.c_str(), O_RDONLY | O_CLOEXEC) < 0 && errno == EACCES &&
                                open(path.c_str(), O_RDWR | O_CLOEXEC) < 0 && errno == EACCES &&
                                truncate(path.c_str(), 0) != 0 && unlink(path.c_str()) != 0 &&
                                rename(path.c_str(), (path + "x").c_str()) != 0 &&
                                kill(owner, 0) != 0 && errno == EPERM;
              return shut ? 0 : 1;
            }),
            0);
  // Through the library: its own rank, with root's handle in the peer's place.
  EXPECT_EQ(as_nobody([&] {
              sar_options other = options;
              other.rank = 1;
              sar_comm *intruder = nullptr;
              if (sar_comm_create(&other, &intruder) != SAR_OK) {
                return 2;
              }
              const Handle handles[2] = {handle, handle_of(intruder)};
              const bool refused =
                  sar_comm_connect(intruder, handles, kMillisecond) == SAR_INVALID_ARGUMENT &&
                  last_failure().message.find("same user") != std::string::npos;
              sar_comm_destroy(intruder);
              return refused ? 0 : 1;
            }),
            0);
  // Nor does the sweep of another user touch it.
  EXPECT_EQ(as_nobody([] { return sar_sweep(nullptr) == SAR_OK ? 0 : 1; }), 0);
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
  sar_comm_destroy(comm);
}

}  // namespace
}  // namespace sar::testing
