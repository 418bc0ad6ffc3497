// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Ranks that wait for each other in every way there is: at once, late, crowded on one core, idle.
#include <gtest/gtest.h>
#include <sched.h>
#include <time.h>

#include <chrono>
#include <random>
#include <thread>

#include "cases.hpp"
#include "world.hpp"

namespace sar::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// How long a wait spins: not at all, as by default, for as long as it may.
constexpr std::array<uint64_t, 3> kSpins{0, 20'000, 10'000'000};

WorldOptions spinning_for(uint64_t spin_ns) {
  WorldOptions options;
  options.spin_ns = spin_ns;
  return options;
}

void work_for(nanoseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

// One all-reduce of `length` numbers that no other round has, in memory of either kind.
void reduce_once(const World &world, uint32_t rank, uint64_t round, uint64_t length,
                 sar_schedule schedule, bool registered) {
  thread_local std::vector<int64_t> heap;
  heap.resize(length);
  int64_t *buffer = registered ? reinterpret_cast<int64_t *>(world.arena(rank)) : heap.data();
  for (uint64_t i = 0; i < length; i++) {
    buffer[i] = static_cast<int64_t>(round * 1000 + i * 17 + rank);
  }
  ASSERT_EQ(sar_all_reduce(world.comm(rank), buffer, buffer, length, SAR_INT64, SAR_SUM, schedule,
                           kPatience),
            SAR_OK)
      << sar_last_error();
  const uint64_t ranks = world.size();
  for (uint64_t i = 0; i < length; i++) {
    const uint64_t sum = ranks * (round * 1000 + i * 17) + ranks * (ranks - 1) / 2;
    ASSERT_EQ(buffer[i], static_cast<int64_t>(sum)) << "round " << round << ", element " << i;
  }
}

class Waiting : public ::testing::TestWithParam<uint64_t> {};

TEST_P(Waiting, EndsWhenTheLastHasComeInTenThousandRoundsWithThinkTimes) {
  const World world(3, spinning_for(GetParam()));
  world.each_rank([&](uint32_t rank) {
    std::minstd_rand random(rank + 1);
    for (uint64_t round = 0; round < 10'000 && !::testing::Test::HasFatalFailure(); round++) {
      // Mostly nothing or little, now and then more than a wait spins.
      const uint64_t dice = random();
      work_for(nanoseconds(dice % 16 == 0 ? dice / 16 % 60'000 : dice / 16 % 3'000));
      const auto schedule = static_cast<sar_schedule>(round % (SAR_LOAD_REDUCE_STORE + 1));
      reduce_once(world, rank, round, 1 + round % 19, schedule, round % 7 != 0);
    }
  });
}

TEST_P(Waiting, EndsForARankThatIsTenMillisecondsLateAndForThoseThatWaitForIt) {
  const World world(4, spinning_for(GetParam()));
  world.each_rank([&](uint32_t rank) {
    for (uint64_t round = 0; round < 8; round++) {
      if (round % world.size() == rank) {
        std::this_thread::sleep_for(milliseconds(10));
      }
      reduce_once(world, rank, round, 1000, SAR_AUTO, true);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Spin, Waiting, ::testing::ValuesIn(kSpins), [](const auto &suite) {
  return std::to_string(suite.param / 1000) + "us";
});

cpu_set_t cores_of_this_thread() {
  cpu_set_t cores;
  EXPECT_EQ(sched_getaffinity(0, sizeof cores, &cores), 0);
  return cores;
}

// The calling thread, and those that it starts, on one core only: the lowest of its cores.
class OnOneCore {
 public:
  OnOneCore() : before_(cores_of_this_thread()) {
    cpu_set_t one;
    CPU_ZERO(&one);
    int core = 0;
    while (!CPU_ISSET(core, &before_)) {
      core++;
    }
    CPU_SET(core, &one);
    EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  }
  ~OnOneCore() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

TEST_P(Waiting, LetsFourRanksShareOneCore) {
  const OnOneCore crowded;
  const World world(4, spinning_for(GetParam()));
  world.each_rank([&](uint32_t rank) {
    for (uint64_t round = 0; round < 500 && !::testing::Test::HasFatalFailure(); round++) {
      reduce_once(world, rank, round, round % 3 == 0 ? 3000 : 1, SAR_AUTO, round % 2 == 0);
    }
  });
}

// Two ranks that are on one core although there are more are parted, if another is idle: a matter
// of speed. Of the thread that is moved nothing else may change.
TEST(RanksThatMeetOnOneCore, MayUseTheSameCoresAfterwardsAsBefore) {
  const World world(2, spinning_for(20'000));
  world.each_rank([&](uint32_t rank) {
    const cpu_set_t before = cores_of_this_thread();
    for (uint64_t meeting = 0; meeting < 20; meeting++) {
      {
        const OnOneCore crowded;
        reduce_once(world, rank, meeting, 1, SAR_AUTO, true);
      }
      for (uint64_t round = 0; round < 100 && !::testing::Test::HasFatalFailure(); round++) {
        reduce_once(world, rank, round, 100, SAR_AUTO, true);
      }
      const cpu_set_t after = cores_of_this_thread();
      ASSERT_TRUE(CPU_EQUAL(&before, &after)) << "rank " << rank << ", meeting " << meeting;
    }
  });
}

nanoseconds cpu_time_of_this_thread() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

// Ten seconds of waiting, of which a twentieth would be half a second; it takes some milliseconds.
TEST(IdleRanks, UseNextToNoProcessorTimeWhileTheyWaitForTenSeconds) {
  const World world(3, spinning_for(20'000));
  world.each_rank([&](uint32_t rank) {
    if (rank == 0) {
      std::this_thread::sleep_for(milliseconds(10'000));
    }
    const nanoseconds before = cpu_time_of_this_thread();
    ASSERT_EQ(sar_barrier(world.comm(rank), kPatience), SAR_OK) << sar_last_error();
    EXPECT_LT(cpu_time_of_this_thread() - before, milliseconds(500)) << "rank " << rank;
  });
}

}  // namespace
}  // namespace sar::testing
