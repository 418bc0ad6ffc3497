// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// gpu_failure_test.cpp: mismatches, deadlines, aborts, killed processes, driver calls that fail.
#include <signal.h>

#include <chrono>

#include "gpu_test.hpp"

namespace sar::gpu::test {
namespace {

TEST_F(Gpu, DifferentCallsAreAMismatchOnAllRanksAndNothingIsWritten) {
  EXPECT_RANKS(run_ranks(Ranks::kThreads, 2, [](Rank& rank) {
    REQUIRE(rank.open() == SAR_OK);
    rank.write(rank.arena + 65536, Bytes(400, 0xee));
    const sar_status status =
        sar_all_reduce(rank.comm, rank.arena, rank.arena + 65536, 100 - rank.rank, SAR_FLOAT32,
                       SAR_SUM, SAR_AUTO, Rank::kTimeout);
    REQUIRE(status == SAR_MISMATCH);
    REQUIRE(std::strstr(sar_last_error(), "rank 0 has count 100, rank 1 99") != nullptr);
    REQUIRE(rank.read(rank.arena + 65536, 400) == Bytes(400, 0xee));
    REQUIRE(sar_comm_state(rank.comm) == SAR_STATE_ABORTED);
  }));
}

// A short message and a long one: `auto` chooses differently, but that is not the cause.
TEST_F(Gpu, DifferentCountsAreNamedAlsoWhereAutoChoosesDifferently) {
  EXPECT_RANKS(run_ranks(Ranks::kThreads, 2, [](Rank& rank) {
    REQUIRE(rank.open() == SAR_OK);
    const uint64_t count = rank.rank == 0 ? 1 : 200'000;
    REQUIRE(sar_all_reduce(rank.comm, rank.arena, rank.arena, count, SAR_FLOAT32, SAR_SUM, SAR_AUTO,
                           Rank::kTimeout) == SAR_MISMATCH);
    REQUIRE(std::strstr(sar_last_error(), "rank 0 has count 1, rank 1 200000") != nullptr);
  }));
}

TEST_F(Gpu, DifferentCapturesAreAMismatch) {
  EXPECT_RANKS(run_ranks(Ranks::kThreads, 2, [](Rank& rank) {
    REQUIRE(rank.open() == SAR_OK);
    sar_graph* graph = nullptr;
    REQUIRE(sar_gpu_capture_begin(rank.comm, Rank::kTimeout) == SAR_OK);
    REQUIRE(sar_all_reduce(rank.comm, rank.arena, rank.arena + 65536, 100,
                           rank.rank == 0 ? SAR_FLOAT32 : SAR_INT32, SAR_SUM, SAR_AUTO,
                           Rank::kTimeout) == SAR_OK);
    REQUIRE(sar_gpu_capture_end(rank.comm, Rank::kTimeout, &graph) == SAR_MISMATCH);
    REQUIRE(graph == nullptr);
  }));
}

// The kernels find it, since a replay has no host: nothing is written, and a new communicator
// works.
TEST_F(Gpu, ReplaysInDifferentOrderAreAMismatchAndTheDeviceStaysUsable) {
  EXPECT_RANKS(run_ranks(Ranks::kThreads, 2, [](Rank& rank) {
    for (sar_schedule schedule : {SAR_DIRECT_WRITE, SAR_LOW_LATENCY}) {
      REQUIRE(rank.open() == SAR_OK);
      sar_graph* graphs[2] = {};
      for (uint64_t g = 0; g < 2; ++g) {
        REQUIRE(sar_gpu_capture_begin(rank.comm, 20'000'000'000) == SAR_OK);
        REQUIRE(sar_all_reduce(rank.comm, rank.arena, rank.arena + 65536, kTiny - g, SAR_FLOAT32,
                               SAR_SUM, schedule, Rank::kTimeout) == SAR_OK);
        REQUIRE(sar_gpu_capture_end(rank.comm, Rank::kTimeout, &graphs[g]) == SAR_OK);
      }
      rank.write(rank.arena + 65536, Bytes(kTiny * 4, 0xee));
      REQUIRE(sar_gpu_replay(graphs[rank.rank]) == SAR_OK);
      REQUIRE(sar_gpu_wait(rank.comm, Rank::kTimeout) == SAR_MISMATCH, "schedule %d", schedule);
      REQUIRE(rank.read(rank.arena + 65536, kTiny * 4) == Bytes(kTiny * 4, 0xee));
      for (sar_graph* graph : graphs) sar_gpu_graph_destroy(graph);
      rank.close();
      rank.meet();
    }
    REQUIRE(rank.open() == SAR_OK);
    check_all_reduce(rank, SAR_FLOAT32, SAR_SUM, SAR_DIRECT_WRITE, 100, 1);
  }));
}

TEST_F(Gpu, AReplayThatARankMissesEndsAtTheDeadlineAndNamesIt) {
  EXPECT_RANKS(run_ranks(Ranks::kThreads, 3, [](Rank& rank) {
    REQUIRE(rank.open() == SAR_OK);
    sar_graph* graph = nullptr;
    REQUIRE(sar_gpu_capture_begin(rank.comm, 1'000'000'000) == SAR_OK);
    REQUIRE(sar_all_reduce(rank.comm, rank.arena, rank.arena, 100, SAR_FLOAT32, SAR_SUM,
                           SAR_LOAD_REDUCE_STORE, Rank::kTimeout) == SAR_OK);
    REQUIRE(sar_gpu_capture_end(rank.comm, Rank::kTimeout, &graph) == SAR_OK);
    if (rank.rank != 1) {
      REQUIRE(sar_gpu_replay(graph) == SAR_OK);
      REQUIRE(sar_gpu_wait(rank.comm, Rank::kTimeout) == SAR_TIMEOUT);
      sar_failure failure;
      sar_last_failure(&failure);
      REQUIRE(failure.missing_ranks == 2 && failure.culprit_rank == 1 && failure.step == 1);
      // Launches of one process may stand behind each other.
      REQUIRE(std::strstr(sar_last_error(), "hardware queue") != nullptr);
    }
    rank.meet();
    sar_gpu_graph_destroy(graph);
    rank.close();
    REQUIRE(rank.open() == SAR_OK);
    check_all_reduce(rank, SAR_FLOAT32, SAR_SUM, SAR_AUTO, 100, 1);
  }));
}

TEST_F(Gpu, AnAbortEndsAReplayThatWaits) {
  EXPECT_RANKS(run_ranks(Ranks::kThreads, 2, [](Rank& rank) {
    REQUIRE(rank.open() == SAR_OK);
    sar_graph* graph = nullptr;
    REQUIRE(sar_gpu_capture_begin(rank.comm, Rank::kTimeout) == SAR_OK);
    REQUIRE(sar_all_reduce(rank.comm, rank.arena, rank.arena, 100, SAR_FLOAT32, SAR_SUM, SAR_AUTO,
                           Rank::kTimeout) == SAR_OK);
    REQUIRE(sar_gpu_capture_end(rank.comm, Rank::kTimeout, &graph) == SAR_OK);
    if (rank.rank == 0) {
      REQUIRE(sar_gpu_replay(graph) == SAR_OK);
      rank.shared->word = 1;
      REQUIRE(sar_gpu_wait(rank.comm, Rank::kTimeout) == SAR_ABORTED);
      REQUIRE(std::strstr(sar_last_error(), "the task was killed") != nullptr);
    } else {
      while (rank.shared->word == 0) sched_yield();
      REQUIRE(sar_abort(rank.comm, 1, "the task was killed") == SAR_OK);
    }
    rank.meet();
    sar_gpu_graph_destroy(graph);
  }));
}

TEST_F(Gpu, AKilledProcessIsNamed) {
  EXPECT_RANKS(run_ranks(
      Ranks::kProcesses, 2,
      [](Rank& rank) {
        REQUIRE(rank.open() == SAR_OK);
        check_all_reduce(rank, SAR_FLOAT32, SAR_SUM, SAR_AUTO, 100, 1);
        if (rank.rank == 1) raise(SIGKILL);
        REQUIRE(sar_all_reduce(rank.comm, rank.arena, rank.arena, 100, SAR_FLOAT32, SAR_SUM,
                               SAR_AUTO, Rank::kTimeout) == SAR_PEER_LOST);
        sar_failure failure;
        sar_last_failure(&failure);
        REQUIRE(failure.culprit_rank == 1);
      },
      2));
}

// Captures one all-reduce of all ranks, to be replayed.
sar_graph* capture(Rank& rank) {
  sar_graph* graph = nullptr;
  REQUIRE(sar_gpu_capture_begin(rank.comm, Rank::kTimeout) == SAR_OK);
  REQUIRE(sar_all_reduce(rank.comm, rank.arena, rank.arena, 100, SAR_FLOAT32, SAR_SUM,
                         SAR_LOAD_REDUCE_STORE, Rank::kTimeout) == SAR_OK);
  REQUIRE(sar_gpu_capture_end(rank.comm, Rank::kTimeout, &graph) == SAR_OK);
  return graph;
}

// No host is in that wait, and the deadline is a minute away: only a look at the processes tells.
TEST_F(Gpu, AProcessKilledWhileKernelsWaitForItIsNamedWithTheWaitAndLongBeforeTheDeadline) {
  EXPECT_RANKS(run_ranks(
      Ranks::kProcesses, 3,
      [](Rank& rank) {
        REQUIRE(rank.open() == SAR_OK);
        sar_graph* graph = capture(rank);
        if (rank.rank == 1) {
          while (rank.shared->word != 2) sched_yield();
          raise(SIGKILL);
        }
        REQUIRE(sar_gpu_replay(graph) == SAR_OK);
        rank.shared->word++;
        REQUIRE(sar_gpu_wait(rank.comm, Rank::kTimeout) == SAR_PEER_LOST);
        REQUIRE(std::strstr(sar_last_error(), "the process of rank 1 has ended in all-reduce") !=
                nullptr);
        REQUIRE(std::strstr(sar_last_error(), "for it (wait 1 of the collective)") != nullptr);
        sar_failure failure;
        sar_last_failure(&failure);
        REQUIRE(failure.culprit_rank == 1 && failure.dead_ranks == 2 && failure.step == 1);
        REQUIRE(failure.collective == SAR_COLLECTIVE_ALL_REDUCE);
        REQUIRE(failure.waited_ns > 0 && failure.waited_ns < Rank::kTimeout);
        sar_gpu_graph_destroy(graph);
      },
      2));
}

TEST_F(Gpu, ARankThatLeavesWithoutAReplayIsNamedAndNotWaitedFor) {
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 2, [](Rank& rank) {
    REQUIRE(rank.open() == SAR_OK);
    sar_graph* graph = capture(rank);
    if (rank.rank == 0) {
      REQUIRE(sar_gpu_replay(graph) == SAR_OK);
      REQUIRE(sar_gpu_wait(rank.comm, Rank::kTimeout) == SAR_PEER_LOST);
      REQUIRE(std::strstr(sar_last_error(), "rank 1 has left the communicator") != nullptr);
      sar_failure failure;
      sar_last_failure(&failure);
      REQUIRE(failure.waited_ns < Rank::kTimeout);
    }
    sar_gpu_graph_destroy(graph);
  }));
}

// Whoever leaves has waited for its own kernels: then a slow rank's need nothing of it any more.
TEST_F(Gpu, ARankThatLeavesBehindItsLastReplayHarmsNobody) {
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 2, [](Rank& rank) {
    REQUIRE(rank.open() == SAR_OK);
    sar_graph* graph = capture(rank);
    for (int i = 0; i < 20; ++i) REQUIRE(sar_gpu_replay(graph) == SAR_OK);
    if (rank.rank == 0) REQUIRE(sar_gpu_wait(rank.comm, Rank::kTimeout) == SAR_OK);
    sar_gpu_graph_destroy(graph);
  }));
}

TEST_F(Gpu, ClosingDoesNotWaitForAProcessThatWasKilled) {
  EXPECT_RANKS(run_ranks(
      Ranks::kProcesses, 2,
      [](Rank& rank) {
        REQUIRE(rank.open() == SAR_OK);
        sar_graph* graph = capture(rank);
        if (rank.rank == 1) {
          while (rank.shared->word == 0) sched_yield();
          raise(SIGKILL);
        }
        REQUIRE(sar_gpu_replay(graph) == SAR_OK);
        rank.shared->word = 1;
        const auto started = std::chrono::steady_clock::now();
        sar_gpu_graph_destroy(graph);
        rank.close();
        REQUIRE(std::chrono::steady_clock::now() - started <
                std::chrono::nanoseconds(Rank::kTimeout));
      },
      2));
}

// Sets variables of the simulated driver for the processes that a test starts.
class Simulation {
 public:
  explicit Simulation(const char* devices, const char* fail = nullptr) {
    setenv("SIMULATED_DEVICES", devices, 1);
    if (fail != nullptr) setenv("SIMULATED_FAIL", fail, 1);
  }
  ~Simulation() {
    unsetenv("SIMULATED_DEVICES");
    unsetenv("SIMULATED_FAIL");
  }
};

TEST_F(Gpu, RanksOfOneProcessOwnADeviceEach) {
  const Simulation two("2");
  if (!has_devices(2)) GTEST_SKIP() << "needs two devices";
  EXPECT_RANKS(run_ranks(Ranks::kThreads, 2, [](Rank& rank) {
    REQUIRE(sar_gpu_select_device(rank.rank) == SAR_OK);
    REQUIRE(rank.open() == SAR_OK);
    check_all_reduce(rank, SAR_FLOAT32, SAR_SUM, SAR_AUTO, 5000, 1);
  }));
}

TEST_F(Gpu, ADeviceThatCannotReachAnotherOfItsProcessIsAStatusThatNamesBoth) {
  if (!simulated()) GTEST_SKIP() << "needs devices that cannot reach each other";
  for (const char* call : {"cuCtxEnablePeerAccess:217:1", "hipDeviceEnablePeerAccess:217:1"}) {
    const bool hip = std::strstr(std::getenv("SPARK_ALLREDUCE_GPU_DRIVER"), "hip") != nullptr;
    if (hip != (call[0] == 'h')) continue;
    const Simulation two("2", call);
    EXPECT_RANKS(run_ranks(Ranks::kThreads, 2, [](Rank& rank) {
      REQUIRE(sar_gpu_select_device(rank.rank) == SAR_OK);
      REQUIRE(rank.open() == SAR_SYSTEM_ERROR);
      REQUIRE(std::strstr(sar_last_error(), "on device simulated:0") != nullptr);
      REQUIRE(std::strstr(sar_last_error(), "on device simulated:1") != nullptr);
    }));
  }
}

class FailingCall : public testing::TestWithParam<const char*> {};

// Every driver call that can fail, failing: a status and a message on the rank that it happens to,
// an end for the peers that wait for it, and no crash.
TEST_P(FailingCall, IsAStatusWithAMessage) {
  if (!simulated()) GTEST_SKIP() << "only the simulated driver fails on demand";
  const std::string call = GetParam();
  for (const char* from : {"1", "2", "4"}) {
    EXPECT_RANKS(run_ranks(
        Ranks::kProcesses, 2,
        [&](Rank& rank) {
          if (rank.rank == 1) setenv("SIMULATED_FAIL", (call + ":2:" + from).c_str(), 1);
          sar_options options{};
          options.struct_bytes = sizeof options;
          options.rank = rank.rank;
          options.world_size = 2;
          options.arena_bytes = 1 << 20;
          options.staging_bytes = 1 << 20;
          const sar_status created = sar_comm_create(&options, &rank.comm);
          if (created != SAR_OK) {
            REQUIRE(rank.rank == 1 && rank.comm == nullptr && sar_last_error()[0] != 0);
            rank.shared->word = 1;
          } else {
            REQUIRE(sar_comm_handle(rank.comm,
                                    rank.shared->handles + rank.rank * SAR_HANDLE_BYTES) == SAR_OK);
          }
          rank.meet();
          if (rank.shared->word == 1) return;
          constexpr int64_t patience = 20'000'000'000;
          sar_status status = sar_comm_connect(rank.comm, rank.shared->handles, patience);
          void* base = nullptr;
          uint64_t bytes = 0;
          REQUIRE(sar_comm_arena(rank.comm, &base, &bytes) == SAR_OK);
          for (int i = 0; i < 3 && status == SAR_OK; ++i) {
            status = sar_all_reduce(rank.comm, base, base, 100, SAR_FLOAT32, SAR_SUM, SAR_AUTO,
                                    patience);
          }
          sar_graph* graph = nullptr;
          if (status == SAR_OK) status = sar_gpu_capture_begin(rank.comm, patience);
          if (status == SAR_OK) {
            status = sar_all_reduce(rank.comm, base, base, 100, SAR_FLOAT32, SAR_SUM, SAR_AUTO,
                                    patience);
            const sar_status ended = sar_gpu_capture_end(rank.comm, patience, &graph);
            if (status == SAR_OK) status = ended;
          }
          if (status == SAR_OK) status = sar_gpu_replay(graph);
          if (status == SAR_OK) status = sar_gpu_wait(rank.comm, patience);
          REQUIRE(status == SAR_OK || sar_last_error()[0] != 0);
          if (status != SAR_OK)
            sar_abort(rank.comm, static_cast<int32_t>(rank.rank), sar_last_error());
          sar_gpu_graph_destroy(graph);
        }))
        << call << " from call " << from;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cuda, FailingCall,
    testing::Values("cuInit", "cuDeviceGetCount", "cuDeviceGetAttribute", "cuDeviceGetPCIBusId",
                    "cuMemAlloc_v2", "cuMemGetAddressRange_v2", "cuMemsetD8_v2", "cuMemcpyHtoD_v2",
                    "cuMemHostRegister_v2", "cuMemHostGetDevicePointer_v2", "cuIpcGetMemHandle",
                    "cuIpcOpenMemHandle_v2", "cuStreamCreate", "cuStreamQuery",
                    "cuStreamSynchronize", "cuStreamBeginCapture_v2", "cuStreamEndCapture",
                    "cuModuleLoadDataEx", "cuModuleGetFunction", "cuLaunchKernel",
                    "cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuDevicePrimaryCtxRetain",
                    "cuCtxSetCurrent"));

INSTANTIATE_TEST_SUITE_P(Hip, FailingCall,
                         testing::Values("hipInit", "hipMalloc", "hipExtMallocWithFlags",
                                         "hipIpcGetMemHandle", "hipIpcOpenMemHandle",
                                         "hipModuleLoadDataEx", "hipModuleLaunchKernel",
                                         "hipStreamBeginCapture", "hipGraphLaunch",
                                         "hipSetDevice"));

}  // namespace
}  // namespace sar::gpu::test
