// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// The conversions and operations of numerics.hpp, and the builds of the reduce loops for different
// processors.
#include "numerics.hpp"

#include <gtest/gtest.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <bit>
#include <cmath>
#include <limits>

#include "cases.hpp"
#include "reduce.hpp"
#include "reference.hpp"

namespace sar::testing {
namespace {

float to_float32(sar_data_type type, uint16_t bits) {
  return type == SAR_FLOAT16 ? float16_to_float32(bits) : bfloat16_to_float32(bits);
}

uint16_t from_float32(sar_data_type type, float value) {
  return type == SAR_FLOAT16 ? float32_to_float16(value) : float32_to_bfloat16(value);
}

class Conversion : public ::testing::TestWithParam<sar_data_type> {
 protected:
  const sar_data_type type_ = GetParam();
  const uint16_t infinity_ = type_ == SAR_FLOAT16 ? 0x7c00 : 0x7f80;
};

TEST_P(Conversion, WidensAllPatternsExactly) {
  for (uint32_t bits = 0; bits < 0x10000; bits++) {
    const double expected = decode16(type_, static_cast<uint16_t>(bits));
    const double found = to_float32(type_, static_cast<uint16_t>(bits));
    ASSERT_EQ(std::isnan(found), std::isnan(expected)) << std::hex << bits;
    if (!std::isnan(expected)) {
      ASSERT_EQ(std::bit_cast<uint64_t>(found), std::bit_cast<uint64_t>(expected))
          << std::hex << bits;
    }
  }
}

TEST_P(Conversion, GivesBackEveryNumberAndTheCanonicalNan) {
  const uint16_t nan = type_ == SAR_FLOAT16 ? 0x7e00 : 0x7fc0;
  for (uint32_t bits = 0; bits < 0x10000; bits++) {
    const uint16_t expected = (bits & 0x7fff) > infinity_ ? nan : static_cast<uint16_t>(bits);
    ASSERT_EQ(from_float32(type_, to_float32(type_, static_cast<uint16_t>(bits))), expected)
        << std::hex << bits;
  }
}

// Rounding is a staircase: it is right everywhere if it is right on both sides of every step and on
// it.
TEST_P(Conversion, RoundsAtEveryBoundaryToNearestEven) {
  for (uint32_t sign : {0u, 0x8000u}) {
    for (uint32_t bits = 0; bits < infinity_; bits++) {
      const double low = decode16(type_, static_cast<uint16_t>(bits));
      // The number that would follow if exponents went on.
      const double high = bits + 1u < infinity_
                              ? decode16(type_, static_cast<uint16_t>(bits + 1))
                              : 2 * low - decode16(type_, static_cast<uint16_t>(bits - 1));
      const auto middle = static_cast<float>((low + high) / 2);
      ASSERT_EQ(static_cast<double>(middle), (low + high) / 2);
      const float flip = sign != 0 ? -1.0f : 1.0f;
      const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
      ASSERT_EQ(from_float32(type_, flip * std::nextafter(middle, 0.0f)), sign | bits);
      ASSERT_EQ(from_float32(type_, flip * middle), sign | even);
      ASSERT_EQ(from_float32(type_, flip * std::nextafter(middle, INFINITY)), sign | (bits + 1));
    }
  }
}

TEST_P(Conversion, AgreesWithTheReferenceOnPatternsOfAllExponents) {
  uint32_t bits = 0;
  for (int i = 0; i < 1'000'000; i++) {
    bits += 0x9e3779b9u;  // visits all exponents evenly
    const auto value = std::bit_cast<float>(bits);
    ASSERT_EQ(from_float32(type_, value), encode16(type_, value)) << std::hex << bits;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Conversion, ::testing::Values(SAR_FLOAT16, SAR_BFLOAT16),
                         [](const auto &suite) { return name_of(suite.param); });

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Operations, MinAndMaxPropagateNanFromEitherSide) {
  EXPECT_TRUE(std::isnan(minimum(kNan, 1.0)));
  EXPECT_TRUE(std::isnan(minimum(1.0, kNan)));
  EXPECT_TRUE(std::isnan(maximum(kNan, -kInfinity)));
  EXPECT_TRUE(std::isnan(maximum(kInfinity, kNan)));
}

TEST(Operations, MinAndMaxOrderMinusZeroBeforePlusZero) {
  EXPECT_TRUE(std::signbit(minimum(0.0, -0.0)));
  EXPECT_TRUE(std::signbit(minimum(-0.0, 0.0)));
  EXPECT_FALSE(std::signbit(maximum(0.0, -0.0)));
  EXPECT_FALSE(std::signbit(maximum(-0.0, 0.0)));
  EXPECT_TRUE(std::signbit(maximum(-0.0, -0.0)));
}

TEST(Operations, IntegersWrapAndDivideTowardsZero) {
  EXPECT_EQ(add(INT32_MAX, 1), INT32_MIN);
  EXPECT_EQ(multiply(INT64_MIN, int64_t{-1}), INT64_MIN);
  EXPECT_EQ(Operation<SAR_AVERAGE>::finish(-7, 2u), -3);
  EXPECT_EQ(Operation<SAR_AVERAGE>::finish(int64_t{7}, 4u), 1);
}

TEST(Operations, NanResultsAreCanonical) {
  const auto payload = std::bit_cast<double>(0xfff4000000000123u);
  EXPECT_EQ(std::bit_cast<uint64_t>(Element<SAR_FLOAT64>::store(payload)), 0x7ff8000000000000u);
  const float difference =
      std::numeric_limits<float>::infinity() - std::bit_cast<float>(0x7f800000u);
  EXPECT_EQ(std::bit_cast<uint32_t>(Element<SAR_FLOAT32>::store(difference)), 0x7fc00000u);
}

struct Variant {
  const char *name;
  ReduceFunction function;
};

std::vector<Variant> variants_of_this_machine() {
  std::vector<Variant> variants{{"baseline", reduce_baseline}, {"chosen", reduce}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("x86-64-v3")) {
    variants.push_back({"x86-64-v3", reduce_x86_64_v3});
  }
  if (__builtin_cpu_supports("x86-64-v4")) {
    variants.push_back({"x86-64-v4", reduce_x86_64_v4});
  }
#endif
  return variants;
}

// Every type and operation of `ranks` ranks through `function`.
void expect_the_references_bits(ReduceFunction function, uint32_t ranks) {
  constexpr uint64_t elements = 1543;  // three blocks, the last with a tail
  for (const sar_data_type type : kTypes) {
    for (const sar_reduce_op op : kOps) {
      SCOPED_TRACE(name_of(type) + " " + name_of(op));
      std::vector<Bytes> inputs;
      std::vector<const void *> pointers;
      for (uint32_t rank = 0; rank < ranks; rank++) {
        inputs.push_back(values(type, elements, rank, 77));
      }
      ReduceJob job{};
      for (uint32_t rank = 0; rank < ranks; rank++) {
        pointers.push_back(job.inputs[rank] = inputs[rank].data());
      }
      Bytes outputs[2] = {Bytes(elements * size_of(type)), Bytes(elements * size_of(type))};
      job.outputs[0] = outputs[0].data();
      job.outputs[1] = outputs[1].data();
      job.input_count = ranks;
      job.output_count = 2;
      job.elements = elements;
      job.type = type;
      job.op = op;
      function(job);
      const Bytes expected = reference_reduce(type, op, pointers, elements);
      EXPECT_EQ(outputs[0], expected);
      EXPECT_EQ(outputs[1], expected);
    }
  }
}

TEST(ReduceVariants, AllGiveTheReferencesBits) {
  for (const Variant &variant : variants_of_this_machine()) {
    SCOPED_TRACE(variant.name);
    for (const uint32_t ranks : {1u, 2u, 5u, 16u}) {
      expect_the_references_bits(variant.function, ranks);
    }
  }
}

#if defined(__x86_64__)
// A library built with -ffast-math leaves threads in this state.
TEST(ReduceVariants, IgnoreTheCallersRoundingModeAndFlushToZero) {
  constexpr unsigned flush = 0x8040;
  constexpr unsigned round_up = 0x4000;
  const Bytes inputs[2] = {values(SAR_FLOAT32, 999, 0, 5), values(SAR_FLOAT32, 999, 1, 5)};
  const Bytes expected =
      reference_reduce(SAR_FLOAT32, SAR_SUM, {inputs[0].data(), inputs[1].data()}, 999);
  Bytes output(expected.size());
  ReduceJob job{};
  job.inputs[0] = inputs[0].data();
  job.inputs[1] = inputs[1].data();
  job.outputs[0] = output.data();
  job.input_count = 2;
  job.output_count = 1;
  job.elements = 999;
  job.type = SAR_FLOAT32;
  job.op = SAR_SUM;
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | flush | round_up);
  reduce(job);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(output, expected);
  EXPECT_EQ(after, before | flush | round_up) << "the caller's mode must come back";
}
#endif

}  // namespace
}  // namespace sar::testing
