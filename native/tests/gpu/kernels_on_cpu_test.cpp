// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// kernels_on_cpu_test.cpp: the device source, compiled for the CPU, one thread per device thread.
// Run under ThreadSanitizer it shows that every byte that crosses ranks is ordered by the protocol.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cpu_world.hpp"

namespace sar::gpu::test {
namespace {

// float32 elements that fit two blocks of the low-latency schedule.
constexpr uint64_t kSmall = 2 * kBlockThreads;
constexpr uint64_t kTimeout = 120'000'000'000;
constexpr sar_data_type kTypes[] = {SAR_FLOAT64,  SAR_FLOAT32, SAR_FLOAT16,
                                    SAR_BFLOAT16, SAR_INT32,   SAR_INT64};
constexpr sar_reduce_op kOps[] = {SAR_SUM, SAR_PRODUCT, SAR_MIN, SAR_MAX, SAR_AVERAGE};
constexpr sar_schedule kSchedules[] = {SAR_ONE_SHOT,     SAR_TWO_SHOT_READ,     SAR_STAGED_WRITE,
                                       SAR_DIRECT_WRITE, SAR_LOAD_REDUCE_STORE, SAR_LOW_LATENCY};

// The buffers of all ranks for one collective, and what must be in the outputs.
struct Case {
  Call call;
  uint64_t in_count = 0, out_count = 0;
  bool in_place = false;
  bool registered = true;
  uint64_t offset = 0;  // bytes from a 64-byte boundary
};

std::vector<const uint8_t*> pointers(const std::vector<Bytes>& values, uint64_t offset = 0) {
  std::vector<const uint8_t*> result;
  for (const Bytes& bytes : values) result.push_back(bytes.data() + offset);
  return result;
}

class Fixture {
 public:
  Fixture(CpuWorld& world, uint32_t ranks, const Case& c) : world_(world), n_(ranks), case_(c) {
    const uint64_t size = element_bytes(c.call.type);
    for (uint32_t r = 0; r < n_; ++r) {
      in_.emplace_back(c.in_count * size, c.offset);
      out_.emplace_back(c.out_count * size, c.offset);
      if (c.in_place) {
        // One buffer holds both; reduce-scatter and all-gather use a part of it.
        const uint64_t most = std::max(c.in_count, c.out_count);
        in_[r] = Guarded(most * size, c.offset);
      }
    }
  }

  uint64_t input(uint32_t r) const {
    return in_[r].address() +
           (case_.in_place && case_.out_count > case_.in_count ? r * in_bytes() : 0);
  }
  uint64_t output(uint32_t r) const {
    if (!case_.in_place) return out_[r].address();
    return in_[r].address() + (case_.in_count > case_.out_count ? r * out_bytes() : 0);
  }

  void run(uint32_t rank, const Bytes& value) {
    std::memcpy(reinterpret_cast<void*>(input(rank)), value.data(), value.size());
    if (!case_.in_place) out_[rank].poison();
    Buffers buffers;
    buffers.input = input(rank);
    buffers.output = output(rank);
    for (uint32_t q = 0; q < n_; ++q) {
      buffers.rank[q] = {case_.registered ? input(q) : 0, case_.registered ? output(q) : 0,
                         case_.in_place};
    }
    world_.run(rank, case_.call, buffers);
  }

  bool output_is(uint32_t rank, const Bytes& expected) const {
    return std::memcmp(reinterpret_cast<const void*>(output(rank)), expected.data(),
                       expected.size()) == 0;
  }
  bool guards_hold(uint32_t r) const { return in_[r].guards_hold() && out_[r].guards_hold(); }

