// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// All-reduce, every combination of the tables in cases.hpp, bit for bit.
#include <gtest/gtest.h>

#include "cases.hpp"
#include "world.hpp"

namespace sar::testing {
namespace {

enum class Placement { kRegistered, kUnregistered, kMixed };

struct Case {
  sar_data_type type;
  sar_reduce_op op;
  sar_schedule schedule;
  uint64_t length;
  bool in_place;
  Placement placement;
  uint32_t shift;  // elements by which buffers are off from a cache line
};

std::string describe(const Case &c, uint32_t world_size, uint32_t rank) {
  constexpr std::array placements{"registered", "unregistered", "mixed"};
  return name_of(c.schedule) + " of " + std::to_string(c.length) + " " + name_of(c.type) + ", " +
         name_of(c.op) + (c.in_place ? ", in place, " : ", out of place, ") +
         placements[static_cast<size_t>(c.placement)] + ", shifted by " + std::to_string(c.shift) +
         ", rank " + std::to_string(rank) + " of " + std::to_string(world_size);
}

// Inputs of all ranks and the expected result, of the longest length; shorter ones are prefixes.
struct Data {
  std::vector<Bytes> inputs;
  Bytes expected;

  Data(sar_data_type type, sar_reduce_op op, uint32_t world_size, uint64_t length) {
    std::vector<const void *> pointers;
    for (uint32_t rank = 0; rank < world_size; rank++) {
      inputs.push_back(values(type, length, rank, 1000 * op + world_size));
    }
    for (const Bytes &input : inputs) {
      pointers.push_back(input.data());
    }
    expected = reference_reduce(type, op, pointers, length);
  }
};

class OneRank {
 public:
  OneRank(const World &world, uint32_t rank)
      : world_(world),
        rank_(rank),
        heap_(2 * kRegion + kLine),
        heap_base_(heap_.data() + (kLine - reinterpret_cast<uintptr_t>(heap_.data()) % kLine)) {}

  void run(const Case &c, const Data &data) {
    SCOPED_TRACE(describe(c, world_.size(), rank_));
    const bool registered = c.placement == Placement::kRegistered ||
                            (c.placement == Placement::kMixed && rank_ % 2 == 0);
    const size_t size = size_of(c.type);
    const size_t bytes = c.length * size;
    unsigned char *memory = (registered ? world_.arena(rank_) : heap_base_) + c.shift * size;
    const GuardedBuffer input(memory, bytes);
    const GuardedBuffer output = c.in_place ? input : GuardedBuffer(memory + kRegion, bytes);
    output.poison();
    input.fill(data.inputs[rank_].data());
    ASSERT_EQ(sar_all_reduce(world_.comm(rank_), input.data(), output.data(), c.length, c.type,
                             c.op, c.schedule, kPatience),
              SAR_OK)
        << sar_last_error();
    EXPECT_TRUE(output.equals(data.expected.data()));
    EXPECT_TRUE(c.in_place || input.equals(data.inputs[rank_].data())) << "the input has changed";
    EXPECT_TRUE(input.canaries_alive());
    EXPECT_TRUE(output.canaries_alive());
  }

 private:
  static constexpr size_t kRegion = 48 * 1024;
  static constexpr size_t kLine = 64;

