// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// The element types and reduce operations of spark_allreduce.h, for the host backend and for the
// GPU kernels alike: freestanding C++20, no C library, no floating-point function beyond + * / and
// comparison. Compile it with -ffp-contract=off: the same bits must come out everywhere.
//
// Usage, for one element of N ranks:
//
//   auto sum = Element<type>::load(in[0]);
//   for (r = 1; r < N; r++) sum = Operation<op>::combine(sum, Element<type>::load(in[r]));
//   out = Element<type>::store(Operation<op>::finish(sum, N));
//
// Everything is branchless, so that loops over elements vectorise, and always inlined, so that a
// copy compiled for a newer processor never stands in for one compiled for an older one.
#ifndef SPARK_ALLREDUCE_COMMON_NUMERICS_HPP
#define SPARK_ALLREDUCE_COMMON_NUMERICS_HPP

#include <stdint.h>

#include "spark_allreduce.h"

#define SAR_INLINE [[gnu::always_inline]] constexpr inline

namespace sar {

inline constexpr uint32_t kDataTypes = 6;
inline constexpr uint32_t kReduceOps = 5;

// The canonical quiet NaNs: sign clear, only the first bit of the fraction set.
inline constexpr uint64_t kNanFloat64 = 0x7ff8000000000000u;
inline constexpr uint32_t kNanFloat32 = 0x7fc00000u;
inline constexpr uint16_t kNanFloat16 = 0x7e00u;
inline constexpr uint16_t kNanBfloat16 = 0x7fc0u;

// 0 for a value that is no data type.
SAR_INLINE uint32_t element_bytes(uint32_t type) {
  switch (type) {
    case SAR_FLOAT64:
    case SAR_INT64:
      return 8;
    case SAR_FLOAT32:
    case SAR_INT32:
      return 4;
    case SAR_FLOAT16:
    case SAR_BFLOAT16:
      return 2;
    default:
      return 0;
  }
}

// Exact. A NaN stays one.
SAR_INLINE float float16_to_float32(uint16_t half) {
  constexpr uint32_t exponent_mask = 0x7c00u << 13;
  const uint32_t bits = (half & 0x7fffu) << 13;
  const uint32_t exponent = bits & exponent_mask;
  const uint32_t normal = bits + ((127u - 15u) << 23);
  const uint32_t special = normal + ((128u - 16u) << 23);
  // A subnormal is fraction * 2^-24: give it the exponent of 2^-14 and take 2^-14 away again. No
  // float32 subnormal takes part, so that flushing them to zero would change nothing.
  const uint32_t subnormal =
      __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, bits + (113u << 23)) -
                                       __builtin_bit_cast(float, 113u << 23));
  const uint32_t magnitude =
      exponent == exponent_mask ? special : (exponent == 0 ? subnormal : normal);
  return __builtin_bit_cast(float, magnitude | (half & 0x8000u) << 16);
}

// To nearest, ties to even; overflow to infinity; NaN to the canonical one.
SAR_INLINE uint16_t float32_to_float16(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t sign = (bits & 0x80000000u) >> 16;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // 0xfff plus the last bit kept rounds to even; a carry into the exponent is right, up to
  // infinity.
  const uint32_t normal =
      (magnitude + ((15u - 127u) << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  // Below 2^-14: adding 0.5 aligns the fraction to 2^-24 and lets the hardware round it.
  const uint32_t subnormal =
      __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, magnitude) + 0.5f) -
      __builtin_bit_cast(uint32_t, 0.5f);
  const uint32_t finite = magnitude < (113u << 23) ? subnormal : normal;
  const uint32_t rounded = magnitude >= (143u << 23) ? 0x7c00u : finite;
  const uint32_t result = magnitude > 0x7f800000u ? uint32_t{kNanFloat16} : (rounded | sign);
  return static_cast<uint16_t>(result);
}

// Exact. A NaN stays one.
SAR_INLINE float bfloat16_to_float32(uint16_t value) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(value) << 16);
}

// To nearest, ties to even; overflow to infinity; NaN to the canonical one.
SAR_INLINE uint16_t float32_to_bfloat16(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  const uint32_t result = (bits & 0x7fffffffu) > 0x7f800000u ? uint32_t{kNanBfloat16} : rounded;
  return static_cast<uint16_t>(result);
}

// How a type is stored in a buffer, in what it is accumulated, and the way there and back.
template <sar_data_type type>
struct Element;

template <>
struct Element<SAR_FLOAT64> {
  using Stored = double;
  using Accumulator = double;
  SAR_INLINE static Accumulator load(Stored value) { return value; }
  SAR_INLINE static Stored store(Accumulator value) {
    return value != value ? __builtin_bit_cast(double, kNanFloat64) : value;
  }
};

