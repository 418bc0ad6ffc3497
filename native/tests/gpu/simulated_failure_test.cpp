// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// simulated_failure_test.cpp: what a real driver seldom does, on demand. Only for the simulated
// drivers. Each fault happens on rank 1; its message is checked there, and that rank 0 is told.
#include <dlfcn.h>

#include "gpu_test.hpp"

namespace sar::gpu::test {
namespace {

bool is_hip() { return std::strstr(std::getenv("SPARK_ALLREDUCE_GPU_DRIVER"), "hip") != nullptr; }

bool last_error_has(const char* text) { return std::strstr(sar_last_error(), text) != nullptr; }

// The call of the driver's vendor fails with `error` from its n-th time on, in this process.
void let_fail(const char* cuda, const char* hip, int error, int from = 1) {
  const std::string told =
      std::string(is_hip() ? hip : cuda) + ":" + std::to_string(error) + ":" + std::to_string(from);
  setenv("SIMULATED_FAIL", told.c_str(), 1);
}

class Simulated : public testing::Test {
 protected:
  void SetUp() override {
    if (!simulated()) GTEST_SKIP() << "only the simulated drivers fail on demand";
  }
};

sar_status all_reduce(Rank& rank) {
  return sar_all_reduce(rank.comm, rank.arena, rank.arena, 100, SAR_FLOAT32, SAR_SUM, SAR_AUTO,
                        Rank::kTimeout);
}

TEST_F(Simulated, DeviceMemoryThatRunsOutIsAStatusOfItsOwn) {
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 1, [](Rank& rank) {
    let_fail("cuMemAlloc_v2", "hipMalloc", 2);
    REQUIRE(rank.open() == SAR_OUT_OF_MEMORY && rank.comm == nullptr);
    REQUIRE(last_error_has("rank 0 cannot allocate device memory"));
  }));
}

TEST_F(Simulated, AnIpcHandleThatDoesNotOpenNamesBothRanksAndTheConditions) {
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 2, [](Rank& rank) {
    if (rank.rank == 1) let_fail("cuIpcOpenMemHandle_v2", "hipIpcOpenMemHandle", 201);
    REQUIRE(rank.open() == SAR_SYSTEM_ERROR);
    REQUIRE(last_error_has("rank 1 on device simulated:0 cannot open the memory of rank 0"));
    REQUIRE(last_error_has("PID and IPC namespaces"));
  }));
}

// Nothing is aborted: the ranks may go on with another backend.
TEST_F(Simulated, DevicesThatDoNotReachEachOtherAreNamedOnAllRanksAlike) {
  setenv("SIMULATED_DEVICES", "2", 1);
  setenv("SIMULATED_PEER_ACCESS", "0", 1);
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 2, [](Rank& rank) {
    REQUIRE(sar_gpu_select_device(rank.rank) == SAR_OK);
    REQUIRE(rank.open() == SAR_UNSUPPORTED);
    REQUIRE(
        last_error_has("device simulated:0 of rank 0 cannot reach the memory of device "
                       "simulated:1 of rank 1"));
    REQUIRE(sar_comm_state(rank.comm) == SAR_STATE_OPEN);
    REQUIRE(all_reduce(rank) == SAR_INVALID_ARGUMENT && last_error_has("are not connected"));
  }));
  unsetenv("SIMULATED_DEVICES");
  unsetenv("SIMULATED_PEER_ACCESS");
}

TEST_F(Simulated, ALostDeviceIsNamedOnAllRanks) {
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 2, [](Rank& rank) {
    if (rank.rank == 1) let_fail("cuStreamQuery", "hipStreamQuery", 719, 3);
    REQUIRE(rank.open() == SAR_OK);
    sar_status status = SAR_OK;
    for (int i = 0; i < 100 && status == SAR_OK; ++i) status = all_reduce(rank);
    REQUIRE(status == SAR_SYSTEM_ERROR);
    REQUIRE(last_error_has("the device of rank 1 failed"));
    sar_failure failure;
    sar_last_failure(&failure);
    REQUIRE(failure.culprit_rank == 1);
  }));
}

TEST_F(Simulated, ADeviceWithoutKernelsIsFoundBeforeTheRanksMeet) {
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 1, [](Rank& rank) {
    let_fail("cuModuleLoadDataEx", "hipModuleLoadDataEx", 209);
    REQUIRE(rank.open() == SAR_SYSTEM_ERROR && rank.comm == nullptr);
    REQUIRE(last_error_has("cannot load the kernels for this device"));
  }));
}

