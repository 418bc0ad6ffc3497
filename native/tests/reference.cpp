// Licensed under the Apache License, Version 2.0. See LICENSE.
#include "reference.hpp"

#include <cmath>
#include <cstring>
#include <limits>

namespace sar::testing {

namespace {

struct Format16 {
  int fraction_bits;
  int least_exponent;  // of normal numbers
  uint16_t infinity;
  uint16_t nan;
};

Format16 format_of(sar_data_type type) {
  return type == SAR_FLOAT16 ? Format16{10, -14, 0x7c00, 0x7e00}
                             : Format16{7, -126, 0x7f80, 0x7fc0};
}

template <typename T>
T read(const void *buffer, size_t i) {
  T value;
  std::memcpy(&value, static_cast<const char *>(buffer) + i * sizeof value, sizeof value);
  return value;
}

template <typename T>
void write(Bytes &buffer, size_t i, T value) {
  std::memcpy(buffer.data() + i * sizeof value, &value, sizeof value);
}

// Twice the precision and two bits more: rounding twice is then the same as rounding once.
template <typename Working>
struct Wider;
template <>
struct Wider<float> {
  using Type = double;
};
template <>
struct Wider<double> {
  using Type = __float128;
};

template <typename Working>
Working combine(sar_reduce_op op, Working a, Working b) {
  using Wide = typename Wider<Working>::Type;
  switch (op) {
    case SAR_SUM:
    case SAR_AVERAGE:
      return static_cast<Working>(static_cast<Wide>(a) + static_cast<Wide>(b));
    case SAR_PRODUCT:
      return static_cast<Working>(static_cast<Wide>(a) * static_cast<Wide>(b));
    case SAR_MIN:
    case SAR_MAX:
      break;
  }
  if (std::isnan(a) || std::isnan(b)) {
    return std::numeric_limits<Working>::quiet_NaN();
  }
  const bool a_is_less = a < b || (a == b && std::signbit(a) && !std::signbit(b));
  return a_is_less == (op == SAR_MIN) ? a : b;
}

template <typename Working>
Working finish(sar_reduce_op op, Working value, size_t ranks) {
  using Wide = typename Wider<Working>::Type;
  return op == SAR_AVERAGE
             ? static_cast<Working>(static_cast<Wide>(value) / static_cast<Wide>(ranks))
             : value;
}

// The result for element i, where load(rank) gives its values.
template <typename Working, typename Load>
Working reduce_float(sar_reduce_op op, size_t ranks, Load load) {
  Working result = load(0);
  for (size_t rank = 1; rank < ranks; rank++) {
    result = combine<Working>(op, result, load(rank));
  }
  return finish(op, result, ranks);
}

// Two's complement by hand: everything is modulo 2^64 and cut to the type in the end.
template <typename Signed, typename Load>
Signed reduce_integer(sar_reduce_op op, size_t ranks, Load load) {
  Signed result = load(0);
  for (size_t rank = 1; rank < ranks; rank++) {
    const Signed next = load(rank);
    switch (op) {
      case SAR_SUM:
      case SAR_AVERAGE:
        result = static_cast<Signed>(static_cast<uint64_t>(result) + static_cast<uint64_t>(next));
        break;
      case SAR_PRODUCT:
        result = static_cast<Signed>(static_cast<uint64_t>(result) * static_cast<uint64_t>(next));
        break;
      case SAR_MIN:
        result = next < result ? next : result;
        break;
      case SAR_MAX:
        result = next > result ? next : result;
        break;
    }
  }
  if (op == SAR_AVERAGE) {
    const bool negative = result < 0;
    const uint64_t magnitude = negative ? -static_cast<uint64_t>(static_cast<int64_t>(result))
                                        : static_cast<uint64_t>(result);
    const uint64_t quotient = magnitude / ranks;
    result = static_cast<Signed>(negative ? -quotient : quotient);
  }
  return result;
}

template <typename T, typename Bits>
T canonical(T value, Bits nan) {
  if (std::isnan(value)) {
    std::memcpy(&value, &nan, sizeof value);
  }
  return value;
}

}  // namespace

size_t size_of(sar_data_type type) {
  switch (type) {
    case SAR_FLOAT64:
    case SAR_INT64:
      return 8;
    case SAR_FLOAT32:
    case SAR_INT32:
      return 4;
    default:
      return 2;
  }
}

double decode16(sar_data_type type, uint16_t bits) {
  const Format16 format = format_of(type);
  const int fraction = bits & ((1 << format.fraction_bits) - 1);
  const int exponent = (bits & 0x7fff) >> format.fraction_bits;
  double magnitude;
  if ((bits & 0x7fff) >= format.infinity) {
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, format.least_exponent - format.fraction_bits);
  } else {
    magnitude = std::ldexp(fraction + (1 << format.fraction_bits),
                           format.least_exponent + exponent - 1 - format.fraction_bits);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

uint16_t encode16(sar_data_type type, double value) {
  const Format16 format = format_of(type);
  if (std::isnan(value)) {
    return format.nan;
  }
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double magnitude = std::fabs(value);
  if (magnitude == 0 || std::isinf(magnitude)) {
    return static_cast<uint16_t>(sign | (magnitude == 0 ? 0 : format.infinity));
  }
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude = [0.5, 1) * 2^exponent
  exponent = std::max(exponent - 1, format.least_exponent);
  // In units of the last place, rounded to nearest even; a carry moves up the exponent by itself.
  const double units = std::nearbyint(std::ldexp(magnitude, format.fraction_bits - exponent));
  const auto bits =
      static_cast<int64_t>(units) +
      (static_cast<int64_t>(exponent - format.least_exponent) << format.fraction_bits);
  return static_cast<uint16_t>(sign | std::min<int64_t>(bits, format.infinity));
}

Bytes reference_reduce(sar_data_type type, sar_reduce_op op,
                       const std::vector<const void *> &inputs, size_t elements) {
  Bytes results(elements * size_of(type));
  const size_t ranks = inputs.size();
  for (size_t i = 0; i < elements; i++) {
    switch (type) {
      case SAR_FLOAT64: {
        const auto load = [&](size_t rank) { return read<double>(inputs[rank], i); };
        write(results, i,
              canonical(reduce_float<double>(op, ranks, load), uint64_t{0x7ff8000000000000}));
        break;
      }
      case SAR_FLOAT32: {
        const auto load = [&](size_t rank) { return read<float>(inputs[rank], i); };
        write(results, i, canonical(reduce_float<float>(op, ranks, load), uint32_t{0x7fc00000}));
        break;
      }
      case SAR_FLOAT16:
      case SAR_BFLOAT16: {
        const auto load = [&](size_t rank) {
          return static_cast<float>(decode16(type, read<uint16_t>(inputs[rank], i)));
        };
        write(results, i, encode16(type, reduce_float<float>(op, ranks, load)));
        break;
      }
      case SAR_INT32: {
        const auto load = [&](size_t rank) { return read<int32_t>(inputs[rank], i); };
        write(results, i, reduce_integer<int32_t>(op, ranks, load));
        break;
      }
      case SAR_INT64: {
        const auto load = [&](size_t rank) { return read<int64_t>(inputs[rank], i); };
        write(results, i, reduce_integer<int64_t>(op, ranks, load));
        break;
      }
    }
  }
  return results;
}

}  // namespace sar::testing
