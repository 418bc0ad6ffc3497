// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// known_faults_test.cpp: faults of this kernel family, as others have met them, each by name. Run
// under ThreadSanitizer, for which one unordered access is enough: the bits need not be wrong.
// docs/gpu-protocol.md has the whole list, with those that other programs test.
#include "cpu_cases.hpp"

namespace sar::gpu::test {
namespace {

constexpr int kRounds = 12;
constexpr bool kOneIsLate = true;

// Every round reads the output as soon as the kernel has ended, and overwrites the input at once.
TEST(KnownFault, TheLastBarrierWasRelaxed) {
  CpuWorld world(3, 2, 2048);
  for (sar_schedule schedule : {SAR_DIRECT_WRITE, SAR_LOAD_REDUCE_STORE, SAR_STAGED_WRITE}) {
    check(world, 3, all_reduce(SAR_FLOAT32, SAR_SUM, schedule, kSmall), 1, kRounds, kOneIsLate);
  }
}

TEST(KnownFault, AFastRankOverwroteItsInputWhileASlowOneWasStillReadingIt) {
  CpuWorld world(3, 2, 2048);
  for (sar_schedule schedule : {SAR_ONE_SHOT, SAR_TWO_SHOT_READ, SAR_LOAD_REDUCE_STORE}) {
    check(world, 3, all_reduce(SAR_FLOAT32, SAR_SUM, schedule, kSmall), 2, kRounds, kOneIsLate);
  }
}

// The input is written just before the launch: by the caller, or, unregistered and in place, by the
// kernel itself into its staging buffer.
TEST(KnownFault, TheReadySignalDidNotPublishTheInput) {
  CpuWorld world(3, 2, 4096);
  for (bool registered : {true, false}) {
    Case c = all_reduce(SAR_FLOAT32, SAR_SUM, SAR_ONE_SHOT, kSmall);
    c.registered = registered;
    c.in_place = true;
    check(world, 3, c, 3, kRounds, kOneIsLate);
  }
}

TEST(KnownFault, ASignalSlotWasReusedWhileASlowPeerStillReadIt) {
  CpuWorld world(4, 1, 2048);
  for (sar_schedule schedule : kSchedules) {
    check(world, 4, all_reduce(SAR_FLOAT32, SAR_SUM, schedule, 7), 4, kRounds, kOneIsLate);
  }
}

TEST(KnownFault, FlagsThatAreResetRaceWithTheNextCall) {
  for (uint32_t first : {0u, 0xfffffffau}) {  // also over the wrap
    CpuWorld world(2, 2, 2048, first);
    for (sar_schedule schedule : {SAR_DIRECT_WRITE, SAR_LOW_LATENCY}) {
      check(world, 2, all_reduce(SAR_FLOAT32, SAR_SUM, schedule, kSmall), 5, kRounds, kOneIsLate);
    }
  }
}

// A small call, and behind it one that fills the staging buffers, of the same and other schedules.
TEST(KnownFault, ALargerCallSteppedOnTheResultOfASmallerOne) {
  CpuWorld world(3, 2, 2048);
  for (sar_schedule schedule : {SAR_STAGED_WRITE, SAR_DIRECT_WRITE, SAR_TWO_SHOT_READ}) {
    for (int i = 0; i < 4; ++i) {
      Case small = all_reduce(SAR_FLOAT32, SAR_SUM, schedule, 5), large = small;
      large.call.count = large.in_count = large.out_count = 700;
      Fixture a(world, 3, small), b(world, 3, large);
      std::vector<Bytes> few, many;
      for (uint32_t r = 0; r < 3; ++r) {
        few.push_back(random_elements(SAR_FLOAT32, 5, 10 * i + r));
        many.push_back(random_elements(SAR_FLOAT32, 700, 100 + 10 * i + r));
      }
      const std::vector<Bytes> sums = expected(small, few), larger = expected(large, many);
      world.each([&](uint32_t rank) {
        a.run(rank, few[rank]);
        b.run(rank, many[rank]);  // nothing is at rest in between
        EXPECT_TRUE(a.output_is(rank, sums[rank]));
        EXPECT_TRUE(b.output_is(rank, larger[rank]));
      });
    }
  }
}

// With these lengths some threads have nothing to do, or one pass less than others.
TEST(KnownFault, TripCountsThatDifferBetweenThreadsAroundABlockBarrier) {
  CpuWorld world(3, 2, 2048);
  for (sar_schedule schedule : kSchedules) {
    for (uint64_t count : {0, 1, 3, 4 * 8 - 1, 4 * 16 + 1, 4 * 8 * 3 * 2 + 5}) {
      if (schedule == SAR_LOW_LATENCY && count > kSmall) continue;
      check(world, 3, all_reduce(SAR_FLOAT32, SAR_SUM, schedule, count), count + 6, 2);
    }
  }
}

TEST(KnownFault, OnlySomeWorldSizesAndMultiplesOfSixteenBytes) {
  for (uint32_t ranks : {1u, 5u, 7u}) {
    CpuWorld world(ranks, 1, 2048);
    for (sar_schedule schedule : kSchedules) {
      Case c = all_reduce(SAR_BFLOAT16, SAR_SUM, schedule, 13);
      c.offset = 2;
      check(world, ranks, c, 7);
    }
  }
}

}  // namespace
}  // namespace sar::gpu::test
