// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// cpu_grid.hpp: what the device source needs when it is compiled for the CPU: one thread plays one
// device thread. The kernels include this in place of the compiler's gpuintrin.h.
#ifndef SPARK_ALLREDUCE_TESTS_GPU_CPU_GRID_HPP
#define SPARK_ALLREDUCE_TESTS_GPU_CPU_GRID_HPP

#include <sched.h>
#include <stdint.h>
#include <time.h>

#include <barrier>

#include "../../kernels/layout.hpp"

namespace sar::gpu::cpu {

struct Block {
  explicit Block(uint32_t block) : id(block), barrier(kBlockThreads) {}
  uint32_t id;
  std::barrier<> barrier;
  uint64_t pads[kMaxRanks];
  uint32_t stop = 0;
};

struct Thread {
  uint32_t id = 0;
  Block* block = nullptr;
};
inline thread_local Thread thread;

inline uint64_t nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1000000000u + uint64_t(now.tv_nsec);
}

inline void yield() { sched_yield(); }

}  // namespace sar::gpu::cpu

#endif
