// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// driver.hpp: the vendor's driver, found at run time. Nothing is linked, so any version of ROCm or
// CUDA that has the calls serves, and a machine without a GPU gets a message.
#ifndef SPARK_ALLREDUCE_GPU_DRIVER_HPP
#define SPARK_ALLREDUCE_GPU_DRIVER_HPP

#include <stddef.h>
#include <stdint.h>

#include "spark_allreduce.h"

namespace sar::gpu {

enum class Vendor { kNvidia, kAmd };

inline constexpr size_t kUuidBytes = 48;

struct IpcHandle {
  char bytes[64];
};

// Values that differ between the vendors or are used in more than one place.
inline constexpr int kNotReady = 600;              // both
inline constexpr unsigned kNonBlockingStream = 1;  // both
inline constexpr unsigned kNoTiming = 2;           // both
inline constexpr unsigned kHostMapped = 2;         // both
inline constexpr int kCaptureRelaxed = 2;          // both

// cuLaunchKernelEx's arguments (CUlaunchConfig, CUlaunchAttribute).
struct CudaLaunchAttribute {
  int name, reserved;
  int value[16];
};
// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
inline constexpr int kCudaOverlapWithEnd = 6;
struct CudaLaunch {
  unsigned grid[3], block[3], shared_bytes;
  void *stream;
  const CudaLaunchAttribute *attributes;
  unsigned attribute_count;
};

struct Driver {
  Vendor vendor;
  const char *library;  // the file it came from

#define SAR_DRIVER_CALL(name, cuda, hip, ...) int (*name)(__VA_ARGS__);
#include "driver_calls.inc"
#undef SAR_DRIVER_CALL

  // Calls with another shape for each vendor; NULL for the other one.
  int (*cuda_context_retain)(void **, int);
  int (*cuda_context_release)(int);
  int (*cuda_context_set)(void *);
  int (*cuda_context_enable_peer)(void *, unsigned);
  int (*cuda_error_text)(int, const char **);
  int (*cuda_stream_context)(void *, void **);                 // may be NULL
  int (*cuda_launch)(const void *, void *, void **, void **);  // may be NULL
  int (*hip_set_device)(int);
  int (*hip_enable_peer)(int, unsigned);
  const char *(*hip_error_text)(int);
  int (*hip_allocate_with_flags)(uint64_t *, size_t, unsigned);
  int (*hip_stream_device)(void *, int *);  // may be NULL
  // The same shape for both, but older versions lack it: may be NULL.
  int (*pointer_attribute)(void *, int, uint64_t);

  const char *error_text(int error) const;

  // Makes `device` current for the calling thread. `context` is what retain_device returned.
  int retain_device(int device, void **context) const;
  void release_device(int device) const;
  int use_device(int device, void *context) const;
  int multiprocessors(int device, int *count) const;
  // Lets the current device reach the memory of `device`, of which the process has a context.
  int enable_peer(int device) const;

  // Launches a kernel whose only argument is at `argument`. Where the driver can, its blocks come
  // onto the device while the kernel before it on the stream is ending (kernels/device.hpp,
  // wait_for_stream): none of them before that kernel's last block has ended, so they take no place
  // from a block that others wait for.
  int launch_next(void *function, uint32_t blocks, uint32_t threads, void *stream,
                  void *argument) const;
  // Copies to the device and returns when the bytes are there. The driver's own call may return as
  // soon as it has taken a short piece of pageable memory, and streams do not wait for the rest.
  int copy_in(uint64_t address, const void *host, size_t bytes) const;
  // Memory that peers write flags into while a kernel polls it: uncached, or at least fine-grained,
  // on AMD.
  int allocate_signals(uint64_t *address, size_t bytes) const;
  int open_ipc(uint64_t *address, const IpcHandle &handle) const;
  // A number that no other allocation ever has; 0 if the driver does not tell.
  uint64_t allocation_identity(uint64_t address) const;
  // The device that the memory at `address` is on; -1 if the driver does not tell.
  int device_of(uint64_t address) const;
  // True if the driver says that this memory has no IPC handle, whoever asks.
  bool is_never_exported(uint64_t address) const;
  // True if the driver says that the stream is of another device, or of another context of it.
  bool is_elsewhere(void *stream, int device, void *context) const;
  // As the vendor's tools print it: GPU-...; `text` has kUuidBytes. 0 or a driver error.
  int uuid(int device, char *text) const;
  uint64_t ticks_of(uint64_t nanoseconds) const;
};

// The driver, loaded at the first call. NULL: there is none, and `why` says what was tried.
// SPARK_ALLREDUCE_GPU_DRIVER names another library than the vendors' own.
const Driver *driver(const char **why);

}  // namespace sar::gpu

#endif
