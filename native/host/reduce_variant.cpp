// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// The reduce loops. Compiled several times, with SAR_REDUCE_VARIANT as the function's name; so
// nothing here but that function may have external linkage.
#include "numerics.hpp"
#include "reduce.hpp"

namespace sar {

namespace {

// Elements per block: two blocks of the widest type fit into half of a small first-level cache.
constexpr uint64_t kBlock = 512;

// Adds up a block in an array of accumulators, so that the inner loops run over elements and
// vectorise, and the type's rounding happens once.
template <sar_data_type type, sar_reduce_op op>
inline void reduce_block(const ReduceJob &job, uint64_t begin, uint64_t length) {
  using E = Element<type>;
  using Stored = typename E::Stored;
  typename E::Accumulator sums[kBlock];
  const auto *first = static_cast<const Stored *>(job.inputs[0]) + begin;
  for (uint64_t i = 0; i < length; i++) {
    sums[i] = E::load(first[i]);
  }
  for (uint32_t rank = 1; rank < job.input_count; rank++) {
    const auto *next = static_cast<const Stored *>(job.inputs[rank]) + begin;
    for (uint64_t i = 0; i < length; i++) {
      sums[i] = Operation<op>::combine(sums[i], E::load(next[i]));
    }
  }
  // Read everything, then write: an output may be an input.
  Stored results[kBlock];
  for (uint64_t i = 0; i < length; i++) {
    results[i] = E::store(Operation<op>::finish(sums[i], job.input_count));
  }
  for (uint32_t output = 0; output < job.output_count; output++) {
    __builtin_memcpy(static_cast<Stored *>(job.outputs[output]) + begin, results,
                     length * sizeof(Stored));
  }
}

template <sar_data_type type, sar_reduce_op op>
void reduce_all(const ReduceJob &job) {
  for (uint64_t begin = 0; begin < job.elements; begin += kBlock) {
    const uint64_t left = job.elements - begin;
    reduce_block<type, op>(job, begin, left < kBlock ? left : kBlock);
  }
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
