// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// The reduce loops. Compiled several times, with SAR_REDUCE_VARIANT as the function's name; so
// nothing here but that function may have external linkage.
#include "numerics.hpp"
#include "reduce.hpp"
#include "vectors.hpp"

namespace sar {

namespace {

// Vectors of accumulators that are under way at once: enough to hide the latency of loads and
// additions, few enough to stay in registers.
constexpr uint32_t kVectors = 4;

// Streaming stores begin where all outputs have a cache line's begin.
constexpr uint64_t kLineBytes = 64;

// One element after the other: short ranges, and the ends of long ones.
template <sar_data_type type, sar_reduce_op op>
void reduce_elements(const ReduceJob &job, uint64_t begin, uint64_t end) {
  using E = Element<type>;
  using Stored = typename E::Stored;
  for (uint64_t i = begin; i < end; i++) {
    auto sum = E::load(static_cast<const Stored *>(job.inputs[0])[i]);
#pragma GCC unroll 1
    for (uint32_t rank = 1; rank < job.input_count; rank++) {
      sum = Operation<op>::combine(sum, E::load(static_cast<const Stored *>(job.inputs[rank])[i]));
    }
    const Stored result = E::store(Operation<op>::finish(sum, job.input_count));
#pragma GCC unroll 1
    for (uint32_t output = 0; output < job.output_count; output++) {
      static_cast<Stored *>(job.outputs[output])[i] = result;
    }
  }
}

// `vectors` vectors from element `begin` on. Reads everything, then writes: an output may be an
// input.
template <sar_data_type type, sar_reduce_op op, bool streams, uint32_t vectors>
[[gnu::always_inline]] inline void reduce_vectors(const ReduceJob &job, uint64_t begin) {
  using L = Lanes<type>;
  using A = typename L::Accumulator;
  constexpr uint64_t stored_bytes = sizeof(typename L::Stored);
  const uint64_t offset = begin * sizeof(typename Element<type>::Stored);
  const auto at = [&](uint32_t rank, uint32_t i) {
    return static_cast<const char *>(job.inputs[rank]) + offset + i * stored_bytes;
  };
  Vector<A> sums[vectors];
#pragma GCC unroll 4
  for (uint32_t i = 0; i < vectors; i++) {
    sums[i] = L::load(at(0, i));
  }
#pragma GCC unroll 1
  for (uint32_t rank = 1; rank < job.input_count; rank++) {
#pragma GCC unroll 4
    for (uint32_t i = 0; i < vectors; i++) {
      sums[i] = combine_lanes<op, A>(sums[i], L::load(at(rank, i)));
    }
  }
  typename L::Stored results[vectors];
#pragma GCC unroll 4
  for (uint32_t i = 0; i < vectors; i++) {
    results[i] = L::store(finish_lanes<op, A>(sums[i], job.input_count));
  }
#pragma GCC unroll 1
  for (uint32_t output = 0; output < job.output_count; output++) {
    char *to = static_cast<char *>(job.outputs[output]) + offset;
#pragma GCC unroll 4
    for (uint32_t i = 0; i < vectors; i++) {
      if constexpr (streams) {
        stream_vector(to + i * stored_bytes, results[i]);
      } else {
        __builtin_memcpy(to + i * stored_bytes, &results[i], stored_bytes);
      }
    }
  }
}

template <sar_data_type type, sar_reduce_op op, bool streams>
void reduce_range(const ReduceJob &job, uint64_t begin) {
  constexpr uint64_t one = Lanes<type>::kCount;
  for (; begin + kVectors * one <= job.elements; begin += kVectors * one) {
    reduce_vectors<type, op, streams, kVectors>(job, begin);
  }
  for (; begin + one <= job.elements; begin += one) {
    reduce_vectors<type, op, streams, 1>(job, begin);
  }
  reduce_elements<type, op>(job, begin, job.elements);
  if constexpr (streams) {
    store_fence();
  }
}

// How many elements to the first place where all outputs are at the begin of a cache line; more
// than there are if there is none.
uint64_t elements_to_alignment(const ReduceJob &job, uint64_t element_bytes) {
  const auto misalignment = [&](uint32_t output) {
    return reinterpret_cast<uintptr_t>(job.outputs[output]) % kLineBytes;
  };
  for (uint32_t output = 1; output < job.output_count; output++) {
    if (misalignment(output) != misalignment(0)) {
      return UINT64_MAX;
    }
  }
  return (kLineBytes - misalignment(0)) % kLineBytes / element_bytes;
}

template <sar_data_type type, sar_reduce_op op>
void reduce_all(const ReduceJob &job) {
  if (job.streams) {
    const uint64_t head = elements_to_alignment(job, element_bytes(type));
    if (head <= job.elements) {
      reduce_elements<type, op>(job, 0, head);
      return reduce_range<type, op, true>(job, head);
    }
  }
  reduce_range<type, op, false>(job, 0);
}

template <sar_data_type type>
void reduce_type(const ReduceJob &job) {
  switch (job.op) {
    case SAR_SUM:
      return reduce_all<type, SAR_SUM>(job);
    case SAR_PRODUCT:
      return reduce_all<type, SAR_PRODUCT>(job);
    case SAR_MIN:
      return reduce_all<type, SAR_MIN>(job);
    case SAR_MAX:
      return reduce_all<type, SAR_MAX>(job);
    case SAR_AVERAGE:
      return reduce_all<type, SAR_AVERAGE>(job);
  }
}

}  // namespace

void SAR_REDUCE_VARIANT(const ReduceJob &job) {
  switch (job.type) {
    case SAR_FLOAT64:
      return reduce_type<SAR_FLOAT64>(job);
    case SAR_FLOAT32:
      return reduce_type<SAR_FLOAT32>(job);
    case SAR_FLOAT16:
      return reduce_type<SAR_FLOAT16>(job);
    case SAR_BFLOAT16:
      return reduce_type<SAR_BFLOAT16>(job);
    case SAR_INT32:
      return reduce_type<SAR_INT32>(job);
    case SAR_INT64:
      return reduce_type<SAR_INT64>(job);
  }
}

}  // namespace sar
