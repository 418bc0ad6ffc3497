// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// gpu_backend_test.cpp: every collective through the C header gives the reference bits.
#include "gpu_test.hpp"

namespace sar::gpu::test {
namespace {

void every_schedule(Rank& rank, bool brief) {
  REQUIRE(rank.open() == SAR_OK);
  uint64_t seed = 1;
  for (sar_schedule schedule : kSchedules) {
    for (sar_data_type type : kTypes) {
      for (sar_reduce_op op : kOps) {
        const uint64_t counts[] = {1, 37, 30001};
        for (uint64_t count : counts) {
          ++seed;
          if (brief && seed % 7 != 0) continue;
          if (schedule == SAR_LOW_LATENCY) count = std::min<uint64_t>(count, kTiny);
          check_all_reduce(rank, type, op, schedule, count, seed, seed % 2 == 0,
                           seed % 3 == 0 ? 8 : 0);
        }
      }
    }
  }
}

TEST_F(Gpu, EveryScheduleTypeAndOperationGivesTheReferenceBitsInThreads) {
  for (uint32_t ranks = 1; ranks <= most_ranks(); ++ranks) {
    EXPECT_RANKS(run_ranks(Ranks::kThreads, ranks, [&](Rank& rank) {
      every_schedule(rank, ranks != 2 && ranks != most_ranks());
    })) << ranks;
  }
}

TEST_F(Gpu, ProcessesReachEachOtherThroughIpcHandles) {
  for (uint32_t ranks = 2; ranks <= most_ranks(); ranks *= 2) {
    EXPECT_RANKS(run_ranks(Ranks::kProcesses, ranks, [](Rank& rank) {
      every_schedule(rank, true);
    })) << ranks;
  }
}

TEST_F(Gpu, MessagesLongerThanTheStagingBufferGoThroughItInChunks) {
  EXPECT_RANKS(run_ranks(Ranks::kThreads, 3, [](Rank& rank) {
    REQUIRE(rank.open(8 << 20, SAR_MIN_STAGING_BYTES) == SAR_OK);
    uint64_t seed = 9;
    for (sar_schedule schedule : kSchedules) {
      if (schedule == SAR_LOW_LATENCY) continue;
      for (bool in_place : {false, true}) {
        check_all_reduce(rank, SAR_BFLOAT16, SAR_SUM, schedule, 500003, ++seed, in_place);
      }
    }
  }));
}

TEST_F(Gpu, OtherCollectivesGiveTheReferenceBits) {
  EXPECT_RANKS(run_ranks(Ranks::kThreads, 3, [](Rank& rank) {
    REQUIRE(rank.open() == SAR_OK);
    uint64_t seed = 3;
    for (sar_data_type type : kTypes) {
      const uint64_t count = 1001, size = element_bytes(type), bytes = count * size;
      uint8_t *in = rank.arena, *out = rank.arena + (4 << 20);
      const std::vector<Bytes> wide = inputs(type, count * rank.world, rank.world, ++seed);
      rank.write(in, wide[rank.rank]);
      REQUIRE(sar_reduce_scatter(rank.comm, in, out, count, type, SAR_SUM, Rank::kTimeout) ==
              SAR_OK);
      REQUIRE(rank.read(out, bytes) ==
              reduced(type, SAR_SUM, pointers(wide, rank.rank * bytes), count));
      const std::vector<Bytes> narrow = inputs(type, count, rank.world, ++seed);
      rank.write(in, narrow[rank.rank]);
      REQUIRE(sar_all_gather(rank.comm, in, out, count, type, Rank::kTimeout) == SAR_OK);
      for (uint32_t r = 0; r < rank.world; ++r) {
        REQUIRE(rank.read(out + r * bytes, bytes) == narrow[r]);
      }
      REQUIRE(sar_broadcast(rank.comm, in, out, count, type, 1, Rank::kTimeout) == SAR_OK);
      REQUIRE(rank.read(out, bytes) == narrow[1]);
      REQUIRE(sar_barrier(rank.comm, Rank::kTimeout) == SAR_OK);
      REQUIRE(sar_all_reduce(rank.comm, nullptr, nullptr, 0, type, SAR_SUM, SAR_AUTO,
                             Rank::kTimeout) == SAR_OK);
    }
  }));
}

// Device memory that the arena knows nothing of: another communicator's arena serves.
TEST_F(Gpu, UnregisteredBuffersGoThroughStagingAndAreCountedUntilTheyAreRegistered) {
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 2, [](Rank& rank) {
    Rank other(rank.rank, rank.world, rank.shared + 1);
    REQUIRE(other.open(1 << 20, 1 << 20, 0, 2) == SAR_OK);
    REQUIRE(rank.open() == SAR_OK);
    const uint64_t count = 5000;
    auto reduce = [&](uint64_t seed) {
      const std::vector<Bytes> values = inputs(SAR_FLOAT32, count, 2, seed);
      rank.write(other.arena, values[rank.rank]);
      REQUIRE(sar_all_reduce(rank.comm, other.arena, other.arena + 65536, count, SAR_FLOAT32,
                             SAR_SUM, SAR_DIRECT_WRITE, Rank::kTimeout) == SAR_OK);
      REQUIRE(rank.read(other.arena + 65536, count * 4) ==
              reduced(SAR_FLOAT32, SAR_SUM, pointers(values), count));
    };
    sar_statistics statistics;
    reduce(1);
    REQUIRE(sar_comm_statistics(rank.comm, &statistics) == SAR_OK && statistics.unregistered == 1);
    REQUIRE(sar_gpu_register(rank.comm, other.arena, 64, Rank::kTimeout) == SAR_OK);
    reduce(2);
    REQUIRE(sar_comm_statistics(rank.comm, &statistics) == SAR_OK && statistics.unregistered == 1);
    REQUIRE(statistics.collectives == 2);
    rank.close();
    rank.meet();
  }));
}

