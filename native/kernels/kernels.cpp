// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// kernels.cpp: the entry points. One source for AMD, NVIDIA and the CPU build of the tests. Each
// data type has two kernels (collective and low latency) for up to 2, 4, 8 and 16 ranks: that many
// packs are in flight per thread.
//
// SAR_KERNEL_TYPE selects one data type, so that a driver which compiles PTX has little to compile.
#include "collective.hpp"
#include "low_latency.hpp"

#define SAR_KERNELS_OF(name, type, ranks)                          \
  SAR_KERNEL(sar::gpu::kBlockThreads)                              \
  void sar_collective_##name##_##ranks(sar::gpu::Launch launch) {  \
    sar::gpu::collective<type, ranks>(launch);                     \
  }                                                                \
  SAR_KERNEL(sar::gpu::kSmallestBlock)                             \
  void sar_low_latency_##name##_##ranks(sar::gpu::Launch launch) { \
    sar::gpu::low_latency<type, ranks>(launch);                    \
  }
#define SAR_KERNELS(name, type) \
  SAR_KERNELS_OF(name, type, 2) \
  SAR_KERNELS_OF(name, type, 4) \
  SAR_KERNELS_OF(name, type, 8) \
  SAR_KERNELS_OF(name, type, 16)

#if !defined(SAR_KERNEL_TYPE) || SAR_KERNEL_TYPE == 0
SAR_KERNELS(float64, SAR_FLOAT64)
#endif
#if !defined(SAR_KERNEL_TYPE) || SAR_KERNEL_TYPE == 1
SAR_KERNELS(float32, SAR_FLOAT32)
#endif
#if !defined(SAR_KERNEL_TYPE) || SAR_KERNEL_TYPE == 2
SAR_KERNELS(float16, SAR_FLOAT16)
#endif
#if !defined(SAR_KERNEL_TYPE) || SAR_KERNEL_TYPE == 3
SAR_KERNELS(bfloat16, SAR_BFLOAT16)
#endif
#if !defined(SAR_KERNEL_TYPE) || SAR_KERNEL_TYPE == 4
SAR_KERNELS(int32, SAR_INT32)
#endif
#if !defined(SAR_KERNEL_TYPE) || SAR_KERNEL_TYPE == 5
SAR_KERNELS(int64, SAR_INT64)
#endif
