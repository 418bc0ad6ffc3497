// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Many collectives in a row on the same buffers, where a slow rank meets what fast ones left
// behind.
#include <gtest/gtest.h>

#include <thread>

#include "cases.hpp"
#include "world.hpp"

namespace sar::testing {
namespace {

// Larger and smaller than staging, in an order that lets each follow each.
constexpr std::array<uint64_t, 5> kSizes{1, 9000, 40, 600, 20'000};

// Integers that no other round, rank or element has, whose sum is easily known.
int64_t value(uint64_t round, uint32_t rank, uint64_t i) {
  return static_cast<int64_t>(round * 1'000'003 + rank * 7919 + i);
}

int64_t sum(uint64_t round, uint32_t ranks, uint64_t i) {
  int64_t result = 0;
  for (uint32_t rank = 0; rank < ranks; rank++) {
    result += value(round, rank, i);
  }
  return result;
}

void dawdle() {
  for (int i = 0; i < 20; i++) {
    std::this_thread::yield();
  }
}

// One round: all ranks reduce new values in buffers that the round before has just used.
void one_round(sar_comm *comm, int64_t *buffer, uint64_t round, uint32_t rank, uint32_t ranks) {
  // Strides that are no multiple of each other, so that all pairs meet.
  const uint64_t length = kSizes[round * 7 / 3 % kSizes.size()];
  const sar_schedule schedule = kSchedules[round * 5 / 4 % kSchedules.size()];
  for (uint64_t i = 0; i < length; i++) {
    buffer[i] = value(round, rank, i);
  }
  if (round % ranks == rank) {
    dawdle();
  }
  ASSERT_EQ(sar_all_reduce(comm, buffer, buffer, length, SAR_INT64, SAR_SUM, schedule, kPatience),
            SAR_OK)
      << sar_last_error();
  if ((round + 1) % ranks == rank) {
    dawdle();
  }
  for (uint64_t i = 0; i < length; i++) {
    ASSERT_EQ(buffer[i], sum(round, ranks, i))
        << "round " << round << ", " << name_of(schedule) << ", element " << i << " of " << length;
  }
}

class Reuse : public ::testing::TestWithParam<uint32_t> {};

TEST_P(Reuse, ThousandsOfRoundsWithARotatingDelayedRankStayRight) {
  const uint32_t ranks = GetParam();
  WorldOptions options;
  options.first_epoch = 0xffffff00u;  // wraps on the way
  const World world(ranks, options);
  world.each_rank([&](uint32_t rank) {
    // Odd ranks' buffers are unregistered in every other stretch of rounds.
    Bytes heap(kSizes.back() * sizeof(int64_t));
    for (uint64_t round = 0; round < 3000; round++) {
      const bool registered = rank % 2 == 0 || round / 100 % 2 == 0;
      unsigned char *buffer = registered ? world.arena(rank) : heap.data();
      one_round(world.comm(rank), reinterpret_cast<int64_t *>(buffer), round, rank, ranks);
      if (::testing::Test::HasFatalFailure()) {
        sar_abort(world.comm(rank), static_cast<int32_t>(rank), "the test has failed");
        return;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Reuse, ::testing::Values(2, 3, 4),
                         ::testing::PrintToStringParamName());

TEST(Epochs, SurviveTheirWrapInEverySchedule) {
  WorldOptions options;
  options.first_epoch = UINT32_MAX - 2;
  for (const sar_schedule schedule : kSchedules) {
    const World world(3, options);
    world.each_rank([&](uint32_t rank) {
      auto *buffer = reinterpret_cast<int64_t *>(world.arena(rank));
      for (uint64_t round = 0; round < 20; round++) {
        constexpr uint64_t length = 5000;
        for (uint64_t i = 0; i < length; i++) {
          buffer[i] = value(round, rank, i);
        }
        ASSERT_EQ(sar_all_reduce(world.comm(rank), buffer, buffer, length, SAR_INT64, SAR_SUM,
                                 schedule, kPatience),
                  SAR_OK)
            << sar_last_error();
        for (uint64_t i = 0; i < length; i++) {
          ASSERT_EQ(buffer[i], sum(round, 3, i)) << name_of(schedule) << " round " << round;
        }
      }
    });
  }
}

TEST(SeveralCommunicators, InOneProcessDoNotDisturbEachOther) {
  const World first(3);
  const World second(3);
  first.each_rank([&](uint32_t rank) {
    auto *a = reinterpret_cast<int64_t *>(first.arena(rank));
    auto *b = reinterpret_cast<int64_t *>(second.arena(rank));
    for (uint64_t round = 0; round < 300; round++) {
      one_round(first.comm(rank), a, round, rank, 3);
      one_round(second.comm(rank), b, round + 11, rank, 3);
    }
  });
}

// Buffers from another communicator's arena are just memory that is not registered.
TEST(SeveralCommunicators, TakeEachOthersBuffersAsUnregistered) {
  const World first(2);
  const World second(2);
  first.each_rank([&](uint32_t rank) {
    one_round(first.comm(rank), reinterpret_cast<int64_t *>(second.arena(rank)), 1, rank, 2);
  });
}

}  // namespace
}  // namespace sar::testing
