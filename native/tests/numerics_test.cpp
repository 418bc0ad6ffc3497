// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// The conversions and operations of numerics.hpp, and the builds of the reduce loops for different
// processors.
#include "numerics.hpp"

#include <gtest/gtest.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
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

// Half of them values() with their special numbers, half any bits: NaNs of all payloads,
// infinities, subnormal numbers, zeros of both signs come up in every vector.
Bytes random_values(sar_data_type type, uint64_t elements, uint32_t rank, uint64_t seed) {
  Bytes bytes = values(type, elements, rank, seed);
  const Bytes any = values(SAR_INT64, bytes.size() / sizeof(uint64_t), rank, seed + 1);
  for (size_t i = 0; i < any.size() / 2; i++) {
    bytes[bytes.size() - 1 - i] ^= any[i];
  }
  return bytes;
}

// What numerics.hpp says, one element after the other.
template <sar_data_type type, sar_reduce_op op>
void reduce_plainly(const ReduceJob &job) {
  using Stored = typename Element<type>::Stored;
  for (uint64_t i = 0; i < job.elements; i++) {
    auto sum = Element<type>::load(static_cast<const Stored *>(job.inputs[0])[i]);
    for (uint32_t rank = 1; rank < job.input_count; rank++) {
      const Stored next = static_cast<const Stored *>(job.inputs[rank])[i];
      sum = Operation<op>::combine(sum, Element<type>::load(next));
    }
    static_cast<Stored *>(job.outputs[0])[i] =
        Element<type>::store(Operation<op>::finish(sum, job.input_count));
  }
}

template <sar_data_type type>
ReduceFunction plain_function(sar_reduce_op op) {
  constexpr ReduceFunction functions[] = {
      reduce_plainly<type, SAR_SUM>, reduce_plainly<type, SAR_PRODUCT>,
      reduce_plainly<type, SAR_MIN>, reduce_plainly<type, SAR_MAX>,
      reduce_plainly<type, SAR_AVERAGE>};
  return functions[op];
}

ReduceFunction plain_function(sar_data_type type, sar_reduce_op op) {
  switch (type) {
    case SAR_FLOAT64:
      return plain_function<SAR_FLOAT64>(op);
    case SAR_FLOAT32:
      return plain_function<SAR_FLOAT32>(op);
    case SAR_FLOAT16:
      return plain_function<SAR_FLOAT16>(op);
    case SAR_BFLOAT16:
      return plain_function<SAR_BFLOAT16>(op);
    case SAR_INT32:
      return plain_function<SAR_INT32>(op);
    default:
      return plain_function<SAR_INT64>(op);
  }
}

// How the buffers of one reduction lie.
struct Placement {
  uint64_t elements;
  uint32_t input_shift;       // elements from a cache line, one more for each rank
  uint32_t output_shifts[2];  // of the two outputs
  bool in_place;              // the first output is the last rank's input
  bool streams;
};

// Short ones that are all tail, whole vectors, and tails behind them; outputs alike and not alike
// in alignment, which streaming stores need.
constexpr std::array kPlacements{
    Placement{1, 0, {0, 0}, false, false},   Placement{7, 1, {3, 3}, true, true},
    Placement{16, 0, {0, 0}, false, true},   Placement{63, 1, {1, 2}, false, false},
    Placement{64, 3, {0, 0}, true, false},   Placement{97, 0, {5, 5}, false, true},
    Placement{1543, 1, {0, 0}, true, true},  Placement{1543, 0, {7, 7}, false, true},
    Placement{1543, 2, {1, 4}, false, true}, Placement{1543, 0, {0, 0}, false, false},
};

class ReduceVariants : public ::testing::TestWithParam<std::tuple<uint32_t, sar_data_type>> {
 protected:
  static constexpr size_t kLine = 64;

  // Memory for `bytes` bytes from `shift` elements behind a cache line on.
  unsigned char *place(Bytes &memory, size_t bytes, uint32_t shift) const {
    memory.assign(bytes + 8 * kLine, 0xcd);
    unsigned char *line = memory.data() + kLine;
    line += kLine - reinterpret_cast<uintptr_t>(line) % kLine;
    return line + (shift % 16) * size_of(type_);
  }

