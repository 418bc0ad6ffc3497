// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// simulated_device.hpp: NOT A GPU. The devices of simulated_driver.cpp, their memory (memory files
// that other processes can map), and what is to fail.
#ifndef SPARK_ALLREDUCE_TESTS_GPU_SIMULATED_DEVICE_HPP
#define SPARK_ALLREDUCE_TESTS_GPU_SIMULATED_DEVICE_HPP

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "../../gpu/driver.hpp"

#if defined(SIMULATE_HIP)
#define NAME(cuda, hip) hip
#else
#define NAME(cuda, hip) cuda
#endif
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

namespace {

using namespace sar::gpu;

constexpr int kInvalidValue = 1, kOutOfMemory = 2, kOwnHandle = 201, kNotFound = 500,
              kNotReadyYet = 600;
constexpr int kMultiprocessors = 4;

constexpr int kMostDevices = 16;
[[maybe_unused]] int contexts[kMostDevices];  // their addresses stand for CUDA contexts
thread_local int current_device = 0;

// What is to fail; changed by tests while other threads call.
struct Told {
  std::mutex mutex;
  std::string call;
  int device = -1, error = 0, from = 1, calls = 0;

  Told() { tell(std::getenv("SIMULATED_FAIL")); }
  void tell(const char* text) {
    std::lock_guard lock(mutex);
    call.clear();
    device = -1, error = 0, from = 1, calls = 0;
    char name[64] = {};
    if (text == nullptr || std::sscanf(text, "%63[^:@]", name) != 1) return;
    const char* rest = text + std::strlen(name);
    if (*rest == '@')
      device = static_cast<int>(std::strtol(rest + 1, const_cast<char**>(&rest), 10));
    if (std::sscanf(rest, ":%d:%d", &error, &from) >= 1) call = name;
  }
  int fails(const char* name, int on) {
    std::lock_guard lock(mutex);
    if (call != name || (device >= 0 && device != on)) return 0;
    return ++calls >= from ? error : 0;
  }
};
Told told;

int told_to_fail(const char* name) { return told.fails(name, current_device); }

size_t number_of(const char* variable, size_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

// The machine's numbers of the devices that this process may see.
const std::vector<int>& visible() {
  static const std::vector<int> devices = [] {
    const int all = static_cast<int>(number_of("SIMULATED_DEVICES", 1));
    std::vector<int> result;
    const char* list = std::getenv(TEXT(NAME(CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES)));
    if (list == nullptr) {
      for (int d = 0; d < all; ++d) result.push_back(d);
      return result;
    }
    while (*list >= '0' && *list <= '9') {
      char* end = nullptr;
      const int device = static_cast<int>(std::strtol(list, &end, 10));
      if (device >= all) break;
      result.push_back(device);
      list = *end == ',' ? end + 1 : end;
    }
    return result;
  }();
  return devices;
}
int devices() { return static_cast<int>(visible().size()); }

struct Memory {
  size_t bytes;
  int file;
  unsigned long long identity;
  bool opened;
  int device;
  bool pooled;
};

std::mutex mutex;
std::map<uint64_t, Memory> memory;
unsigned long long next_identity = 1;

uint64_t map_file(int file, size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return at == MAP_FAILED ? 0 : reinterpret_cast<uint64_t>(at);
}

// Under the lock.
size_t free_bytes(int device) {
  size_t used = 0;
  for (const auto& [address, m] : memory) used += !m.opened && m.device == device ? m.bytes : 0;
  const size_t all = number_of("SIMULATED_MEMORY", size_t{4} << 30);
  return used < all ? all - used : 0;
}

int allocate(uint64_t* address, size_t bytes, bool pooled = false) {
  {
    std::lock_guard lock(mutex);
    if (bytes > free_bytes(current_device)) return kOutOfMemory;
  }
  const int file = memfd_create("simulated-gpu", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return kOutOfMemory;
  const uint64_t at = map_file(file, bytes);
  if (at == 0) return kOutOfMemory;
  std::lock_guard lock(mutex);
  memory[at] = {bytes, file, next_identity++, false, current_device, pooled};
  *address = at;
  return 0;
}

int release(uint64_t address, bool opened) {
  std::lock_guard lock(mutex);
  const auto found = memory.find(address);
  if (found == memory.end() || found->second.opened != opened) return kInvalidValue;
  munmap(reinterpret_cast<void*>(address), found->second.bytes);
  if (found->second.file >= 0) close(found->second.file);
  memory.erase(found);
  return 0;
}

}  // namespace

#endif
