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

// The first element that is not what it should be; `count` if there is none. An assertion for each
// of millions of elements would take most of the time.
template <typename Expected>
uint64_t first_wrong(const int64_t *elements, uint64_t count, Expected expected) {
  uint64_t i = 0;
  while (i < count && elements[i] == expected(i)) {
    i++;
  }
  return i;
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
  ASSERT_EQ(first_wrong(buffer, length, [&](uint64_t i) { return sum(round, ranks, i); }), length)
      << "round " << round << ", " << name_of(schedule);
}

// Reduce-scatter, all-gather and broadcast from a registered input that is overwritten as soon as
// the call returns: a slower rank must have read it by then.
void one_round_of_movement(sar_comm *comm, int64_t *input, uint64_t round, uint32_t rank,
                           uint32_t ranks) {
  constexpr uint64_t count = 16'000;  // long enough to be interrupted in the middle
  std::vector<int64_t> output(count * ranks);
  const auto fill = [&] {
    for (uint64_t i = 0; i < count * ranks; i++) {
      input[i] = value(round, rank, i);
    }
  };
  const auto spoil = [&] { std::fill(input, input + count * ranks, -1); };

  fill();
  ASSERT_EQ(sar_reduce_scatter(comm, input, output.data(), count, SAR_INT64, SAR_SUM, kPatience),
            SAR_OK)
      << sar_last_error();
  spoil();
  const auto part = [&](uint64_t i) { return sum(round, ranks, rank * count + i); };
  ASSERT_EQ(first_wrong(output.data(), count, part), count) << "reduce-scatter, round " << round;

  fill();
  ASSERT_EQ(sar_all_gather(comm, input, output.data(), count, SAR_INT64, kPatience), SAR_OK)
      << sar_last_error();
  spoil();
  const auto all = [&](uint64_t i) {
    return value(round, static_cast<uint32_t>(i / count), i % count);
  };
  ASSERT_EQ(first_wrong(output.data(), count * ranks, all), count * ranks)
      << "all-gather, round " << round;

  fill();
  const auto root = static_cast<uint32_t>(round % ranks);
  ASSERT_EQ(sar_broadcast(comm, input, output.data(), count * ranks, SAR_INT64, root, kPatience),
            SAR_OK)
      << sar_last_error();
  spoil();
  const auto roots = [&](uint64_t i) { return value(round, root, i); };
  ASSERT_EQ(first_wrong(output.data(), count * ranks, roots), count * ranks)
      << "broadcast, round " << round;
}

// All ranks run `body(rank, round)` for many rounds; one that fails ends the others' waits.
template <typename Body>
void many_rounds(const World &world, uint64_t rounds, Body body) {
  world.each_rank([&](uint32_t rank) {
    for (uint64_t round = 0; round < rounds; round++) {
      body(rank, round);
      if (::testing::Test::HasFatalFailure()) {
        sar_abort(world.comm(rank), static_cast<int32_t>(rank), "the test has failed");
        return;
      }
    }
  });
}

class Reuse : public ::testing::TestWithParam<uint32_t> {};

TEST_P(Reuse, ThousandsOfRoundsWithARotatingDelayedRankStayRight) {
  const uint32_t ranks = GetParam();
  WorldOptions options;
  options.first_epoch = 0xffffff00u;  // wraps on the way
  const World world(ranks, options);
  // Odd ranks' buffers are unregistered in every other stretch of rounds.
  std::vector<std::vector<int64_t>> heaps(ranks, std::vector<int64_t>(kSizes.back()));
  many_rounds(world, 3000, [&](uint32_t rank, uint64_t round) {
    const bool registered = rank % 2 == 0 || round / 100 % 2 == 0;
    auto *arena = reinterpret_cast<int64_t *>(world.arena(rank));
    one_round(world.comm(rank), registered ? arena : heaps[rank].data(), round, rank, ranks);
  });
}

TEST_P(Reuse, AnInputMayBeOverwrittenAsSoonAsTheCallReturns) {
  const uint32_t ranks = GetParam();
  const World world(ranks);
  many_rounds(world, 300, [&](uint32_t rank, uint64_t round) {
    auto *arena = reinterpret_cast<int64_t *>(world.arena(rank));
    one_round_of_movement(world.comm(rank), arena, round, rank, ranks);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Reuse, ::testing::Values(2, 3, 4),
                         ::testing::PrintToStringParamName());

TEST(Epochs, SurviveTheirWrapInEverySchedule) {
  WorldOptions options;
  options.first_epoch = UINT32_MAX - 2;
  for (const sar_schedule schedule : kSchedules) {
    const World world(3, options);
    many_rounds(world, 20, [&](uint32_t rank, uint64_t round) {
      constexpr uint64_t length = 5000;
      auto *buffer = reinterpret_cast<int64_t *>(world.arena(rank));
      for (uint64_t i = 0; i < length; i++) {
        buffer[i] = value(round, rank, i);
      }
      ASSERT_EQ(sar_all_reduce(world.comm(rank), buffer, buffer, length, SAR_INT64, SAR_SUM,
                               schedule, kPatience),
                SAR_OK)
          << sar_last_error();
      ASSERT_EQ(first_wrong(buffer, length, [&](uint64_t i) { return sum(round, 3, i); }), length)
          << name_of(schedule) << " round " << round;
    });
  }
}

TEST(SeveralCommunicators, InOneProcessDoNotDisturbEachOther) {
  const World first(3);
  const World second(3);
  many_rounds(first, 300, [&](uint32_t rank, uint64_t round) {
    one_round(first.comm(rank), reinterpret_cast<int64_t *>(first.arena(rank)), round, rank, 3);
    one_round(second.comm(rank), reinterpret_cast<int64_t *>(second.arena(rank)), round + 11, rank,
              3);
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