  void compare(const Variant &variant, sar_reduce_op op, const Placement &placement) const {
    const size_t bytes = placement.elements * size_of(type_);
    std::vector<Bytes> memories(ranks_);
    ReduceJob job{};
    job.input_count = ranks_;
    job.elements = placement.elements;
    job.type = type_;
    job.op = op;
    job.streams = placement.streams;
    unsigned char *last = nullptr;
    for (uint32_t rank = 0; rank < ranks_; rank++) {
      last = place(memories[rank], bytes, placement.input_shift + rank);
      const Bytes input = random_values(type_, placement.elements, rank, op + bytes);
      std::copy(input.begin(), input.end(), last);
      job.inputs[rank] = last;
    }
    Bytes expected(bytes);
    job.outputs[0] = expected.data();
    job.output_count = 1;
    plain_function(type_, op)(job);
    Bytes memory[2];
    unsigned char *outputs[2] = {
        placement.in_place ? last : place(memory[0], bytes, placement.output_shifts[0]),
        place(memory[1], bytes, placement.output_shifts[1])};
    job.outputs[0] = outputs[0];
    job.outputs[1] = outputs[1];
    job.output_count = 2;
    variant.function(job);
    for (const unsigned char *output : outputs) {
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), output));
      EXPECT_EQ(output[-1], 0xcd);
      EXPECT_EQ(output[bytes], 0xcd);
    }
  }

  const uint32_t ranks_ = std::get<0>(GetParam());
  const sar_data_type type_ = std::get<1>(GetParam());
};

TEST_P(ReduceVariants, GiveTheBitsOfThePlainCode) {
  for (const Variant &variant : variants_of_this_machine()) {
    for (const sar_reduce_op op : kOps) {
      for (const Placement &placement : kPlacements) {
        SCOPED_TRACE(std::string(variant.name) + " " + name_of(op) + " of " +
                     std::to_string(placement.elements) + " elements" +
                     (placement.streams ? ", streamed" : "") +
                     (placement.in_place ? ", in place" : ""));
        compare(variant, op, placement);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ReduceVariants,
                         ::testing::Combine(::testing::Values(1u, 2u, 3u, 8u, 16u),
                                            ::testing::ValuesIn(kTypes)),
                         [](const auto &suite) {
                           return std::to_string(std::get<0>(suite.param)) + "_" +
                                  name_of(std::get<1>(suite.param));
                         });

TEST(PlainCode, GivesTheReferencesBits) {
  constexpr uint64_t elements = 1543;
  for (const sar_data_type type : kTypes) {
    for (const sar_reduce_op op : kOps) {
      SCOPED_TRACE(name_of(type) + " " + name_of(op));
      Bytes inputs[5];
      std::vector<const void *> pointers;
      ReduceJob job{};
      for (Bytes &input : inputs) {
        input = random_values(type, elements, static_cast<uint32_t>(pointers.size()), 77);
        job.inputs[pointers.size()] = input.data();
        pointers.push_back(input.data());
      }
      Bytes output(elements * size_of(type));
      job.outputs[0] = output.data();
      job.input_count = 5;
      job.output_count = 1;
      job.elements = elements;
      plain_function(type, op)(job);
      EXPECT_EQ(output, reference_reduce(type, op, pointers, elements));
    }
  }
}

// All float16 and bfloat16 there are, and all roundings of sums of two of them.
TEST(SixteenBitFloats, AreWidenedAndRoundedLikeThePlainCodeInEveryVariant) {
  constexpr uint64_t elements = 0x10000;
  for (const sar_data_type type : {SAR_FLOAT16, SAR_BFLOAT16}) {
    std::vector<uint16_t> patterns(elements);
    std::vector<uint16_t> others(elements);
    for (uint32_t i = 0; i < elements; i++) {
      patterns[i] = static_cast<uint16_t>(i);
      others[i] = static_cast<uint16_t>(i * 40503u >> 4);
    }
    for (const sar_reduce_op op : {SAR_SUM, SAR_PRODUCT, SAR_AVERAGE}) {
      ReduceJob job{};
      job.inputs[0] = patterns.data();
      job.inputs[1] = others.data();
      job.input_count = 2;
      job.output_count = 1;
      job.elements = elements;
      job.type = type;
      job.op = op;
      std::vector<uint16_t> expected(elements);
      job.outputs[0] = expected.data();
      plain_function(type, op)(job);
      for (const Variant &variant : variants_of_this_machine()) {
        std::vector<uint16_t> output(elements);
        job.outputs[0] = output.data();
        variant.function(job);
        EXPECT_EQ(output, expected) << variant.name << " " << name_of(type) << " " << name_of(op);
      }
    }
  }
}

#if defined(__x86_64__)
// A library built with -ffast-math leaves threads in this state.
TEST(Reduce, IgnoresTheCallersRoundingModeAndFlushToZero) {
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
