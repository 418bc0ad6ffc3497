// Licensed under the Apache License, Version 2.0. See LICENSE.
#include "cases.hpp"

#include <bit>
#include <cstring>

namespace sar::testing {

namespace {

// SplitMix64: well mixed bits from any counter.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Bit patterns of one float format: zeros, least and largest subnormal, least normal, one, largest,
// infinity, quiet NaN with a payload, signalling NaN; the sign comes from elsewhere.
struct Specials {
  int exponent_bits;
  int fraction_bits;

  uint64_t at(uint64_t choice) const {
    const uint64_t infinity = ((uint64_t{1} << exponent_bits) - 1) << fraction_bits;
    const uint64_t unit = uint64_t{1} << fraction_bits;
    switch (choice % 9) {
      case 0:
        return 0;
      case 1:
        return 1;
      case 2:
        return unit - 1;
      case 3:
        return unit;
      case 4:
        return infinity / 2 & ~(unit - 1);
      case 5:
        return infinity - 1;
      case 6:
        return infinity;
      case 7:
        return infinity | unit >> 1 | 5;
      default:
        return infinity | 1;
    }
  }
};

uint64_t float_bits(sar_data_type type, uint64_t random) {
  const Specials specials = type == SAR_FLOAT64   ? Specials{11, 52}
                            : type == SAR_FLOAT32 ? Specials{8, 23}
                            : type == SAR_FLOAT16 ? Specials{5, 10}
                                                  : Specials{8, 7};
  const int bits = 1 + specials.exponent_bits + specials.fraction_bits;
  const uint64_t sign = (random >> 8 & 1) << (bits - 1);
  const uint64_t kind = random % 16;
  random = mix(random);
  if (kind == 0) {
    return sign | specials.at(random);
  }
  if (kind == 1) {
    return random >> (64 - bits);
  }
  // Between 1/4 and 4: products of 16 ranks stay in range often enough.
  const double value = 0.25 + 3.75 * static_cast<double>(random >> 11) * 0x1p-53;
  switch (type) {
    case SAR_FLOAT64:
      return sign | std::bit_cast<uint64_t>(value);
    case SAR_FLOAT32:
      return sign | std::bit_cast<uint32_t>(static_cast<float>(value));
    default:
      return sign | encode16(type, value);
  }
}

uint64_t integer_bits(uint64_t random) {
  const uint64_t kind = random % 8;
  random = mix(random);
  // Small ones, so that averages and products are not all wrapped, and any.
  return kind < 5 ? random % 2001 - 1000 : random;
}

}  // namespace

Bytes values(sar_data_type type, uint64_t elements, uint32_t rank, uint64_t seed) {
  const size_t size = size_of(type);
  const bool is_integer = type == SAR_INT32 || type == SAR_INT64;
  Bytes bytes(elements * size);
  const uint64_t stream = mix(seed * SAR_MAX_RANKS + rank);
  for (uint64_t i = 0; i < elements; i++) {
    const uint64_t random = mix(stream + i);
    const uint64_t bits = is_integer ? integer_bits(random) : float_bits(type, random);
    std::memcpy(bytes.data() + i * size, &bits, size);  // little endian: the low bytes
  }
  return bytes;
}

std::string name_of(sar_data_type type) {
  constexpr std::array names{"float64", "float32", "float16", "bfloat16", "int32", "int64"};
  return names[type];
}

std::string name_of(sar_reduce_op op) {
  constexpr std::array names{"sum", "product", "min", "max", "average"};
  return names[op];
}

std::string name_of(sar_schedule schedule) {
  constexpr std::array names{"auto",         "one_shot",          "two_shot_read", "staged_write",
                             "direct_write", "load_reduce_store", "low_latency"};
  return names[schedule];
}

}  // namespace sar::testing