TEST_F(Simulated, AModuleThatDoesNotLoadIsAStatusOnAllRanks) {
  if (is_hip()) GTEST_SKIP() << "one module has the kernels of all types";
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 2, [](Rank& rank) {
    if (rank.rank == 1) let_fail("cuModuleLoadDataEx", "", 209, 2);  // of the second type
    REQUIRE(rank.open() == SAR_OK);
    REQUIRE(sar_all_reduce(rank.comm, rank.arena, rank.arena, 100, SAR_INT32, SAR_SUM, SAR_AUTO,
                           Rank::kTimeout) == SAR_SYSTEM_ERROR);
    REQUIRE(last_error_has("cannot load the kernels for this device"));
  }));
}

TEST_F(Simulated, AGraphThatOneRankCannotMakeIsToldToThoseWhoWaitForIt) {
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 2, [](Rank& rank) {
    if (rank.rank == 1) let_fail("cuGraphInstantiateWithFlags", "hipGraphInstantiateWithFlags", 2);
    REQUIRE(rank.open() == SAR_OK);
    REQUIRE(sar_gpu_capture_begin(rank.comm, Rank::kTimeout) == SAR_OK);
    REQUIRE(all_reduce(rank) == SAR_OK);
    sar_graph* graph = nullptr;
    REQUIRE(sar_gpu_capture_end(rank.comm, Rank::kTimeout, &graph) == SAR_OUT_OF_MEMORY);
    REQUIRE(last_error_has("rank 1 cannot instantiate the graph"));
  }));
}

// The peers have arrived, or wait for this rank at the end of the capture: they are told.
TEST_F(Simulated, ACallOfTheDriverThatFailsInAStepIsToldToThoseWhoWaitForIt) {
  const struct {
    const char *cuda, *hip, *message;
  } cases[] = {
      {"cuGraphLaunch", "hipGraphLaunch", "rank 1 cannot launch the graph"},
      {"cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync", "rank 1 cannot copy to the device"},
      {"cuStreamBeginCapture_v2", "hipStreamBeginCapture", "rank 1 cannot begin a capture"},
      {"cuLaunchKernel", "hipModuleLaunchKernel", "rank 1 cannot launch a kernel"}};
  for (const auto& c : cases) {
    EXPECT_RANKS(run_ranks(Ranks::kProcesses, 2, [&](Rank& rank) {
      if (rank.rank == 1) let_fail(c.cuda, c.hip, 719);
      REQUIRE(rank.open() == SAR_OK);
      sar_graph* graph = nullptr;
      sar_status status = sar_gpu_pinned_to_device(rank.comm, 0, rank.arena, 64);
      if (status == SAR_OK) status = sar_gpu_capture_begin(rank.comm, Rank::kTimeout);
      if (status == SAR_OK) status = all_reduce(rank);
      if (status == SAR_OK) status = sar_gpu_capture_end(rank.comm, Rank::kTimeout, &graph);
      if (status == SAR_OK) status = sar_gpu_replay(graph);
      if (status == SAR_OK) status = sar_gpu_wait(rank.comm, Rank::kTimeout);
      REQUIRE(status == SAR_SYSTEM_ERROR && last_error_has(c.message));
      sar_gpu_graph_destroy(graph);
      REQUIRE(all_reduce(rank) == SAR_SYSTEM_ERROR && last_error_has(c.message));
    })) << c.cuda;
  }
}

// A graph of an older driver cannot hold launches that overlap.
TEST_F(Simulated, LaunchesOverlapWhereTheDriverIsNewEnough) {
  if (is_hip()) GTEST_SKIP() << "AMD has no such launches";
  for (const char* version : {"12020", "12030"}) {
    setenv("SIMULATED_VERSION", version, 1);
    EXPECT_RANKS(run_ranks(Ranks::kThreads, 2, [](Rank& rank) {
      REQUIRE(rank.open() == SAR_OK);
      check_all_reduce(rank, SAR_FLOAT32, SAR_SUM, SAR_AUTO, 100, 1);
      rank.meet();
      int (*overlapping)() = nullptr;
      void* driver = dlopen(std::getenv("SPARK_ALLREDUCE_GPU_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
      void* symbol = dlsym(driver, "simulated_overlapping_launches");
      std::memcpy(&overlapping, &symbol, sizeof symbol);
      const bool old = std::strcmp(std::getenv("SIMULATED_VERSION"), "12020") == 0;
      REQUIRE(overlapping() == (old ? 0 : 2));
    }));
  }
  unsetenv("SIMULATED_VERSION");
}

// No library of a driver: what an old driver looks like, one of whose functions is missing.
TEST_F(Simulated, ALibraryThatLacksAFunctionIsCalledTooOld) {
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 1, [](Rank& rank) {
    setenv("SPARK_ALLREDUCE_GPU_DRIVER", "libm.so.6", 1);
    REQUIRE(rank.open() == SAR_UNSUPPORTED);
    REQUIRE(last_error_has("libm.so.6 has no function"));
    REQUIRE(last_error_has("too old"));
  }));
}

