// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Ranks in processes of their own, as executors are; also killed ones.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "cases.hpp"
#include "segments.hpp"
#include "world.hpp"

namespace sar::testing {
namespace {

// What the processes of one test share besides the library: how they exchange handles.
struct Blackboard {
  std::atomic<uint32_t> created;
  std::atomic<uint64_t> rounds;  // of rank 0
  Handle handles[SAR_MAX_RANKS];
};

class Processes : public ::testing::Test {
 protected:
  Processes()
      : board_(new (mmap(nullptr, sizeof(Blackboard), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Blackboard{}) {}
  ~Processes() override {
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
    munmap(board_, sizeof(Blackboard));
  }

  // Starts a process that runs `body`, whose result is its exit code.
  template <typename Body>
  void start(Body body) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      _exit(body());
    }
    children_.push_back(child);
  }
  // Starts ranks 0 to count - 1; each creates, connects and runs `body(comm, rank)`.
  template <typename Body>
  void start_ranks(uint32_t count, Body body) {
    const uint64_t session = new_session();
    for (uint32_t rank = 0; rank < count; rank++) {
      start([=, this] {
        sar_comm *comm = create(rank, count, session);
        if (comm == nullptr || sar_comm_connect(comm, board_->handles, kPatience) != SAR_OK) {
          return fail_with("connect");
        }
        const int code = body(comm, rank);
        sar_comm_destroy(comm);
        return code;
      });
    }
  }

  // Creates a rank and waits for the handles of all others.
  sar_comm *create(uint32_t rank, uint32_t count, uint64_t session) {
    const sar_options options = options_for(rank, count, {}, session);
    sar_comm *comm = nullptr;
    if (sar_comm_create(&options, &comm) != SAR_OK) {
      return nullptr;
    }
    board_->handles[rank] = handle_of(comm);
    board_->created++;
    while (board_->created != count) {
      sched_yield();
    }
    return comm;
  }

  static int fail_with(const char *what) {
    fprintf(stderr, "process %d: %s: %s\n", getpid(), what, sar_last_error());
    return 1;
  }

