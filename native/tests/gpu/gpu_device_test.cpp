// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// gpu_device_test.cpp: what a caller does with its device beside collectives: facts, enqueued
// calls, pinned copies, foreign memory, captures that are given up.
#include "gpu_test.hpp"

namespace sar::gpu::test {
namespace {

TEST_F(Gpu, FactsNameTheDeviceAndItsMemory) {
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 1, [](Rank& rank) {
    sar_gpu_facts facts;
    REQUIRE(sar_gpu_device_facts(0, &facts) == SAR_OK);
    REQUIRE(facts.name[0] != 0 && facts.bus_id[0] != 0 && facts.driver_version > 0);
    REQUIRE(std::strncmp(facts.uuid, "GPU-", 4) == 0 && std::strlen(facts.uuid) >= 20);
    uint64_t before = 0, during = 0, after = 0;
    REQUIRE(sar_gpu_free_memory(0, &before) == SAR_OK);
    REQUIRE(before > 0 && before <= facts.memory_bytes);
    REQUIRE(rank.open(64 << 20) == SAR_OK);
    REQUIRE(sar_gpu_free_memory(0, &during) == SAR_OK);
    REQUIRE(during + (64 << 20) <= before);
    rank.close();
    REQUIRE(sar_gpu_free_memory(0, &after) == SAR_OK);
    REQUIRE(after > during);
    REQUIRE(sar_gpu_device_facts(1000, &facts) == SAR_INVALID_ARGUMENT);
  }));
}

// Fills the input through one pinned buffer and reads the result through the other.
void enqueue_and_read(Rank& rank) {
  REQUIRE(rank.open() == SAR_OK);
  constexpr uint64_t kCount = 5000, kBytes = kCount * sizeof(float);
  void *in = nullptr, *out = nullptr;
  uint64_t bytes = 0;
  REQUIRE(sar_gpu_pinned(rank.comm, 0, &in, &bytes) == SAR_OK && bytes >= kBytes);
  REQUIRE(sar_gpu_pinned(rank.comm, 1, &out, &bytes) == SAR_OK);
  REQUIRE(sar_gpu_pinned(rank.comm, 2, &out, &bytes) == SAR_INVALID_ARGUMENT);
  for (uint64_t round = 0; round < 5; ++round) {
    const std::vector<Bytes> values = inputs(SAR_FLOAT32, kCount, rank.world, round);
    REQUIRE(sar_gpu_pinned_wait(rank.comm, 0, Rank::kTimeout) == SAR_OK);
    std::memcpy(in, values[rank.rank].data(), kBytes);
    REQUIRE(sar_gpu_pinned_to_device(rank.comm, 0, rank.arena, kBytes) == SAR_OK);
    for (int i = 0; i < 3; ++i) {
      REQUIRE(sar_gpu_enqueue_next(rank.comm) == SAR_OK);
      REQUIRE(sar_all_reduce(rank.comm, rank.arena, rank.arena + (1 << 20), kCount, SAR_FLOAT32,
                             SAR_SUM, SAR_AUTO, Rank::kTimeout) == SAR_OK);
    }
    REQUIRE(sar_gpu_device_to_pinned(rank.comm, 1, rank.arena + (1 << 20), kBytes) == SAR_OK);
    REQUIRE(sar_gpu_pinned_wait(rank.comm, 1, Rank::kTimeout) == SAR_OK);
    const Bytes expected = reduced(SAR_FLOAT32, SAR_SUM, pointers(values), kCount);
    REQUIRE(std::memcmp(out, expected.data(), kBytes) == 0, "round %d", static_cast<int>(round));
  }
  REQUIRE(sar_gpu_wait(rank.comm, Rank::kTimeout) == SAR_OK);
}

TEST_F(Gpu, EnqueuedCallsAndPinnedCopiesFollowEachOtherOnTheStream) {
  EXPECT_RANKS(run_ranks(Ranks::kThreads, 2, enqueue_and_read));
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 2, enqueue_and_read));
}

// The kernels of a type are loaded at its first call, while others are still enqueued.
TEST_F(Gpu, EnqueuedCallsMayChangeTheDataType) {
  EXPECT_RANKS(run_ranks(Ranks::kThreads, 2, [](Rank& rank) {
    REQUIRE(rank.open() == SAR_OK);
    for (sar_data_type type : kTypes) {
      REQUIRE(sar_gpu_enqueue_next(rank.comm) == SAR_OK);
      REQUIRE(sar_all_reduce(rank.comm, rank.arena, rank.arena, 1000, type, SAR_MAX, SAR_AUTO,
                             Rank::kTimeout) == SAR_OK);
    }
    REQUIRE(sar_gpu_wait(rank.comm, Rank::kTimeout) == SAR_OK);
  }));
}

