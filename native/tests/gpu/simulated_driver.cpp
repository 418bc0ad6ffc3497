// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// simulated_driver.cpp: NOT A GPU. A shared library with the driver calls that the GPU backend
// makes, over memory files that other processes can map, running the CPU build of the kernels. It
// lets machines without a GPU test the host side; it says nothing about any device. Built once with
// CUDA's names and once with HIP's (-DSIMULATE_HIP).
//
//   SIMULATED_DEVICES=2          how many devices the machine has (of 4 multiprocessors each); of
//                                these CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES show some
//   SIMULATED_MEMORY=<bytes>     of each device; of 4 GiB otherwise
//   SIMULATED_PEER_ACCESS=0      no device reaches another one's memory
//   SIMULATED_VERSION=12020      what the driver calls its version
//   SIMULATED_FAIL=<call>[@<device>]:<error>[:<n>]   the n-th call (from 1) of that name, and all
//                                later ones, fail; only with that device current, if one is given
//
// Tests in one process ask and tell it through functions that no driver has: simulated_fail (as
// SIMULATED_FAIL), simulated_open_handles (of peers' memory), simulated_launches (of a kernel) and
// simulated_overlapping_launches (those through cuLaunchKernelEx).
#include <sched.h>

#include <algorithm>

#include "simulated_device.hpp"
#include "simulated_stream.hpp"

#define EXPORTED extern "C" __attribute__((visibility("default")))
#define FAIL_IF_TOLD(cuda, hip) \
  if (const int error = told_to_fail(TEXT(NAME(cuda, hip)))) return error

namespace {

std::map<cpu::Kernel, int> launches;
[[maybe_unused]] int overlapping_launches;

}  // namespace

#define SIMULATE(cuda, hip, parameters) \
  EXPORTED int NAME(cuda, hip)          \
  parameters

EXPORTED void simulated_fail(const char* text) { told.tell(text); }
EXPORTED int simulated_open_handles() {
  std::lock_guard lock(mutex);
  int count = 0;
  for (const auto& [address, m] : memory) count += m.opened ? 1 : 0;
  return count;
}
EXPORTED int simulated_launches(const char* name) {
  std::lock_guard lock(mutex);
  return launches[cpu::find_kernel(name)];
}
EXPORTED int simulated_overlapping_launches() {
  std::lock_guard lock(mutex);
  return overlapping_launches;
}