TEST_F(Simulated, ADriverThatDoesNotStartSaysWhy) {
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 1, [](Rank& rank) {
    let_fail("cuInit", "hipInit", 803);
    REQUIRE(rank.open() == SAR_UNSUPPORTED);
    REQUIRE(last_error_has("does not start") && last_error_has("(803)"));
  }));
}

TEST_F(Simulated, ALaunchThatCouldDeadlockIsRefusedWithTheNumbers) {
  // The simulated device has 4 multiprocessors, of one block each.
  EXPECT_RANKS(run_ranks(Ranks::kThreads, 5, [](Rank& rank) {
    REQUIRE(rank.open() == SAR_UNSUPPORTED);
    REQUIRE(last_error_has("has 4 multiprocessors, but 5 ranks"));
  }));
}

// The pad and the staging buffers must not be in memory that a device caches for itself.
TEST_F(Simulated, SignalsInCachedMemoryAreNoFallbackOnAmd) {
  if (!is_hip()) GTEST_SKIP() << "NVIDIA's device memory serves";
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 1, [](Rank& rank) {
    let_fail("", "hipExtMallocWithFlags", 2);  // uncached, and fine-grained too
    REQUIRE(rank.open() == SAR_OUT_OF_MEMORY);
  }));
}

TEST_F(Simulated, RegistrationsThatDifferBetweenRanksAreFoundBeforeHandlesAreExchanged) {
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 2, [](Rank& rank) {
    REQUIRE(rank.open() == SAR_OK);
    if (rank.rank == 1) let_fail("cuIpcOpenMemHandle_v2", "hipIpcOpenMemHandle", 201);
    const sar_status status = rank.rank == 0
                                  ? sar_gpu_register(rank.comm, rank.arena, 64, Rank::kTimeout)
                                  : all_reduce(rank);
    REQUIRE(status == SAR_MISMATCH);
  }));
}

TEST_F(Simulated, MemoryThatCannotBeExportedIsRefusedWithTheReason) {
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 2, [](Rank& rank) {
    Rank other(rank.rank, rank.world, rank.shared + 1);
    if (rank.rank == 1) let_fail("cuIpcGetMemHandle", "hipIpcGetMemHandle", 1, 7);
    REQUIRE(rank.open() == SAR_OK);
    REQUIRE(other.open(1 << 20, 1 << 20, 0, 2) == SAR_OK);  // three exports each
    REQUIRE(sar_gpu_register(rank.comm, other.arena, 64, Rank::kTimeout) != SAR_OK);
    REQUIRE(last_error_has("virtual-memory pool"));
    other.close();
  }));
}

// A known fault of others: two streams that use one communicator at once mix up their signals.
TEST_F(Simulated, ASecondThreadOnACommunicatorIsRefusedWhileTheFirstIsInside) {
  EXPECT_RANKS(run_ranks(Ranks::kThreads, 2, [](Rank& rank) {
    REQUIRE(rank.open() == SAR_OK);
    if (rank.rank == 0) {
      std::thread first([&] { REQUIRE(all_reduce(rank) == SAR_OK); });
      while (sar_comm_sequence(rank.comm) == 0) sched_yield();
      REQUIRE(all_reduce(rank) == SAR_INVALID_ARGUMENT);
      REQUIRE(last_error_has("another thread is inside of a call"));
      rank.shared->word = 1;
      first.join();
    } else {
      while (rank.shared->word == 0) sched_yield();
      REQUIRE(all_reduce(rank) == SAR_OK);
    }
    check_all_reduce(rank, SAR_FLOAT32, SAR_SUM, SAR_DIRECT_WRITE, 100, 1);
  }));
}

// Two communicators, each with a stream and a thread of its own, at once in each process.
TEST_F(Simulated, TwoCommunicatorsOfOneProcessRunAtOnce) {
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 2, [](Rank& rank) {
    Rank other(rank.rank, rank.world, rank.shared + 1);
    REQUIRE(rank.open() == SAR_OK);
    REQUIRE(other.open(1 << 20, 1 << 20, 0, 2) == SAR_OK);
    std::thread second([&] {
      for (uint64_t i = 0; i < 20; ++i) {
        const std::vector<Bytes> values = inputs(SAR_INT32, 50, 2, i);
        other.write(other.arena, values[rank.rank]);
        REQUIRE(sar_all_reduce(other.comm, other.arena, other.arena, 50, SAR_INT32, SAR_SUM,
                               SAR_DIRECT_WRITE, Rank::kTimeout) == SAR_OK);
        REQUIRE(other.read(other.arena, 200) == reduced(SAR_INT32, SAR_SUM, pointers(values), 50));
      }
    });
    for (uint64_t i = 0; i < 20; ++i) {
      check_all_reduce(rank, SAR_BFLOAT16, SAR_SUM, SAR_LOAD_REDUCE_STORE, 77, i);
    }
    second.join();
    other.close();
  }));
}

}  // namespace
}  // namespace sar::gpu::test
