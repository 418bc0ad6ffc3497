// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// numerics.hpp for a whole vector at a time, as wide as those of the processor that this is
// compiled for. So everything here has internal linkage: a copy compiled for a newer processor must
// not stand in for one compiled for an older one. The bits are those of numerics.hpp; numerics_test
// compares them.
#ifndef SPARK_ALLREDUCE_HOST_VECTORS_HPP
#define SPARK_ALLREDUCE_HOST_VECTORS_HPP

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "numerics.hpp"

namespace sar {

namespace {

#if defined(__AVX512F__)
inline constexpr uint32_t kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr uint32_t kVectorBytes = 32;
#else
inline constexpr uint32_t kVectorBytes = 16;
#endif

template <typename T>
using Vector [[gnu::vector_size(kVectorBytes)]] = T;
template <typename T>
using HalfVector [[gnu::vector_size(kVectorBytes / 2)]] = T;

template <typename V>
[[gnu::always_inline]] inline V load_vector(const void *from) {
  V vector;
  __builtin_memcpy(&vector, from, sizeof vector);
  return vector;
}

// The same bits as another type.
template <typename To, typename From>
[[gnu::always_inline]] inline To as(From vector) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, vector);
}

#if defined(__AVX512F__)
// The conversions without a mask start from an undefined vector, which GCC 12 warns of.
inline constexpr __mmask16 kAllLanes = 0xffff;
#endif

// float16: the processor's own conversion where it has one, which is exact and rounds as
// numerics.hpp does.
[[gnu::always_inline]] inline Vector<float> float16_lanes_to_float32(HalfVector<uint16_t> halves) {
#if defined(__AVX512F__)
  return as<Vector<float>>(_mm512_maskz_cvtph_ps(kAllLanes, as<__m256i>(halves)));
#elif defined(__AVX2__) && defined(__F16C__)
  return as<Vector<float>>(_mm256_cvtph_ps(as<__m128i>(halves)));
#else
  Vector<float> floats;
  for (uint32_t i = 0; i < kVectorBytes / sizeof(float); i++) {
    floats[i] = float16_to_float32(halves[i]);
  }
  return floats;
#endif
}