SIMULATE(cuInit, hipInit, (unsigned)) {
  FAIL_IF_TOLD(cuInit, hipInit);
  return 0;
}
SIMULATE(cuDriverGetVersion, hipDriverGetVersion, (int* version)) {
  *version = static_cast<int>(number_of("SIMULATED_VERSION", 13000));
  return 0;
}
SIMULATE(cuDeviceGetCount, hipGetDeviceCount, (int* count)) {
  FAIL_IF_TOLD(cuDeviceGetCount, hipGetDeviceCount);
  *count = devices();
  return 0;
}
SIMULATE(cuDeviceGet, hipDeviceGet, (int* device, int ordinal)) {
  *device = ordinal;
  return ordinal < devices() ? 0 : kInvalidValue;
}
SIMULATE(cuDeviceGetAttribute, hipDeviceGetAttribute, (int* value, int, int)) {
  FAIL_IF_TOLD(cuDeviceGetAttribute, hipDeviceGetAttribute);
  *value = kMultiprocessors;
  return 0;
}
SIMULATE(cuDeviceGetPCIBusId, hipDeviceGetPCIBusId, (char* id, int bytes, int device)) {
  FAIL_IF_TOLD(cuDeviceGetPCIBusId, hipDeviceGetPCIBusId);
  if (device >= devices()) return kInvalidValue;
  std::snprintf(id, static_cast<size_t>(bytes), "simulated:%d",
                visible()[static_cast<size_t>(device)]);
  return 0;
}
SIMULATE(cuDeviceGetByPCIBusId, hipDeviceGetByPCIBusId, (int* device, const char* id)) {
  int number = 0;
  if (std::sscanf(id, "simulated:%d", &number) != 1) return kInvalidValue;
  for (int d = 0; d < devices(); ++d) {
    *device = d;
    if (visible()[static_cast<size_t>(d)] == number) return 0;
  }
  return kInvalidValue;
}
SIMULATE(cuDeviceGetName, hipDeviceGetName, (char* name, int bytes, int)) {
  FAIL_IF_TOLD(cuDeviceGetName, hipDeviceGetName);
  std::snprintf(name, static_cast<size_t>(bytes), "simulated, not a GPU");
  return 0;
}
SIMULATE(cuDeviceGetUuid_v2, hipDeviceGetUuid, (char* uuid, int device)) {
  const int number = visible()[static_cast<size_t>(device)];
#if defined(SIMULATE_HIP)
  char text[17];
  std::snprintf(text, sizeof text, "5131000000000%03x", static_cast<unsigned>(number));
  std::memcpy(uuid, text, 16);
#else
  std::memset(uuid, 0, 16);
  uuid[0] = 0x51;
  uuid[15] = static_cast<char>(number);
#endif
  return 0;
}
SIMULATE(cuDeviceTotalMem_v2, hipDeviceTotalMem, (size_t * bytes, int)) {
  *bytes = number_of("SIMULATED_MEMORY", size_t{4} << 30);
  return 0;
}
SIMULATE(cuMemGetInfo_v2, hipMemGetInfo, (size_t * available, size_t* all)) {
  std::lock_guard lock(mutex);
  *available = free_bytes(current_device);
  *all = number_of("SIMULATED_MEMORY", size_t{4} << 30);
  return 0;
}
SIMULATE(cuDeviceCanAccessPeer, hipDeviceCanAccessPeer, (int* can, int, int)) {
  *can = number_of("SIMULATED_PEER_ACCESS", 1) != 0 ? 1 : 0;
  return 0;
}
SIMULATE(cuMemAlloc_v2, hipMalloc, (uint64_t * address, size_t bytes)) {
  FAIL_IF_TOLD(cuMemAlloc_v2, hipMalloc);
  return allocate(address, bytes);
}
SIMULATE(cuMemFree_v2, hipFree, (uint64_t address)) { return release(address, false); }
SIMULATE(cuMemGetAddressRange_v2, hipMemGetAddressRange,
         (uint64_t * base, size_t* bytes, uint64_t address)) {
  FAIL_IF_TOLD(cuMemGetAddressRange_v2, hipMemGetAddressRange);
  std::lock_guard lock(mutex);
  auto found = memory.upper_bound(address);
  if (found == memory.begin()) return kInvalidValue;
  --found;
  if (address - found->first >= found->second.bytes) return kInvalidValue;
  *base = found->first;
  *bytes = found->second.bytes;
  return 0;
}

int users_doubling;  // its address stands for a user's module and for the kernel in it

// Copies to the device that their caller takes for done: on a real device a short piece of pageable
// memory may still be on its way, and streams do not wait for it. Here it always is, until the
// default stream is waited for or has something else to do.
std::mutex on_the_way_mutex;
std::vector<Work> on_the_way;

void let_copies_end() {
  const std::lock_guard<std::mutex> lock(on_the_way_mutex);
  for (const Work& copy : on_the_way) copy();
  on_the_way.clear();
}

