// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// The functions of spark_allreduce.h for GPUs: argument checks, then the class that does the work.
#include <stdlib.h>

#include <new>

#include "gpu_communicator.hpp"
#include "segment.hpp"

#define SAR_TEXT_(x) #x
#define SAR_TEXT(x) SAR_TEXT_(x)

using sar::refuse;
using sar::gpu::GpuCommunicator;
using sar::gpu::Request;

namespace {

thread_local uint32_t selected_device = 0;

GpuCommunicator *cast(sar_comm *comm) { return reinterpret_cast<GpuCommunicator *>(comm); }
const GpuCommunicator *cast(const sar_comm *comm) {
  return reinterpret_cast<const GpuCommunicator *>(comm);
}

sar_status null_argument(const char *function, const char *name) {
  return refuse(SAR_INVALID_ARGUMENT, "%s: %s is NULL", function, name);
}

// Two threads on one communicator would mix up their launches, and with them the ranks' order.
template <class Body>
sar_status alone(sar_comm *comm, const char *what, Body body) {
  if (!cast(comm)->enter()) {
    return refuse(SAR_INVALID_ARGUMENT,
                  "%s: another thread is inside of a call on this communicator; use it from one "
                  "thread at a time, or open one communicator for each thread",
                  what);
  }
  const sar_status status = body();
  cast(comm)->leave();
  return status;
}

sar_status run(sar_comm *comm, const Request &request, int64_t timeout_ns) {
  const char *what = sar::collective_name(request.collective);
  if (comm == nullptr) return null_argument(what, "comm");
  return alone(comm, what, [&] { return cast(comm)->run(request, timeout_ns); });
}

sar_status open_driver(const sar::gpu::Driver **driver) {
  const char *why = nullptr;
  *driver = sar::gpu::driver(&why);
  return *driver != nullptr ? SAR_OK : refuse(SAR_UNSUPPORTED, "%s", why);
}

sar_status check_device(uint32_t device) {
  uint32_t count = 0;
  if (const sar_status status = sar_gpu_device_count(&count); status != SAR_OK) return status;
  if (device < count) return SAR_OK;
  return refuse(SAR_INVALID_ARGUMENT, "there is no device %u: the driver has %u", device, count);
}

sar_status device_failure(const sar::gpu::Driver &driver, uint32_t device, int error) {
  return refuse(SAR_SYSTEM_ERROR, "cannot examine device %u: %s (driver error %d)", device,
                driver.error_text(error), error);
}

sar_status check_options(const sar_options &options) {
  if (options.struct_bytes != sizeof(sar_options)) {
    return refuse(SAR_INVALID_ARGUMENT,
                  "sar_options has %u bytes, this library expects %zu: the plugin and its native "
                  "library are of different versions",
                  options.struct_bytes, sizeof(sar_options));
  }
  if (options.world_size < 1 || options.world_size > sar::gpu::kRankLimit) {
    return refuse(SAR_INVALID_ARGUMENT, "world_size is %u, must be 1 to %u", options.world_size,
                  sar::gpu::kRankLimit);
  }
  if (options.rank >= options.world_size) {
    return refuse(SAR_INVALID_ARGUMENT, "rank is %u, must be below world_size %u", options.rank,
                  options.world_size);
  }
  if (options.staging_bytes < SAR_MIN_STAGING_BYTES) {
    return refuse(SAR_INVALID_ARGUMENT, "staging_bytes is %llu, must be at least %u",
                  static_cast<unsigned long long>(options.staging_bytes), SAR_MIN_STAGING_BYTES);
  }
  return SAR_OK;
}

}  // namespace

uint32_t sar_abi_version(void) { return SAR_ABI_VERSION; }

const char *sar_build_info(void) {
  return "spark-allreduce " SAR_VERSION
         " GPU, kernels for gfx90a, gfx942, gfx950 and sm_90 PTX, blocks "
         "of " SAR_TEXT(SAR_BLOCK_THREADS);
}

