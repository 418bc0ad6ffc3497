// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Everything that can go wrong in a connected communicator, and what the caller is told.
#include <gtest/gtest.h>

#include <thread>

#include "cases.hpp"
#include "segments.hpp"
#include "world.hpp"

namespace sar::testing {
namespace {

struct CallArguments {
  sar_collective collective = SAR_COLLECTIVE_ALL_REDUCE;
  uint64_t count = 100;
  sar_data_type type = SAR_FLOAT32;
  sar_reduce_op op = SAR_SUM;
  sar_schedule schedule = SAR_LOAD_REDUCE_STORE;
  uint32_t root = 0;
};

sar_status call(sar_comm *comm, const CallArguments &a, const void *in, void *out) {
  switch (a.collective) {
    case SAR_COLLECTIVE_ALL_REDUCE:
      return sar_all_reduce(comm, in, out, a.count, a.type, a.op, a.schedule, kPatience);
    case SAR_COLLECTIVE_REDUCE_SCATTER:
      return sar_reduce_scatter(comm, in, out, a.count, a.type, a.op, kPatience);
    case SAR_COLLECTIVE_ALL_GATHER:
      return sar_all_gather(comm, in, out, a.count, a.type, kPatience);
    case SAR_COLLECTIVE_BROADCAST:
      return sar_broadcast(comm, in, out, a.count, a.type, a.root, kPatience);
    default:
      return sar_barrier(comm, kPatience);
  }
}

struct Difference {
  const char *name;
  CallArguments usual;
  CallArguments other;
  const char *first;   // what the message says of rank 0
  const char *second;  // and of the other
};

const Difference kDifferences[] = {
    {"count", {}, {.count = 101}, "count 100", "count 101"},
    {"smaller_count", {}, {.count = 0}, "count 100", "count 0"},
    {"type", {}, {.type = SAR_INT32}, "data type float32", "data type int32"},
    {"op", {}, {.op = SAR_MAX}, "reduce op sum", "reduce op max"},
    {"schedule", {}, {.schedule = SAR_DIRECT_WRITE}, "load-reduce/store", "direct write"},
    {"staged_schedule",
     {.schedule = SAR_STAGED_WRITE},
     {.schedule = SAR_ONE_SHOT},
     "staged write",
     "one-shot"},
    {"collective", {}, {.collective = SAR_COLLECTIVE_BARRIER}, "all-reduce", "barrier"},
    {"gather",
     {.collective = SAR_COLLECTIVE_ALL_GATHER},
     {.collective = SAR_COLLECTIVE_REDUCE_SCATTER},
     "all-gather",
     "reduce-scatter"},
    {"root",
     {.collective = SAR_COLLECTIVE_BROADCAST},
     {.collective = SAR_COLLECTIVE_BROADCAST, .root = 1},
     "root 0",
     "root 1"},
};

class Mismatch : public ::testing::TestWithParam<std::tuple<Difference, bool>> {};

TEST_P(Mismatch, IsReportedOnAllRanksWithBothValuesAndNothingIsWritten) {
  const auto &[difference, registered] = GetParam();
  for (const uint32_t world_size : {2u, 5u}) {
    const World world(world_size);
    world.each_rank([&](uint32_t rank) {
      Bytes heap(128 * 1024);
      unsigned char *memory = registered ? world.arena(rank) : heap.data();
      const GuardedBuffer output(memory + 64 * 1024, 8 * 1024);
      output.poison();
      const bool differs = rank == world_size - 1;
      ASSERT_EQ(call(world.comm(rank), differs ? difference.other : difference.usual, memory,
                     output.data()),
                SAR_MISMATCH);
      const LastFailure failure = last_failure();
      EXPECT_TRUE(says(failure.message,
                       {"rank 0 has", difference.first,
                        "rank " + std::to_string(world_size - 1) + " has", difference.second}));
      EXPECT_EQ(failure.facts.sequence, 1u);
      EXPECT_TRUE(output.is_poisoned());
      EXPECT_TRUE(output.canaries_alive());
      EXPECT_EQ(sar_comm_state(world.comm(rank)), SAR_STATE_ABORTED);
      EXPECT_EQ(sar_barrier(world.comm(rank), kPatience), SAR_MISMATCH) << "the first cause";
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Fields, Mismatch,
                         ::testing::Combine(::testing::ValuesIn(kDifferences), ::testing::Bool()),
                         [](const auto &suite) {
                           return std::string(std::get<0>(suite.param).name) +
                                  (std::get<1>(suite.param) ? "_registered" : "_unregistered");
                         });

TEST(TimeOut, NamesTheMissingRanksToAll) {
  const World world(4);
  const CallLine &rank_2 = signal_pad_of(segment_of(world, 2)).calls[1];
  on_threads(2, [&](uint32_t i) {
    const uint32_t rank = 2 * i;
    while (rank == 0 && rank_2.sequence != 1) {
      std::this_thread::yield();  // rank 0, whose deadline it is, comes last
    }
    ASSERT_EQ(sar_barrier(world.comm(rank), rank == 0 ? 30 * kMillisecond : kPatience),
              SAR_TIMEOUT);
    const LastFailure failure = last_failure();
    EXPECT_TRUE(says(failure.message, {"ranks 1, 3", "barrier number 1"}));
    EXPECT_EQ(failure.facts.missing_ranks, 0b1010u);
    EXPECT_EQ(failure.facts.collective, static_cast<uint32_t>(SAR_COLLECTIVE_BARRIER));
    EXPECT_GE(failure.facts.waited_ns, static_cast<uint64_t>(20 * kMillisecond));
  });
  // Whoever comes too late learns that, and from whom.
  for (const uint32_t rank : {1u, 3u}) {
    EXPECT_EQ(sar_barrier(world.comm(rank), kPatience), SAR_TIMEOUT);
    EXPECT_TRUE(says(last_failure().message, {"reports: time-out", "ranks 1, 3"}));
  }
}

TEST(TimeOut, OfOneMissingRankNamesTheCulprit) {
  const World world(2);
  ASSERT_EQ(sar_barrier(world.comm(0), 5 * kMillisecond), SAR_TIMEOUT);
  EXPECT_EQ(last_failure().facts.culprit_rank, 1);
  EXPECT_EQ(last_failure().facts.origin_rank, 0);
  EXPECT_TRUE(
      says(last_failure().message, {"rank 1 is alive, but late, its last call is number 0"}));
}

TEST(TimeOut, EndsALongSpinToo) {
  WorldOptions options;
  options.spin_ns = static_cast<uint64_t>(kPatience);
  const World world(2, options);
  EXPECT_EQ(sar_barrier(world.comm(0), 5 * kMillisecond), SAR_TIMEOUT);
}

TEST(Abort, FromAnotherThreadEndsTheWaitsOfAllRanks) {
  const World world(3);
  on_threads(3, [&](uint32_t thread) {
    if (thread < 2) {
      ASSERT_EQ(sar_barrier(world.comm(thread), kPatience), SAR_ABORTED);
      EXPECT_TRUE(says(last_failure().message, {"the task was killed"}));
      EXPECT_EQ(last_failure().facts.culprit_rank, 2);
      EXPECT_EQ(last_failure().facts.origin_rank, 0);
    } else {
      await_sleep(world, 0);
      await_sleep(world, 1);
      EXPECT_EQ(sar_abort(world.comm(0), 2, "the task was killed"), SAR_OK);
    }
  });
  EXPECT_EQ(sar_barrier(world.comm(2), kPatience), SAR_ABORTED);
  EXPECT_TRUE(says(last_failure().message, {"rank 0 reports: the task was killed"}));
  EXPECT_EQ(sar_comm_state(world.comm(2)), SAR_STATE_ABORTED);
}

TEST(Abort, EndsALongSpinToo) {
  WorldOptions options;
  options.spin_ns = static_cast<uint64_t>(kPatience);
  const World world(2, options);
  on_threads(2, [&](uint32_t thread) {
    if (thread == 0) {
      EXPECT_EQ(sar_barrier(world.comm(0), kPatience), SAR_ABORTED);
    } else {
      EXPECT_EQ(sar_abort(world.comm(0), -1, "enough"), SAR_OK);
    }
  });
}

TEST(Abort, KeepsTheFirstCauseAndCutsLongMessages) {
  const World world(2);
  const std::string message(2 * SAR_MESSAGE_BYTES, 'x');
  EXPECT_EQ(sar_abort(world.comm(0), -1, message.c_str()), SAR_OK);
  EXPECT_EQ(sar_abort(world.comm(1), -1, "second"), SAR_OK);
  EXPECT_EQ(sar_abort(world.comm(1), -1, nullptr), SAR_OK);
  EXPECT_EQ(sar_barrier(world.comm(0), kPatience), SAR_ABORTED);
  EXPECT_EQ(last_failure().message, message.substr(0, SAR_MESSAGE_BYTES - 1));
  EXPECT_EQ(sar_abort(world.comm(0), 2, "no such rank"), SAR_INVALID_ARGUMENT);
}

TEST(Leaving, APeerThatIsDestroyedIsLostAtOnce) {
  World world(3);
  on_threads(2, [&](uint32_t thread) {
    if (thread == 0) {
      ASSERT_EQ(sar_barrier(world.comm(0), kPatience), SAR_PEER_LOST);
      EXPECT_TRUE(says(last_failure().message,
                       {"rank 1 has left the communicator behind call number 0, and is needed in "
                        "barrier number 1, after rank ",
                        "had waited", "(wait 1 of the collective)"}));
      EXPECT_EQ(last_failure().facts.culprit_rank, 1);
      EXPECT_EQ(last_failure().facts.dead_ranks, 0u);
    } else {
      await_sleep(world, 0);
      world.destroy(1);
    }
  });
}

TEST(Leaving, IsNoticedAlsoWithAnEndlessSpin) {
  WorldOptions options;
  options.spin_ns = UINT64_MAX;
  World world(2, options);
  on_threads(2, [&](uint32_t thread) {
    if (thread == 0) {
      EXPECT_EQ(sar_barrier(world.comm(0), kPatience), SAR_PEER_LOST);
    } else {
      world.destroy(1);
    }
  });
}

TEST(Leaving, APeerThatHasArrivedMayGoBeforeTheOthersHaveNoticed) {
  WorldOptions options;
  options.spin_ns = 0;
  for (int round = 0; round < 300; round++) {
    World world(2, options);
    world.each_rank([&](uint32_t rank) {
      for (int i = 0; i < 3; i++) {
        EXPECT_EQ(sar_barrier(world.comm(rank), kPatience), SAR_OK) << sar_last_error();
      }
      world.destroy(rank);
    });
  }
}

TEST(Leaving, ADetachedPeerIsLostAndAnAttachedOneIsBack) {
  const World world(2);
  for (int stage = 0; stage < 3; stage++) {
    world.each_rank([&](uint32_t rank) {
      EXPECT_EQ(sar_barrier(world.comm(rank), kPatience), SAR_OK) << sar_last_error();
    });
    for (const uint32_t rank : {0u, 1u}) {
      EXPECT_EQ(sar_comm_detach(world.comm(rank)), SAR_OK);
      EXPECT_EQ(sar_comm_state(world.comm(rank)), SAR_STATE_DETACHED);
      EXPECT_EQ(sar_barrier(world.comm(rank), kPatience), SAR_INVALID_ARGUMENT);
      EXPECT_TRUE(says(last_failure().message, {"attach it first"}));
    }
    for (const uint32_t rank : {0u, 1u}) {
      EXPECT_EQ(sar_comm_attach(world.comm(rank)), SAR_OK) << sar_last_error();
      EXPECT_EQ(sar_comm_state(world.comm(rank)), SAR_STATE_OPEN);
    }
  }
  EXPECT_EQ(sar_comm_detach(world.comm(1)), SAR_OK);
  EXPECT_EQ(sar_barrier(world.comm(0), kPatience), SAR_PEER_LOST);
  EXPECT_EQ(sar_comm_attach(world.comm(1)), SAR_PEER_LOST) << "the first cause";
}

TEST(Leaving, NobodyAttachesOnceAPeerIsDestroyed) {
  World world(2);
  ASSERT_EQ(sar_comm_detach(world.comm(0)), SAR_OK);
  world.destroy(1);
  EXPECT_EQ(sar_comm_attach(world.comm(0)), SAR_PEER_LOST);
  EXPECT_EQ(sar_comm_state(world.comm(0)), SAR_STATE_ABORTED);
}

class BadArguments : public ::testing::Test {
 protected:
  void expect_refused(sar_status status, const char *why) {
    EXPECT_EQ(status, SAR_INVALID_ARGUMENT);
    EXPECT_TRUE(says(last_failure().message, {why}));
    EXPECT_EQ(sar_comm_state(comm_), SAR_STATE_OPEN) << "the communicator is as it was";
  }
  sar_status reduce(const void *in, void *out, uint64_t count, int type = SAR_FLOAT32,
                    int op = SAR_SUM, int schedule = SAR_AUTO, int64_t timeout = kPatience) {
    return sar_all_reduce(comm_, in, out, count, static_cast<sar_data_type>(type),
                          static_cast<sar_reduce_op>(op), static_cast<sar_schedule>(schedule),
                          timeout);
  }

  const World world_{1};
  sar_comm *const comm_ = world_.comm(0);
  unsigned char *const arena_ = world_.arena(0);
};

TEST_F(BadArguments, AreRefusedByNameAndTheNextCallWorks) {
  float buffer[64] = {};
  auto *bytes = reinterpret_cast<unsigned char *>(buffer);
  expect_refused(reduce(nullptr, buffer, 1), "input is NULL");
  expect_refused(reduce(buffer, nullptr, 1), "output is NULL");
  expect_refused(reduce(bytes + 2, bytes + 2, 1), "not aligned to float32");
  expect_refused(reduce(bytes, bytes + 4, 10), "overlap");
  expect_refused(reduce(buffer, buffer, 1, 6), "6 is no data type");
  expect_refused(reduce(buffer, buffer, 1, SAR_INT32, 5), "5 is no reduce operation");
  expect_refused(reduce(buffer, buffer, 1, SAR_INT32, SAR_SUM, 7), "7 is no schedule");
  expect_refused(reduce(buffer, buffer, UINT64_MAX), "more than memory can hold");
  expect_refused(reduce(buffer, buffer, UINT64_MAX / 4 + 2), "more than memory can hold");
  expect_refused(reduce(buffer, buffer, 1, SAR_INT32, SAR_SUM, SAR_AUTO, 0), "above zero");
  expect_refused(reduce(arena_ + (1 << 20) - 16, buffer, 8), "border of the arena");
  expect_refused(reduce(arena_ - 8, buffer, 8), "border of the arena");
  expect_refused(sar_broadcast(comm_, buffer, buffer, 1, SAR_FLOAT32, 1, kPatience), "root 1");
  expect_refused(sar_comm_attach(comm_), "not detached");
  EXPECT_EQ(reduce(nullptr, nullptr, 0), SAR_OK) << sar_last_error();
  EXPECT_EQ(reduce(buffer, buffer, 64), SAR_OK) << sar_last_error();
}

TEST_F(BadArguments, NullPointersAreNamed) {
  void *base = nullptr;
  uint64_t bytes = 0;
  EXPECT_EQ(sar_barrier(nullptr, kPatience), SAR_INVALID_ARGUMENT);
  EXPECT_TRUE(says(last_failure().message, {"comm is NULL"}));
  EXPECT_EQ(sar_comm_arena(comm_, &base, nullptr), SAR_INVALID_ARGUMENT);
  EXPECT_TRUE(says(last_failure().message, {"bytes is NULL"}));
  EXPECT_EQ(sar_comm_arena(nullptr, &base, &bytes), SAR_INVALID_ARGUMENT);
  EXPECT_EQ(sar_comm_create(nullptr, nullptr), SAR_INVALID_ARGUMENT);
  EXPECT_EQ(sar_comm_handle(comm_, nullptr), SAR_INVALID_ARGUMENT);
  EXPECT_EQ(sar_comm_statistics(comm_, nullptr), SAR_INVALID_ARGUMENT);
  EXPECT_EQ(sar_comm_detach(nullptr), SAR_INVALID_ARGUMENT);
  EXPECT_EQ(sar_abort(nullptr, -1, ""), SAR_INVALID_ARGUMENT);
  sar_last_failure(nullptr);
  sar_comm_destroy(nullptr);
}

// The test writes rank 1's call line as a rank with damaged or hostile memory would.
class HostileCallLine : public ::testing::Test {
 protected:
  // Rank 0's all-reduce of 100 float32 against these fields.
  sar_status reduce_against(uint64_t input_offset, uint64_t output_offset,
                            uint32_t flags = kInputRegistered | kOutputRegistered,
                            uint32_t collective = SAR_COLLECTIVE_ALL_REDUCE) {
    const World world(2);
    CallLine &line = signal_pad_of(segment_of(world, 1)).calls[1];
    line.count = 100;
    line.total = 100;
    line.input_offset = input_offset;
    line.output_offset = output_offset;
    line.collective = collective;
    line.type = SAR_FLOAT32;
    line.op = SAR_SUM;
    line.schedule = SAR_LOAD_REDUCE_STORE;
    line.chosen = SAR_LOAD_REDUCE_STORE;
    line.root = 0;
    line.flags = flags;
    line.epoch = 1;  // connecting took one step
    line.sequence = 1;
    const GuardedBuffer output(world.arena(0) + 4096, 400);
    output.poison();
    const sar_status status =
        sar_all_reduce(world.comm(0), world.arena(0), output.data(), 100, SAR_FLOAT32, SAR_SUM,
                       SAR_LOAD_REDUCE_STORE, 20 * kMillisecond);
    EXPECT_TRUE(output.is_poisoned() || status == SAR_TIMEOUT);
    return status;
  }
};

TEST_F(HostileCallLine, WithOffsetsOutsideOfTheArenaIsRefused) {
  constexpr uint64_t arena_bytes = 1 << 20;
  EXPECT_EQ(reduce_against(0, 4096), SAR_TIMEOUT) << "a proper line, then nothing more";
  for (const uint64_t offset :
       {arena_bytes, arena_bytes - 396, UINT64_MAX - 400, UINT64_MAX, uint64_t{1} << 63,
        uint64_t{2}, Location{1, 0}.packed(), Location{64, 0}.packed()}) {
    EXPECT_EQ(reduce_against(offset, 0), SAR_SYSTEM_ERROR) << offset;
    EXPECT_TRUE(says(last_failure().message, {"rank 1 announced an input"}));
    EXPECT_EQ(last_failure().facts.culprit_rank, 1);
    EXPECT_EQ(reduce_against(0, offset), SAR_SYSTEM_ERROR) << offset;
    EXPECT_TRUE(says(last_failure().message, {"rank 1 announced an output"}));
  }
}

TEST_F(HostileCallLine, WithAnUnknownCollectiveIsAMismatch) {
  EXPECT_EQ(reduce_against(0, 0, 0, 12345), SAR_MISMATCH);
  EXPECT_TRUE(says(last_failure().message, {"rank 1 has collective unknown"}));
}

}  // namespace
}  // namespace sar::testing
