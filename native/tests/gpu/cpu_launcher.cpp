// Licensed under the Apache License, Version 2.0. See LICENSE.
#include "cpu_launcher.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "../../kernels/kernels.cpp"

namespace sar::gpu::cpu {
namespace {

constexpr const char* kTypeNames[] = {"float64",  "float32", "float16",
                                      "bfloat16", "int32",   "int64"};

struct Entry {
  const char* name;
  Kernel kernel;
};
#define SAR_ENTRY(name, ranks)                                             \
  {"sar_collective_" #name "_" #ranks, sar_collective_##name##_##ranks}, { \
    "sar_low_latency_" #name "_" #ranks, sar_low_latency_##name##_##ranks  \
  }
#define SAR_ENTRIES(name) \
  SAR_ENTRY(name, 2), SAR_ENTRY(name, 4), SAR_ENTRY(name, 8), SAR_ENTRY(name, 16)
// SAR_KERNEL_TYPE selects one type, as it does in kernels.cpp.
constexpr Entry kEntries[] = {
#if !defined(SAR_KERNEL_TYPE) || SAR_KERNEL_TYPE == 0
    SAR_ENTRIES(float64),
#endif
#if !defined(SAR_KERNEL_TYPE) || SAR_KERNEL_TYPE == 1
    SAR_ENTRIES(float32),
#endif
#if !defined(SAR_KERNEL_TYPE) || SAR_KERNEL_TYPE == 2
    SAR_ENTRIES(float16),
#endif
#if !defined(SAR_KERNEL_TYPE) || SAR_KERNEL_TYPE == 3
    SAR_ENTRIES(bfloat16),
#endif
#if !defined(SAR_KERNEL_TYPE) || SAR_KERNEL_TYPE == 4
    SAR_ENTRIES(int32),
#endif
#if !defined(SAR_KERNEL_TYPE) || SAR_KERNEL_TYPE == 5
    SAR_ENTRIES(int64),
#endif
};

}  // namespace

Kernel find_kernel(const char* name) {
  for (const Entry& entry : kEntries) {
    if (std::strcmp(entry.name, name) == 0) return entry.kernel;
  }
  return nullptr;
}

Kernel find_kernel(sar_data_type type, uint32_t world, bool low_latency) {
  const uint32_t ranks = world <= 2 ? 2 : world <= 4 ? 4 : world <= 8 ? 8 : 16;
  char name[64];
  std::snprintf(name, sizeof name, "sar_%s_%s_%u", low_latency ? "low_latency" : "collective",
                kTypeNames[type], ranks);
  return find_kernel(name);
}

Grid::Grid(uint32_t blocks)
    : begin_(static_cast<std::ptrdiff_t>(blocks * kBlockThreads + 1)),
      end_(static_cast<std::ptrdiff_t>(blocks * kBlockThreads + 1)) {
  for (uint32_t b = 0; b < blocks; ++b) blocks_.push_back(std::make_unique<Block>(b));
  for (uint32_t b = 0; b < blocks; ++b) {
    for (uint32_t t = 0; t < kBlockThreads; ++t) {
      threads_.emplace_back([this, b, t] { play(b, t); });
    }
  }
}

Grid::~Grid() {
  kernel_ = nullptr;
  begin_.arrive_and_wait();
  for (std::thread& thread : threads_) thread.join();
}

void Grid::run(Kernel kernel, const Launch& launch, uint32_t blocks) {
  if (blocks > blocks_.size()) std::abort();  // those blocks would never run
  kernel_ = kernel;
  launch_ = &launch;
  launched_blocks_ = blocks;
  begin_.arrive_and_wait();
  end_.arrive_and_wait();
}

void Grid::play(uint32_t block, uint32_t id) {
  thread = Thread{id, blocks_[block].get()};
  for (;;) {
    begin_.arrive_and_wait();
    if (kernel_ == nullptr) return;
    if (block < launched_blocks_) kernel_(*launch_);
    end_.arrive_and_wait();
  }
}

}  // namespace sar::gpu::cpu