const char *sar_last_error(void) { return sar::last_message(); }

void sar_last_failure(sar_failure *failure) {
  if (failure != nullptr) *failure = sar::last_facts();
}

sar_status sar_sweep(uint32_t *removed) {
  uint32_t count = 0;
  const sar_status status = sar::sweep_segments(count);
  if (removed != nullptr) *removed = count;
  return status;
}

sar_status sar_gpu_device_count(uint32_t *count) {
  if (count == nullptr) return null_argument("sar_gpu_device_count", "count");
  *count = 0;
  const sar::gpu::Driver *driver = nullptr;
  if (const sar_status status = open_driver(&driver); status != SAR_OK) return status;
  int found = 0;
  if (const int error = driver->device_count(&found); error != 0) {
    return refuse(SAR_SYSTEM_ERROR, "cannot count the devices: %s (driver error %d)",
                  driver->error_text(error), error);
  }
  *count = static_cast<uint32_t>(found);
  return SAR_OK;
}

sar_status sar_gpu_device_facts(uint32_t device, sar_gpu_facts *facts) {
  if (facts == nullptr) return null_argument("sar_gpu_device_facts", "facts");
  *facts = {};
  const sar::gpu::Driver *driver = nullptr;
  if (const sar_status status = open_driver(&driver); status != SAR_OK) return status;
  if (const sar_status status = check_device(device); status != SAR_OK) return status;
  const auto ordinal = static_cast<int>(device);
  facts->vendor = driver->vendor == sar::gpu::Vendor::kAmd ? SAR_AMD : SAR_NVIDIA;
  size_t bytes = 0;
  int error = driver->driver_version(&facts->driver_version);
  if (error == 0) error = driver->device_memory(&bytes, ordinal);
  if (error == 0) error = driver->device_name(facts->name, sizeof facts->name, ordinal);
  if (error == 0) error = driver->uuid(ordinal, facts->uuid);
  if (error == 0) error = driver->device_bus_id(facts->bus_id, sizeof facts->bus_id, ordinal);
  facts->memory_bytes = bytes;
  return error == 0 ? SAR_OK : device_failure(*driver, device, error);
}

sar_status sar_gpu_free_memory(uint32_t device, uint64_t *bytes) {
  if (bytes == nullptr) return null_argument("sar_gpu_free_memory", "bytes");
  *bytes = 0;
  const sar::gpu::Driver *driver = nullptr;
  if (const sar_status status = open_driver(&driver); status != SAR_OK) return status;
  if (const sar_status status = check_device(device); status != SAR_OK) return status;
  const auto ordinal = static_cast<int>(device);
  void *context = nullptr;
  if (const int error = driver->retain_device(ordinal, &context); error != 0) {
    return device_failure(*driver, device, error);
  }
  size_t available = 0, all = 0;
  int error = driver->use_device(ordinal, context);
  if (error == 0) error = driver->memory_info(&available, &all);
  // The release may destroy the context: it must not stay current in this thread.
  if (driver->vendor == sar::gpu::Vendor::kNvidia) driver->use_device(ordinal, nullptr);
  driver->release_device(ordinal);
  *bytes = available;
  return error == 0 ? SAR_OK : device_failure(*driver, device, error);
}

sar_status sar_gpu_select_device(uint32_t device) {
  if (const sar_status status = check_device(device); status != SAR_OK) return status;
  selected_device = device;
  return SAR_OK;
}

