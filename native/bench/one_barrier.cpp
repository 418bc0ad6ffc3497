// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// one_barrier.cpp: the yardstick for small messages: a kernel that does nothing but one barrier.
#include "../kernels/barrier.hpp"

SAR_KERNEL void sar_one_barrier(sar::gpu::Launch launch) {
  using namespace sar::gpu;
  SAR_GLOBAL Pad* pad = own_pad(launch);
  const uint32_t epoch = pad->epoch[block_id()] + 1;
  prepare_barriers(launch);
  if (!rank_barrier(launch, [&] { return arrive_and_compare(launch, epoch); })) return;
  if (thread_id() == 0) pad->epoch[block_id()] = epoch;
}