  const World &world_;
  uint32_t rank_;
  Bytes heap_;
  unsigned char *heap_base_;
};

class AllReduce : public ::testing::TestWithParam<std::tuple<uint32_t, sar_data_type>> {
 protected:
  const uint32_t world_size_ = std::get<0>(GetParam());
  const sar_data_type type_ = std::get<1>(GetParam());
};

// Every combination in small worlds; in larger ones every schedule, operation and length of a
// shorter list, with the ways to place buffers taking turns.
std::vector<Case> cases_of(uint32_t world_size, sar_data_type type, sar_reduce_op op) {
  std::vector<Case> cases;
  const bool small = world_size <= 4;
  uint32_t turn = op;
  for (const sar_schedule schedule : kSchedules) {
    const auto add = [&](uint64_t length) {
      for (uint32_t way = 0; way < 12; way++) {
        if (small || way == turn % 12) {
          cases.push_back({type, op, schedule, length, way % 2 == 0,
                           static_cast<Placement>(way / 4), way / 2 % 2});
        }
      }
      turn += 5;
    };
    if (small) {
      std::for_each(kLengths.begin(), kLengths.end(), add);
    } else {
      std::for_each(kFewLengths.begin(), kFewLengths.end(), add);
    }
  }
  for (uint64_t length = 0; length * size_of(type) <= kLowLatencyLimit; length++) {
    for (uint32_t way = 0; way < 12; way++) {
      cases.push_back({type, op, SAR_LOW_LATENCY, length, way % 2 == 0,
                       static_cast<Placement>(way / 4), way / 2 % 2});
    }
  }
  return cases;
}

TEST_P(AllReduce, GivesTheReferencesBitsOnEveryRank) {
  const World world(world_size_);
  for (const sar_reduce_op op : kOps) {
    const Data data(type_, op, world_size_, kLongest);
    const std::vector<Case> cases = cases_of(world_size_, type_, op);
    world.each_rank([&](uint32_t rank) {
      OneRank one(world, rank);
      for (const Case &c : cases) {
        one.run(c, data);
        if (::testing::Test::HasFatalFailure()) {
          return;
        }
      }
    });
    if (HasFailure()) {
      return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, AllReduce,
                         ::testing::Combine(::testing::Range(1u, 17u), ::testing::ValuesIn(kTypes)),
                         [](const auto &suite) {
                           return std::to_string(std::get<0>(suite.param)) + "_" +
                                  name_of(std::get<1>(suite.param));
                         });

// Several times the staging area: a message goes through it in chunks, also when the last is short.
TEST(AllReduceInChunks, IsTheSameForMessagesLargerThanStaging) {
  constexpr uint64_t length = 100'003;
  WorldOptions options;
  options.arena_bytes = 4 << 20;
  for (const uint32_t world_size : {2u, 3u, 7u}) {
    const World world(world_size, options);
    const Data data(SAR_FLOAT32, SAR_SUM, world_size, length);
    world.each_rank([&](uint32_t rank) {
      Bytes heap(length * sizeof(float));
      for (const sar_schedule schedule : kSchedules) {
        for (const bool registered : {true, false}) {
          SCOPED_TRACE(name_of(schedule) + (registered ? " registered" : " unregistered"));
          unsigned char *buffer = registered ? world.arena(rank) : heap.data();
          std::copy(data.inputs[rank].begin(), data.inputs[rank].end(), buffer);
          ASSERT_EQ(sar_all_reduce(world.comm(rank), buffer, buffer, length, SAR_FLOAT32, SAR_SUM,
                                   schedule, kPatience),
                    SAR_OK)
              << sar_last_error();
          EXPECT_TRUE(std::equal(data.expected.begin(), data.expected.end(), buffer));
        }
      }
    });
  }
}

// So long that the outputs are written past the caches; the last vector and the last line are not
// full.
TEST(AllReducePastTheCaches, IsTheSameInPlaceAndFromInputsOfAnotherAlignment) {
  constexpr uint32_t ranks = 4;
  constexpr uint64_t length = (1 << 20) + 7;
  constexpr uint64_t bytes = length * sizeof(float);
  WorldOptions options;
  options.arena_bytes = 2 * bytes + 64;
  const World world(ranks, options);
  const Data data(SAR_FLOAT32, SAR_SUM, ranks, length);
  world.each_rank([&](uint32_t rank) {
    unsigned char *arena = world.arena(rank);
    for (const uint64_t input_at : {uint64_t{0}, bytes}) {
      SCOPED_TRACE(input_at == 0 ? "in place" : "out of place");
      unsigned char *input = arena + input_at;
      std::copy(data.inputs[rank].begin(), data.inputs[rank].end(), input);
      ASSERT_EQ(sar_all_reduce(world.comm(rank), input, arena, length, SAR_FLOAT32, SAR_SUM,
                               SAR_LOAD_REDUCE_STORE, kPatience),
                SAR_OK)
          << sar_last_error();
      EXPECT_TRUE(std::equal(data.expected.begin(), data.expected.end(), arena));
    }
  });
}

TEST(AllReduceLowLatency, RefusesMoreThanItCarriesAndTheCommunicatorLivesOn) {
  const World world(2);
  world.each_rank([&](uint32_t rank) {
    std::vector<double> heap(3, 1.0);
    EXPECT_EQ(sar_all_reduce(world.comm(rank), heap.data(), heap.data(), 3, SAR_FLOAT64, SAR_SUM,
                             SAR_LOW_LATENCY, kPatience),
              SAR_UNSUPPORTED);
    EXPECT_TRUE(says(last_failure().message, {"16 bytes at most, not 24", "use auto"}));
    EXPECT_EQ(sar_all_reduce(world.comm(rank), heap.data(), heap.data(), 3, SAR_FLOAT64, SAR_SUM,
                             SAR_AUTO, kPatience),
              SAR_OK);
    EXPECT_EQ(heap, std::vector<double>(3, 2.0));
  });
}

TEST(AllReduceStatistics, CountCollectivesBytesAndFallbacks) {
  const World world(2);
  constexpr uint64_t length = 4096;
  world.each_rank([&](uint32_t rank) {
    std::vector<double> heap(length);
    auto *arena = reinterpret_cast<double *>(world.arena(rank));
    std::fill(arena, arena + length, 1.0);
    const auto reduce = [&](double *buffer, sar_schedule schedule) {
      EXPECT_EQ(sar_all_reduce(world.comm(rank), buffer, buffer, length, SAR_FLOAT64, SAR_SUM,
                               schedule, kPatience),
                SAR_OK);
    };
    reduce(arena, SAR_AUTO);
    reduce(heap.data(), SAR_STAGED_WRITE);  // needs no registration: no fallback
    // One rank's buffer is enough to make all fall back.
    reduce(rank == 0 ? heap.data() : arena, SAR_LOAD_REDUCE_STORE);
    reduce(rank == 0 ? heap.data() : arena, SAR_AUTO);
    sar_statistics statistics{};
    ASSERT_EQ(sar_comm_statistics(world.comm(rank), &statistics), SAR_OK);
    EXPECT_EQ(statistics.collectives, 4u);
    EXPECT_EQ(statistics.bytes, 4 * length * sizeof(double));
    EXPECT_EQ(statistics.unregistered, 2u);
    EXPECT_GT(statistics.total_ns, 0u);
    EXPECT_LE(statistics.wait_ns, statistics.total_ns);
  });
}

}  // namespace
}  // namespace sar::testing
