// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Life of a communicator on a GPU: create, connect, destroy.
#include "gpu_communicator.hpp"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace sar::gpu {
namespace {

constexpr int kOutOfMemory = 2;  // both vendors
// Two of them hide most of the copying behind the device's work; more memory would hide no more.
constexpr uint64_t kMostPinnedBytes = 4 << 20;

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
  pinned_bytes_ = staging_bytes_ < kMostPinnedBytes ? staging_bytes_ : kMostPinnedBytes;
}

GpuCommunicator::~GpuCommunicator() {
  if (retained_ && use_device() == 0) {
    if (capturing_) capture_cancel();
    drain();
    for (uint32_t r = 0; r < geometry_.world; ++r) {
      for (uint32_t a = 0; a < kMostAllocations; ++a) unmap(r, a);
    }
    unpublish(control_.segment(geometry_.rank), 0);
    if (registered_host_ != nullptr) driver_.host_unregister(registered_host_);
    for (uint64_t address : mine_) {
      if (address != 0) driver_.memory_free(address);
    }
    for (void *event : copied_) {
      if (event != nullptr) driver_.event_destroy(event);
    }
    for (void *buffer : pinned_) {
      if (buffer != nullptr) driver_.host_free(buffer);
    }
    if (switching_ != nullptr) driver_.event_destroy(switching_);
    if (own_stream_ != nullptr) driver_.stream_destroy(own_stream_);
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

sar_status GpuCommunicator::fail_with_last(sar_status status) {
  Failure cause = control_.failure(status);
  cause.facts.culprit_rank = static_cast<int32_t>(geometry_.rank);
  cause.message.append("%s", last_message());
  return control_.fail(cause);
}

sar_status GpuCommunicator::check_ready(sar_collective collective, const char *what) const {
  if (const sar_status status = control_.check_open(collective); status != SAR_OK) return status;
  if (!ready_) {
    return refuse(SAR_INVALID_ARGUMENT, "%s on rank %u, whose devices are not connected", what,
                  geometry_.rank);
  }
  if (!capturing_) return SAR_OK;
  return refuse(SAR_INVALID_ARGUMENT,
                "%s on rank %u during a capture, which holds collectives on device memory only",
                what, geometry_.rank);
}

void GpuCommunicator::announce(sar_status status) {
  Verdict &mine = control_of(geometry_.rank).verdict[agreements_ % 2];
  mine.status = status;
  snprintf(mine.message, sizeof mine.message, "%s", status == SAR_OK ? "" : last_message());
}

sar_status GpuCommunicator::verdict() {
  const uint32_t turn = agreements_++ % 2;
  for (uint32_t r = 0; r < geometry_.world; ++r) {
    const Verdict &theirs = control_of(r).verdict[turn];
    const uint32_t status = __atomic_load_n(&theirs.status, __ATOMIC_RELAXED);
    if (status == SAR_OK) continue;
    Failure failure(status <= SAR_UNSUPPORTED ? static_cast<sar_status>(status) : SAR_SYSTEM_ERROR);
    failure.facts.origin_rank = failure.facts.culprit_rank = static_cast<int32_t>(r);
    failure.message.append("%.*s", static_cast<int>(sizeof theirs.message - 1), theirs.message);
    return remember(failure);
  }
  return SAR_OK;
}

sar_status GpuCommunicator::create() {
  if (const int error = driver_.retain_device(device_, &context_); error != 0) {
    return driver_failure(error, "open the device");
  }
  retained_ = true;
  if (const int error = use_device(); error != 0) return driver_failure(error, "use the device");
  if (const sar_status status = control_.create(); status != SAR_OK) return status;
  // The driver writes into it: to the rank's own.
  Control &control = control_of(geometry_.rank);
  if (const sar_status status = describe_device(control); status != SAR_OK) return status;
  // A device for which there are no kernels is found before anybody counts on it.
  void *function = nullptr;
  if (const int error = kernels_.find(SAR_FLOAT32, geometry_.world, false, &function); error != 0) {
    return driver_failure(error, "load the kernels for this device");
  }
  return allocate();
}

sar_status GpuCommunicator::describe_device(Control &control) {
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
  Description &mine = descriptions_[geometry_.rank];
  if (const int error = driver_.device_bus_id(mine.device, sizeof mine.device - 1, device_);
      error != 0) {
    return driver_failure(error, "read the device's bus id");
  }
  mine.multiprocessors = control.multiprocessors;
  memcpy(control.device, mine.device, sizeof control.device);
  return SAR_OK;
}

sar_status GpuCommunicator::allocate() {
  if (const int error = driver_.stream_create(&own_stream_, kNonBlockingStream); error != 0) {
    return driver_failure(error, "create a stream");
  }
  stream_ = own_stream_;
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
  if (const sar_status status = allocate_pinned_memory(); status != SAR_OK) return status;
  if (const sar_status status = allocate_device_memory(); status != SAR_OK) return status;
  if (first_epoch_ != 0) {
    if (const sar_status status = set_first_epoch(); status != SAR_OK) return status;
  }
  // The fills run on the default stream, which this communicator's stream does not wait for.
  const int error = driver_.stream_synchronize(nullptr);
  return error == 0 ? SAR_OK : driver_failure(error, "clear device memory");
}

sar_status GpuCommunicator::allocate_pinned_memory() {
  int error = driver_.event_create(&switching_, kNoTiming);
  for (uint32_t b = 0; b < kPinnedBuffers && error == 0; ++b) {
    error = driver_.event_create(&copied_[b], kNoTiming);
    if (error == 0) error = driver_.host_allocate(&pinned_[b], pinned_bytes_, 0);
  }
  return error == 0 ? SAR_OK : driver_failure(error, "allocate pinned memory");
}

sar_status GpuCommunicator::allocate_device_memory() {
  const uint64_t sizes[] = {sizeof(Pad), staging_bytes_, arena_bytes_};
  for (uint32_t a = 0; a < 3; ++a) {
    // Peers write flags, packets and slices that a running kernel reads: not cached memory on AMD.
    const int error = a == kArena ? driver_.memory_allocate(&mine_[a], sizes[a])
                                  : driver_.allocate_signals(&mine_[a], sizes[a]);
    if (error == kOutOfMemory) return too_little_memory();
    if (error != 0) return driver_failure(error, "allocate device memory");
    if (const int e = driver_.memory_set(mine_[a], 0, sizes[a]); e != 0) {
      return driver_failure(e, "clear device memory");
    }
    Allocation allocation{};
    if (const int e = describe(driver_, mine_[a], allocation); e != 0) {
      return refuse(SAR_UNSUPPORTED,
                    "device %s of rank %u does not export its memory to other processes: %s "
                    "(driver error %d); parts of a device (MIG) and some virtual machines cannot",
                    device_of(geometry_.rank), geometry_.rank, driver_.error_text(e), e);
    }
    if (const sar_status status = note_allocation(a, allocation); status != SAR_OK) return status;
  }
  return SAR_OK;
}

sar_status GpuCommunicator::too_little_memory() const {
  size_t available = 0, all = 0;
  driver_.memory_info(&available, &all);
  return refuse(SAR_OUT_OF_MEMORY,
                "rank %u cannot allocate device memory: it needs %llu bytes, and of the %llu of "
                "device %s %llu are left; use a smaller arena and staging, or look who uses it",
                geometry_.rank,
                static_cast<unsigned long long>(sizeof(Pad) + staging_bytes_ + arena_bytes_),
                static_cast<unsigned long long>(all), device_of(geometry_.rank),
                static_cast<unsigned long long>(available));
}

sar_status GpuCommunicator::set_first_epoch() {
  auto *pad = static_cast<Pad *>(calloc(1, sizeof(Pad)));
  if (pad == nullptr) return refuse(SAR_OUT_OF_MEMORY, "out of heap memory");
  for (uint32_t b = 0; b < kMaxBlocks; ++b) {
    pad->epoch[b] = pad->low_latency_epoch[b] = first_epoch_;
    for (uint32_t r = 0; r < kMaxRanks; ++r) {
      pad->arrival[b][r] = first_epoch_;
      pad->step[kMiddle][b][r] = pad->step[kExit][b][r] = first_epoch_;
    }
  }
  const int error = driver_.copy_in(mine_[kSignals], pad, sizeof(Pad));
  free(pad);
  return error == 0 ? SAR_OK : driver_failure(error, "set the first epoch");
}

sar_status GpuCommunicator::connect(const Handle *handles, int64_t timeout_ns) {
  if (const int error = use_device(); error != 0) return driver_failure(error, "use the device");
  if (const sar_status status = control_.connect(handles, timeout_ns); status != SAR_OK) {
    return status;
  }
  control_.begin(SAR_COLLECTIVE_CONNECT, timeout_ns);
  sar_status status = compare_options();
  if (status == SAR_OK) status = count_blocks();
  for (uint32_t r = 0; r < geometry_.world && status == SAR_OK; ++r) {
    status = check_peer_access(r);
  }
  if (status == SAR_OK) status = map_new_memory();
  // Either all ranks are connected behind this barrier, or none is.
  announce(status);
  status = control_.step();
  if (status == SAR_OK) status = verdict();
  if (status != SAR_OK) return status;
  for (uint32_t r = 0; r < geometry_.world; ++r) {
    geometry_.pad[r] = mapped_[r][kSignals];
    geometry_.staging[r] = mapped_[r][kStaging];
  }
  const Control &mine = control_of(geometry_.rank);
  const auto offset_of = [&](const void *field) {
    return control_on_device_ + static_cast<uint64_t>(static_cast<const char *>(field) -
                                                      control_.segment(geometry_.rank));
  };
  geometry_.outcome = offset_of(&mine.outcome);
  geometry_.host_abort = offset_of(&header_of(control_.segment(geometry_.rank)).abort.state);
  ready_ = true;
  return SAR_OK;
}

sar_status GpuCommunicator::compare_options() {
  const Control &mine = control_of(geometry_.rank);
  for (uint32_t r = 0; r < geometry_.world; ++r) {
    const Control &theirs = control_of(r);
    if (r != geometry_.rank) {
      descriptions_[r].multiprocessors = __atomic_load_n(&theirs.multiprocessors, __ATOMIC_RELAXED);
      memcpy(descriptions_[r].device, theirs.device, sizeof theirs.device - 1);
    }
    if (theirs.magic == kControlMagic && theirs.arena_bytes == arena_bytes_ &&
        theirs.staging_bytes == staging_bytes_ && theirs.block_threads == kBlockThreads &&
        theirs.allocations >= 3) {
      continue;
    }
    return refuse(
        SAR_MISMATCH,
        "rank %u has an arena of %llu and staging of %llu bytes, rank %u of %llu and %llu: use "
        "the same options and library on all ranks",
        r, static_cast<unsigned long long>(theirs.arena_bytes),
        static_cast<unsigned long long>(theirs.staging_bytes), geometry_.rank,
        static_cast<unsigned long long>(mine.arena_bytes),
        static_cast<unsigned long long>(mine.staging_bytes));
  }
  return SAR_OK;
}

// All ranks' blocks wait for each other, so all must be resident at once. A kernel uses at most 128
// registers a thread, so a multiprocessor holds at least one block.
sar_status GpuCommunicator::count_blocks() {
  uint32_t blocks = kMaxBlocks;
  for (uint32_t r = 0; r < geometry_.world; ++r) {
    uint32_t sharing = 0;
    for (uint32_t q = 0; q < geometry_.world; ++q) {
      if (strcmp(device_of(q), device_of(r)) == 0) ++sharing;
    }
    const uint32_t multiprocessors = descriptions_[r].multiprocessors;
    const uint32_t each = multiprocessors / sharing;
    if (each == 0) {
      return refuse(
          SAR_UNSUPPORTED,
          "device %s has %u multiprocessors, but %u ranks of this communicator: their blocks would "
          "wait for blocks that cannot run; use fewer ranks per device",
          device_of(r), multiprocessors, sharing);
    }
    if (each < blocks) blocks = each;
  }
  geometry_.blocks = blocks;
  return SAR_OK;
}

// A device that this process does not see is opened through its handle, which tells by itself.
sar_status GpuCommunicator::check_peer_access(uint32_t rank) const {
  const char *mine = device_of(geometry_.rank), *theirs = device_of(rank);
  if (strcmp(mine, theirs) == 0) return SAR_OK;
  int other = 0, access = 0;
  if (driver_.device_by_bus_id(&other, theirs) != 0 ||
      driver_.can_access_peer(&access, device_, other) != 0 || access != 0) {
    return SAR_OK;
  }
  return refuse(SAR_UNSUPPORTED,
                "device %s of rank %u cannot reach the memory of device %s of rank %u: there is no "
                "peer access between them; look at the topology (nvidia-smi topo -p2p r, rocm-smi "
                "--showtopoaccess), and at the IOMMU",
                mine, geometry_.rank, theirs, rank);
}

sar_status GpuCommunicator::set_auto_table(const sar_auto_row *rows, size_t count) {
  const sar_status status = auto_table_.set(rows, count);
  geometry_.auto_rows = auto_table_.rows();
  geometry_.auto_count = auto_table_.count();
  return status;
}

}  // namespace sar::gpu