TEST_F(Gpu, WorkMovesToAnotherStreamAndKeepsItsOrder) {
  EXPECT_RANKS(run_ranks(Ranks::kThreads, 2, [](Rank& rank) {
    REQUIRE(rank.open() == SAR_OK);
    Rank other(rank.rank, rank.world, rank.shared + 1);
    REQUIRE(other.open(1 << 20, 1 << 20, 0, 2) == SAR_OK);
    void *own = nullptr, *foreign = nullptr, *now = nullptr;
    REQUIRE(sar_gpu_stream(rank.comm, &own) == SAR_OK);
    REQUIRE(sar_gpu_stream(other.comm, &foreign) == SAR_OK);
    for (uint64_t round = 0; round < 10; ++round) {
      REQUIRE(sar_gpu_enqueue_next(rank.comm) == SAR_OK);
      REQUIRE(sar_all_reduce(rank.comm, rank.arena, rank.arena, 1000, SAR_INT64, SAR_SUM, SAR_AUTO,
                             Rank::kTimeout) == SAR_OK);
      REQUIRE(sar_gpu_use_stream(rank.comm, round % 2 == 0 ? foreign : nullptr) == SAR_OK);
      REQUIRE(sar_gpu_stream(rank.comm, &now) == SAR_OK);
      REQUIRE(now == (round % 2 == 0 ? foreign : own));
    }
    REQUIRE(sar_gpu_wait(rank.comm, Rank::kTimeout) == SAR_OK);  // what copies do not wait for
    check_all_reduce(rank, SAR_FLOAT32, SAR_SUM, SAR_DIRECT_WRITE, 100, 1);
    rank.meet();
    rank.close();
    other.close();
  }));
}

TEST_F(Gpu, ACaptureCanBeGivenUp) {
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 2, [](Rank& rank) {
    REQUIRE(rank.open() == SAR_OK);
    REQUIRE(sar_gpu_capture_cancel(rank.comm) == SAR_INVALID_ARGUMENT);
    REQUIRE(sar_gpu_capture_begin(rank.comm, Rank::kTimeout) == SAR_OK);
    REQUIRE(sar_all_reduce(rank.comm, rank.arena, rank.arena, 10, SAR_INT64, SAR_SUM, SAR_AUTO,
                           Rank::kTimeout) == SAR_OK);
    REQUIRE(sar_gpu_wait(rank.comm, Rank::kTimeout) == SAR_INVALID_ARGUMENT);
    REQUIRE(std::strstr(sar_last_error(), "during a capture") != nullptr);
    REQUIRE(sar_gpu_capture_cancel(rank.comm) == SAR_OK);
    check_all_reduce(rank, SAR_FLOAT32, SAR_SUM, SAR_AUTO, 100, 1);
  }));
}

TEST_F(Gpu, MemoryThatOneRankCannotShareIsRegisteredOnNone) {
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 2, [](Rank& rank) {
    REQUIRE(rank.open() == SAR_OK);
    Rank other(rank.rank, rank.world, rank.shared + 1);
    REQUIRE(other.open(1 << 20, 1 << 20, 0, 2) == SAR_OK);
    const uint64_t bytes = uint64_t{1} << 50;
    REQUIRE(sar_gpu_register(rank.comm, other.arena, bytes, Rank::kTimeout) ==
            SAR_INVALID_ARGUMENT);
    REQUIRE(std::strstr(sar_last_error(), "rank 0: a buffer") != nullptr);
    const void* memory = rank.rank == 1 ? reinterpret_cast<void*>(64) : other.arena;
    REQUIRE(sar_gpu_register(rank.comm, memory, 64, Rank::kTimeout) == SAR_INVALID_ARGUMENT);
    REQUIRE(std::strstr(sar_last_error(), "rank 1: the address 0x40") != nullptr);
    REQUIRE(sar_gpu_register(rank.comm, other.arena, 64, Rank::kTimeout) == SAR_OK);
    check_all_reduce(rank, SAR_FLOAT32, SAR_SUM, SAR_AUTO, 100, 1);
    rank.meet();
    rank.close();
    other.close();
  }));
}

}  // namespace
}  // namespace sar::gpu::test