sar_status sar_comm_create(const sar_options *options, sar_comm **comm) {
  if (options == nullptr || comm == nullptr) {
    return null_argument("sar_comm_create", options == nullptr ? "options" : "comm");
  }
  *comm = nullptr;
  if (const sar_status status = check_options(*options); status != SAR_OK) return status;
  const sar::gpu::Driver *driver = nullptr;
  if (const sar_status status = open_driver(&driver); status != SAR_OK) return status;
  uint32_t devices = 0;
  if (const sar_status status = sar_gpu_device_count(&devices); status != SAR_OK) return status;
  if (selected_device >= devices) {
    return refuse(SAR_UNSUPPORTED, "the GPU driver %s has no device %u (it has %u)",
                  driver->library, selected_device, devices);
  }
  void *memory = malloc(sizeof(GpuCommunicator));
  if (memory == nullptr) return refuse(SAR_OUT_OF_MEMORY, "out of heap memory");
  auto *created =
      ::new (memory) GpuCommunicator(*driver, static_cast<int>(selected_device), *options);
  const sar_status status = created->create();
  if (status != SAR_OK) {
    sar_comm_destroy(reinterpret_cast<sar_comm *>(created));
    return status;
  }
  *comm = reinterpret_cast<sar_comm *>(created);
  return SAR_OK;
}

sar_status sar_comm_handle(const sar_comm *comm, void *handle) {
  if (comm == nullptr || handle == nullptr) {
    return null_argument("sar_comm_handle", comm == nullptr ? "comm" : "handle");
  }
  __builtin_memcpy(handle, &cast(comm)->control().handle(), SAR_HANDLE_BYTES);
  return SAR_OK;
}

sar_status sar_comm_connect(sar_comm *comm, const void *handles, int64_t timeout_ns) {
  if (comm == nullptr || handles == nullptr) {
    return null_argument("sar_comm_connect", comm == nullptr ? "comm" : "handles");
  }
  if (timeout_ns <= 0) {
    return refuse(SAR_INVALID_ARGUMENT, "connect: the time-out must be above zero, but is %lld ns",
                  static_cast<long long>(timeout_ns));
  }
  sar::Handle copies[SAR_MAX_RANKS];
  __builtin_memcpy(copies, handles, cast(comm)->control().world_size() * sizeof(sar::Handle));
  return cast(comm)->connect(copies, timeout_ns);
}

sar_status sar_comm_arena(const sar_comm *comm, void **base, uint64_t *bytes) {
  if (comm == nullptr || base == nullptr || bytes == nullptr) {
    return null_argument("sar_comm_arena", "an argument");
  }
  *base = reinterpret_cast<void *>(cast(comm)->arena());
  *bytes = cast(comm)->arena_bytes();
  return SAR_OK;
}

sar_comm_state_code sar_comm_state(const sar_comm *comm) {
  return comm == nullptr ? SAR_STATE_ABORTED : cast(comm)->control().state();
}

sar_status sar_comm_statistics(const sar_comm *comm, sar_statistics *statistics) {
  if (comm == nullptr || statistics == nullptr) {
    return null_argument("sar_comm_statistics", comm == nullptr ? "comm" : "statistics");
  }
  *statistics = cast(comm)->control().statistics();
  return SAR_OK;
}

sar_status sar_comm_detach(sar_comm *comm) {
  return comm == nullptr ? null_argument("sar_comm_detach", "comm")
                         : cast(comm)->control().detach();
}

sar_status sar_comm_attach(sar_comm *comm) {
  return comm == nullptr ? null_argument("sar_comm_attach", "comm")
                         : cast(comm)->control().attach();
}

sar_status sar_abort(sar_comm *comm, int32_t culprit_rank, const char *message) {
  if (comm == nullptr) return null_argument("sar_abort", "comm");
  return cast(comm)->control().abort(culprit_rank, message == nullptr ? "" : message);
}

void sar_comm_destroy(sar_comm *comm) {
  if (comm == nullptr) return;
  cast(comm)->~GpuCommunicator();
  free(comm);
}

sar_status sar_all_reduce(sar_comm *comm, const void *in, void *out, uint64_t count,
                          sar_data_type type, sar_reduce_op op, sar_schedule schedule,
                          int64_t timeout_ns) {
  return run(comm, {SAR_COLLECTIVE_ALL_REDUCE, in, out, count, type, op, schedule, 0}, timeout_ns);
}