 private:
  uint64_t in_bytes() const { return case_.in_count * element_bytes(case_.call.type); }
  uint64_t out_bytes() const { return case_.out_count * element_bytes(case_.call.type); }
  CpuWorld& world_;
  uint32_t n_;
  Case case_;
  std::vector<Guarded> in_, out_;
};

std::vector<Bytes> expected(const Case& c, const std::vector<Bytes>& values) {
  const uint64_t size = element_bytes(c.call.type), bytes = c.call.count * size;
  std::vector<Bytes> result;
  for (uint32_t r = 0; r < values.size(); ++r) {
    switch (c.call.collective) {
      case SAR_COLLECTIVE_ALL_REDUCE:
        result.push_back(reduced(c.call.type, c.call.op, pointers(values), c.call.count));
        break;
      case SAR_COLLECTIVE_REDUCE_SCATTER:
        result.push_back(
            reduced(c.call.type, c.call.op, pointers(values, r * bytes), c.call.count));
        break;
      case SAR_COLLECTIVE_ALL_GATHER: {
        Bytes all;
        for (const Bytes& value : values) all.insert(all.end(), value.begin(), value.end());
        result.push_back(all);
        break;
      }
      default:
        result.push_back(values[c.call.root]);
    }
  }
  return result;
}

// Runs `rounds` collectives on the same buffers, with new inputs each time: nothing is at rest
// between them, so what one call leaves behind is what the next one steps on.
void check(CpuWorld& world, uint32_t ranks, const Case& c, uint64_t seed, int rounds = 1) {
  Fixture fixture(world, ranks, c);
  std::vector<std::vector<Bytes>> values(rounds), results(rounds);
  for (int i = 0; i < rounds; ++i) {
    for (uint32_t r = 0; r < ranks; ++r) {
      values[i].push_back(random_elements(c.call.type, c.in_count, seed + 1000 * i + r));
    }
    results[i] = expected(c, values[i]);
  }
  world.each([&](uint32_t rank) {
    for (int i = 0; i < rounds; ++i) {
      fixture.run(rank, values[i][rank]);
      EXPECT_EQ(world.outcome(rank).state, 0u);
      EXPECT_TRUE(fixture.output_is(rank, results[i][rank]))
          << "rank " << rank << " of " << ranks << ", collective " << c.call.collective << ", type "
          << c.call.type << ", op " << c.call.op << ", schedule " << c.call.schedule << ", count "
          << c.call.count << ", in place " << c.in_place << ", registered " << c.registered
          << ", offset " << c.offset << ", round " << i;
    }
  });
  for (uint32_t r = 0; r < ranks; ++r) EXPECT_TRUE(fixture.guards_hold(r)) << "rank " << r;
  EXPECT_TRUE(world.staging_guards_hold());
}

Case all_reduce(sar_data_type type, sar_reduce_op op, sar_schedule schedule, uint64_t count) {
  Case c;
  c.call.collective = SAR_COLLECTIVE_ALL_REDUCE;
  c.call.type = type;
  c.call.op = op;
  c.call.schedule = schedule;
  c.call.count = c.in_count = c.out_count = count;
  c.call.timeout_ticks = kTimeout;
  return c;
}

// The ordinary build runs a selection of the sizes and operations, SAR_TEST_FULL=1 all of them.
bool full() { return std::getenv("SAR_TEST_FULL") != nullptr; }

std::vector<uint32_t> world_sizes() {
  if (!full()) return {1, 2, 3, kRankLimit};
  std::vector<uint32_t> sizes;
  for (uint32_t n = 1; n <= kRankLimit; ++n) sizes.push_back(n);
  return sizes;
}

class WorldSize : public testing::TestWithParam<uint32_t> {};

TEST_P(WorldSize, EveryScheduleGivesTheReferenceBitsForEveryTypeAndOperation) {
  const uint32_t ranks = GetParam();
  CpuWorld world(ranks, 2, 8192);
  uint64_t seed = 1;
  for (sar_schedule schedule : kSchedules) {
    for (sar_data_type type : kTypes) {
      for (sar_reduce_op op : kOps) {
        if (!full() && op != kOps[(schedule + 2 * type) % 5]) continue;
        const uint64_t most = schedule == SAR_LOW_LATENCY
                                  ? 2 * kBlockThreads * (element_bytes(type) == 2 ? 2 : 1)
                                  : 301;
        check(world, ranks, all_reduce(type, op, schedule, most - seed % 3), seed);
        ++seed;
      }
    }
  }
}

TEST_P(WorldSize, AwkwardLengthsAlignmentsAndPlacesWork) {
  const uint32_t ranks = GetParam();
  CpuWorld world(ranks, 2, 4096);
  uint64_t seed = 1;
  for (sar_schedule schedule : kSchedules) {
    for (uint64_t count : {0, 1, 7, 8, 9, 31, 32, 33, 500, 5000}) {
      Case c = all_reduce(SAR_BFLOAT16, SAR_SUM, schedule, count);
      if (schedule == SAR_LOW_LATENCY && count > 2 * kBlockThreads * 2) continue;
      c.in_place = seed % 2 == 0;
      c.registered = seed % 3 != 0;
      c.offset = seed % 5 == 0 ? 2 : 0;
      check(world, ranks, c, ++seed);
    }
  }
}

TEST_P(WorldSize, OtherCollectivesGiveTheReferenceBits) {
  const uint32_t ranks = GetParam();
  CpuWorld world(ranks, 2, 4096);
  uint64_t seed = 1;
  for (sar_collective collective :
       {SAR_COLLECTIVE_REDUCE_SCATTER, SAR_COLLECTIVE_ALL_GATHER, SAR_COLLECTIVE_BROADCAST}) {
    for (sar_data_type type : {SAR_FLOAT32, SAR_FLOAT16, SAR_INT64}) {
      for (uint64_t count : {0, 1, 5, 64, 1000}) {
        for (int variant = 0; variant < 4; ++variant) {
          if (!full() && variant != static_cast<int>(++seed % 4)) continue;
          Case c = all_reduce(type, kOps[seed % 5], SAR_AUTO, count);
          c.call.collective = collective;
          c.call.root = static_cast<uint32_t>(seed % ranks);
          c.in_count = collective == SAR_COLLECTIVE_REDUCE_SCATTER ? ranks * count : count;
          c.out_count = collective == SAR_COLLECTIVE_ALL_GATHER ? ranks * count : count;
          c.in_place = variant & 1;
          c.registered = variant & 2;
          check(world, ranks, c, ++seed);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, WorldSize, testing::ValuesIn(world_sizes()));

TEST(Stress, BuffersReusedAtOnceStayRightUnderEverySchedule) {
  const uint32_t ranks = std::min(4u, kRankLimit);
  CpuWorld world(ranks, 2, 2048);
  for (sar_schedule schedule : kSchedules) {
    check(world, ranks, all_reduce(SAR_FLOAT32, SAR_SUM, schedule, kSmall), 7, 30);
    Case in_place = all_reduce(SAR_FLOAT32, SAR_SUM, schedule, kSmall - 1);
    in_place.in_place = true;
    check(world, ranks, in_place, 8, 30);
  }
}

// A larger staged call must not step on a smaller one's unread slots, whatever runs in between.
TEST(Stress, SchedulesAndSizesFollowEachOther) {
  const uint32_t ranks = std::min(3u, kRankLimit);
  CpuWorld world(ranks, 2, 2048);
  std::vector<Case> cases;
  for (int i = 0; i < 60; ++i) {
    const sar_schedule schedule = kSchedules[i * 5 % 6];
    cases.push_back(
        all_reduce(SAR_INT32, SAR_SUM, schedule,
                   1 + i * 37 % (schedule == SAR_LOW_LATENCY ? 2 * kBlockThreads : 900)));
  }
  std::vector<std::vector<Bytes>> values, results;
  for (size_t i = 0; i < cases.size(); ++i) {
    std::vector<Bytes> v;
    for (uint32_t r = 0; r < ranks; ++r)
      v.push_back(random_elements(SAR_INT32, cases[i].in_count, i * 9 + r));
    results.push_back(expected(cases[i], v));
    values.push_back(std::move(v));
  }
  std::vector<std::unique_ptr<Fixture>> fixtures;
  for (const Case& c : cases) fixtures.push_back(std::make_unique<Fixture>(world, ranks, c));
  world.each([&](uint32_t rank) {
    for (size_t i = 0; i < cases.size(); ++i) {
      fixtures[i]->run(rank, values[i][rank]);
      EXPECT_TRUE(fixtures[i]->output_is(rank, results[i][rank]))
          << "call " << i << ", rank " << rank;
    }
  });
}

// Messages of all lengths and types share the low-latency slots; each block has its own epochs.
TEST(Stress, LowLatencyMessagesOfDifferentLengthsAndTypesFollowEachOther) {
  const uint32_t ranks = 2, blocks = 4, rounds = 300;
  CpuWorld world(ranks, blocks, 2048);
  std::vector<std::unique_ptr<Fixture>> fixtures;
  std::vector<std::vector<Bytes>> values, results;
  for (uint32_t i = 0; i < rounds; ++i) {
    const sar_data_type type = kTypes[i / 50 % 6];
    const uint64_t most = uint64_t{blocks} * kBlockThreads * (element_bytes(type) == 2 ? 2 : 1);
    const Case c = all_reduce(type, SAR_SUM, SAR_LOW_LATENCY, 1 + i * i * 7 % most);
    std::vector<Bytes> v;
    for (uint32_t r = 0; r < ranks; ++r) v.push_back(random_elements(type, c.in_count, i * 9 + r));
    results.push_back(expected(c, v));
    values.push_back(std::move(v));
    fixtures.push_back(std::make_unique<Fixture>(world, ranks, c));
  }
  world.each([&](uint32_t rank) {
    for (uint32_t i = 0; i < rounds; ++i) {
      fixtures[i]->run(rank, values[i][rank]);
      EXPECT_TRUE(fixtures[i]->output_is(rank, results[i][rank])) << "call " << i;
    }
  });
}

TEST(Epochs, SurviveTheirWrap) {
  const uint32_t ranks = std::min(3u, kRankLimit);
  for (sar_schedule schedule : kSchedules) {
    for (uint32_t first : {0xfffffffcu, 0xfffffffeu, 0xffffffffu}) {
      CpuWorld world(ranks, 2, 2048, first);
      check(world, ranks, all_reduce(SAR_FLOAT32, SAR_SUM, schedule, kSmall), 3, 10);
    }
  }
}

TEST(Faults, AMissingRankIsNamedAtTheDeadlineAndNothingIsWritten) {
  for (sar_schedule schedule : kSchedules) {
    CpuWorld world(3, 2, 2048);
    Case c = all_reduce(SAR_FLOAT32, SAR_SUM, schedule, kSmall);
    c.call.timeout_ticks = 1'000'000'000;
    Fixture fixture(world, 3, c);
    const Bytes value = random_elements(SAR_FLOAT32, kSmall, 1);
    world.each([&](uint32_t rank) {
      if (rank != 1) fixture.run(rank, value);
    });
    for (uint32_t rank : {0u, 2u}) {
      EXPECT_TRUE(fixture.output_is(rank, Bytes(4 * kSmall, 0xee)));
      const Outcome& outcome = world.outcome(rank);
      EXPECT_EQ(outcome.state, 1u);
      if (outcome.fault == kDeadline) {
        EXPECT_EQ(outcome.missing, 2u);
        EXPECT_EQ(outcome.step, 1u);
      } else {
        EXPECT_EQ(outcome.fault, static_cast<uint32_t>(kAbortSeen));
      }
    }
  }
}

TEST(Faults, AHostEndsAKernelThatWaits) {
  CpuWorld world(2, 2, 2048);
  Case c = all_reduce(SAR_FLOAT32, SAR_SUM, SAR_DIRECT_WRITE, kSmall);
  Fixture fixture(world, 2, c);
  std::thread waiting([&] { fixture.run(0, random_elements(SAR_FLOAT32, kSmall, 1)); });
  world.raise_host_abort(0);
  waiting.join();
  EXPECT_EQ(world.outcome(0).fault, static_cast<uint32_t>(kAbortSeen));
  EXPECT_EQ(world.outcome(0).peer, 0u);
}

TEST(Faults, DifferentCallsAreFoundBeforeAnythingIsWritten) {
  for (sar_schedule schedule : kSchedules) {
    CpuWorld world(2, 2, 2048);
    Case mine = all_reduce(SAR_FLOAT32, SAR_SUM, schedule, kSmall);
    Case theirs = mine;
    theirs.call.count = kSmall - 1;
    Fixture a(world, 2, mine), b(world, 2, theirs);
    const Bytes value = random_elements(SAR_FLOAT32, kSmall, 1);
    world.each([&](uint32_t rank) { (rank == 0 ? a : b).run(rank, value); });
    EXPECT_TRUE(a.output_is(0, Bytes(4 * kSmall, 0xee)));
    EXPECT_TRUE(b.output_is(1, Bytes(4 * kSmall, 0xee)));
    for (uint32_t rank : {0u, 1u}) {
      const Outcome& outcome = world.outcome(rank);
      EXPECT_EQ(outcome.state, 1u);
      EXPECT_TRUE(outcome.fault == kMismatch || outcome.fault == kAbortSeen);
      if (outcome.fault == kMismatch && schedule != SAR_LOW_LATENCY) {
        EXPECT_EQ(outcome.my_count, rank == 0 ? kSmall : kSmall - 1);
        EXPECT_EQ(outcome.peer_count, rank == 0 ? kSmall - 1 : kSmall);
      }
    }
  }
}

}  // namespace
}  // namespace sar::gpu::test
