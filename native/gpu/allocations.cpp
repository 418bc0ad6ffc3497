// Licensed under the Apache License, Version 2.0. See LICENSE.
#include "allocations.hpp"

#include <stdlib.h>
#include <string.h>

#include "system.hpp"

namespace sar::gpu {
namespace {

struct Mapping {
  IpcHandle handle;
  uint64_t address;
  uint32_t users;
};

// More peers' allocations than this in one process: 16 ranks with 64 each.
constexpr uint32_t kMostMappings = 1024;
constexpr int kOutOfMemory = 2;  // both vendors

struct Published {
  const void *segment;
  uint32_t index;
  int device;
  Allocation allocation;
  Published *next;
};

struct Registry {
  Mutex mutex;
  Mapping mappings[kMostMappings] = {};
  uint32_t count = 0;
  Published *published = nullptr;
};
constinit Registry registry;

}  // namespace

int describe(const Driver &driver, uint64_t address, Allocation &allocation) {
  size_t bytes = 0;
  int error = driver.memory_range(&allocation.base, &bytes, address);
  if (error != 0) return error;
  allocation.bytes = bytes;
  allocation.identity = driver.allocation_identity(allocation.base);
  return driver.ipc_export(&allocation.handle, allocation.base);
}

bool is_alive(const Driver &driver, const Allocation &allocation) {
  uint64_t base = 0;
  size_t bytes = 0;
  return driver.memory_range(&base, &bytes, allocation.base) == 0 && base == allocation.base &&
         bytes == allocation.bytes && driver.allocation_identity(base) == allocation.identity;
}

bool publish(const void *segment, uint32_t index, int device, const Allocation &allocation) {
  auto *added = static_cast<Published *>(malloc(sizeof(Published)));
  if (added == nullptr) return false;
  LockGuard lock(registry.mutex);
  *added = {segment, index, device, allocation, registry.published};
  registry.published = added;
  return true;
}

bool find_published(const void *segment, uint32_t index, int *device, Allocation *allocation) {
  LockGuard lock(registry.mutex);
  for (const Published *p = registry.published; p != nullptr; p = p->next) {
    if (p->segment != segment || p->index != index) continue;
    *device = p->device;
    *allocation = p->allocation;
    return true;
  }
  return false;
}

void unpublish(const void *segment, uint32_t first) {
  LockGuard lock(registry.mutex);
  for (Published **at = &registry.published; *at != nullptr;) {
    Published *p = *at;
    if (p->segment != segment || p->index < first) {
      at = &p->next;
      continue;
    }
    *at = p->next;
    free(p);
  }
}

int open_shared(const Driver &driver, const Allocation &allocation, uint64_t *address) {
  LockGuard lock(registry.mutex);
  Mapping *unused = nullptr;
  for (uint32_t i = 0; i < registry.count; ++i) {
    Mapping &m = registry.mappings[i];
    if (m.users == 0) {
      unused = &m;
    } else if (memcmp(&m.handle, &allocation.handle, sizeof m.handle) == 0) {
      ++m.users;
      *address = m.address;
      return 0;
    }
  }
  if (unused == nullptr) {
    if (registry.count == kMostMappings) return kOutOfMemory;
    unused = &registry.mappings[registry.count++];
  }
  const int error = driver.open_ipc(address, allocation.handle);
  *unused = error == 0 ? Mapping{allocation.handle, *address, 1} : Mapping{};
  return error;
}

void close_shared(const Driver &driver, uint64_t address) {
  LockGuard lock(registry.mutex);
  for (uint32_t i = 0; i < registry.count; ++i) {
    Mapping &m = registry.mappings[i];
    if (m.users == 0 || m.address != address) continue;
    if (--m.users == 0) driver.ipc_close(address);
    return;
  }
}

}  // namespace sar::gpu
