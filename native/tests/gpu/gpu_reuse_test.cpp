// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// gpu_reuse_test.cpp: collectives that follow each other at once, and communicators side by side.
#include "gpu_test.hpp"

namespace sar::gpu::test {
namespace {

TEST_F(Gpu, EpochsSurviveTheirWrap) {
  EXPECT_RANKS(run_ranks(Ranks::kThreads, 2, [](Rank& rank) {
    REQUIRE(rank.open(8 << 20, 1 << 20, 0xfffffffeu) == SAR_OK);
    for (uint64_t i = 0; i < 12; ++i) {
      check_all_reduce(rank, SAR_FLOAT32, SAR_SUM, i % 2 ? SAR_LOW_LATENCY : SAR_DIRECT_WRITE, 20,
                       i);
    }
  }));
}

// Fixed buffers that are used again at once, a rotating rank that comes late, eager and graph.
void reuse_at_once(Rank& rank) {
  const int rounds = stress_rounds();
  REQUIRE(rank.open() == SAR_OK);
  const uint64_t count = 3000;
  uint8_t *in = rank.arena, *out = rank.arena + 65536;
  for (sar_schedule schedule : {SAR_ONE_SHOT, SAR_TWO_SHOT_READ, SAR_STAGED_WRITE, SAR_DIRECT_WRITE,
                                SAR_LOAD_REDUCE_STORE, SAR_LOW_LATENCY}) {
    const uint64_t n = schedule == SAR_LOW_LATENCY ? kTiny : count;
    sar_graph* graph = nullptr;
    REQUIRE(sar_gpu_capture_begin(rank.comm, Rank::kTimeout) == SAR_OK);
    REQUIRE(sar_all_reduce(rank.comm, in, out, n, SAR_INT32, SAR_SUM, schedule, Rank::kTimeout) ==
            SAR_OK);
    REQUIRE(sar_gpu_capture_end(rank.comm, Rank::kTimeout, &graph) == SAR_OK);
    Bytes mine(n * 4), expected(n * 4);
    for (int i = 0; i < rounds; ++i) {
      uint32_t sum = 0;
      for (uint32_t r = 0; r < rank.world; ++r) sum += static_cast<uint32_t>(i) * 7 + r;
      for (uint64_t e = 0; e < n; ++e) {
        const uint32_t m = static_cast<uint32_t>(i) * 7 + rank.rank + static_cast<uint32_t>(e);
        const uint32_t s = sum + static_cast<uint32_t>(e) * rank.world;
        std::memcpy(&mine[e * 4], &m, 4);
        std::memcpy(&expected[e * 4], &s, 4);
      }
      if (static_cast<uint32_t>(i) % rank.world == rank.rank) {
        for (int k = 0; k < 20; ++k) sched_yield();
      }
      rank.write(in, mine);
      if (i % 2 == 0) {
        REQUIRE(sar_all_reduce(rank.comm, in, out, n, SAR_INT32, SAR_SUM, schedule,
                               Rank::kTimeout) == SAR_OK);
      } else {
        REQUIRE(sar_gpu_replay(graph) == SAR_OK);
        REQUIRE(sar_gpu_wait(rank.comm, Rank::kTimeout) == SAR_OK);
      }
      REQUIRE(rank.read(out, n * 4) == expected, "schedule %d round %d", schedule, i);
    }
    sar_gpu_graph_destroy(graph);
  }
}

TEST_F(Gpu, BuffersReusedAtOnceStayRightWhenARotatingRankIsLate) {
  EXPECT_RANKS(run_ranks(Ranks::kThreads, most_ranks(), reuse_at_once));
}

TEST_F(Gpu, ProcessesReuseBuffersAtOnceAndStayRightWhenARotatingRankIsLate) {
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, most_ranks(), reuse_at_once));
}

// Two communicators of the same ranks, whose kernels wait for each other in different order.
TEST_F(Gpu, TwoCommunicatorsRunSideBySideInAnyOrder) {
  const int rounds = stress_rounds();
  EXPECT_RANKS(run_ranks(Ranks::kThreads, 2, [rounds](Rank& rank) {
    Rank other(rank.rank, rank.world, rank.shared + 1);
    REQUIRE(rank.open() == SAR_OK);
    REQUIRE(other.open(8 << 20, 1 << 20, 0, 2) == SAR_OK);
    Rank* const both[] = {&rank, &other};
    const uint64_t count = 500;
    sar_graph* graphs[2] = {};
    for (int c = 0; c < 2; ++c) {
      REQUIRE(sar_gpu_capture_begin(both[c]->comm, Rank::kTimeout) == SAR_OK);
      REQUIRE(sar_all_reduce(both[c]->comm, both[c]->arena, both[c]->arena + 65536, count,
                             SAR_FLOAT32, SAR_SUM, c == 0 ? SAR_DIRECT_WRITE : SAR_AUTO,
                             Rank::kTimeout) == SAR_OK);
      REQUIRE(sar_gpu_capture_end(both[c]->comm, Rank::kTimeout, &graphs[c]) == SAR_OK);
    }
    for (int i = 0; i < rounds; ++i) {
      std::vector<Bytes> values[2];
      for (int c = 0; c < 2; ++c) {
        values[c] = inputs(SAR_FLOAT32, count, 2, static_cast<uint64_t>(i * 2 + c));
        both[c]->write(both[c]->arena, values[c][rank.rank]);
      }
      const int first = (i + static_cast<int>(rank.rank)) % 2;
      REQUIRE(sar_gpu_replay(graphs[first]) == SAR_OK);
      REQUIRE(sar_gpu_replay(graphs[1 - first]) == SAR_OK);
      for (int c = 0; c < 2; ++c) {
        REQUIRE(sar_gpu_wait(both[c]->comm, Rank::kTimeout) == SAR_OK);
        REQUIRE(both[c]->read(both[c]->arena + 65536, count * 4) ==
                reduced(SAR_FLOAT32, SAR_SUM, pointers(values[c]), count));
      }
    }
    for (sar_graph* graph : graphs) sar_gpu_graph_destroy(graph);
  }));
}

}  // namespace
}  // namespace sar::gpu::test