SIMULATE(cuMemsetD8_v2, hipMemsetD8, (uint64_t address, unsigned char value, size_t bytes)) {
  FAIL_IF_TOLD(cuMemsetD8_v2, hipMemsetD8);
  let_copies_end();
  std::memset(reinterpret_cast<void*>(address), value, bytes);
  return 0;
}
SIMULATE(cuMemcpyHtoD_v2, hipMemcpyHtoD, (uint64_t to, const void* from, size_t bytes)) {
  FAIL_IF_TOLD(cuMemcpyHtoD_v2, hipMemcpyHtoD);
  let_copies_end();
  const auto* first = static_cast<const uint8_t*>(from);
  const std::lock_guard<std::mutex> lock(on_the_way_mutex);
  on_the_way.push_back([to, piece = std::vector<uint8_t>(first, first + bytes)] {
    std::memcpy(reinterpret_cast<void*>(to), piece.data(), piece.size());
  });
  return 0;
}
SIMULATE(cuMemcpyDtoH_v2, hipMemcpyDtoH, (void* to, uint64_t from, size_t bytes)) {
  FAIL_IF_TOLD(cuMemcpyDtoH_v2, hipMemcpyDtoH);
  let_copies_end();
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return 0;
}
SIMULATE(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync,
         (uint64_t to, const void* from, size_t bytes, void* stream)) {
  FAIL_IF_TOLD(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync);
  submit(stream, [=] { std::memcpy(reinterpret_cast<void*>(to), from, bytes); });
  return 0;
}
SIMULATE(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync,
         (void* to, uint64_t from, size_t bytes, void* stream)) {
  FAIL_IF_TOLD(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync);
  submit(stream, [=] { std::memcpy(to, reinterpret_cast<const void*>(from), bytes); });
  return 0;
}
// What users' own code calls; the backend never does.
SIMULATE(cuMemAllocAsync, hipMallocAsync, (uint64_t * address, size_t bytes, void*)) {
  return allocate(address, bytes, true);
}
SIMULATE(cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync,
         (uint64_t to, uint64_t from, size_t bytes, void* stream)) {
  submit(stream, [=] {
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  });
  return 0;
}
SIMULATE(cuMemsetD32Async, hipMemsetD32Async,
         (uint64_t address, unsigned value, size_t count, void* stream)) {
  submit(stream, [=] { std::fill_n(reinterpret_cast<unsigned*>(address), count, value); });
  return 0;
}
SIMULATE(cuMemHostAlloc, hipHostMalloc, (void** memory, size_t bytes, unsigned)) {
  FAIL_IF_TOLD(cuMemHostAlloc, hipHostMalloc);
  *memory = std::malloc(bytes);
  return *memory != nullptr ? 0 : kOutOfMemory;
}
SIMULATE(cuMemFreeHost, hipHostFree, (void* memory)) {
  std::free(memory);
  return 0;
}
SIMULATE(cuMemHostRegister_v2, hipHostRegister, (void*, size_t, unsigned)) {
  FAIL_IF_TOLD(cuMemHostRegister_v2, hipHostRegister);
  return 0;
}
SIMULATE(cuMemHostUnregister, hipHostUnregister, (void*)) { return 0; }
SIMULATE(cuMemHostGetDevicePointer_v2, hipHostGetDevicePointer,
         (uint64_t * device, void* host, unsigned)) {
  FAIL_IF_TOLD(cuMemHostGetDevicePointer_v2, hipHostGetDevicePointer);
  *device = reinterpret_cast<uint64_t>(host);
  return 0;
}
SIMULATE(cuIpcGetMemHandle, hipIpcGetMemHandle, (IpcHandle * handle, uint64_t address)) {
  FAIL_IF_TOLD(cuIpcGetMemHandle, hipIpcGetMemHandle);
  std::lock_guard lock(mutex);
  const auto found = memory.find(address);
  if (found == memory.end() || found->second.pooled) return kInvalidValue;
  *handle = {};
  std::snprintf(handle->bytes, sizeof handle->bytes, "%d %d %zu %llu", getpid(), found->second.file,
                found->second.bytes, found->second.identity);
  return 0;
}
SIMULATE(cuIpcOpenMemHandle_v2, hipIpcOpenMemHandle,
         (uint64_t * address, IpcHandle handle, unsigned)) {
  FAIL_IF_TOLD(cuIpcOpenMemHandle_v2, hipIpcOpenMemHandle);
  int pid = 0, theirs = 0;
  size_t bytes = 0;
  if (std::sscanf(handle.bytes, "%d %d %zu", &pid, &theirs, &bytes) != 3) return kInvalidValue;
  if (pid == getpid()) return kOwnHandle;  // as the real ones do
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, theirs);
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return kInvalidValue;
  *address = map_file(file, bytes);
  std::lock_guard lock(mutex);
  memory[*address] = {bytes, file, 0, true, current_device, false};
  return *address != 0 ? 0 : kOutOfMemory;
}
SIMULATE(cuIpcCloseMemHandle, hipIpcCloseMemHandle, (uint64_t address)) {
  return release(address, true);
}
SIMULATE(cuStreamCreate, hipStreamCreateWithFlags, (void** stream, unsigned)) {
  FAIL_IF_TOLD(cuStreamCreate, hipStreamCreateWithFlags);
  *stream = new Stream();
  return 0;
}
SIMULATE(cuStreamDestroy_v2, hipStreamDestroy, (void* stream)) {
  delete stream_of(stream);
  return 0;
}
SIMULATE(cuStreamQuery, hipStreamQuery, (void* stream)) {
  FAIL_IF_TOLD(cuStreamQuery, hipStreamQuery);
  return stream_of(stream)->idle() ? 0 : kNotReadyYet;
}
SIMULATE(cuStreamSynchronize, hipStreamSynchronize, (void* stream)) {
  FAIL_IF_TOLD(cuStreamSynchronize, hipStreamSynchronize);
  if (stream != nullptr) {
    stream_of(stream)->synchronize();
  } else {
    let_copies_end();
  }
  return 0;
}
SIMULATE(cuStreamBeginCapture_v2, hipStreamBeginCapture, (void* stream, int)) {
  FAIL_IF_TOLD(cuStreamBeginCapture_v2, hipStreamBeginCapture);
  stream_of(stream)->captured = std::make_unique<std::vector<Work>>();
  return 0;
}
SIMULATE(cuStreamEndCapture, hipStreamEndCapture, (void* stream, void** graph)) {
  // The stream leaves the capture mode even if this call fails.
  std::vector<Work>* captured = stream_of(stream)->captured.release();
  const auto failed = [&]() -> int {
    FAIL_IF_TOLD(cuStreamEndCapture, hipStreamEndCapture);
    return 0;
  }();
  if (failed != 0) delete captured;
  *graph = failed != 0 ? nullptr : captured;
  return failed;
}
SIMULATE(cuEventCreate, hipEventCreateWithFlags, (void** event, unsigned)) {
  *event = new Event();
  return 0;
}
SIMULATE(cuEventDestroy_v2, hipEventDestroy, (void* event)) {
  delete static_cast<Event*>(event);
  return 0;
}
SIMULATE(cuEventRecord, hipEventRecord, (void* handle, void* stream)) {
  auto* event = static_cast<Event*>(handle);
  const uint64_t number = ++event->recorded;
  submit(stream, [event, number] { event->reached = number; });
  return 0;
}
SIMULATE(cuStreamWaitEvent, hipStreamWaitEvent, (void* stream, void* handle, unsigned)) {
  auto* event = static_cast<Event*>(handle);
  const uint64_t number = event->recorded;
  submit(stream, [event, number] {
    while (event->reached < number) sched_yield();
  });
  return 0;
}
SIMULATE(cuEventQuery, hipEventQuery, (void* handle)) {
  FAIL_IF_TOLD(cuEventQuery, hipEventQuery);
  const auto* event = static_cast<Event*>(handle);
  return event->reached >= event->recorded ? 0 : kNotReadyYet;
}
SIMULATE(cuEventSynchronize, hipEventSynchronize, (void* handle)) {
  auto* event = static_cast<Event*>(handle);
  while (event->reached < event->recorded) sched_yield();
  return 0;
}
SIMULATE(cuEventElapsedTime, hipEventElapsedTime, (float* ms, void*, void*)) {
  *ms = 0;  // a simulation has no time
  return 0;
}
SIMULATE(cuModuleLoadDataEx, hipModuleLoadDataEx,
         (void** module, const void*, unsigned, int*, void**)) {
  FAIL_IF_TOLD(cuModuleLoadDataEx, hipModuleLoadDataEx);
  static int anything;
  *module = &anything;
  return 0;
}
// A user's module: of the one kernel that the tests bring, whatever is in it.
SIMULATE(cuModuleLoadData, hipModuleLoadData, (void** module, const void*)) {
  *module = &users_doubling;
  return 0;
}
SIMULATE(cuModuleUnload, hipModuleUnload, (void*)) { return 0; }
SIMULATE(cuModuleGetFunction, hipModuleGetFunction,
         (void** function, void* module, const char* name)) {
  FAIL_IF_TOLD(cuModuleGetFunction, hipModuleGetFunction);
  if (module == &users_doubling) {
    *function = module;
    return 0;
  }
  const cpu::Kernel kernel = cpu::find_kernel(name);
  std::memcpy(function, &kernel, sizeof kernel);
  return kernel != nullptr ? 0 : kNotFound;
}
SIMULATE(cuOccupancyMaxActiveBlocksPerMultiprocessor,
         hipModuleOccupancyMaxActiveBlocksPerMultiprocessor, (int* blocks, void*, int, size_t)) {
  *blocks = 1;
  return 0;
}
SIMULATE(cuLaunchKernel, hipModuleLaunchKernel,
         (void* function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned,
          unsigned, void* stream, void** arguments, void**)) {
  FAIL_IF_TOLD(cuLaunchKernel, hipModuleLaunchKernel);
  if (function == &users_doubling) {
    auto* values = *static_cast<float**>(arguments[0]);
    const auto count = *static_cast<uint32_t*>(arguments[1]);
    submit(stream, [=] { std::for_each_n(values, count, [](float& value) { value *= 2; }); });
    return 0;
  }
  if (threads != kBlockThreads || blocks > unsigned{kMultiprocessors}) return kInvalidValue;
  cpu::Kernel kernel = nullptr;
  std::memcpy(&kernel, &function, sizeof kernel);
  {
    std::lock_guard lock(mutex);
    launches[kernel]++;
  }
  Launch launch;
  std::memcpy(&launch, arguments[0], sizeof launch);
  Stream* s = stream_of(stream);
  submit(stream, [s, kernel, launch, blocks] { s->launch(kernel, launch, blocks); });
  return 0;
}
SIMULATE(cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags,
         (void** executable, void* graph, unsigned long long)) {
  FAIL_IF_TOLD(cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags);
  *executable = new std::vector<Work>(*static_cast<std::vector<Work>*>(graph));
  return 0;
}
SIMULATE(cuGraphLaunch, hipGraphLaunch, (void* executable, void* stream)) {
  FAIL_IF_TOLD(cuGraphLaunch, hipGraphLaunch);
  for (const Work& work : *static_cast<std::vector<Work>*>(executable)) submit(stream, work);
  return 0;
}
SIMULATE(cuGraphExecDestroy, hipGraphExecDestroy, (void* executable)) {
  delete static_cast<std::vector<Work>*>(executable);
  return 0;
}
SIMULATE(cuGraphDestroy, hipGraphDestroy, (void* graph)) {
  delete static_cast<std::vector<Work>*>(graph);
  return 0;
}

