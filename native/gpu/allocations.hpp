// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// allocations.hpp: device memory that ranks share: what is exchanged about it, and peers' memory
// opened once per process.
#ifndef SPARK_ALLREDUCE_GPU_ALLOCATIONS_HPP
#define SPARK_ALLREDUCE_GPU_ALLOCATIONS_HPP

#include <stdint.h>

#include "driver.hpp"

namespace sar::gpu {

// A whole allocation of one rank, as its peers need to know it. An IPC handle covers all of it.
struct Allocation {
  uint64_t base;  // in the owner's process
  uint64_t bytes;
  uint64_t identity;  // tells a later allocation at the same address from this one; 0: unknown
  IpcHandle handle;
};

// Describes the allocation that `address` lies in. 0 or a driver error.
int describe(const Driver &driver, uint64_t address, Allocation &allocation);
// True if the allocation is still what it was.
bool is_alive(const Driver &driver, const Allocation &allocation);

// What a rank has shared, for the other ranks of its process, which take it as it is: so they must
// not read it where other processes can write. `segment` is the rank's control segment, `index` the
// number of the allocation. publish is false if there is no heap memory.
bool publish(const void *segment, uint32_t index, int device, const Allocation &allocation);
bool find_published(const void *segment, uint32_t index, int *device, Allocation *allocation);
// Takes back those from number `first` on.
void unpublish(const void *segment, uint32_t first);

// Opens a peer's allocation, or shares in the mapping that this process has already.
int open_shared(const Driver &driver, const Allocation &allocation, uint64_t *address);
void close_shared(const Driver &driver, uint64_t address);

}  // namespace sar::gpu

#endif
