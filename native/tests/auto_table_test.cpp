// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// SAR_AUTO and its table. Which schedule ran is seen by what it leaves: load-reduce/store counts a
// fall-back when it meets heap memory, one-shot does not.
#include <gtest/gtest.h>

#include "cases.hpp"
#include "world.hpp"

namespace sar::testing {
namespace {

class AutoTable : public ::testing::Test {
 protected:
  sar_status set(uint32_t rank, const std::vector<sar_auto_row> &rows) const {
    return sar_comm_set_auto_table(world_.comm(rank), rows.data(), rows.size());
  }

  void set_on_all(const std::vector<sar_auto_row> &rows) const {
    for (uint32_t rank = 0; rank < world_.size(); rank++) {
      ASSERT_EQ(set(rank, rows), SAR_OK) << sar_last_error();
    }
  }

  // Reduces `bytes` bytes of heap memory; whether `auto` took a schedule that needs registration.
  bool takes_one_that_needs_registration(uint64_t bytes) const {
    uint64_t fallbacks[2] = {};
    world_.each_rank([&](uint32_t rank) {
      sar_statistics before{};
      sar_statistics after{};
      std::vector<double> heap(bytes / sizeof(double), 1.0);
      sar_comm_statistics(world_.comm(rank), &before);
      EXPECT_EQ(sar_all_reduce(world_.comm(rank), heap.data(), heap.data(), heap.size(),
                               SAR_FLOAT64, SAR_SUM, SAR_AUTO, kPatience),
                SAR_OK)
          << sar_last_error();
      EXPECT_EQ(heap, std::vector<double>(heap.size(), 2.0));
      sar_comm_statistics(world_.comm(rank), &after);
      fallbacks[rank] = after.unregistered - before.unregistered;
    });
    EXPECT_EQ(fallbacks[0], fallbacks[1]);
    return fallbacks[0] != 0;
  }

  const World world_{2};
};

TEST_F(AutoTable, TakesTheFirstRowThatIsNotExceeded) {
  set_on_all({{1, SAR_LOAD_REDUCE_STORE, UINT64_MAX},  // for fewer ranks
              {2, SAR_ONE_SHOT, 8192},
              {16, SAR_LOAD_REDUCE_STORE, 16384},
              {16, SAR_ONE_SHOT, UINT64_MAX}});
  EXPECT_FALSE(takes_one_that_needs_registration(8192));
  EXPECT_TRUE(takes_one_that_needs_registration(8200));
  EXPECT_TRUE(takes_one_that_needs_registration(16384));
  EXPECT_FALSE(takes_one_that_needs_registration(16392));
}

TEST_F(AutoTable, TakesLoadReduceStoreWhereNoRowServes) {
  set_on_all({{16, SAR_ONE_SHOT, 64}});
  EXPECT_FALSE(takes_one_that_needs_registration(64));
  EXPECT_TRUE(takes_one_that_needs_registration(72));
}

TEST_F(AutoTable, PassesOverTheLowLatencyScheduleForWhatItDoesNotCarry) {
  set_on_all({{16, SAR_LOW_LATENCY, UINT64_MAX}, {16, SAR_ONE_SHOT, 64}});
  EXPECT_FALSE(takes_one_that_needs_registration(16));
  EXPECT_FALSE(takes_one_that_needs_registration(64));
  EXPECT_TRUE(takes_one_that_needs_registration(72));
}

TEST_F(AutoTable, IsTheBuiltInOneBeforeAndAfterAnother) {
  EXPECT_TRUE(takes_one_that_needs_registration(1 << 20));
  set_on_all({{16, SAR_ONE_SHOT, UINT64_MAX}});
  EXPECT_FALSE(takes_one_that_needs_registration(1 << 20));
  set_on_all({});
  EXPECT_TRUE(takes_one_that_needs_registration(1 << 20));
}

TEST_F(AutoTable, ThatDiffersBetweenRanksIsAMismatch) {
  ASSERT_EQ(set(0, {{16, SAR_ONE_SHOT, UINT64_MAX}}), SAR_OK);
  ASSERT_EQ(set(1, {{16, SAR_TWO_SHOT_READ, UINT64_MAX}}), SAR_OK);
  world_.each_rank([&](uint32_t rank) {
    double value = 1;
    EXPECT_EQ(sar_all_reduce(world_.comm(rank), &value, &value, 1, SAR_FLOAT64, SAR_SUM, SAR_AUTO,
                             kPatience),
              SAR_MISMATCH);
    EXPECT_TRUE(says(last_failure().message,
                     {"schedule chosen by auto one-shot", "rank 1 has", "two-shot read"}));
    EXPECT_EQ(value, 1);
  });
}

TEST_F(AutoTable, IsCheckedAndARefusedOneChangesNothing) {
  set_on_all({{16, SAR_ONE_SHOT, UINT64_MAX}});
  EXPECT_EQ(set(0, {{16, SAR_ONE_SHOT, 64}, {16, SAR_AUTO, 128}}), SAR_INVALID_ARGUMENT);
  EXPECT_TRUE(says(last_failure().message, {"row 1", "schedule 0"}));
  EXPECT_EQ(set(0, {{16, 77, 64}}), SAR_INVALID_ARGUMENT);
  EXPECT_EQ(set(0, {{0, SAR_ONE_SHOT, 64}}), SAR_INVALID_ARGUMENT);
  EXPECT_TRUE(says(last_failure().message, {"row 0", "world size 0"}));
  EXPECT_EQ(set(0, std::vector<sar_auto_row>(65, {16, SAR_ONE_SHOT, 64})), SAR_INVALID_ARGUMENT);
  EXPECT_TRUE(says(last_failure().message, {"65 rows", "64 at most"}));
  EXPECT_EQ(sar_comm_set_auto_table(world_.comm(0), nullptr, 1), SAR_INVALID_ARGUMENT);
  EXPECT_EQ(sar_comm_set_auto_table(nullptr, nullptr, 0), SAR_INVALID_ARGUMENT);
  EXPECT_FALSE(takes_one_that_needs_registration(1 << 20));
  EXPECT_EQ(set(0, std::vector<sar_auto_row>(64, {16, SAR_ONE_SHOT, UINT64_MAX})), SAR_OK);
}

}  // namespace
}  // namespace sar::testing
