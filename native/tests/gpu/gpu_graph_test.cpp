// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// gpu_graph_test.cpp: captures and replays.
#include "gpu_test.hpp"

namespace sar::gpu::test {
namespace {

struct Step {
  sar_data_type type;
  uint64_t count;
  sar_schedule schedule;
};

// Many collectives of different sizes and types in one graph.
std::vector<Step> many_steps() {
  std::vector<Step> steps;
  for (uint64_t i = 0; i < 24; ++i) {
    const sar_schedule schedule = kSchedules[i % 7];
    const uint64_t count = schedule == SAR_LOW_LATENCY ? 1 + i % kTiny : 1 + i * i * 113 % 9000;
    steps.push_back({kTypes[i % 6], count, schedule});
  }
  // Above 4 MiB a fault of others mixed up the outputs; the simulation is spared the time.
  if (!simulated()) steps.push_back({SAR_BFLOAT16, 3 << 20, SAR_AUTO});
  return steps;
}

void capture_and_replay(Rank& rank) {
  REQUIRE(rank.open(64 << 20, 1 << 20) == SAR_OK);
  const std::vector<Step> steps = many_steps();
  std::vector<uint8_t*> in, out;
  uint8_t* next = rank.arena;
  for (const Step& step : steps) {
    const uint64_t bytes = (step.count * element_bytes(step.type) + 63) / 64 * 64;
    in.push_back(next);
    out.push_back(next + bytes);
    next += 2 * bytes;
  }
  uint8_t* eager = next;
  sar_graph *graph = nullptr, *second = nullptr;
  REQUIRE(sar_gpu_capture_begin(rank.comm, Rank::kTimeout) == SAR_OK);
  for (size_t i = 0; i < steps.size(); ++i) {
    REQUIRE(sar_all_reduce(rank.comm, in[i], out[i], steps[i].count, steps[i].type, SAR_SUM,
                           steps[i].schedule, Rank::kTimeout) == SAR_OK);
  }
  REQUIRE(sar_gpu_capture_end(rank.comm, Rank::kTimeout, &graph) == SAR_OK);
  REQUIRE(sar_gpu_capture_begin(rank.comm, Rank::kTimeout) == SAR_OK);
  REQUIRE(sar_all_reduce(rank.comm, in[0], out[0], steps[0].count, steps[0].type, SAR_MAX, SAR_AUTO,
                         Rank::kTimeout) == SAR_OK);
  REQUIRE(sar_gpu_capture_end(rank.comm, Rank::kTimeout, &second) == SAR_OK);
  for (uint64_t round = 0; round < 3; ++round) {
    std::vector<std::vector<Bytes>> values;
    for (size_t i = 0; i < steps.size(); ++i) {
      values.push_back(inputs(steps[i].type, steps[i].count, rank.world, round * 100 + i));
      rank.write(in[i], values[i][rank.rank]);
    }
    REQUIRE(sar_gpu_replay(graph) == SAR_OK);
    REQUIRE(sar_gpu_wait(rank.comm, Rank::kTimeout) == SAR_OK);
    for (size_t i = 0; i < steps.size(); ++i) {
      const Bytes expected = reduced(steps[i].type, SAR_SUM, pointers(values[i]), steps[i].count);
      REQUIRE(rank.read(out[i], expected.size()) == expected, "step %zu", i);
    }
    // An eager call between two replays, and another graph.
    const std::vector<Bytes> more = inputs(SAR_FLOAT32, 777, rank.world, round);
    rank.write(eager, more[rank.rank]);
    REQUIRE(sar_all_reduce(rank.comm, eager, eager + 4096, 777, SAR_FLOAT32, SAR_SUM, SAR_AUTO,
                           Rank::kTimeout) == SAR_OK);
    REQUIRE(rank.read(eager + 4096, 777 * 4) == reduced(SAR_FLOAT32, SAR_SUM, pointers(more), 777));
    REQUIRE(sar_gpu_replay(second) == SAR_OK);
    REQUIRE(sar_gpu_wait(rank.comm, Rank::kTimeout) == SAR_OK);
    const Bytes expected = reduced(steps[0].type, SAR_MAX, pointers(values[0]), steps[0].count);
    REQUIRE(rank.read(out[0], expected.size()) == expected);
  }
  sar_gpu_graph_destroy(graph);
  sar_gpu_graph_destroy(second);
}

TEST_F(Gpu, ACaptureHoldsManyCollectivesAndReplaysBetweenEagerCalls) {
  EXPECT_RANKS(run_ranks(Ranks::kThreads, most_ranks(), capture_and_replay));
}

TEST_F(Gpu, ACaptureWorksBetweenProcesses) {
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 2, capture_and_replay));
}

// A capture waits for the peers at its end, and is no collective.
TEST_F(Gpu, ACaptureCountsAsTimeAndNotAsACollective) {
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 2, [](Rank& rank) {
    REQUIRE(rank.open() == SAR_OK);
    sar_graph* graph = nullptr;
    REQUIRE(sar_gpu_capture_begin(rank.comm, Rank::kTimeout) == SAR_OK);
    REQUIRE(sar_all_reduce(rank.comm, rank.arena, rank.arena, 10, SAR_INT32, SAR_SUM, SAR_AUTO,
                           Rank::kTimeout) == SAR_OK);
    REQUIRE(sar_gpu_capture_end(rank.comm, Rank::kTimeout, &graph) == SAR_OK);
    REQUIRE(sar_gpu_register(rank.comm, rank.arena, 64, Rank::kTimeout) == SAR_OK);
    sar_statistics statistics;
    REQUIRE(sar_comm_statistics(rank.comm, &statistics) == SAR_OK);
    REQUIRE(statistics.collectives == 0 && statistics.total_ns > 0);
    REQUIRE(statistics.total_ns >= statistics.wait_ns);
    sar_gpu_graph_destroy(graph);
  }));
}

TEST_F(Gpu, AReplayIsRefusedAfterACapturedBufferWasFreed) {
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 2, [](Rank& rank) {
    REQUIRE(rank.open() == SAR_OK);
    Rank other(rank.rank, rank.world, rank.shared + 1);
    REQUIRE(other.open(1 << 20, 1 << 20, 0, 2) == SAR_OK);
    sar_graph* graph = nullptr;
    REQUIRE(sar_gpu_capture_begin(rank.comm, Rank::kTimeout) == SAR_OK);
    REQUIRE(sar_all_reduce(rank.comm, other.arena, other.arena, 100, SAR_INT32, SAR_SUM, SAR_AUTO,
                           Rank::kTimeout) == SAR_OK);
    REQUIRE(sar_gpu_capture_end(rank.comm, Rank::kTimeout, &graph) == SAR_OK);
    rank.write(other.arena, Bytes(400, 1));
    REQUIRE(sar_gpu_replay(graph) == SAR_OK);
    REQUIRE(sar_gpu_wait(rank.comm, Rank::kTimeout) == SAR_OK);
    REQUIRE(rank.read(other.arena, 400) == Bytes(400, 2));
    rank.meet();
    other.close();
    REQUIRE(sar_gpu_replay(graph) == SAR_INVALID_ARGUMENT);
    REQUIRE(std::strstr(sar_last_error(), "freed after it was captured") != nullptr);
    sar_gpu_graph_destroy(graph);
  }));
}

}  // namespace
}  // namespace sar::gpu::test
