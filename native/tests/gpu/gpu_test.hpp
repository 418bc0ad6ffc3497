// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// gpu_test.hpp: what the tests of the GPU library through the C header share. They run on a GPU,
// and in CI on the simulated driver (SPARK_ALLREDUCE_GPU_DRIVER names it), which says nothing about
// a GPU. SAR_TEST_RANKS and SAR_TEST_ROUNDS ask for more than the defaults, SAR_TEST_DEVICES for
// ranks on so many devices.
#ifndef SPARK_ALLREDUCE_TESTS_GPU_GPU_TEST_HPP
#define SPARK_ALLREDUCE_TESTS_GPU_GPU_TEST_HPP

#include <gtest/gtest.h>

#include <string>

#include "rank_processes.hpp"
#include "reference.hpp"

namespace sar::gpu::test {

inline constexpr sar_data_type kTypes[] = {SAR_FLOAT64,  SAR_FLOAT32, SAR_FLOAT16,
                                           SAR_BFLOAT16, SAR_INT32,   SAR_INT64};
inline constexpr sar_schedule kSchedules[] = {
    SAR_AUTO,         SAR_ONE_SHOT,          SAR_TWO_SHOT_READ, SAR_STAGED_WRITE,
    SAR_DIRECT_WRITE, SAR_LOAD_REDUCE_STORE, SAR_LOW_LATENCY};
inline constexpr sar_reduce_op kOps[] = {SAR_SUM, SAR_PRODUCT, SAR_MIN, SAR_MAX, SAR_AVERAGE};

// Fits the low-latency schedule even with the simulated driver's 16 threads.
inline constexpr uint64_t kTiny = 13;

// Not the condition's text: a lambda of thirty lines.
#define EXPECT_RANKS(...) \
  if (const bool ranks_ended_well = __VA_ARGS__; true) EXPECT_TRUE(ranks_ended_well)

inline uint32_t most_ranks() {
  const char* text = std::getenv("SAR_TEST_RANKS");
  return text != nullptr ? static_cast<uint32_t>(std::atoi(text)) : 4;
}
inline int stress_rounds() {
  const char* text = std::getenv("SAR_TEST_ROUNDS");
  return text != nullptr ? std::atoi(text) : 50;
}
inline bool simulated() { return std::getenv("SPARK_ALLREDUCE_GPU_DRIVER") != nullptr; }

// Asked in a process of its own: the driver does not survive a fork.
inline bool has_devices(uint32_t wanted) {
  return run_ranks(Ranks::kProcesses, 1, [wanted](Rank&) {
    uint32_t count = 0;
    if (sar_gpu_device_count(&count) != SAR_OK || count < wanted) _exit(1);
  });
}
inline bool has_device() {
  static const bool found = has_devices(1);
  return found;
}

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    if (has_device()) return;
    if (simulated()) FAIL() << "the simulated driver does not load";
    GTEST_SKIP() << "no GPU driver or no device";
  }
};

inline std::vector<const uint8_t*> pointers(const std::vector<Bytes>& values, uint64_t offset = 0) {
  std::vector<const uint8_t*> result;
  for (const Bytes& bytes : values) result.push_back(bytes.data() + offset);
  return result;
}

inline std::vector<Bytes> inputs(sar_data_type type, uint64_t count, uint32_t ranks,
                                 uint64_t seed) {
  std::vector<Bytes> result;
  for (uint32_t r = 0; r < ranks; ++r)
    result.push_back(random_elements(type, count, seed * 100 + r));
  return result;
}

// One all-reduce on arena buffers, with a poisoned output and canaries around it.
inline void check_all_reduce(Rank& rank, sar_data_type type, sar_reduce_op op,
                             sar_schedule schedule, uint64_t count, uint64_t seed,
                             bool in_place = false, uint64_t offset = 0) {
  const uint64_t size = element_bytes(type), bytes = count * size, canary = 64;
  const std::vector<Bytes> values = inputs(type, count, rank.world, seed);
  uint8_t* in = rank.arena + canary + offset;
  uint8_t* out = in_place ? in : rank.arena + (4 << 20) + canary + offset;
  rank.write(out - canary, Bytes(bytes + 2 * canary, 0xee));
  rank.write(in, values[rank.rank]);
  const sar_status status =
      sar_all_reduce(rank.comm, in, out, count, type, op, schedule, Rank::kTimeout);
  REQUIRE(status == SAR_OK, "type %d op %d schedule %d count %llu", type, op, schedule,
          static_cast<unsigned long long>(count));
  const Bytes found = rank.read(out - canary, bytes + 2 * canary);
  const Bytes expected = reduced(type, op, pointers(values), count);
  REQUIRE(std::memcmp(found.data() + canary, expected.data(), bytes) == 0,
          "type %d op %d schedule %d count %llu in place %d offset %d", type, op, schedule,
          static_cast<unsigned long long>(count), in_place, static_cast<int>(offset));
  for (uint64_t i = 0; i < canary; ++i) {
    const uint8_t before = found[i], behind = found[canary + bytes + i];
    REQUIRE(
        before == 0xee && behind == 0xee,
        "byte %llu of the canaries is %#x and %#x: type %d op %d schedule %d count %llu in place "
        "%d offset %d",
        static_cast<unsigned long long>(i), before, behind, type, op, schedule,
        static_cast<unsigned long long>(count), in_place, static_cast<int>(offset));
  }
}

}  // namespace sar::gpu::test

#endif
