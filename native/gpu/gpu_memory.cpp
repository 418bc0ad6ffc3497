// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Which memory of a rank its peers can reach, and how.
#include "gpu_communicator.hpp"

namespace sar::gpu {

bool GpuCommunicator::is_same_process(uint32_t rank) const {
  const sar::Header &mine = header_of(control_.segment(geometry_.rank));
  const sar::Header &theirs = header_of(control_.segment(rank));
  return theirs.pid == mine.pid && theirs.start_time == mine.start_time &&
         theirs.pid_namespace == mine.pid_namespace;
}

// Makes a peer's allocation usable by this rank's device. 0 or a driver error.
int GpuCommunicator::reach(uint32_t rank, uint32_t a) {
  const Allocation &allocation = control_of(rank).allocation[a];
  if (!is_same_process(rank)) {
    const int error = open_shared(driver_, allocation, &mapped_[rank][a]);
    opened_[rank][a] = error == 0;
    return error;
  }
  // A process cannot open its own handle, and need not: the pointer serves. But one device reaches
  // another's memory only once it has been told to.
  const auto ordinal = static_cast<int>(control_of(rank).ordinal);
  const int error = ordinal == device_ ? 0 : driver_.enable_peer(ordinal);
  if (error == 0) mapped_[rank][a] = allocation.base;
  return error;
}

sar_status GpuCommunicator::map_peer_memory(uint32_t rank, uint32_t a) {
  const int error = reach(rank, a);
  if (error == 0) return SAR_OK;
  return refuse(
      SAR_SYSTEM_ERROR,
      "rank %u on device %s cannot open the memory of rank %u on device %s: %s (driver error %d); "
      "both must run on one host, in one container's PID and IPC namespaces, on devices that reach "
      "each other, and the memory must not come from a virtual-memory pool",
      geometry_.rank, control_of(geometry_.rank).device, rank, control_of(rank).device,
      driver_.error_text(error), error);
}

sar_status GpuCommunicator::map_new_memory() {
  for (uint32_t r = 0; r < geometry_.world; ++r) {
    const uint32_t count = control_of(r).allocations;
    for (uint32_t a = 0; a < count && a < kMostAllocations; ++a) {
      if (mapped_[r][a] != 0) continue;
      if (const sar_status status = map_peer_memory(r, a); status != SAR_OK) return status;
    }
  }
  for (uint32_t r = 0; r < geometry_.world; ++r) known_[r] = control_of(r).allocations;
  return SAR_OK;
}

// Nobody keeps what only some could share.
void GpuCommunicator::forget_new_memory() {
  for (uint32_t r = 0; r < geometry_.world; ++r) {
    for (uint32_t a = known_[r]; a < kMostAllocations; ++a) unmap(r, a);
  }
  control_of(geometry_.rank).allocations = known_[geometry_.rank];
}

void GpuCommunicator::unmap(uint32_t rank, uint32_t a) {
  if (opened_[rank][a]) close_shared(driver_, mapped_[rank][a]);
  opened_[rank][a] = false;
  mapped_[rank][a] = 0;
}

GpuCommunicator::Place GpuCommunicator::find_place(uint64_t address, uint64_t bytes) const {
  const Control &mine = control_of(geometry_.rank);
  for (uint32_t a = kArena; a < mine.allocations; ++a) {
    const Allocation &allocation = mine.allocation[a];
    if (address >= allocation.base && bytes <= allocation.bytes &&
        address - allocation.base <= allocation.bytes - bytes) {
      return {a, address - allocation.base};
    }
  }
  return {};
}

sar_status GpuCommunicator::add_allocation(uint64_t address, uint32_t *index) {
  Control &mine = control_of(geometry_.rank);
  if (mine.allocations == kMostAllocations) {
    return refuse(SAR_UNSUPPORTED,
                  "rank %u has %u registered allocations already: take buffers from the arena, or "
                  "from fewer allocations",
                  geometry_.rank, kMostAllocations);
  }
  Allocation &added = mine.allocation[mine.allocations];
  if (const int error = describe(driver_, address, added); error != 0) {
    if (driver_.is_never_exported(address)) {
      return refuse(SAR_UNSUPPORTED,
                    "rank %u cannot share the memory at %#llx: it comes from a virtual-memory pool "
                    "(cudaMallocAsync, hipMallocAsync, expandable segments), which has no handle "
                    "for other processes; allocate it with cudaMalloc or hipMalloc",
                    geometry_.rank, static_cast<unsigned long long>(address));
    }
    return driver_failure(error,
                          "export a buffer to other processes (memory from a virtual-memory "
                          "pool cannot be exported)");
  }
  mapped_[geometry_.rank][mine.allocations] = added.base;
  *index = mine.allocations++;
  return SAR_OK;
}

uint64_t GpuCommunicator::address_of(uint32_t rank, uint32_t allocation, uint64_t offset) const {
  return allocation < kMostAllocations ? mapped_[rank][allocation] + offset : 0;
}

// Memory that the caller brings: on this device, and within its allocation.
sar_status GpuCommunicator::check_foreign(uint64_t address, uint64_t bytes) const {
  const auto at = static_cast<unsigned long long>(address);
  uint64_t base = 0;
  size_t size = 0;
  if (driver_.memory_range(&base, &size, address) != 0) {
    return refuse(SAR_INVALID_ARGUMENT,
                  "rank %u: the address %#llx is in no device memory that this process has "
                  "allocated",
                  geometry_.rank, at);
  }
  const uint64_t left = size - (address - base);
  if (bytes > left) {
    return refuse(
        SAR_INVALID_ARGUMENT,
        "rank %u: a buffer of %llu bytes at %#llx is longer than its allocation, of which "
        "%llu bytes follow",
        geometry_.rank, static_cast<unsigned long long>(bytes), at,
        static_cast<unsigned long long>(left));
  }
  if (const int device = driver_.device_of(address); device >= 0 && device != device_) {
    return refuse(SAR_INVALID_ARGUMENT,
                  "rank %u: the memory at %#llx is on device %d, but the rank uses device %d (%s)",
                  geometry_.rank, at, device, device_, control_of(geometry_.rank).device);
  }
  return SAR_OK;
}

sar_status GpuCommunicator::register_memory(uint64_t address, uint64_t bytes, int64_t timeout_ns) {
  if (const sar_status status = check_ready(SAR_COLLECTIVE_REGISTER, "sar_gpu_register");
      status != SAR_OK) {
    return status;
  }
  if (const int error = use_device(); error != 0) return driver_failure(error, "use the device");
  control_.begin(SAR_COLLECTIVE_BARRIER, timeout_ns);
  const sar_status status = share(address, bytes);
  control_.end_uncounted();
  return status;
}

// All ranks share their buffers, or none does.
sar_status GpuCommunicator::share(uint64_t address, uint64_t bytes) {
  const Control &mine = control_of(geometry_.rank);
  sar_status own = check_foreign(address, bytes);
  uint32_t index = find_place(address, 1).allocation;
  if (own == SAR_OK && index == kMostAllocations) {
    own = add_allocation(address, &index);
  } else if (own == SAR_OK && !is_alive(driver_, mine.allocation[index])) {
    own =
        refuse(SAR_INVALID_ARGUMENT,
               "rank %u: the allocation at %#llx was registered, freed, and allocated again; keep "
               "what is registered until the communicator is closed",
               geometry_.rank, static_cast<unsigned long long>(mine.allocation[index].base));
  }
  announce(own);
  const CallFields fields{bytes, bytes,           0, 0, SAR_COLLECTIVE_BARRIER, 0,
                          0,     kRegisterMarker, 0, 0, control_.epoch()};
  CallFields all[SAR_MAX_RANKS];
  sar_status status = control_.arrive(fields, all);
  if (status == SAR_OK) status = compare(all, "sar_gpu_register");
  if (status != SAR_OK) return status;
  status = verdict();
  if (status == SAR_OK) {
    announce(map_new_memory());
    if (const sar_status s = control_.step(); s != SAR_OK) return s;
    status = verdict();
  }
  if (status != SAR_OK) forget_new_memory();
  // Behind it the counts may change again.
  const sar_status last = control_.step();
  return last == SAR_OK ? status : last;
}

}  // namespace sar::gpu
