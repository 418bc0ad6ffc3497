// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Reduce-scatter, all-gather, broadcast and barrier.
#include <gtest/gtest.h>

#include <atomic>

#include "cases.hpp"
#include "world.hpp"

namespace sar::testing {
namespace {

// With the smallest staging area, 1030 and 2500 elements go through it in chunks.
constexpr std::array<uint64_t, 6> kCounts{0, 1, 17, 511, 1030, 2500};

enum class Placement { kRegistered, kUnregistered, kMixed };
constexpr std::array kPlacements{Placement::kRegistered, Placement::kUnregistered,
                                 Placement::kMixed};

bool is_registered(Placement placement, uint32_t rank) {
  return placement == Placement::kRegistered || (placement == Placement::kMixed && rank % 2 == 1);
}

// One rank's room for the input and the output of the widest collective.
class Memory {
 public:
  Memory(const World &world, uint32_t rank)
      : arena_(world.arena(rank)), heap_(2 * kRegion), rank_(rank) {}

  static std::vector<Memory> of_all(const World &world) {
    std::vector<Memory> memories;
    for (uint32_t rank = 0; rank < world.size(); rank++) {
      memories.emplace_back(world, rank);
    }
    return memories;
  }

  unsigned char *input(Placement placement) {
    return is_registered(placement, rank_) ? arena_ : heap_.data();
  }
  unsigned char *output(Placement placement) { return input(placement) + kRegion; }

  static constexpr size_t kRegion = 384 * 1024;

 private:
  unsigned char *arena_;
  Bytes heap_;
  uint32_t rank_;
};

class DataMovement : public ::testing::TestWithParam<uint32_t> {
 protected:
  const uint32_t world_size_ = GetParam();
};

TEST_P(DataMovement, ReduceScatterGivesEachRankItsPart) {
  const World world(world_size_);
  std::vector<Memory> memories = Memory::of_all(world);
  uint64_t seed = 0;
  for (const sar_data_type type : kTypes) {
    const sar_reduce_op op = kOps[seed % kOps.size()];
    for (const uint64_t count : kCounts) {
      const size_t size = size_of(type);
      std::vector<Bytes> inputs;
      std::vector<const void *> pointers;
      seed++;
      for (uint32_t rank = 0; rank < world_size_; rank++) {
        inputs.push_back(values(type, count * world_size_, rank, seed));
      }
      for (const Bytes &input : inputs) {
        pointers.push_back(input.data());
      }
      const Bytes expected = reference_reduce(type, op, pointers, count * world_size_);
      world.each_rank([&](uint32_t rank) {
        Memory &memory = memories[rank];
        for (const Placement placement : kPlacements) {
          for (const bool in_place : {false, true}) {
            const GuardedBuffer input(memory.input(placement), inputs[rank].size());
            input.fill(inputs[rank].data());
            const GuardedBuffer output(memory.output(placement), count * size);
            output.poison();
            unsigned char *result = in_place ? input.data() + rank * count * size : output.data();
            ASSERT_EQ(sar_reduce_scatter(world.comm(rank), input.data(), result, count, type, op,
                                         kPatience),
                      SAR_OK)
                << sar_last_error();
            EXPECT_TRUE(std::equal(result, result + count * size,
                                   expected.begin() + static_cast<long>(rank * count * size)))
                << name_of(type) << " " << name_of(op) << " " << count;
            EXPECT_TRUE(in_place || input.equals(inputs[rank].data()));
            EXPECT_TRUE(input.canaries_alive() && output.canaries_alive());
          }
        }
      });
    }
  }
}

TEST_P(DataMovement, AllGatherGivesEveryoneAllInputsBitForBit) {
  const World world(world_size_);
  std::vector<Memory> memories = Memory::of_all(world);
  for (const sar_data_type type : kTypes) {
    for (const uint64_t count : kCounts) {
      const size_t bytes = count * size_of(type);
      Bytes expected;
      for (uint32_t rank = 0; rank < world_size_; rank++) {
        const Bytes input = values(type, count, rank, count);
        expected.insert(expected.end(), input.begin(), input.end());
      }
      world.each_rank([&](uint32_t rank) {
        Memory &memory = memories[rank];
        for (const Placement placement : kPlacements) {
          for (const bool in_place : {false, true}) {
            const GuardedBuffer output(memory.output(placement), expected.size());
            output.poison();
            const GuardedBuffer input(memory.input(placement), bytes);
            unsigned char *source = in_place ? output.data() + rank * bytes : input.data();
            std::copy_n(expected.begin() + static_cast<long>(rank * bytes), bytes, source);
            ASSERT_EQ(
                sar_all_gather(world.comm(rank), source, output.data(), count, type, kPatience),
                SAR_OK)
                << sar_last_error();
            EXPECT_TRUE(output.equals(expected.data())) << name_of(type) << " " << count;
            EXPECT_TRUE(input.canaries_alive() && output.canaries_alive());
          }
        }
      });
    }
  }
}

TEST_P(DataMovement, BroadcastGivesEveryoneTheRootsInput) {
  const World world(world_size_);
  std::vector<Memory> memories = Memory::of_all(world);
  for (const uint64_t count : {uint64_t{0}, uint64_t{5}, uint64_t{1030}, uint64_t{9000}}) {
    for (uint32_t root = 0; root < world_size_; root++) {
      const Bytes expected = values(SAR_INT64, count, root, count);
      world.each_rank([&](uint32_t rank) {
        Memory &memory = memories[rank];
        for (const Placement placement : kPlacements) {
          for (const bool in_place : {false, true}) {
            const GuardedBuffer output(memory.output(placement), expected.size());
            output.poison();
            unsigned char *source = nullptr;  // only the root's is looked at
            if (rank == root) {
              source = in_place ? output.data() : memory.input(placement);
              std::copy(expected.begin(), expected.end(), source);
            }
            ASSERT_EQ(sar_broadcast(world.comm(rank), source, output.data(), count, SAR_INT64, root,
                                    kPatience),
                      SAR_OK)
                << sar_last_error();
            EXPECT_TRUE(output.equals(expected.data())) << count << " from " << root;
            EXPECT_TRUE(output.canaries_alive());
          }
        }
      });
    }
  }
}

TEST_P(DataMovement, NobodyLeavesABarrierBeforeAllHaveEntered) {
  const World world(world_size_);
  std::atomic<uint32_t> entered{0};
  world.each_rank([&](uint32_t rank) {
    for (uint32_t round = 1; round <= 200; round++) {
      entered.fetch_add(1, std::memory_order_relaxed);
      ASSERT_EQ(sar_barrier(world.comm(rank), kPatience), SAR_OK) << sar_last_error();
      ASSERT_GE(entered.load(std::memory_order_relaxed), round * world_size_);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, DataMovement, ::testing::Values(1, 2, 3, 4, 7, 16),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace sar::testing
