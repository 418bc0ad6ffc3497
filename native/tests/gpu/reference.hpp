// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// reference.hpp: inputs that find mistakes, and the expected bits, one element after the other with
// the definitions of common/numerics.hpp (which have tests against float64 of their own).
#ifndef SPARK_ALLREDUCE_TESTS_GPU_REFERENCE_HPP
#define SPARK_ALLREDUCE_TESTS_GPU_REFERENCE_HPP

#include <cstdint>
#include <cstring>
#include <vector>

#include "../../common/numerics.hpp"

namespace sar::gpu::test {

using Bytes = std::vector<uint8_t>;

// Any bits are a value: subnormals, infinities and NaNs with payloads come up by themselves, but
// most numbers are near 1, so that sums round.
inline Bytes random_elements(sar_data_type type, uint64_t count, uint64_t seed) {
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  auto next = [&] {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  };
  const uint64_t size = element_bytes(type);
  Bytes bytes(count * size);
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t bits = next();
    const bool wild = next() % 16 == 0;
    if (!wild) {
      const double value = static_cast<double>(static_cast<int64_t>(bits) >> 11) * 0x1p-52 * 3;
      if (type == SAR_FLOAT64) std::memcpy(&bits, &value, 8);
      const auto single = static_cast<float>(value);
      if (type == SAR_FLOAT32) std::memcpy(&bits, &single, 4);
      if (type == SAR_FLOAT16) bits = float32_to_float16(single);
      if (type == SAR_BFLOAT16) bits = float32_to_bfloat16(single);
    }
    std::memcpy(&bytes[i * size], &bits, size);
  }
  return bytes;
}

template <sar_data_type T, sar_reduce_op Op>
Bytes reduced(const std::vector<const uint8_t*>& inputs, uint64_t count) {
  using Stored = typename Element<T>::Stored;
  Bytes out(count * sizeof(Stored));
  auto load = [&](size_t rank, uint64_t i) {
    Stored value;
    std::memcpy(&value, inputs[rank] + i * sizeof(Stored), sizeof value);
    return Element<T>::load(value);
  };
  for (uint64_t i = 0; i < count; ++i) {
    auto sum = load(0, i);
    for (size_t r = 1; r < inputs.size(); ++r) sum = Operation<Op>::combine(sum, load(r, i));
    const Stored value =
        Element<T>::store(Operation<Op>::finish(sum, static_cast<uint32_t>(inputs.size())));
    std::memcpy(&out[i * sizeof(Stored)], &value, sizeof value);
  }
  return out;
}

template <sar_data_type T>
Bytes reduced(sar_reduce_op op, const std::vector<const uint8_t*>& inputs, uint64_t count) {
  switch (op) {
    case SAR_SUM:
      return reduced<T, SAR_SUM>(inputs, count);
    case SAR_PRODUCT:
      return reduced<T, SAR_PRODUCT>(inputs, count);
    case SAR_MIN:
      return reduced<T, SAR_MIN>(inputs, count);
    case SAR_MAX:
      return reduced<T, SAR_MAX>(inputs, count);
    default:
      return reduced<T, SAR_AVERAGE>(inputs, count);
  }
}

inline Bytes reduced(sar_data_type type, sar_reduce_op op,
                     const std::vector<const uint8_t*>& inputs, uint64_t count) {
  switch (type) {
    case SAR_FLOAT64:
      return reduced<SAR_FLOAT64>(op, inputs, count);
    case SAR_FLOAT32:
      return reduced<SAR_FLOAT32>(op, inputs, count);
    case SAR_FLOAT16:
      return reduced<SAR_FLOAT16>(op, inputs, count);
    case SAR_BFLOAT16:
      return reduced<SAR_BFLOAT16>(op, inputs, count);
    case SAR_INT32:
      return reduced<SAR_INT32>(op, inputs, count);
    default:
      return reduced<SAR_INT64>(op, inputs, count);
  }
}

}  // namespace sar::gpu::test

#endif