// NaN becomes the canonical one outside of this function.
[[gnu::always_inline]] inline HalfVector<uint16_t> float32_lanes_to_float16(Vector<float> floats) {
#if defined(__AVX512F__)
  return as<HalfVector<uint16_t>>(
      _mm512_maskz_cvtps_ph(kAllLanes, as<__m512>(floats), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__AVX2__) && defined(__F16C__)
  return as<HalfVector<uint16_t>>(_mm256_cvtps_ph(as<__m256>(floats), _MM_FROUND_TO_NEAREST_INT));
#else
  HalfVector<uint16_t> halves;
  for (uint32_t i = 0; i < kVectorBytes / sizeof(float); i++) {
    halves[i] = float32_to_float16(floats[i]);
  }
  return halves;
#endif
}

// Element<type> in lanes: how many elements a vector of accumulators holds, and the way there and
// back.
template <sar_data_type type>
struct Lanes {
  using Accumulator = typename Element<type>::Accumulator;
  using Stored = Vector<typename Element<type>::Stored>;
  static constexpr uint32_t kCount = kVectorBytes / sizeof(Accumulator);

  [[gnu::always_inline]] static Vector<Accumulator> load(const void *from) {
    return load_vector<Stored>(from);
  }
  [[gnu::always_inline]] static Stored store(Vector<Accumulator> value) {
    if constexpr (kIsFloat<Accumulator>) {
      const Vector<Accumulator> nan =
          Vector<Accumulator>{} + Element<type>::store(__builtin_nan(""));
      return value != value ? nan : value;
    } else {
      return value;
    }
  }
};

template <>
struct Lanes<SAR_BFLOAT16> {
  using Accumulator = float;
  using Stored = HalfVector<uint16_t>;
  static constexpr uint32_t kCount = kVectorBytes / sizeof(float);

  [[gnu::always_inline]] static Vector<float> load(const void *from) {
    return as<Vector<float>>(__builtin_convertvector(load_vector<Stored>(from), Vector<uint32_t>)
                             << 16);
  }
  [[gnu::always_inline]] static Stored store(Vector<float> value) {
    const auto bits = as<Vector<uint32_t>>(value);
    const Vector<uint32_t> rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    const Vector<uint32_t> nan = Vector<uint32_t>{} + kNanBfloat16;
    return __builtin_convertvector(value != value ? nan : rounded, Stored);
  }
};

template <>
struct Lanes<SAR_FLOAT16> {
  using Accumulator = float;
  using Stored = HalfVector<uint16_t>;
  static constexpr uint32_t kCount = kVectorBytes / sizeof(float);

  [[gnu::always_inline]] static Vector<float> load(const void *from) {
    return float16_lanes_to_float32(load_vector<Stored>(from));
  }
  [[gnu::always_inline]] static Stored store(Vector<float> value) {
    // A float32 NaN with only the first bit of the fraction narrows to the canonical float16 NaN.
    const Vector<float> nan = Vector<float>{} + __builtin_bit_cast(float, kNanFloat32);
    return float32_lanes_to_float16(value != value ? nan : value);
  }
};

// The smaller one; what follows about zeros and NaN comes out of a < b being false for both.
template <typename A>
[[gnu::always_inline]] inline Vector<A> minimum_lanes(Vector<A> a, Vector<A> b) {
  const Vector<A> one = a < b ? a : b;
  if constexpr (!kIsFloat<A>) {
    return one;
  } else {
    // They differ where a and b are zeros, or one is a NaN: then both bits together are -0 if any
    // is, and a NaN if any is.
    const Vector<A> other = b < a ? b : a;
    return as<Vector<A>>(as<Vector<Bits<A>>>(one) | as<Vector<Bits<A>>>(other));
  }
}

template <typename A>
[[gnu::always_inline]] inline Vector<A> maximum_lanes(Vector<A> a, Vector<A> b) {
  if constexpr (!kIsFloat<A>) {
    return a > b ? a : b;
  } else {
    return -minimum_lanes<A>(-a, -b);
  }
}

// Operation<op> in lanes.
template <sar_reduce_op op, typename A>
[[gnu::always_inline]] inline Vector<A> combine_lanes(Vector<A> a, Vector<A> b) {
  if constexpr (op == SAR_MIN) {
    return minimum_lanes<A>(a, b);
  } else if constexpr (op == SAR_MAX) {
    return maximum_lanes<A>(a, b);
  } else if constexpr (kIsFloat<A>) {
    return op == SAR_PRODUCT ? a * b : a + b;
  } else {
    const auto x = as<Vector<Bits<A>>>(a);
    const auto y = as<Vector<Bits<A>>>(b);
    return as<Vector<A>>(op == SAR_PRODUCT ? x * y : x + y);
  }
}

// Integers divide towards zero. Processors have no vectors for that.
[[gnu::always_inline]] inline Vector<int32_t> divide_lanes(Vector<int32_t> value, uint32_t by) {
  // Exact: a quotient of 32 bits that is no integer is further from one than float64 rounds.
  int32_t lanes[kVectorBytes / sizeof(int32_t)];
  __builtin_memcpy(lanes, &value, sizeof lanes);
  for (int32_t &lane : lanes) {
    lane = static_cast<int32_t>(static_cast<double>(lane) / by);
  }
  return load_vector<Vector<int32_t>>(lanes);
}

[[gnu::always_inline]] inline Vector<int64_t> divide_lanes(Vector<int64_t> value, uint32_t by) {
  if ((by & (by - 1)) == 0) {
    // A shift rounds down: lift what is negative.
    return (value + ((value >> 63) & int64_t{by - 1})) >> __builtin_ctz(by);
  }
  return value / int64_t{by};
}

template <sar_reduce_op op, typename A>
[[gnu::always_inline]] inline Vector<A> finish_lanes(Vector<A> value, uint32_t world_size) {
  if constexpr (op != SAR_AVERAGE) {
    return value;
  } else if constexpr (kIsFloat<A>) {
    return value / static_cast<A>(world_size);
  } else {
    return divide_lanes(value, world_size);
  }
}

// Stores a vector past the caches; `to` is aligned to it. store_fence() must follow before
// anything says that it is there.
template <typename V>
[[gnu::always_inline]] inline void stream_vector(void *to, V vector) {
#if defined(__x86_64__)
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 64) {
    _mm512_stream_si512(static_cast<__m512i *>(to), as<__m512i>(vector));
    return;
  }
#endif
#if defined(__AVX2__)
  if constexpr (sizeof(V) == 32) {
    _mm256_stream_si256(static_cast<__m256i *>(to), as<__m256i>(vector));
    return;
  }
#endif
  if constexpr (sizeof(V) == 16) {
    _mm_stream_si128(static_cast<__m128i *>(to), as<__m128i>(vector));
  } else if constexpr (sizeof(V) == 8) {
    _mm_stream_si64(static_cast<long long *>(to), as<long long>(vector));
  }
#else
  __builtin_memcpy(to, &vector, sizeof vector);
#endif
}

inline void store_fence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace

}  // namespace sar

#endif  // SPARK_ALLREDUCE_HOST_VECTORS_HPP
