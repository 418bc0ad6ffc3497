// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// The arithmetic of the collectives: combines one range of elements of all ranks.
#ifndef SPARK_ALLREDUCE_HOST_REDUCE_HPP
#define SPARK_ALLREDUCE_HOST_REDUCE_HPP

#include <cstdint>

#include "spark_allreduce.h"

namespace sar {

struct ReduceJob {
  const void *inputs[SAR_MAX_RANKS];  // in rank order
  void *outputs[SAR_MAX_RANKS];       // each gets the same bytes; may be equal to inputs
  uint32_t input_count;               // the world size
  uint32_t output_count;
  uint64_t elements;
  sar_data_type type;
  sar_reduce_op op;
  // The outputs are too large for the caches: write past them, which saves reading them first. They
  // are in memory, as any other store, when the job is done.
  bool streams = false;
};

// Does the job with the widest vectors that this processor has. The same bits whichever they are,
// and whatever rounding the calling thread has set.
void reduce(const ReduceJob &job);

// The builds that reduce() chooses from: one source, compiled for different processors.
using ReduceFunction = void (*)(const ReduceJob &job);
void reduce_baseline(const ReduceJob &job);
#if defined(__x86_64__)
void reduce_x86_64_v3(const ReduceJob &job);
void reduce_x86_64_v4(const ReduceJob &job);
#endif

// What reduce() uses here.
ReduceFunction chosen_reduce_function();

}  // namespace sar

#endif  // SPARK_ALLREDUCE_HOST_REDUCE_HPP