SIMULATE(cuPointerGetAttribute, hipPointerGetAttribute,
         (void* value, int attribute, uint64_t address)) {
  std::lock_guard lock(mutex);
  auto found = memory.upper_bound(address);
  if (found == memory.begin()) return kInvalidValue;
  --found;
  const Memory& m = found->second;
  if (address - found->first >= m.bytes) return kInvalidValue;
  const int number = attribute == 9 ? m.device : m.pooled ? 0 : 1;
  if (attribute == 7) {
    std::memcpy(value, &m.identity, 8);
  } else {
    std::memcpy(value, &number, 4);
  }
  return 0;
}

// What only one vendor has.
#if defined(SIMULATE_HIP)
EXPORTED int hipSetDevice(int device) {
  if (device >= devices()) return kInvalidValue;
  if (const int error = told.fails("hipSetDevice", device)) return error;
  current_device = device;
  return 0;
}
EXPORTED int hipDeviceEnablePeerAccess(int, unsigned) {
  FAIL_IF_TOLD(hipDeviceEnablePeerAccess, hipDeviceEnablePeerAccess);
  return 0;
}
EXPORTED const char* hipGetErrorString(int) { return "simulated error"; }
EXPORTED int hipExtMallocWithFlags(uint64_t* address, size_t bytes, unsigned flags) {
  FAIL_IF_TOLD(hipExtMallocWithFlags, hipExtMallocWithFlags);
  if (flags == 3) return kInvalidValue;  // as before ROCm 5.7: fine-grained is the fallback
  return allocate(address, bytes);
}
EXPORTED int hipStreamGetDevice(void* stream, int* device) {
  *device = stream_of(stream)->device;
  return 0;
}
#else
EXPORTED int cuDevicePrimaryCtxRetain(void** context, int device) {
  if (device >= devices()) return kInvalidValue;
  *context = &contexts[device];
  return told.fails("cuDevicePrimaryCtxRetain", device);
}
EXPORTED int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
EXPORTED int cuCtxSetCurrent(void* context) {
  FAIL_IF_TOLD(cuCtxSetCurrent, cuCtxSetCurrent);
  if (context != nullptr) current_device = static_cast<int>(static_cast<int*>(context) - contexts);
  return 0;
}
EXPORTED int cuCtxEnablePeerAccess(void*, unsigned) {
  FAIL_IF_TOLD(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess);
  return 0;
}
EXPORTED int cuGetErrorString(int, const char** text) {
  *text = "simulated error";
  return 0;
}
// A launch like the others, and told to fail as they are: a simulated kernel begins when the one
// before it on the stream has ended.
EXPORTED int cuLaunchKernelEx(const CudaLaunch* launch, void* function, void** arguments,
                              void** more) {
  const CudaLaunch& l = *launch;
  if (l.attribute_count != 1 || l.attributes[0].name != kCudaOverlapWithEnd) return kInvalidValue;
  {
    std::lock_guard lock(mutex);
    overlapping_launches++;
  }
  return cuLaunchKernel(function, l.grid[0], 1, 1, l.block[0], 1, 1, 0, l.stream, arguments, more);
}
EXPORTED int cuStreamGetCtx(void* stream, void** context) {
  *context = &contexts[stream_of(stream)->device];
  return 0;
}
#endif
