// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Whom a rank waited for.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "segments.hpp"
#include "world.hpp"

namespace sar::testing {
namespace {

sar_statistics statistics_of(const World &world, uint32_t rank) {
  sar_statistics statistics{};
  EXPECT_EQ(sar_comm_statistics(world.comm(rank), &statistics), SAR_OK);
  return statistics;
}

// Returns once `rank` sleeps until `peer` comes.
void await_sleep_for(const World &world, uint32_t rank, uint32_t peer) {
  const Header &header = header_of(segment_of(world, rank));
  while (header.waiting_for.load() != peer + 1) {
    std::this_thread::yield();
  }
}

TEST(PeerWaits, GoToTheRankThatCameLast) {
  const World world(4);
  world.each_rank([&](uint32_t rank) {
    if (rank == 2) {
      for (const uint32_t punctual : {0u, 1u, 3u}) {
        await_sleep_for(world, punctual, rank);
      }
    }
    EXPECT_EQ(sar_barrier(world.comm(rank), kPatience), SAR_OK);
  });
  for (const uint32_t punctual : {0u, 1u, 3u}) {
    const sar_statistics statistics = statistics_of(world, punctual);
    EXPECT_GT(statistics.peer_wait_ns[2], 0u);
    EXPECT_EQ(statistics.peer_wait_ns[2], statistics.wait_ns);
  }
}

TEST(PeerWaits, AddUpToTheTimeSpentWaiting) {
  const World world(3);
  world.each_rank([&](uint32_t rank) {
    for (uint32_t round = 0; round < 60; round++) {
      if (round % world.size() == rank) {  // a rotating rank is late
        for (uint32_t other = 0; other < world.size(); other++) {
          if (other != rank) {
            await_sleep_for(world, other, rank);
          }
        }
      }
      EXPECT_EQ(sar_barrier(world.comm(rank), kPatience), SAR_OK);
    }
  });
  for (uint32_t rank = 0; rank < world.size(); rank++) {
    const sar_statistics statistics = statistics_of(world, rank);
    const auto &waits = statistics.peer_wait_ns;
    EXPECT_EQ(std::accumulate(std::begin(waits), std::end(waits), uint64_t{0}), statistics.wait_ns);
    EXPECT_EQ(waits[rank], 0u) << "nobody waits for itself";
    for (uint32_t peer = 0; peer < world.size(); peer++) {
      EXPECT_EQ(waits[peer] > 0, peer != rank) << rank << " for " << peer;
    }
  }
}

}  // namespace
}  // namespace sar::testing
