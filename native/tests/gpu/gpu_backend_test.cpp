// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// gpu_backend_test.cpp: the GPU library through the C header. It runs on a GPU, and in CI on the
// simulated driver (SPARK_ALLREDUCE_GPU_DRIVER names it), which says nothing about a GPU.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "rank_processes.hpp"
#include "reference.hpp"

namespace sar::gpu::test {
namespace {

constexpr sar_data_type kTypes[] = {SAR_FLOAT64,  SAR_FLOAT32, SAR_FLOAT16,
                                    SAR_BFLOAT16, SAR_INT32,   SAR_INT64};
constexpr sar_schedule kSchedules[] = {SAR_AUTO,         SAR_ONE_SHOT,     SAR_TWO_SHOT_READ,
                                       SAR_STAGED_WRITE, SAR_DIRECT_WRITE, SAR_LOAD_REDUCE_STORE,
                                       SAR_LOW_LATENCY};
constexpr sar_reduce_op kOps[] = {SAR_SUM, SAR_PRODUCT, SAR_MIN, SAR_MAX, SAR_AVERAGE};

// Fits the low-latency schedule even with the simulated driver's 16 threads.
constexpr uint64_t kTiny = 13;

// Not the condition's text: a lambda of thirty lines.
#define EXPECT_RANKS(...) \
  if (const bool ranks_ended_well = __VA_ARGS__; true) EXPECT_TRUE(ranks_ended_well)

uint32_t most_ranks() {
  const char* text = std::getenv("SAR_TEST_RANKS");
  return text != nullptr ? static_cast<uint32_t>(std::atoi(text)) : 4;
}
int stress_rounds() {
  const char* text = std::getenv("SAR_TEST_ROUNDS");
  return text != nullptr ? std::atoi(text) : 50;
}
bool simulated() { return std::getenv("SPARK_ALLREDUCE_GPU_DRIVER") != nullptr; }

bool has_device() {
  // Asked in a process of its own: the driver does not survive a fork.
  static const bool found = run_ranks(Ranks::kProcesses, 1, [](Rank&) {
    uint32_t count = 0;
    if (sar_gpu_device_count(&count) != SAR_OK || count == 0) _exit(1);
  });
  return found;
}

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    if (has_device()) return;
    if (simulated()) FAIL() << "the simulated driver does not load";
    GTEST_SKIP() << "no GPU driver or no device";
  }
};

std::vector<const uint8_t*> pointers(const std::vector<Bytes>& values, uint64_t offset = 0) {
  std::vector<const uint8_t*> result;
  for (const Bytes& bytes : values) result.push_back(bytes.data() + offset);
  return result;
}

std::vector<Bytes> inputs(sar_data_type type, uint64_t count, uint32_t ranks, uint64_t seed) {
  std::vector<Bytes> result;
  for (uint32_t r = 0; r < ranks; ++r)
    result.push_back(random_elements(type, count, seed * 100 + r));
  return result;
}

// One all-reduce on arena buffers, with a poisoned output and canaries around it.
void check_all_reduce(Rank& rank, sar_data_type type, sar_reduce_op op, sar_schedule schedule,
                      uint64_t count, uint64_t seed, bool in_place = false, uint64_t offset = 0) {
  const uint64_t size = element_bytes(type), bytes = count * size, canary = 64;
  const std::vector<Bytes> values = inputs(type, count, rank.world, seed);
  uint8_t* in = rank.arena + canary + offset;
  uint8_t* out = in_place ? in : rank.arena + (4 << 20) + canary + offset;
  rank.write(out - canary, Bytes(bytes + 2 * canary, 0xee));
  rank.write(in, values[rank.rank]);
  const sar_status status =
      sar_all_reduce(rank.comm, in, out, count, type, op, schedule, Rank::kTimeout);
  REQUIRE(status == SAR_OK, "type %d op %d schedule %d count %llu", type, op, schedule,
          static_cast<unsigned long long>(count));
  const Bytes found = rank.read(out - canary, bytes + 2 * canary);
  const Bytes expected = reduced(type, op, pointers(values), count);
  REQUIRE(std::memcmp(found.data() + canary, expected.data(), bytes) == 0,
          "type %d op %d schedule %d count %llu in place %d offset %d", type, op, schedule,
          static_cast<unsigned long long>(count), in_place, static_cast<int>(offset));
  REQUIRE(Bytes(found.begin(), found.begin() + 64) == Bytes(64, 0xee));
  REQUIRE(Bytes(found.end() - 64, found.end()) == Bytes(64, 0xee));
}

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
    REQUIRE(sar_gpu_register(rank.comm, other.arena, Rank::kTimeout) == SAR_OK);
    reduce(2);
    REQUIRE(sar_comm_statistics(rank.comm, &statistics) == SAR_OK && statistics.unregistered == 1);
    REQUIRE(statistics.collectives == 2);
    rank.close();
    rank.meet();
  }));
}

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
    REQUIRE(rank.open() == SAR_OK);
    sar_graph* graphs[2] = {};
    for (uint64_t g = 0; g < 2; ++g) {
      REQUIRE(sar_gpu_capture_begin(rank.comm, 20'000'000'000) == SAR_OK);
      REQUIRE(sar_all_reduce(rank.comm, rank.arena, rank.arena + 65536, 100 + g, SAR_FLOAT32,
                             SAR_SUM, SAR_DIRECT_WRITE, Rank::kTimeout) == SAR_OK);
      REQUIRE(sar_gpu_capture_end(rank.comm, Rank::kTimeout, &graphs[g]) == SAR_OK);
    }
    rank.write(rank.arena + 65536, Bytes(404, 0xee));
    REQUIRE(sar_gpu_replay(graphs[rank.rank]) == SAR_OK);
    REQUIRE(sar_gpu_wait(rank.comm, Rank::kTimeout) == SAR_MISMATCH);
    REQUIRE(rank.read(rank.arena + 65536, 404) == Bytes(404, 0xee));
    for (sar_graph* graph : graphs) sar_gpu_graph_destroy(graph);
    rank.close();
    rank.meet();
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
TEST_F(Gpu, BuffersReusedAtOnceStayRightWhenARotatingRankIsLate) {
  const int rounds = stress_rounds();
  EXPECT_RANKS(run_ranks(Ranks::kThreads, most_ranks(), [rounds](Rank& rank) {
    REQUIRE(rank.open() == SAR_OK);
    const uint64_t count = 3000;
    uint8_t *in = rank.arena, *out = rank.arena + 65536;
    for (sar_schedule schedule : {SAR_ONE_SHOT, SAR_TWO_SHOT_READ, SAR_STAGED_WRITE,
                                  SAR_DIRECT_WRITE, SAR_LOAD_REDUCE_STORE, SAR_LOW_LATENCY}) {
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
