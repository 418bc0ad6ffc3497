// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// What the library asks of Linux to part ranks that are on one core.
#include "system.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace sar {
namespace {

class Cores : public ::testing::Test {
 protected:
  Cores() { EXPECT_EQ(sched_getaffinity(0, sizeof before_, &before_), 0); }
  ~Cores() override { sched_setaffinity(0, sizeof before_, &before_); }

  std::vector<uint32_t> all_but(uint32_t left_out) const {
    std::vector<uint32_t> cores;
    for (uint32_t core = 0; core < CPU_SETSIZE; core++) {
      if (CPU_ISSET(core, &before_) && core != left_out) {
        cores.push_back(core);
      }
    }
    return cores;
  }

  void expect_the_same_cores_as_before() const {
    cpu_set_t after;
    EXPECT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
    EXPECT_TRUE(CPU_EQUAL(&before_, &after));
  }

  cpu_set_t before_;
};

TEST_F(Cores, AThreadMovesToTheOneThatIsNotTaken) {
  for (const uint32_t free : all_but(UINT32_MAX)) {
    // The scheduler may take it elsewhere at once, but not each time.
    bool was_there = false;
    for (int i = 0; i < 1000 && !was_there; i++) {
      move_to_core_outside(all_but(free));
      was_there = current_core() == free;
      expect_the_same_cores_as_before();
    }
    EXPECT_TRUE(was_there) << "core " << free;
  }
}

TEST_F(Cores, AThreadKeepsItsCoresWhenAllAreTaken) {
  move_to_core_outside(all_but(UINT32_MAX));
  expect_the_same_cores_as_before();
}

// As a header that a peer has spoilt may say.
TEST_F(Cores, NumbersThatNoCoreHasNameNoCore) {
  const std::array<uint32_t, 3> taken{CPU_SETSIZE, UINT32_MAX, 0x8000'0000};
  move_to_core_outside(taken);
  expect_the_same_cores_as_before();
}

TEST(RunningThreads, CountsThisOneAndThoseThatCompute) {
  EXPECT_GE(running_threads(), 1u);
  EXPECT_NE(running_threads(), UINT32_MAX);
  std::atomic<bool> enough{false};
  std::vector<std::thread> busy;
  for (int i = 0; i < 3; i++) {
    busy.emplace_back([&] {
      while (!enough.load()) {
      }
    });
  }
  // They run or wait for a core all the time, once they have begun.
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (running_threads() < 4 && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  EXPECT_GE(running_threads(), 4u);
  enough.store(true);
  for (std::thread &thread : busy) {
    thread.join();
  }
}

}  // namespace
}  // namespace sar