sar_status sar_reduce_scatter(sar_comm *comm, const void *in, void *out, uint64_t count,
                              sar_data_type type, sar_reduce_op op, int64_t timeout_ns) {
  return run(comm, {SAR_COLLECTIVE_REDUCE_SCATTER, in, out, count, type, op, SAR_AUTO, 0},
             timeout_ns);
}

sar_status sar_all_gather(sar_comm *comm, const void *in, void *out, uint64_t count,
                          sar_data_type type, int64_t timeout_ns) {
  return run(comm, {SAR_COLLECTIVE_ALL_GATHER, in, out, count, type, SAR_SUM, SAR_AUTO, 0},
             timeout_ns);
}

sar_status sar_broadcast(sar_comm *comm, const void *in, void *out, uint64_t count,
                         sar_data_type type, uint32_t root, int64_t timeout_ns) {
  return run(comm, {SAR_COLLECTIVE_BROADCAST, in, out, count, type, SAR_SUM, SAR_AUTO, root},
             timeout_ns);
}

sar_status sar_barrier(sar_comm *comm, int64_t timeout_ns) {
  return run(comm, {SAR_COLLECTIVE_BARRIER, nullptr, nullptr, 0, SAR_FLOAT32, SAR_SUM, SAR_AUTO, 0},
             timeout_ns);
}

sar_status sar_comm_expect_total(sar_comm *comm, uint64_t total) {
  if (comm == nullptr) return null_argument("sar_comm_expect_total", "comm");
  cast(comm)->control().expect_total(total);
  return SAR_OK;
}

uint64_t sar_comm_sequence(const sar_comm *comm) {
  return comm == nullptr ? 0 : cast(comm)->control().sequence();
}

// The kernels know their peers by rank, and device memory is no file.
sar_status sar_comm_renumber(sar_comm *, const uint32_t *) {
  return refuse(SAR_UNSUPPORTED, "the GPU backend cannot renumber its ranks");
}

sar_status sar_comm_set_auto_table(sar_comm *comm, const sar_auto_row *rows, size_t count) {
  if (comm == nullptr || (rows == nullptr && count != 0)) {
    return null_argument("sar_comm_set_auto_table", comm == nullptr ? "comm" : "rows");
  }
  return cast(comm)->set_auto_table(rows, count);
}

sar_status sar_register(sar_comm *, const char *, uint64_t, uint64_t, int64_t, void **) {
  return refuse(SAR_UNSUPPORTED, "the GPU backend registers device memory: sar_gpu_register");
}

sar_status sar_deregister(sar_comm *, void *, int64_t) {
  return refuse(SAR_UNSUPPORTED, "the GPU backend keeps registrations until it is destroyed");
}

sar_status sar_gpu_stream(const sar_comm *comm, void **stream) {
  if (comm == nullptr || stream == nullptr) return null_argument("sar_gpu_stream", "an argument");
  *stream = cast(comm)->stream();
  return SAR_OK;
}

sar_status sar_gpu_copy_to_device(sar_comm *comm, void *device, const void *host, uint64_t bytes) {
  if (comm == nullptr) return null_argument("sar_gpu_copy_to_device", "comm");
  int error = cast(comm)->use_device();
  if (error == 0) {
    error = cast(comm)->driver().copy_in(reinterpret_cast<uint64_t>(device), host, bytes);
  }
  return error == 0 ? SAR_OK : cast(comm)->driver_failure(error, "copy to the device");
}

sar_status sar_gpu_copy_to_host(sar_comm *comm, void *host, const void *device, uint64_t bytes) {
  if (comm == nullptr) return null_argument("sar_gpu_copy_to_host", "comm");
  int error = cast(comm)->use_device();
  if (error == 0) {
    error = cast(comm)->driver().copy_to_host(host, reinterpret_cast<uint64_t>(device), bytes);
  }
  return error == 0 ? SAR_OK : cast(comm)->driver_failure(error, "copy from the device");
}

sar_status sar_gpu_use_stream(sar_comm *comm, void *stream) {
  if (comm == nullptr) return null_argument("sar_gpu_use_stream", "comm");
  return alone(comm, "sar_gpu_use_stream", [&] { return cast(comm)->use_stream(stream); });
}

