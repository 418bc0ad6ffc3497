// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// kernels_on_cpu_test.cpp: the device source, compiled for the CPU, one thread per device thread.
// Run under ThreadSanitizer it shows that every byte that crosses ranks is ordered by the protocol.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "cpu_cases.hpp"

namespace sar::gpu::test {
namespace {

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

// A packet's flag has the end of the epoch only. A slot that long messages have filled and short
// ones leave alone must have another flag before that comes round again, also where epochs wrap.
TEST(Epochs, NoLowLatencySlotKeepsItsFlagUntilItComesRoundAgain) {
  constexpr uint32_t kRound = 2 * kLowLatencyPackets, kEpochs = 1u << kFlagEpochBits;
  static_assert(kRound < kEpochs);
  for (uint32_t first : {0u, 0u - kRound / 2}) {
    CpuWorld world(2, 1, 2048, first);
    check(world, 2, all_reduce(SAR_INT64, SAR_SUM, SAR_LOW_LATENCY, kBlockThreads), 3, 2);
    check(world, 2, all_reduce(SAR_INT32, SAR_SUM, SAR_LOW_LATENCY, 1), 4, kRound);
    for (uint32_t rank : {0u, 1u}) {
      const Pad& pad = world.pad(rank);
      EXPECT_EQ(pad.low_latency_epoch[0], first == 0 ? kRound + 2 : kEpochs + kRound / 2 + 2);
      for (uint32_t slot = 0; slot < kRound; ++slot) {
        const uint64_t packet = pad.packet[slot % 2][1 - rank][slot / 2];
        const auto flag = static_cast<uint32_t>(packet >> 32);
        EXPECT_LT((pad.low_latency_epoch[0] - flag) % kEpochs, kRound) << "slot " << slot;
      }
    }
  }
}

// What packets carry of the digest tells apart all calls that differ in one field.
TEST(Epochs, PacketsTellCallsApartThatDifferInKindOrLengthOrPlace) {
  CpuWorld world(2, 1, 2048);
  std::set<uint32_t> seen;
  const auto add = [&](const Call& call) {
    const Planned planned = plan(world.geometry(0), call, {}, SAR_LOW_LATENCY, false, 0);
    return seen.insert(planned.launch.digest >> (kFlagEpochBits + 1)).second;
  };
  Call call = all_reduce(SAR_FLOAT32, SAR_SUM, SAR_LOW_LATENCY, 1).call;
  for (call.count = 0; call.count <= 16384; ++call.count) ASSERT_TRUE(add(call)) << call.count;
  seen.clear();
  for (call.number = 0; call.number <= 4096; ++call.number) ASSERT_TRUE(add(call));
  seen.clear();
  for (uint32_t capture = 0; capture < 65536; ++capture) {
    call.number = capture << 16 | 1;
    ASSERT_TRUE(add(call)) << capture;
  }
  seen.clear();
  for (sar_schedule schedule : {SAR_AUTO, SAR_LOW_LATENCY}) {
    for (sar_data_type type : kTypes) {
      for (sar_reduce_op op : kOps) {
        call.schedule = schedule, call.type = type, call.op = op;
        EXPECT_TRUE(add(call)) << "schedule " << schedule << ", type " << type << ", op " << op;
      }
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
