// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// emulator_plan.cpp: gpu/plan.cpp as a library for emulate_amd.py, so that what is emulated is what
// the GPU library would launch.
#include <cstring>

#include "../../gpu/plan.hpp"

using namespace sar::gpu;

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

// What emulate_amd.py passes; the same fields in the same order.
struct Asked {
  uint64_t pad[kMaxRanks], staging[kMaxRanks];
  uint64_t input[kMaxRanks], output[kMaxRanks];
  uint64_t outcome, host_abort, table, staging_bytes, count, timeout_ticks;
  uint32_t rank, world, blocks, collective, type, op, schedule, root, in_place, registered;
};

}  // namespace

EXPORTED uint64_t emulator_pad_bytes() { return sizeof(Pad); }
EXPORTED uint64_t emulator_launch_bytes() { return sizeof(Launch); }

// Plans the launch that begins at element `done` and returns the `done` of the next one.
EXPORTED uint64_t emulator_plan(const Asked *asked, uint64_t done, void *launch, uint32_t *blocks,
                                uint32_t *threads, uint32_t *low_latency) {
  Geometry geometry;
  geometry.rank = asked->rank;
  geometry.world = asked->world;
  geometry.blocks = asked->blocks;
  geometry.staging_bytes = asked->staging_bytes;
  geometry.outcome = asked->outcome;
  geometry.host_abort = asked->host_abort;
  std::memcpy(geometry.pad, asked->pad, sizeof geometry.pad);
  std::memcpy(geometry.staging, asked->staging, sizeof geometry.staging);
  Call call;
  call.collective = static_cast<sar_collective>(asked->collective);
  call.type = static_cast<sar_data_type>(asked->type);
  call.op = static_cast<sar_reduce_op>(asked->op);
  call.schedule = static_cast<sar_schedule>(asked->schedule);
  call.root = asked->root;
  call.count = asked->count;
  call.timeout_ticks = asked->timeout_ticks;
  Buffers buffers;
  buffers.input = asked->input[asked->rank];
  buffers.output = asked->output[asked->rank];
  for (uint32_t r = 0; r < asked->world; ++r) {
    buffers.rank[r] = {asked->registered != 0 ? asked->input[r] : 0,
                       asked->registered != 0 ? asked->output[r] : 0, asked->in_place != 0};
  }
  Planned planned =
      plan(geometry, call, buffers, choose(geometry, call, buffers).schedule, false, done);
  if (asked->table != 0) {  // where a capture has put the addresses
    std::memcpy(reinterpret_cast<void *>(asked->table), &planned.launch.addresses,
                sizeof planned.launch.addresses);
    planned.launch.addresses = {};
    planned.launch.patched = asked->table;
  }
  std::memcpy(launch, &planned.launch, sizeof planned.launch);
  *blocks = planned.launch.blocks;
  *threads = planned.threads;
  *low_latency = planned.low_latency ? 1 : 0;
  return planned.done;
}