sar_status sar_gpu_enqueue_next(sar_comm *comm) {
  if (comm == nullptr) return null_argument("sar_gpu_enqueue_next", "comm");
  cast(comm)->enqueue_next();
  return SAR_OK;
}

sar_status sar_gpu_pinned(sar_comm *comm, uint32_t buffer, void **base, uint64_t *bytes) {
  if (comm == nullptr || base == nullptr || bytes == nullptr) {
    return null_argument("sar_gpu_pinned", "an argument");
  }
  return cast(comm)->pinned(buffer, base, bytes);
}

sar_status sar_gpu_pinned_to_device(sar_comm *comm, uint32_t buffer, void *device, uint64_t bytes) {
  if (comm == nullptr) return null_argument("sar_gpu_pinned_to_device", "comm");
  return alone(comm, "sar_gpu_pinned_to_device", [&] {
    return cast(comm)->pinned_to_device(buffer, reinterpret_cast<uint64_t>(device), bytes);
  });
}

sar_status sar_gpu_device_to_pinned(sar_comm *comm, uint32_t buffer, const void *device,
                                    uint64_t bytes) {
  if (comm == nullptr) return null_argument("sar_gpu_device_to_pinned", "comm");
  return alone(comm, "sar_gpu_device_to_pinned", [&] {
    return cast(comm)->device_to_pinned(buffer, reinterpret_cast<uint64_t>(device), bytes);
  });
}

sar_status sar_gpu_pinned_wait(sar_comm *comm, uint32_t buffer, int64_t timeout_ns) {
  if (comm == nullptr) return null_argument("sar_gpu_pinned_wait", "comm");
  if (timeout_ns <= 0) return refuse(SAR_INVALID_ARGUMENT, "the time-out must be above zero");
  return alone(comm, "sar_gpu_pinned_wait",
               [&] { return cast(comm)->pinned_wait(buffer, timeout_ns); });
}

sar_status sar_gpu_register(sar_comm *comm, const void *device, uint64_t bytes,
                            int64_t timeout_ns) {
  if (comm == nullptr) return null_argument("sar_gpu_register", "comm");
  if (timeout_ns <= 0) return refuse(SAR_INVALID_ARGUMENT, "the time-out must be above zero");
  return alone(comm, "sar_gpu_register", [&] {
    return cast(comm)->register_memory(reinterpret_cast<uint64_t>(device), bytes, timeout_ns);
  });
}

sar_status sar_gpu_capture_begin(sar_comm *comm, int64_t replay_timeout_ns) {
  if (comm == nullptr) return null_argument("sar_gpu_capture_begin", "comm");
  return alone(comm, "sar_gpu_capture_begin",
               [&] { return cast(comm)->capture_begin(replay_timeout_ns); });
}

sar_status sar_gpu_capture_end(sar_comm *comm, int64_t timeout_ns, sar_graph **graph) {
  if (comm == nullptr || graph == nullptr) {
    return null_argument("sar_gpu_capture_end", comm == nullptr ? "comm" : "graph");
  }
  *graph = nullptr;
  return alone(comm, "sar_gpu_capture_end",
               [&] { return cast(comm)->capture_end(timeout_ns, graph); });
}

sar_status sar_gpu_capture_cancel(sar_comm *comm) {
  if (comm == nullptr) return null_argument("sar_gpu_capture_cancel", "comm");
  return alone(comm, "sar_gpu_capture_cancel", [&] { return cast(comm)->capture_cancel(); });
}

sar_status sar_gpu_wait(sar_comm *comm, int64_t timeout_ns) {
  if (comm == nullptr) return null_argument("sar_gpu_wait", "comm");
  if (timeout_ns <= 0) return refuse(SAR_INVALID_ARGUMENT, "the time-out must be above zero");
  return alone(comm, "sar_gpu_wait", [&] { return cast(comm)->wait(timeout_ns); });
}
