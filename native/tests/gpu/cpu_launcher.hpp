// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// cpu_launcher.hpp: runs launches of the CPU-built kernels. The threads of a grid are kept from
// launch to launch; grids of different ranks know nothing of each other, as on devices.
#ifndef SPARK_ALLREDUCE_TESTS_GPU_CPU_LAUNCHER_HPP
#define SPARK_ALLREDUCE_TESTS_GPU_CPU_LAUNCHER_HPP

#include <memory>
#include <thread>
#include <vector>

#include "../../include/spark_allreduce.h"
#include "../../kernels/layout.hpp"
#include "cpu_grid.hpp"

namespace sar::gpu::cpu {

using Kernel = void (*)(Launch);

// The kernel for a type and world size; nullptr if there is no such kernel.
Kernel find_kernel(const char* name);
Kernel find_kernel(sar_data_type type, uint32_t world, bool low_latency);

class Grid {
 public:
  explicit Grid(uint32_t blocks);
  ~Grid();
  Grid(const Grid&) = delete;
  Grid& operator=(const Grid&) = delete;

  // Returns when all threads of the launch have ended.
  void run(Kernel kernel, const Launch& launch, uint32_t blocks);

 private:
  void play(uint32_t block, uint32_t thread);

  std::vector<std::unique_ptr<Block>> blocks_;
  std::barrier<> begin_, end_;
  Kernel kernel_ = nullptr;
  const Launch* launch_ = nullptr;
  uint32_t launched_blocks_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace sar::gpu::cpu

#endif
