// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// The functions of spark_allreduce.h: argument checks, then the classes that do the work.
#include <stdlib.h>

#include <new>

#include "collective.hpp"
#include "communicator.hpp"
#include "failure.hpp"
#include "segment.hpp"
#include "spark_allreduce.h"

using sar::Call;
using sar::Collective;
using sar::refuse;

namespace {

sar_status null_argument(const char *function, const char *name) {
  return refuse(SAR_INVALID_ARGUMENT, "%s: %s is NULL", function, name);
}

sar_status check_options(const sar_options &options) {
  if (options.struct_bytes != sizeof(sar_options)) {
    return refuse(SAR_INVALID_ARGUMENT,
                  "sar_options has %u bytes, this library expects %zu: the plugin and its native "
                  "library are of different versions",
                  options.struct_bytes, sizeof(sar_options));
  }
  if (options.world_size < 1 || options.world_size > SAR_MAX_RANKS) {
    return refuse(SAR_INVALID_ARGUMENT, "world_size is %u, must be 1 to %u", options.world_size,
                  SAR_MAX_RANKS);
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

sar_status run(sar_comm *comm, const Call &call, int64_t timeout_ns) {
  if (comm == nullptr) {
    return null_argument(sar::collective_name(call.collective), "comm");
  }
  return Collective(comm->communicator, call).run(timeout_ns);
}

}  // namespace

uint32_t sar_abi_version(void) { return SAR_ABI_VERSION; }

const char *sar_last_error(void) { return sar::last_message(); }

void sar_last_failure(sar_failure *failure) {
  if (failure != nullptr) {
    *failure = sar::last_facts();
  }
}

sar_status sar_sweep(uint32_t *removed) {
  uint32_t count = 0;
  const sar_status status = sar::sweep_segments(count);
  if (removed != nullptr) {
    *removed = count;
  }
  return status;
}

sar_status sar_comm_create(const sar_options *options, sar_comm **comm) {
  if (options == nullptr) {
    return null_argument("sar_comm_create", "options");
  }
  if (comm == nullptr) {
    return null_argument("sar_comm_create", "comm");
  }
  *comm = nullptr;
  if (const sar_status status = check_options(*options); status != SAR_OK) {
    return status;
  }
  // Not new: that would need libstdc++.
  void *memory = malloc(sizeof(sar_comm));
  if (memory == nullptr) {
    return refuse(SAR_OUT_OF_MEMORY, "out of heap memory");
  }
  auto *created = ::new (memory) sar_comm(*options);
  const sar_status status = created->communicator.create();
  if (status != SAR_OK) {
    sar_comm_destroy(created);
    return status;
  }
  *comm = created;
  return SAR_OK;
}

sar_status sar_comm_handle(const sar_comm *comm, void *handle) {
  if (comm == nullptr || handle == nullptr) {
    return null_argument("sar_comm_handle", comm == nullptr ? "comm" : "handle");
  }
  __builtin_memcpy(handle, &comm->communicator.handle(), SAR_HANDLE_BYTES);
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
  // The caller's bytes may have any alignment.
  sar::Handle copies[SAR_MAX_RANKS];
  __builtin_memcpy(copies, handles, comm->communicator.world_size() * sizeof(sar::Handle));
  return comm->communicator.connect(copies, timeout_ns);
}

sar_status sar_comm_arena(const sar_comm *comm, void **base, uint64_t *bytes) {
  if (comm == nullptr || base == nullptr || bytes == nullptr) {
    return null_argument("sar_comm_arena",
                         comm == nullptr ? "comm" : (base == nullptr ? "base" : "bytes"));
  }
  *base = comm->communicator.arena();
  *bytes = comm->communicator.geometry().arena_bytes;
  return SAR_OK;
}

sar_comm_state_code sar_comm_state(const sar_comm *comm) {
  return comm == nullptr ? SAR_STATE_ABORTED : comm->communicator.state();
}

sar_status sar_comm_statistics(const sar_comm *comm, sar_statistics *statistics) {
  if (comm == nullptr || statistics == nullptr) {
    return null_argument("sar_comm_statistics", comm == nullptr ? "comm" : "statistics");
  }
  *statistics = comm->communicator.statistics();
  return SAR_OK;
}

sar_status sar_comm_detach(sar_comm *comm) {
  return comm == nullptr ? null_argument("sar_comm_detach", "comm") : comm->communicator.detach();
}

sar_status sar_comm_attach(sar_comm *comm) {
  return comm == nullptr ? null_argument("sar_comm_attach", "comm") : comm->communicator.attach();
}

sar_status sar_abort(sar_comm *comm, int32_t culprit_rank, const char *message) {
  if (comm == nullptr) {
    return null_argument("sar_abort", "comm");
  }
  const auto world_size = static_cast<int32_t>(comm->communicator.world_size());
  if (culprit_rank < -1 || culprit_rank >= world_size) {
    return refuse(SAR_INVALID_ARGUMENT, "sar_abort: culprit_rank is %d, must be -1 to %d",
                  culprit_rank, world_size - 1);
  }
  return comm->communicator.abort(culprit_rank, message == nullptr ? "" : message);
}

void sar_comm_destroy(sar_comm *comm) {
  if (comm != nullptr) {
    comm->~sar_comm();
    free(comm);
  }
}

sar_status sar_all_reduce(sar_comm *comm, const void *in, void *out, uint64_t count,
                          sar_data_type type, sar_reduce_op op, sar_schedule schedule,
                          int64_t timeout_ns) {
  return run(comm, Call{SAR_COLLECTIVE_ALL_REDUCE, in, out, count, type, op, schedule}, timeout_ns);
}

sar_status sar_reduce_scatter(sar_comm *comm, const void *in, void *out, uint64_t count,
                              sar_data_type type, sar_reduce_op op, int64_t timeout_ns) {
  return run(comm, Call{SAR_COLLECTIVE_REDUCE_SCATTER, in, out, count, type, op}, timeout_ns);
}

sar_status sar_all_gather(sar_comm *comm, const void *in, void *out, uint64_t count,
                          sar_data_type type, int64_t timeout_ns) {
  return run(comm, Call{SAR_COLLECTIVE_ALL_GATHER, in, out, count, type}, timeout_ns);
}

sar_status sar_broadcast(sar_comm *comm, const void *in, void *out, uint64_t count,
                         sar_data_type type, uint32_t root, int64_t timeout_ns) {
  return run(comm, Call{SAR_COLLECTIVE_BROADCAST, in, out, count, type, SAR_SUM, SAR_AUTO, root},
             timeout_ns);
}

sar_status sar_barrier(sar_comm *comm, int64_t timeout_ns) {
  return run(comm, Call{SAR_COLLECTIVE_BARRIER, nullptr, nullptr, 0, SAR_FLOAT64}, timeout_ns);
}

sar_status sar_comm_expect_total(sar_comm *comm, uint64_t total) {
  if (comm == nullptr) {
    return null_argument("sar_comm_expect_total", "comm");
  }
  comm->communicator.expect_total(total);
  return SAR_OK;
}

sar_status sar_comm_renumber(sar_comm *comm, const uint32_t *members) {
  if (comm == nullptr || members == nullptr) {
    return null_argument("sar_comm_renumber", comm == nullptr ? "comm" : "members");
  }
  return comm->communicator.renumber(members);
}

sar_status sar_comm_set_auto_table(sar_comm *comm, const sar_auto_row *rows, size_t count) {
  if (comm == nullptr || (rows == nullptr && count != 0)) {
    return null_argument("sar_comm_set_auto_table", comm == nullptr ? "comm" : "rows");
  }
  return comm->communicator.auto_table.set(rows, count);
}

uint64_t sar_comm_sequence(const sar_comm *comm) {
  return comm == nullptr ? 0 : comm->communicator.sequence();
}

sar_status sar_register(sar_comm *comm, const char *path, uint64_t offset, uint64_t bytes,
                        int64_t timeout_ns, void **address) {
  if (comm == nullptr || path == nullptr || address == nullptr) {
    return null_argument("sar_register",
                         comm == nullptr ? "comm" : (path == nullptr ? "path" : "address"));
  }
  const Call call{SAR_COLLECTIVE_REGISTER, nullptr, nullptr, bytes, SAR_FLOAT64};
  return Collective(comm->communicator, call).register_file(path, offset, timeout_ns, address);
}

sar_status sar_deregister(sar_comm *comm, void *address, int64_t timeout_ns) {
  if (comm == nullptr || address == nullptr) {
    return null_argument("sar_deregister", comm == nullptr ? "comm" : "address");
  }
  const sar::Communicator &communicator = comm->communicator;
  for (uint32_t number = 1; number < sar::kRegions; number++) {
    if (communicator.region_bytes(number) != 0 &&
        communicator.region_base(communicator.rank(), number) == address) {
      // The ranks compare the number as they compare counts.
      const Call call{SAR_COLLECTIVE_DEREGISTER, nullptr, nullptr, number, SAR_FLOAT64};
      return Collective(comm->communicator, call).deregister(number, timeout_ns);
    }
  }
  return refuse(SAR_INVALID_ARGUMENT, "deregister: nothing is registered at %p", address);
}
