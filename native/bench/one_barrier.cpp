// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// one_barrier.cpp: the yardstick for small messages: a kernel that does nothing but one barrier.
#include "../kernels/barrier.hpp"

SAR_KERNEL(sar::gpu::kBlockThreads) void sar_one_barrier(sar::gpu::Launch launch) {
  using namespace sar::gpu;
  wait_for_stream();
  SAR_GLOBAL Pad* pad = own_pad(launch);
  const uint32_t epoch = pad->epoch[block_id()] + 1;
  prepare_barriers(launch);
  // Not an arrival: without a second barrier a peer's next launch may have come to its own, and
  // that would be taken for a mismatch.
  if (!rank_barrier(launch, [&] { return pass_step(launch, kExit, epoch); })) return;
  if (thread_id() == 0) pad->epoch[block_id()] = epoch;
}
