// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// cpu_cases.hpp: one collective of the CPU-built kernels: its buffers, the expected bits, many
// rounds.
#ifndef SPARK_ALLREDUCE_TESTS_GPU_CPU_CASES_HPP
#define SPARK_ALLREDUCE_TESTS_GPU_CPU_CASES_HPP

#include <gtest/gtest.h>

#include "cpu_world.hpp"

namespace sar::gpu::test {

// float32 elements that fit two blocks of the low-latency schedule.
inline constexpr uint64_t kSmall = 2 * kBlockThreads;
inline constexpr uint64_t kTimeout = 120'000'000'000;
inline constexpr sar_data_type kTypes[] = {SAR_FLOAT64,  SAR_FLOAT32, SAR_FLOAT16,
                                           SAR_BFLOAT16, SAR_INT32,   SAR_INT64};
inline constexpr sar_reduce_op kOps[] = {SAR_SUM, SAR_PRODUCT, SAR_MIN, SAR_MAX, SAR_AVERAGE};
inline constexpr sar_schedule kSchedules[] = {SAR_ONE_SHOT,          SAR_TWO_SHOT_READ,
                                              SAR_STAGED_WRITE,      SAR_DIRECT_WRITE,
                                              SAR_LOAD_REDUCE_STORE, SAR_LOW_LATENCY};

// The buffers of all ranks for one collective, and what must be in the outputs.
struct Case {
  Call call;
  uint64_t in_count = 0, out_count = 0;
  bool in_place = false;
  bool registered = true;
  uint64_t offset = 0;  // bytes from a 64-byte boundary
};

inline std::vector<const uint8_t*> pointers(const std::vector<Bytes>& values, uint64_t offset = 0) {
  std::vector<const uint8_t*> result;
  for (const Bytes& bytes : values) result.push_back(bytes.data() + offset);
  return result;
}

class Fixture {
 public:
  Fixture(CpuWorld& world, uint32_t ranks, const Case& c) : world_(world), n_(ranks), case_(c) {
    const uint64_t size = element_bytes(c.call.type);
    for (uint32_t r = 0; r < n_; ++r) {
      in_.emplace_back(c.in_count * size, c.offset);
      out_.emplace_back(c.out_count * size, c.offset);
      if (c.in_place) {
        // One buffer holds both; reduce-scatter and all-gather use a part of it.
        const uint64_t most = std::max(c.in_count, c.out_count);
        in_[r] = Guarded(most * size, c.offset);
      }
    }
  }

  uint64_t input(uint32_t r) const {
    return in_[r].address() +
           (case_.in_place && case_.out_count > case_.in_count ? r * in_bytes() : 0);
  }
  uint64_t output(uint32_t r) const {
    if (!case_.in_place) return out_[r].address();
    return in_[r].address() + (case_.in_count > case_.out_count ? r * out_bytes() : 0);
  }

  void run(uint32_t rank, const Bytes& value) {
    std::memcpy(reinterpret_cast<void*>(input(rank)), value.data(), value.size());
    if (!case_.in_place) out_[rank].poison();
    Buffers buffers;
    buffers.input = input(rank);
    buffers.output = output(rank);
    for (uint32_t q = 0; q < n_; ++q) {
      buffers.rank[q] = {case_.registered ? input(q) : 0, case_.registered ? output(q) : 0,
                         case_.in_place};
    }
    world_.run(rank, case_.call, buffers);
  }

  bool output_is(uint32_t rank, const Bytes& expected) const {
    return std::memcmp(reinterpret_cast<const void*>(output(rank)), expected.data(),
                       expected.size()) == 0;
  }
  bool guards_hold(uint32_t r) const { return in_[r].guards_hold() && out_[r].guards_hold(); }

 private:
  uint64_t in_bytes() const { return case_.in_count * element_bytes(case_.call.type); }
  uint64_t out_bytes() const { return case_.out_count * element_bytes(case_.call.type); }
  CpuWorld& world_;
  uint32_t n_;
  Case case_;
  std::vector<Guarded> in_, out_;
};

inline std::vector<Bytes> expected(const Case& c, const std::vector<Bytes>& values) {
  const uint64_t size = element_bytes(c.call.type), bytes = c.call.count * size;
  std::vector<Bytes> result;
  for (uint32_t r = 0; r < values.size(); ++r) {
    switch (c.call.collective) {
      case SAR_COLLECTIVE_ALL_REDUCE:
        result.push_back(reduced(c.call.type, c.call.op, pointers(values), c.call.count));
        break;
      case SAR_COLLECTIVE_REDUCE_SCATTER:
        result.push_back(
            reduced(c.call.type, c.call.op, pointers(values, r * bytes), c.call.count));
        break;
      case SAR_COLLECTIVE_ALL_GATHER: {
        Bytes all;
        for (const Bytes& value : values) all.insert(all.end(), value.begin(), value.end());
        result.push_back(all);
        break;
      }
      default:
        result.push_back(values[c.call.root]);
    }
  }
  return result;
}

// Runs `rounds` collectives on the same buffers, with new inputs each time: nothing is at rest
// between them, so what one call leaves behind is what the next one steps on. `one_is_late`: in
// each round another rank comes late.
inline void check(CpuWorld& world, uint32_t ranks, const Case& c, uint64_t seed, int rounds = 1,
                  bool one_is_late = false) {
  Fixture fixture(world, ranks, c);
  std::vector<std::vector<Bytes>> values(rounds), results(rounds);
  for (int i = 0; i < rounds; ++i) {
    for (uint32_t r = 0; r < ranks; ++r) {
      values[i].push_back(random_elements(c.call.type, c.in_count, seed + 1000 * i + r));
    }
    results[i] = expected(c, values[i]);
  }
  world.each([&](uint32_t rank) {
    for (int i = 0; i < rounds; ++i) {
      const bool late = one_is_late && static_cast<uint32_t>(i) % ranks == rank;
      for (int turns = 0; late && turns < 50; ++turns) sched_yield();
      fixture.run(rank, values[i][rank]);
      EXPECT_EQ(world.outcome(rank).state, 0u);
      EXPECT_TRUE(fixture.output_is(rank, results[i][rank]))
          << "rank " << rank << " of " << ranks << ", collective " << c.call.collective << ", type "
          << c.call.type << ", op " << c.call.op << ", schedule " << c.call.schedule << ", count "
          << c.call.count << ", in place " << c.in_place << ", registered " << c.registered
          << ", offset " << c.offset << ", round " << i;
    }
  });
  for (uint32_t r = 0; r < ranks; ++r) EXPECT_TRUE(fixture.guards_hold(r)) << "rank " << r;
  EXPECT_TRUE(world.staging_guards_hold());
}

inline Case all_reduce(sar_data_type type, sar_reduce_op op, sar_schedule schedule,
                       uint64_t count) {
  Case c;
  c.call.collective = SAR_COLLECTIVE_ALL_REDUCE;
  c.call.type = type;
  c.call.op = op;
  c.call.schedule = schedule;
  c.call.count = c.in_count = c.out_count = count;
  c.call.timeout_ticks = kTimeout;
  return c;
}

}  // namespace sar::gpu::test

#endif
