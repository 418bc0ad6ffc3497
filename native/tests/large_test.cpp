// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Buffers of more than 2^31 bytes, where a 32-bit size or offset would go wrong. They need 4 GiB of
// shared memory, and as much again of other memory.
#include <gtest/gtest.h>

#include <vector>

#include "world.hpp"

namespace sar::testing {
namespace {

constexpr uint64_t kCount = (uint64_t{1} << 29) + 1003;  // int32: 2 GiB and a little

int32_t value(uint32_t rank, uint64_t i) {
  return static_cast<int32_t>(i * 2654435761u + rank * 40503u);
}

void fill(int32_t *values, uint32_t rank) {
  for (uint64_t i = 0; i < kCount; i++) {
    values[i] = value(rank, i);
  }
}

void expect_sums(const int32_t *values) {
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < kCount; i++) {
    const auto sum = static_cast<uint32_t>(value(0, i)) + static_cast<uint32_t>(value(1, i));
    wrong += values[i] != static_cast<int32_t>(sum);
  }
  EXPECT_EQ(wrong, 0u);
}

TEST(Large, RegisteredBuffersAreReducedInPlace) {
  WorldOptions options;
  options.arena_bytes = kCount * sizeof(int32_t);
  options.staging_bytes = 12 << 20;
  const World world(2, options);
  for (const sar_schedule schedule : {SAR_LOAD_REDUCE_STORE, SAR_DIRECT_WRITE}) {
    world.each_rank([&](uint32_t rank) {
      auto *values = reinterpret_cast<int32_t *>(world.arena(rank));
      fill(values, rank);
      ASSERT_EQ(sar_all_reduce(world.comm(rank), values, values, kCount, SAR_INT32, SAR_SUM,
                               schedule, kPatience),
                SAR_OK)
          << sar_last_error();
      expect_sums(values);
    });
  }
}

TEST(Large, UnregisteredBuffersPassThroughStaging) {
  WorldOptions options;
  options.staging_bytes = 12 << 20;
  const World world(2, options);
  world.each_rank([&](uint32_t rank) {
    std::vector<int32_t> values(kCount);
    fill(values.data(), rank);
    ASSERT_EQ(sar_all_reduce(world.comm(rank), values.data(), values.data(), kCount, SAR_INT32,
                             SAR_SUM, SAR_AUTO, kPatience),
              SAR_OK)
        << sar_last_error();
    expect_sums(values.data());
  });
}

}  // namespace
}  // namespace sar::testing
