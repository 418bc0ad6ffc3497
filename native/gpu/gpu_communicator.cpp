// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Life of a communicator on a GPU: create, connect, destroy, and which memory peers can reach.
#include "gpu_communicator.hpp"

#include <stdlib.h>
#include <string.h>

namespace sar::gpu {
namespace {

constexpr int kOutOfMemory = 2;  // both vendors

sar_options control_options(const sar_options &options) {
  sar_options control = options;
  control.arena_bytes = sizeof(Control);
  control.staging_bytes = SAR_MIN_STAGING_BYTES;  // not used
  return control;
}

uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

GpuCommunicator::GpuCommunicator(const Driver &driver, int device, const sar_options &options)
    : driver_(driver),
      device_(device),
      control_(control_options(options)),
      kernels_(driver),
      first_epoch_(options.first_epoch),
      arena_bytes_(round_up(
          options.arena_bytes < SAR_MIN_STAGING_BYTES ? SAR_MIN_STAGING_BYTES : options.arena_bytes,
          kPageBytes)),
      staging_bytes_(round_up(options.staging_bytes, kPageBytes)) {
  geometry_.rank = options.rank;
  geometry_.world = options.world_size;
  geometry_.staging_bytes = staging_bytes_;
}

GpuCommunicator::~GpuCommunicator() {
  if (retained_ && use_device() == 0) {
    if (stream_ != nullptr) driver_.stream_synchronize(stream_);
    for (uint32_t r = 0; r < geometry_.world; ++r) {
      for (uint32_t a = 0; a < kMostAllocations; ++a) {
        if (opened_[r][a]) close_shared(driver_, mapped_[r][a]);
      }
    }
    if (registered_host_ != nullptr) driver_.host_unregister(registered_host_);
    if (table_ != 0) driver_.memory_free(table_);
    for (uint64_t address : mine_) {
      if (address != 0) driver_.memory_free(address);
    }
    if (stream_ != nullptr) driver_.stream_destroy(stream_);
    kernels_.unload();
  }
  if (retained_) driver_.release_device(device_);
  free(recorded_);
}

Control &GpuCommunicator::control_of(uint32_t rank) const {
  return *reinterpret_cast<Control *>(control_.segment(rank) + control_.geometry().arena());
}

sar_status GpuCommunicator::driver_failure(int error, const char *what) const {
  return refuse(error == kOutOfMemory ? SAR_OUT_OF_MEMORY : SAR_SYSTEM_ERROR,
                "rank %u cannot %s: %s (driver error %d)", geometry_.rank, what,
                driver_.error_text(error), error);
}

sar_status GpuCommunicator::create() {
  if (const int error = driver_.retain_device(device_, &context_); error != 0) {
    return driver_failure(error, "open the device");
  }
  retained_ = true;
  if (const int error = use_device(); error != 0) return driver_failure(error, "use the device");
  if (const sar_status status = control_.create(); status != SAR_OK) return status;
  if (const sar_status status = allocate(); status != SAR_OK) return status;
  Control &control = control_of(geometry_.rank);
  control.magic = kControlMagic;
  control.arena_bytes = arena_bytes_;
  control.staging_bytes = staging_bytes_;
  control.block_threads = kBlockThreads;
  control.ordinal = static_cast<uint32_t>(device_);
  int multiprocessors = 0;
  if (const int error = driver_.multiprocessors(device_, &multiprocessors); error != 0) {
    return driver_failure(error, "count the device's multiprocessors");
  }
  control.multiprocessors = static_cast<uint32_t>(multiprocessors);
  if (const int error = driver_.device_bus_id(control.device, sizeof control.device - 1, device_);
      error != 0) {
    return driver_failure(error, "read the device's bus id");
  }
  return SAR_OK;
}

sar_status GpuCommunicator::allocate() {
  if (const int error = driver_.stream_create(&stream_, kNonBlockingStream); error != 0) {
    return driver_failure(error, "create a stream");
  }
  // The kernels read the abort flag and write their outcome in the control segment.
  const uint64_t bytes = control_.geometry().segment_bytes();
  if (const int error = driver_.host_register(control_.segment(geometry_.rank), bytes, kHostMapped);
      error != 0) {
    return driver_failure(error, "register the control segment with the driver");
  }
  registered_host_ = control_.segment(geometry_.rank);
  if (const int error = driver_.host_device_address(&control_on_device_, registered_host_, 0);
      error != 0) {
    return driver_failure(error, "map the control segment on the device");
  }
  const uint64_t sizes[] = {sizeof(Pad), staging_bytes_, arena_bytes_};
  Control &control = control_of(geometry_.rank);
  for (uint32_t a = 0; a < 3; ++a) {
    // Peers write flags, packets and slices that a running kernel reads: not cached memory on AMD.
    const int error = a == kArena ? driver_.memory_allocate(&mine_[a], sizes[a])
                                  : driver_.allocate_signals(&mine_[a], sizes[a]);
    if (error != 0) return driver_failure(error, "allocate device memory");
    if (const int e = driver_.memory_set(mine_[a], 0, sizes[a]); e != 0) {
      return driver_failure(e, "clear device memory");
    }
    if (const int e = describe(driver_, mine_[a], control.allocation[a]); e != 0) {
      return driver_failure(e, "export device memory to other processes");
    }
    mapped_[geometry_.rank][a] = control.allocation[a].base;
  }
  control.allocations = 3;
  if (first_epoch_ != 0) {
    auto *pad = static_cast<Pad *>(calloc(1, sizeof(Pad)));
    if (pad == nullptr) return refuse(SAR_OUT_OF_MEMORY, "out of heap memory");
    for (uint32_t b = 0; b < kMaxBlocks; ++b) {
      pad->epoch[b] = pad->low_latency_epoch[b] = first_epoch_;
      for (uint32_t r = 0; r < kMaxRanks; ++r) {
        pad->arrival[b][r] = first_epoch_;
        pad->step[kMiddle][b][r] = pad->step[kExit][b][r] = first_epoch_;
      }
    }
    const int error = driver_.copy_to_device(mine_[kSignals], pad, sizeof(Pad));
    free(pad);
    if (error != 0) return driver_failure(error, "set the first epoch");
  }
  // The fills run on the default stream, which this communicator's stream does not wait for.
  const int error = driver_.stream_synchronize(nullptr);
  return error == 0 ? SAR_OK : driver_failure(error, "clear device memory");
}

sar_status GpuCommunicator::connect(const Handle *handles, int64_t timeout_ns) {
  if (const int error = use_device(); error != 0) return driver_failure(error, "use the device");
  if (const sar_status status = control_.connect(handles, timeout_ns); status != SAR_OK) {
    return status;
  }
  control_.begin(SAR_COLLECTIVE_CONNECT, timeout_ns);
  const Control &mine = control_of(geometry_.rank);
  for (uint32_t r = 0; r < geometry_.world; ++r) {
    const Control &theirs = control_of(r);
    if (theirs.magic != kControlMagic || theirs.arena_bytes != mine.arena_bytes ||
        theirs.staging_bytes != mine.staging_bytes || theirs.block_threads != mine.block_threads ||
        theirs.allocations < 3) {
      Failure cause = control_.failure(SAR_MISMATCH);
      cause.facts.culprit_rank = static_cast<int32_t>(r);
      cause.message.append(
          "rank %u has an arena of %llu and staging of %llu bytes, rank %u of %llu and %llu: use "
          "the same options and library on all ranks",
          r, static_cast<unsigned long long>(theirs.arena_bytes),
          static_cast<unsigned long long>(theirs.staging_bytes), geometry_.rank,
          static_cast<unsigned long long>(mine.arena_bytes),
          static_cast<unsigned long long>(mine.staging_bytes));
      return control_.fail(cause);
    }
  }
  if (const sar_status status = count_blocks(); status != SAR_OK) return status;
  if (const sar_status status = map_new_memory(); status != SAR_OK) return status;
  for (uint32_t r = 0; r < geometry_.world; ++r) {
    geometry_.pad[r] = mapped_[r][kSignals];
    geometry_.staging[r] = mapped_[r][kStaging];
  }
  const auto offset_of = [&](const void *field) {
    return control_on_device_ + static_cast<uint64_t>(static_cast<const char *>(field) -
                                                      control_.segment(geometry_.rank));
  };
  geometry_.outcome = offset_of(&mine.outcome);
  geometry_.host_abort = offset_of(&header_of(control_.segment(geometry_.rank)).abort.state);
  return control_.step();
}

// All ranks' blocks wait for each other, so all must be resident at once. A kernel uses at most 128
// registers a thread, so a multiprocessor holds at least one block.
sar_status GpuCommunicator::count_blocks() {
  uint32_t blocks = kMaxBlocks;
  for (uint32_t r = 0; r < geometry_.world; ++r) {
    uint32_t sharing = 0;
    for (uint32_t q = 0; q < geometry_.world; ++q) {
      if (strncmp(control_of(q).device, control_of(r).device, sizeof(Control::device)) == 0) {
        ++sharing;
      }
    }
    const uint32_t multiprocessors = control_of(r).multiprocessors;
    const uint32_t each = multiprocessors / sharing;
    if (each == 0) {
      Failure cause = control_.failure(SAR_UNSUPPORTED);
      cause.message.append(
          "device %s has %u multiprocessors, but %u ranks of this communicator: their blocks would "
          "wait for blocks that cannot run; use fewer ranks per device",
          control_of(r).device, multiprocessors, sharing);
      return control_.fail(cause);
    }
    if (each < blocks) blocks = each;
  }
  geometry_.blocks = blocks;
  return SAR_OK;
}

// Makes a peer's allocation usable by this rank's device. 0 or a driver error.
int GpuCommunicator::reach(uint32_t rank, uint32_t a) {
  const Allocation &allocation = control_of(rank).allocation[a];
  const sar::Header &mine = header_of(control_.segment(geometry_.rank));
  const sar::Header &theirs = header_of(control_.segment(rank));
  if (theirs.pid != mine.pid || theirs.start_time != mine.start_time ||
      theirs.pid_namespace != mine.pid_namespace) {
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
  Failure cause = control_.failure(SAR_SYSTEM_ERROR);
  cause.facts.culprit_rank = static_cast<int32_t>(rank);
  cause.message.append(
      "rank %u on device %s cannot open the memory of rank %u on device %s: %s (driver error %d); "
      "both must run on one host, in one container's PID and IPC namespaces, on devices that reach "
      "each other, and the memory must not come from a virtual-memory pool",
      geometry_.rank, control_of(geometry_.rank).device, rank, control_of(rank).device,
      driver_.error_text(error), error);
  return control_.fail(cause);
}

sar_status GpuCommunicator::map_new_memory() {
  for (uint32_t r = 0; r < geometry_.world; ++r) {
    const uint32_t count = control_of(r).allocations;
    for (uint32_t a = 0; a < count && a < kMostAllocations; ++a) {
      if (mapped_[r][a] != 0) continue;
      if (const sar_status status = map_peer_memory(r, a); status != SAR_OK) return status;
    }
  }
  return SAR_OK;
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

sar_status GpuCommunicator::set_auto_table(const sar_auto_row *rows, size_t count) {
  const sar_status status = auto_table_.set(rows, count);
  geometry_.auto_rows = auto_table_.rows();
  geometry_.auto_count = auto_table_.count();
  return status;
}

sar_status GpuCommunicator::register_memory(uint64_t address, int64_t timeout_ns) {
  if (const sar_status status = control_.check_open(SAR_COLLECTIVE_BARRIER); status != SAR_OK) {
    return status;
  }
  if (const int error = use_device(); error != 0) return driver_failure(error, "use the device");
  uint32_t index = find_place(address, 1).allocation;
  control_.begin(SAR_COLLECTIVE_BARRIER, timeout_ns);
  sar_status status = SAR_OK;
  if (index == kMostAllocations) status = add_allocation(address, &index);
  if (status != SAR_OK) {
    Failure cause = control_.failure(status);
    cause.message.append("%s", last_message());
    return control_.fail(cause);
  }
  const CallFields fields{
      0, 0, 0, 0, SAR_COLLECTIVE_BARRIER, 0, 0, kRegisterMarker, 0, 0, control_.epoch()};
  CallFields all[SAR_MAX_RANKS];
  status = control_.arrive(fields, all);
  if (status == SAR_OK) status = compare(all, "sar_gpu_register");
  if (status == SAR_OK) status = map_new_memory();
  // Not a collective that the statistics count.
  return status == SAR_OK ? control_.step() : status;
}

}  // namespace sar::gpu
