// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// The tables that the tests of every backend go through, and the values they reduce.
#ifndef SPARK_ALLREDUCE_TESTS_CASES_HPP
#define SPARK_ALLREDUCE_TESTS_CASES_HPP

#include <array>
#include <cstdint>
#include <string>

#include "reference.hpp"
#include "spark_allreduce.h"

namespace sar::testing {

inline constexpr std::array kTypes{SAR_FLOAT64,  SAR_FLOAT32, SAR_FLOAT16,
                                   SAR_BFLOAT16, SAR_INT32,   SAR_INT64};
inline constexpr std::array kOps{SAR_SUM, SAR_PRODUCT, SAR_MIN, SAR_MAX, SAR_AVERAGE};
inline constexpr std::array kSchedules{SAR_AUTO,         SAR_ONE_SHOT,     SAR_TWO_SHOT_READ,
                                       SAR_STAGED_WRITE, SAR_DIRECT_WRITE, SAR_LOAD_REDUCE_STORE};
// What the low-latency schedule of the host backend carries.
inline constexpr uint64_t kLowLatencyLimit = 16;

// Around vector widths, cache lines, reduce blocks and (with the smallest staging area, where a
// chunk is 16 KiB) chunks; some divisible by no world size.
inline constexpr std::array<uint64_t, 14> kLengths{0,  1,  2,   3,   7,    16,   17,
                                                   31, 33, 127, 129, 1000, 2049, 4099};
// For large worlds.
inline constexpr std::array<uint64_t, 5> kFewLengths{0, 1, 17, 519, 4099};
inline constexpr uint64_t kLongest = 4099;

std::string name_of(sar_data_type type);
std::string name_of(sar_reduce_op op);
std::string name_of(sar_schedule schedule);

// Values of one rank: mostly of ordinary size, with NaNs, infinities, subnormal and extreme
// numbers, signed zeros and random bit patterns among them. The same for the same arguments.
Bytes values(sar_data_type type, uint64_t elements, uint32_t rank, uint64_t seed);

}  // namespace sar::testing

#endif  // SPARK_ALLREDUCE_TESTS_CASES_HPP