template <>
struct Element<SAR_FLOAT32> {
  using Stored = float;
  using Accumulator = float;
  SAR_INLINE static Accumulator load(Stored value) { return value; }
  SAR_INLINE static Stored store(Accumulator value) {
    return value != value ? __builtin_bit_cast(float, kNanFloat32) : value;
  }
};

template <>
struct Element<SAR_FLOAT16> {
  using Stored = uint16_t;
  using Accumulator = float;
  SAR_INLINE static Accumulator load(Stored value) { return float16_to_float32(value); }
  SAR_INLINE static Stored store(Accumulator value) { return float32_to_float16(value); }
};

template <>
struct Element<SAR_BFLOAT16> {
  using Stored = uint16_t;
  using Accumulator = float;
  SAR_INLINE static Accumulator load(Stored value) { return bfloat16_to_float32(value); }
  SAR_INLINE static Stored store(Accumulator value) { return float32_to_bfloat16(value); }
};

template <>
struct Element<SAR_INT32> {
  using Stored = int32_t;
  using Accumulator = int32_t;
  SAR_INLINE static Accumulator load(Stored value) { return value; }
  SAR_INLINE static Stored store(Accumulator value) { return value; }
};

template <>
struct Element<SAR_INT64> {
  using Stored = int64_t;
  using Accumulator = int64_t;
  SAR_INLINE static Accumulator load(Stored value) { return value; }
  SAR_INLINE static Stored store(Accumulator value) { return value; }
};

// The unsigned integer of an accumulator's size.
template <unsigned bytes>
struct BitsOfSize;
template <>
struct BitsOfSize<4> {
  using Type = uint32_t;
};
template <>
struct BitsOfSize<8> {
  using Type = uint64_t;
};
template <typename A>
using Bits = typename BitsOfSize<sizeof(A)>::Type;

template <typename A>
inline constexpr bool kIsFloat = false;
template <>
inline constexpr bool kIsFloat<float> = true;
template <>
inline constexpr bool kIsFloat<double> = true;

// Integers go through unsigned, where overflow wraps.
template <typename A>
SAR_INLINE A add(A a, A b) {
  if constexpr (kIsFloat<A>) {
    return a + b;
  } else {
    return static_cast<A>(static_cast<Bits<A>>(a) + static_cast<Bits<A>>(b));
  }
}

template <typename A>
SAR_INLINE A multiply(A a, A b) {
  if constexpr (kIsFloat<A>) {
    return a * b;
  } else {
    return static_cast<A>(static_cast<Bits<A>>(a) * static_cast<Bits<A>>(b));
  }
}

// IEEE 754-2019 minimum: NaN if either is one (any payload), and -0 below +0.
template <typename A>
SAR_INLINE A minimum(A a, A b) {
  if constexpr (kIsFloat<A>) {
    const A ordered = a < b ? a : b;  // b if either is a NaN
    // Equal values differ in the sign of zero at most.
    const A equal = __builtin_bit_cast(
        A, static_cast<Bits<A>>(__builtin_bit_cast(Bits<A>, a) | __builtin_bit_cast(Bits<A>, b)));
    const A number = a == b ? equal : ordered;
    return a != a ? a : number;
  } else {
    return a < b ? a : b;
  }
}

// IEEE 754-2019 maximum: NaN if either is one (any payload), and +0 above -0.
template <typename A>
SAR_INLINE A maximum(A a, A b) {
  if constexpr (kIsFloat<A>) {
    const A ordered = a > b ? a : b;
    const A equal = __builtin_bit_cast(
        A, static_cast<Bits<A>>(__builtin_bit_cast(Bits<A>, a) & __builtin_bit_cast(Bits<A>, b)));
    const A number = a == b ? equal : ordered;
    return a != a ? a : number;
  } else {
    return a > b ? a : b;
  }
}

// Works on accumulators: combine() once for each rank after the first, in rank order, then
// finish().
template <sar_reduce_op op>
struct Operation {
  template <typename A>
  SAR_INLINE static A combine(A a, A b) {
    if constexpr (op == SAR_PRODUCT) {
      return multiply(a, b);
    } else if constexpr (op == SAR_MIN) {
      return minimum(a, b);
    } else if constexpr (op == SAR_MAX) {
      return maximum(a, b);
    } else {
      return add(a, b);
    }
  }

  // Division is IEEE's for floating point, and towards zero for integers.
  template <typename A>
  SAR_INLINE static A finish(A value, uint32_t world_size) {
    if constexpr (op == SAR_AVERAGE) {
      return value / static_cast<A>(world_size);
    } else {
      return value;
    }
  }
};

}  // namespace sar

#endif  // SPARK_ALLREDUCE_COMMON_NUMERICS_HPP