// Staged write needs no registered buffer; load-reduce/store does, and falls back.
TEST_F(Gpu, AutoTakesItsScheduleFromTheTableThatWasSet) {
  EXPECT_RANKS(run_ranks(Ranks::kThreads, 2, [](Rank& rank) {
    Rank other(rank.rank, rank.world, rank.shared + 1);
    REQUIRE(other.open(1 << 20, 1 << 20, 0, 2) == SAR_OK);
    REQUIRE(rank.open() == SAR_OK);
    const auto falls_back = [&](uint64_t count) {
      sar_statistics before{}, after{};
      sar_comm_statistics(rank.comm, &before);
      rank.write(other.arena, Bytes(count * 4, 0));
      REQUIRE(sar_all_reduce(rank.comm, other.arena, other.arena, count, SAR_INT32, SAR_SUM,
                             SAR_AUTO, Rank::kTimeout) == SAR_OK);
      sar_comm_statistics(rank.comm, &after);
      return after.unregistered != before.unregistered;
    };
    REQUIRE(falls_back(20000));
    const sar_auto_row rows[] = {{1, SAR_LOAD_REDUCE_STORE, UINT64_MAX},
                                 {2, SAR_LOW_LATENCY, UINT64_MAX},  // what does not fit goes on
                                 {16, SAR_STAGED_WRITE, 80000}};
    REQUIRE(sar_comm_set_auto_table(rank.comm, rows, 3) == SAR_OK);
    REQUIRE(!falls_back(4) && !falls_back(20000) && falls_back(20001));
    const sar_auto_row wrong[] = {{2, SAR_AUTO, 1}};
    REQUIRE(sar_comm_set_auto_table(rank.comm, wrong, 1) == SAR_INVALID_ARGUMENT);
    REQUIRE(!falls_back(20000));
    REQUIRE(sar_comm_set_auto_table(rank.comm, nullptr, 0) == SAR_OK);
    REQUIRE(falls_back(20000));
    rank.meet();
  }));
}

TEST_F(Gpu, TablesThatDifferBetweenRanksAreAMismatch) {
  EXPECT_RANKS(run_ranks(Ranks::kThreads, 2, [](Rank& rank) {
    REQUIRE(rank.open() == SAR_OK);
    const sar_auto_row row = {
        16, rank.rank == 0 ? uint32_t{SAR_ONE_SHOT} : uint32_t{SAR_TWO_SHOT_READ}, UINT64_MAX};
    REQUIRE(sar_comm_set_auto_table(rank.comm, &row, 1) == SAR_OK);
    REQUIRE(sar_all_reduce(rank.comm, rank.arena, rank.arena, 100, SAR_INT32, SAR_SUM, SAR_AUTO,
                           Rank::kTimeout) == SAR_MISMATCH);
    REQUIRE(std::strstr(sar_last_error(), "schedule chosen by auto") != nullptr);
  }));
}

TEST_F(Gpu, BadArgumentsAreRefusedAndChangeNothing) {
  EXPECT_RANKS(run_ranks(Ranks::kThreads, 1, [](Rank& rank) {
    REQUIRE(rank.open() == SAR_OK);
    auto all_reduce = [&](void* in, void* out, uint64_t count, int type, int op, int schedule) {
      return sar_all_reduce(rank.comm, in, out, count, static_cast<sar_data_type>(type),
                            static_cast<sar_reduce_op>(op), static_cast<sar_schedule>(schedule),
                            Rank::kTimeout);
    };
    uint8_t* a = rank.arena;
    REQUIRE(all_reduce(a, a, 4, 9, 0, 0) == SAR_INVALID_ARGUMENT);
    REQUIRE(all_reduce(a, a, 4, 0, 9, 0) == SAR_INVALID_ARGUMENT);
    REQUIRE(all_reduce(a, a, 4, 0, 0, 9) == SAR_INVALID_ARGUMENT);
    REQUIRE(all_reduce(nullptr, a, 4, 0, 0, 0) == SAR_INVALID_ARGUMENT);
    REQUIRE(all_reduce(a + 1, a, 4, 1, 0, 0) == SAR_INVALID_ARGUMENT);
    REQUIRE(all_reduce(a, a + 4, 4, 1, 0, 0) == SAR_INVALID_ARGUMENT);
    REQUIRE(all_reduce(a, a, ~uint64_t{0}, 1, 0, 0) == SAR_INVALID_ARGUMENT);
    REQUIRE(all_reduce(a, a, 1 << 20, 1, 0, SAR_LOW_LATENCY) == SAR_UNSUPPORTED);
    check_all_reduce(rank, SAR_FLOAT32, SAR_SUM, SAR_AUTO, 100, 1);
  }));
}

TEST(NoGpu, AMissingDriverIsAMessage) {
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 1, [](Rank& rank) {
    setenv("SPARK_ALLREDUCE_GPU_DRIVER", "/nowhere/libdriver.so", 1);
    REQUIRE(rank.open() == SAR_UNSUPPORTED);
    REQUIRE(std::strstr(sar_last_error(), "/nowhere/libdriver.so") != nullptr);
  }));
}

}  // namespace
}  // namespace sar::gpu::test
