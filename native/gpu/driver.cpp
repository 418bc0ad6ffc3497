// Licensed under the Apache License, Version 2.0. See LICENSE.
#include "driver.hpp"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "system.hpp"

// glibc 2.34 gave these new versions; the old ones load everywhere.
#if defined(__x86_64__)
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
__asm__(".symver dlerror,dlerror@GLIBC_2.2.5");
#endif

namespace sar::gpu {
namespace {

constexpr int kInvalidValue = 1;  // both vendors
// Attributes of pointers, of both vendors.
constexpr int kBufferIdentity = 7, kDeviceOrdinal = 9, kLegacyIpc = 10;

struct Loaded {
  Mutex mutex;
  bool tried = false;
  bool ok = false;
  Driver driver{};
  char why[512] = {};
};
constinit Loaded loaded;

bool find(void *library, const char *name, void *function) {
  void *symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof symbol);
  return symbol != nullptr;
}

// Fills the table from an opened library; false and `why` if a call is missing.
bool fill(Driver &d, void *library) {
  const bool cuda = dlsym(library, "cuInit") != nullptr;
  d.vendor = cuda ? Vendor::kNvidia : Vendor::kAmd;
  const char *missing = nullptr;
#define SAR_DRIVER_CALL(name, cuda_name, hip_name, ...) \
  if (!find(library, cuda ? #cuda_name : #hip_name, &d.name)) missing = #name;
#include "driver_calls.inc"
#undef SAR_DRIVER_CALL
  const auto need = [&](const char *name, void *function) {
    if (!find(library, name, function)) missing = name;
  };
  if (cuda) {
    need("cuDevicePrimaryCtxRetain", &d.cuda_context_retain);
    need("cuDevicePrimaryCtxRelease_v2", &d.cuda_context_release);
    need("cuCtxSetCurrent", &d.cuda_context_set);
    need("cuCtxEnablePeerAccess", &d.cuda_context_enable_peer);
    need("cuGetErrorString", &d.cuda_error_text);
    find(library, "cuStreamGetCtx", &d.cuda_stream_context);
    find(library, "cuLaunchKernelEx", &d.cuda_launch);
  } else {
    need("hipSetDevice", &d.hip_set_device);
    need("hipDeviceEnablePeerAccess", &d.hip_enable_peer);
    need("hipGetErrorString", &d.hip_error_text);
    need("hipExtMallocWithFlags", &d.hip_allocate_with_flags);
    find(library, "hipStreamGetDevice", &d.hip_stream_device);
  }
  find(library, cuda ? "cuPointerGetAttribute" : "hipPointerGetAttribute", &d.pointer_attribute);
  if (missing == nullptr) return true;
  snprintf(loaded.why, sizeof loaded.why,
           "the GPU driver library %s has no function %s: it is too old, or no driver; update it",
           d.library, missing);
  return false;
}

void load() {
  const char *chosen = getenv("SPARK_ALLREDUCE_GPU_DRIVER");
  const char *const usual[] = {"libcuda.so.1", "libamdhip64.so", "libamdhip64.so.7",
                               "libamdhip64.so.6", "libamdhip64.so.5"};
  const char *const only[] = {chosen};
  const bool use_chosen = chosen != nullptr && *chosen != 0;
  const char *const *names = use_chosen ? only : usual;
  const size_t count = use_chosen ? 1 : sizeof usual / sizeof *usual;
  for (size_t i = 0; i < count; ++i) {
    void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      if (use_chosen) {
        snprintf(loaded.why, sizeof loaded.why, "cannot load the GPU driver library: %s",
                 dlerror());
      }
      continue;
    }
    loaded.driver.library = names[i];
    if (!fill(loaded.driver, library)) continue;
    const int error = loaded.driver.initialize(0);
    if (error == 0) {
      // Before CUDA 12.3 a graph cannot hold such launches.
      int version = 0;
      if (loaded.driver.driver_version(&version) != 0 || version < 12030) {
        loaded.driver.cuda_launch = nullptr;
      }
      loaded.ok = true;
      return;
    }
    snprintf(loaded.why, sizeof loaded.why, "the GPU driver %s does not start: %s (%d)", names[i],
             loaded.driver.error_text(error), error);
  }
  if (loaded.why[0] == 0) {
    snprintf(loaded.why, sizeof loaded.why,
             "no GPU driver: neither libcuda.so.1 nor libamdhip64.so can be loaded; install the "
             "vendor's driver, or use the host backend");
  }
}

}  // namespace

const Driver *driver(const char **why) {
  LockGuard lock(loaded.mutex);
  if (!loaded.tried) load();
  loaded.tried = true;
  *why = loaded.why;
  return loaded.ok ? &loaded.driver : nullptr;
}

const char *Driver::error_text(int error) const {
  const char *text = nullptr;
  if (vendor == Vendor::kAmd) {
    text = hip_error_text(error);
  } else if (cuda_error_text(error, &text) != 0) {
    text = nullptr;
  }
  return text != nullptr ? text : "unknown error";
}

int Driver::retain_device(int device, void **context) const {
  *context = nullptr;
  return vendor == Vendor::kAmd ? hip_set_device(device) : cuda_context_retain(context, device);
}

void Driver::release_device(int device) const {
  if (vendor == Vendor::kNvidia) cuda_context_release(device);
}

int Driver::use_device(int device, void *context) const {
  return vendor == Vendor::kAmd ? hip_set_device(device) : cuda_context_set(context);
}

int Driver::multiprocessors(int device, int *count) const {
  return device_attribute(count, vendor == Vendor::kAmd ? 63 : 16, device);
}

int Driver::enable_peer(int device) const {
  constexpr int kAlreadyEnabled = 704;  // both vendors
  int error = 0;
  if (vendor == Vendor::kAmd) {
    error = hip_enable_peer(device, 0);
  } else {
    void *context = nullptr;
    error = cuda_context_retain(&context, device);
    if (error != 0) return error;
    error = cuda_context_enable_peer(context, 0);
    cuda_context_release(device);  // the rank on that device holds it
  }
  return error == kAlreadyEnabled ? 0 : error;
}

int Driver::launch_next(void *function, uint32_t blocks, uint32_t threads, void *stream,
                        void *argument) const {
  void *arguments[] = {argument};
  if (cuda_launch == nullptr) {
    return launch(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, nullptr);
  }
  const CudaLaunchAttribute attribute{kCudaOverlapWithEnd, 0, {1}};
  const CudaLaunch config{{blocks, 1, 1}, {threads, 1, 1}, 0, stream, &attribute, 1};
  return cuda_launch(&config, function, arguments, nullptr);
}

int Driver::allocate_signals(uint64_t *address, size_t bytes) const {
  if (vendor == Vendor::kNvidia) return memory_allocate(address, bytes);
  constexpr unsigned kUncached = 3, kFineGrained = 1;
  if (hip_allocate_with_flags(address, bytes, kUncached) == 0) return 0;
  return hip_allocate_with_flags(address, bytes, kFineGrained);  // before ROCm 5.7
}

int Driver::open_ipc(uint64_t *address, const IpcHandle &handle) const {
  const int error = ipc_open(address, handle, 1);
  // Older HIP knows only 0 for the flag that CUDA and newer HIP call 1.
  return vendor == Vendor::kAmd && error == kInvalidValue ? ipc_open(address, handle, 0) : error;
}

uint64_t Driver::allocation_identity(uint64_t address) const {
  unsigned long long identity = 0;
  // AMD's numbers are not said to be unique for ever.
  if (vendor == Vendor::kAmd || pointer_attribute == nullptr ||
      pointer_attribute(&identity, kBufferIdentity, address) != 0) {
    return 0;
  }
  return identity;
}

int Driver::device_of(uint64_t address) const {
  int device = -1;
  const bool told =
      pointer_attribute != nullptr && pointer_attribute(&device, kDeviceOrdinal, address) == 0;
  return told ? device : -1;
}

bool Driver::is_never_exported(uint64_t address) const {
  unsigned exported = 1;
  return pointer_attribute != nullptr && pointer_attribute(&exported, kLegacyIpc, address) == 0 &&
         exported == 0;
}

int Driver::copy_in(uint64_t address, const void *host, size_t bytes) const {
  const int error = copy_to_device(address, host, bytes);
  return error != 0 ? error : stream_synchronize(nullptr);
}

bool Driver::is_elsewhere(void *stream, int device, void *context) const {
  if (vendor == Vendor::kAmd) {
    int where = device;
    return hip_stream_device != nullptr && hip_stream_device(stream, &where) == 0 &&
           where != device;
  }
  void *where = context;
  return cuda_stream_context != nullptr && cuda_stream_context(stream, &where) == 0 &&
         where != context;
}

int Driver::uuid(int device, char *text) const {
  char raw[16] = {};
  if (const int error = device_uuid(raw, device); error != 0) return error;
  if (vendor == Vendor::kAmd) {  // sixteen letters, as rocminfo prints them
    snprintf(text, kUuidBytes, "GPU-%.16s", raw);
    return 0;
  }
  size_t length = static_cast<size_t>(snprintf(text, kUuidBytes, "GPU"));
  for (size_t i = 0; i < sizeof raw; ++i) {
    const bool dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    length += static_cast<size_t>(snprintf(text + length, kUuidBytes - length, "%s%02x",
                                           dash ? "-" : "", static_cast<uint8_t>(raw[i])));
  }
  return 0;
}

uint64_t Driver::ticks_of(uint64_t nanoseconds) const {
  return vendor == Vendor::kAmd ? nanoseconds / 10 : nanoseconds;
}

}  // namespace sar::gpu
