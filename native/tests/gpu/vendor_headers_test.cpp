// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// vendor_headers_test.cpp: compile-only. Each line of driver_calls.inc against the declaration in
// the vendor's own header (-DSAR_CHECK_CUDA or -DSAR_CHECK_HIP): as many arguments, and each of the
// same size and of a kind that is passed in the same register.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(SAR_CHECK_CUDA)
#include <cuda.h>
#else
#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime_api.h>
// HIP's C++ header adds a template of the same name, which hides the plain declaration.
inline hipError_t plain_malloc(void** pointer, size_t bytes) { return hipMalloc(pointer, bytes); }
#define hipMalloc plain_malloc
inline hipError_t plain_host_malloc(void** pointer, size_t bytes, unsigned flags) {
  return hipHostMalloc(pointer, bytes, flags);
}
#define hipHostMalloc plain_host_malloc
#endif

#include "../../gpu/driver.hpp"
using sar::gpu::IpcHandle;

namespace {

// Integers, enumerations and pointers of one size travel alike; structures only as themselves.
template <class Ours, class Theirs>
constexpr bool same_argument() {
  constexpr bool scalar = std::is_scalar_v<Ours> && std::is_scalar_v<Theirs>;
  constexpr bool structure = std::is_class_v<Ours> && std::is_class_v<Theirs>;
  constexpr bool floating = std::is_floating_point_v<Ours> || std::is_floating_point_v<Theirs>;
  return sizeof(Ours) == sizeof(Theirs) && (scalar || structure) && !floating;
}

template <class Result, class... Theirs>
struct Declared {
  template <class... Ours>
  static constexpr bool matches() {
    if constexpr (sizeof...(Ours) != sizeof...(Theirs)) {
      return false;
    } else {
      return sizeof(Result) == sizeof(int) && (same_argument<Ours, Theirs>() && ...);
    }
  }
};

template <class Result, class... Theirs>
Declared<Result, Theirs...> declared(Result (*)(Theirs...));

#if defined(SAR_CHECK_CUDA)
#define SAR_THEIRS(cuda, hip) cuda
#else
#define SAR_THEIRS(cuda, hip) hip
#endif

#define SAR_DRIVER_CALL(name, cuda, hip, ...) \
  static_assert(decltype(declared(&SAR_THEIRS(cuda, hip)))::matches<__VA_ARGS__>(), #name);
#include "../../gpu/driver_calls.inc"

#if !defined(SAR_CHECK_CUDA)
static_assert(hipDeviceAttributeMultiprocessorCount == 63);
static_assert(hipErrorNotReady == 600 && hipErrorPeerAccessAlreadyEnabled == 704);
static_assert(hipStreamNonBlocking == 1 && hipEventDisableTiming == 2 &&
              hipHostRegisterMapped == 2);
static_assert(hipStreamCaptureModeRelaxed == 2);
static_assert(HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL == 9 &&
              HIP_POINTER_ATTRIBUTE_IS_LEGACY_HIP_IPC_CAPABLE == 10);
#else
static_assert(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT == 16);
static_assert(CUDA_ERROR_NOT_READY == 600 && CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED == 704);
static_assert(CU_STREAM_NON_BLOCKING == 1 && CU_EVENT_DISABLE_TIMING == 2);
static_assert(CU_MEMHOSTREGISTER_DEVICEMAP == 2 && CU_STREAM_CAPTURE_MODE_RELAXED == 2);
static_assert(CU_POINTER_ATTRIBUTE_BUFFER_ID == 7 && CU_JIT_MAX_REGISTERS == 0);
static_assert(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL == 9 &&
              CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE == 10);
static_assert(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS == 1);
// What driver.cpp passes to cuLaunchKernelEx.
using sar::gpu::CudaLaunch, sar::gpu::CudaLaunchAttribute;
static_assert(sizeof(CudaLaunchAttribute) == sizeof(CUlaunchAttribute) &&
              offsetof(CudaLaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
static_assert(sizeof(CudaLaunch) == sizeof(CUlaunchConfig) &&
              offsetof(CudaLaunch, block) == offsetof(CUlaunchConfig, blockDimX) &&
              offsetof(CudaLaunch, shared_bytes) == offsetof(CUlaunchConfig, sharedMemBytes) &&
              offsetof(CudaLaunch, stream) == offsetof(CUlaunchConfig, hStream) &&
              offsetof(CudaLaunch, attributes) == offsetof(CUlaunchConfig, attrs) &&
              offsetof(CudaLaunch, attribute_count) == offsetof(CUlaunchConfig, numAttrs));
static_assert(sar::gpu::kCudaOverlapWithEnd ==
              CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
#endif

}  // namespace