  // Waits for one child; its exit code, or minus the signal that ended it.
  int result_of(size_t child) {
    int status = 0;
    EXPECT_EQ(waitpid(children_[child], &status, 0), children_[child]);
    EXPECT_TRUE(leftover_names(children_[child]).empty());
    children_[child] = 0;
    std::erase(children_, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  void expect_all_succeed() {
    while (!children_.empty()) {
      EXPECT_EQ(result_of(0), 0);
    }
  }

  Blackboard *board_;
  std::vector<pid_t> children_;
};

class ProcessWorld : public Processes, public ::testing::WithParamInterface<uint32_t> {};

TEST_P(ProcessWorld, AllReducesRightInEverySchedule) {
  const uint32_t count = GetParam();
  constexpr uint64_t length = 10'007;
  std::vector<Bytes> inputs;
  std::vector<const void *> pointers;
  for (uint32_t rank = 0; rank < count; rank++) {
    inputs.push_back(values(SAR_BFLOAT16, length, rank, 3));
  }
  for (const Bytes &input : inputs) {
    pointers.push_back(input.data());
  }
  const Bytes expected = reference_reduce(SAR_BFLOAT16, SAR_SUM, pointers, length);
  start_ranks(count, [&](sar_comm *comm, uint32_t rank) {
    void *arena = nullptr;
    uint64_t bytes = 0;
    sar_comm_arena(comm, &arena, &bytes);
    for (int round = 0; round < 20; round++) {
      for (const sar_schedule schedule : kSchedules) {
        std::memcpy(arena, inputs[rank].data(), inputs[rank].size());
        if (sar_all_reduce(comm, arena, arena, length, SAR_BFLOAT16, SAR_SUM, schedule,
                           kPatience) != SAR_OK) {
          return fail_with(name_of(schedule).c_str());
        }
        if (std::memcmp(arena, expected.data(), expected.size()) != 0) {
          return fail_with("wrong result");
        }
      }
    }
    return 0;
  });
  expect_all_succeed();
}

INSTANTIATE_TEST_SUITE_P(Ranks, ProcessWorld, ::testing::Values(2, 4, 8),
                         ::testing::PrintToStringParamName());

TEST_F(Processes, AKilledPeerIsLostLongBeforeTheDeadline) {
  constexpr uint32_t victim = 2;
  start_ranks(3, [&](sar_comm *comm, uint32_t rank) {
    double value[500] = {};
    while (true) {
      const sar_status status =
          sar_all_reduce(comm, value, value, 500, SAR_FLOAT64, SAR_MAX, SAR_AUTO, kPatience);
      if (status == SAR_OK) {
        board_->rounds += rank == 0 ? 1 : 0;
        continue;
      }
      const LastFailure failure = last_failure();
      const bool told =
          status == SAR_PEER_LOST && failure.facts.dead_ranks == 1u << victim &&
          failure.facts.culprit_rank == static_cast<int32_t>(victim) &&
          failure.message.find("the process of rank 2 has ended") != std::string::npos;
      // Half the deadline: not a matter of speed, but of having noticed it.
      return told && failure.facts.waited_ns < static_cast<uint64_t>(kPatience) / 2
                 ? 0
                 : fail_with("unexpected failure");
    }
  });
  while (board_->rounds < 500) {
    sched_yield();
  }
  kill(children_[victim], SIGKILL);
  EXPECT_EQ(result_of(victim), -SIGKILL);
  expect_all_succeed();
}

// Without a descriptor /proc cannot be read: the death must be found by other means.
TEST_F(Processes, AKilledPeerIsLostAlsoWithoutFileDescriptors) {
  start_ranks(2, [&](sar_comm *comm, uint32_t rank) {
    if (rank == 1) {
      board_->rounds++;
      while (true) {
        pause();
      }
    }
    rlimit none;
    getrlimit(RLIMIT_NOFILE, &none);
    none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
    board_->rounds++;
    const sar_status status = sar_barrier(comm, kPatience);
    return status == SAR_PEER_LOST && last_failure().facts.dead_ranks == 2u
               ? 0
               : fail_with("unexpected failure");
  });
  while (board_->rounds < 2) {
    sched_yield();
  }
  kill(children_[1], SIGKILL);
  EXPECT_EQ(result_of(1), -SIGKILL);
  expect_all_succeed();
}

TEST_F(Processes, AStoppedPeerIsToldFromADeadOne) {
  start_ranks(2, [&](sar_comm *comm, uint32_t rank) {
    if (rank == 1) {
      raise(SIGSTOP);
      return sar_barrier(comm, kPatience) == SAR_TIMEOUT ? 0 : fail_with("unexpected end");
    }
    while (board_->rounds == 0) {
      sched_yield();
    }
    const sar_status status = sar_barrier(comm, 20 * kMillisecond);
    const bool told =
        last_failure().message.find("rank 1 is alive, but stopped (state T") != std::string::npos;
    return status == SAR_TIMEOUT && told ? 0 : fail_with("unexpected failure");
  });
  int status = 0;
  ASSERT_EQ(waitpid(children_[1], &status, WUNTRACED), children_[1]);
  ASSERT_TRUE(WIFSTOPPED(status));
  board_->rounds = 1;
  EXPECT_EQ(result_of(0), 0);
  kill(children_[0], SIGCONT);
  expect_all_succeed();
}

TEST_F(Processes, APeerKilledBeforeItConnectsIsLostAndItsNameIsSwept) {
  const uint64_t session = new_session();
  start([=, this] {
    sar_comm *comm = create(0, 2, session);
    if (sar_comm_connect(comm, board_->handles, kPatience) != SAR_PEER_LOST) {
      return fail_with("unexpected end");
    }
    sar_comm_destroy(comm);
    return 0;
  });
  start([=, this] {
    create(1, 2, session);
    while (true) {
      pause();
    }
    return 0;
  });
  while (board_->created != 2) {
    sched_yield();
  }
  const pid_t victim = children_[1];
  kill(victim, SIGKILL);
  ASSERT_EQ(waitpid(victim, nullptr, 0), victim);
  children_.pop_back();
  expect_all_succeed();
  ASSERT_EQ(leftover_names(victim).size(), 1u);
  uint32_t removed = 0;
  EXPECT_EQ(sar_sweep(&removed), SAR_OK);
  EXPECT_GE(removed, 1u);
  EXPECT_TRUE(leftover_names(victim).empty());
}

TEST_F(Processes, SweepTouchesNothingButWhatDeadProcessesLeft) {
  start([] { return 0; });
  const pid_t dead = children_[0];
  EXPECT_EQ(result_of(0), 0);
  // A living segment, and names like it which are none of the sweep's business.
  const sar_options options = options_for(0, 1, {}, new_session());
  sar_comm *living = nullptr;
  ASSERT_EQ(sar_comm_create(&options, &living), SAR_OK) << sar_last_error();
  const Handle handle = handle_of(living);
  const std::string random(32, 'a');
  const auto name = [&](uint32_t uid, pid_t pid, uint64_t name_space, const std::string &tail) {
    return "/dev/shm/spark-allreduce-" + std::to_string(uid) + "-" + std::to_string(pid) + "-1-" +
           std::to_string(name_space) + "-" + tail;
  };
  const std::string kept[] = {
      name(geteuid() + 1, dead, handle.pid_namespace, random),
      name(geteuid(), dead, handle.pid_namespace + 1, random),  // of another PID namespace
      name(geteuid(), dead, handle.pid_namespace, "not-ours"),
      name(geteuid(), dead, handle.pid_namespace, random + "0"),
  };
  const std::string swept[] = {
      name(geteuid(), dead, handle.pid_namespace, random),
      name(geteuid(), getpid(), handle.pid_namespace, random),  // this pid, but started earlier
  };
  const auto create_file = [](const std::string &path) {
    close(open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
  };
  std::for_each(std::begin(kept), std::end(kept), create_file);
  std::for_each(std::begin(swept), std::end(swept), create_file);
  uint32_t removed = 0;
  EXPECT_EQ(sar_sweep(&removed), SAR_OK);
  EXPECT_GE(removed, 2u);
  EXPECT_EQ(sar_sweep(nullptr), SAR_OK);
  for (const std::string &path : kept) {
    EXPECT_EQ(access(path.c_str(), F_OK), 0) << path;
    unlink(path.c_str());
  }
  for (const std::string &path : swept) {
    EXPECT_NE(access(path.c_str(), F_OK), 0) << path;
  }
  EXPECT_EQ(access(("/dev/shm/" + std::string(handle.name)).c_str(), F_OK), 0);
  sar_comm_destroy(living);
}

TEST_F(Processes, ALimitOfFileSizesIsOutOfMemoryAndNoSignal) {
  start([] {
    const rlimit limit{1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    WorldOptions large;
    large.arena_bytes = 4 << 20;
    const sar_options options = options_for(0, 1, large, new_session());
    sar_comm *comm = nullptr;
    const sar_status status = sar_comm_create(&options, &comm);
    return status == SAR_OUT_OF_MEMORY &&
                   last_failure().message.find("limit of file sizes") != std::string::npos
               ? 0
               : fail_with("unexpected status");
  });
  expect_all_succeed();
}

}  // namespace
}  // namespace sar::testing
