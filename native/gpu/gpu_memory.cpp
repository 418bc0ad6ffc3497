// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Which memory of a rank its peers can reach, and how.
#include <string.h>

#include "gpu_communicator.hpp"

namespace sar::gpu {
namespace {

constexpr int kNoSuchMemory = 1;  // "invalid value", both vendors

}  // namespace

// By the handle, which was checked when it came; the segments' headers may change.
bool GpuCommunicator::is_same_process(uint32_t rank) const {
  const sar::Handle &mine = control_.handle(), &theirs = control_.handle_of(rank);
  return theirs.pid == mine.pid && theirs.start_time == mine.start_time &&
         theirs.pid_namespace == mine.pid_namespace;
}

// An allocation of this rank, which its peers may open from the next barrier on.
sar_status GpuCommunicator::note_allocation(uint32_t index, const Allocation &allocation) {
  const char *segment = control_.segment(geometry_.rank);
  if (!publish(segment, index, device_, allocation)) {
    return refuse(SAR_OUT_OF_MEMORY, "out of heap memory");
  }
  Control &control = control_of(geometry_.rank);
  allocations_[geometry_.rank][index] = allocation;
  mapped_[geometry_.rank][index] = allocation.base;
  own_allocations_ = index + 1;
  control.allocation[index] = allocation;
  control.allocations = own_allocations_;
  return SAR_OK;
}

// Makes a peer's allocation usable by this rank's device. 0 or a driver error.
int GpuCommunicator::reach(uint32_t rank, uint32_t a) {
  Allocation &allocation = allocations_[rank][a];
  if (!is_same_process(rank)) {
    memcpy(&allocation, &control_of(rank).allocation[a], sizeof allocation);
    __asm__ volatile("" ::: "memory");  // what is checked is what is used
    const int error = open_shared(driver_, allocation, &mapped_[rank][a]);
    opened_[rank][a] = error == 0;
    return error;
  }
  // A process cannot open its own handle, and need not: the pointer serves. But one device reaches
  // another's memory only once it has been told to.
  int ordinal = 0;
  if (!find_published(control_.segment(rank), a, &ordinal, &allocation)) return kNoSuchMemory;
  const int error = ordinal == device_ ? 0 : driver_.enable_peer(ordinal);
  if (error == 0) mapped_[rank][a] = allocation.base;
  return error;
}

// Whether a rank has shared what it says. A driver that does not tell is taken at the rank's word.
bool GpuCommunicator::is_large_enough(uint32_t rank, uint32_t a) const {
  const uint64_t needed[] = {sizeof(Pad), staging_bytes_, arena_bytes_};
  const uint64_t at = mapped_[rank][a], announced = allocations_[rank][a].bytes;
  if (a <= kArena && announced < needed[a]) return false;
  uint64_t base = 0;
  size_t bytes = 0;
  return driver_.memory_range(&base, &bytes, at) != 0 || announced <= bytes - (at - base);
}

sar_status GpuCommunicator::map_peer_memory(uint32_t rank, uint32_t a) {
  const int error = reach(rank, a);
  if (error == 0 && is_large_enough(rank, a)) return SAR_OK;
  if (error == 0) {
    unmap(rank, a);
    return refuse(SAR_SYSTEM_ERROR,
                  "rank %u announced memory that is larger than what it has shared, or too small: "
                  "another process has written into shared memory",
                  rank);
  }
  return refuse(
      SAR_SYSTEM_ERROR,
      "rank %u on device %s cannot open the memory of rank %u on device %s: %s (driver error %d); "
      "both must run on one host, in one container's PID and IPC namespaces, on devices that reach "
      "each other, and the memory must not come from a virtual-memory pool",
      geometry_.rank, device_of(geometry_.rank), rank, device_of(rank), driver_.error_text(error),
      error);
}

sar_status GpuCommunicator::map_new_memory() {
  uint32_t counts[SAR_MAX_RANKS];
  for (uint32_t r = 0; r < geometry_.world; ++r) {
    const uint32_t announced = __atomic_load_n(&control_of(r).allocations, __ATOMIC_RELAXED);
    counts[r] = r == geometry_.rank            ? own_allocations_
                : announced < kMostAllocations ? announced
                                               : kMostAllocations;
    for (uint32_t a = 0; a < counts[r]; ++a) {
      if (mapped_[r][a] != 0) continue;
      if (const sar_status status = map_peer_memory(r, a); status != SAR_OK) return status;
    }
  }
  memcpy(known_, counts, geometry_.world * sizeof *counts);
  return SAR_OK;
}

// Nobody keeps what only some could share.
void GpuCommunicator::forget_new_memory() {
  for (uint32_t r = 0; r < geometry_.world; ++r) {
    for (uint32_t a = known_[r]; a < kMostAllocations; ++a) unmap(r, a);
  }
  own_allocations_ = known_[geometry_.rank];
  unpublish(control_.segment(geometry_.rank), own_allocations_);
  control_of(geometry_.rank).allocations = own_allocations_;
}

void GpuCommunicator::unmap(uint32_t rank, uint32_t a) {
  if (opened_[rank][a]) close_shared(driver_, mapped_[rank][a]);
  opened_[rank][a] = false;
  mapped_[rank][a] = 0;
}

GpuCommunicator::Place GpuCommunicator::find_place(uint64_t address, uint64_t bytes) const {
  for (uint32_t a = kArena; a < own_allocations_; ++a) {
    const Allocation &allocation = allocations_[geometry_.rank][a];
    if (address >= allocation.base && bytes <= allocation.bytes &&
        address - allocation.base <= allocation.bytes - bytes) {
      return {a, address - allocation.base};
    }
  }
  return {};
}

sar_status GpuCommunicator::add_allocation(uint64_t address, uint32_t *index) {
  if (own_allocations_ == kMostAllocations) {
    return refuse(SAR_UNSUPPORTED,
                  "rank %u has %u registered allocations already: take buffers from the arena, or "
                  "from fewer allocations",
                  geometry_.rank, kMostAllocations);
  }
  Allocation added{};
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
  *index = own_allocations_;
  return note_allocation(own_allocations_, added);
}

bool GpuCommunicator::locate(uint32_t rank, uint32_t a, uint64_t offset, uint64_t bytes,
                             uint64_t element, uint64_t *address) const {
  *address = 0;
  if (a == kMostAllocations) return true;
  if (a < kArena || a > kMostAllocations || mapped_[rank][a] == 0) return false;
  const uint64_t all = allocations_[rank][a].bytes;
  if (bytes > all || offset > all - bytes) return false;
  *address = mapped_[rank][a] + offset;
  return *address % element == 0;
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
                  geometry_.rank, at, device, device_, device_of(geometry_.rank));
  }
  return SAR_OK;
}

sar_status GpuCommunicator::register_memory(uint64_t address, uint64_t bytes, int64_t timeout_ns) {
  if (const sar_status status = check_ready(SAR_COLLECTIVE_REGISTER, "sar_gpu_register");
      status != SAR_OK) {
    return status;
  }
  if (const int error = use_device(); error != 0) return fail_call(error, "use the device");
  control_.begin(SAR_COLLECTIVE_BARRIER, timeout_ns);
  const sar_status status = share(address, bytes);
  control_.end_uncounted();
  return status;
}

// All ranks share their buffers, or none does.
sar_status GpuCommunicator::share(uint64_t address, uint64_t bytes) {
  sar_status own = check_foreign(address, bytes);
  uint32_t index = find_place(address, 1).allocation;
  if (own == SAR_OK && index == kMostAllocations) {
    own = add_allocation(address, &index);
  } else if (own == SAR_OK && !is_alive(driver_, allocations_[geometry_.rank][index])) {
    own = refuse(
        SAR_INVALID_ARGUMENT,
        "rank %u: the allocation at %#llx was registered, freed, and allocated again; keep "
        "what is registered until the communicator is closed",
        geometry_.rank, static_cast<unsigned long long>(allocations_[geometry_.rank][index].base));
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
