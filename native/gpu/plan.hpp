// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// plan.hpp: turns one collective into kernel launches. A pure function of what all ranks know, so
// every rank plans the same launches, and the tests can look at them without a device.
//
// The staging buffer of a rank has two halves that never change places:
//
//   +--------+--------+-----+--------+----------+----------+-----+----------+
//   | slot 0 | slot 1 | ... | slot N | result 0 | result 1 | ... | result N |
//   +--------+--------+-----+--------+----------+----------+-----+----------+
//
// slot r    stored by rank r before the arrival of a collective: rank r's slice for this rank. A
// rank
//           has read its slots before it signals the exit, so the next collective may store there.
//           Schedules in which peers load copy the input here instead (all slots as one area).
// result r  staged write: stored by rank r after the arrival, copied by the owner after the exit;
// peers
//           store there again only after the owner's next arrival. Two-shot read: this rank's
//           reduced slice, from the start of the half; peers have loaded it before they signal the
//           exit.
#ifndef SPARK_ALLREDUCE_GPU_PLAN_HPP
#define SPARK_ALLREDUCE_GPU_PLAN_HPP

#include <stdint.h>

#include "../kernels/layout.hpp"
#include "spark_allreduce.h"

namespace sar::gpu {

// What does not change during the life of a communicator. Addresses are as this rank's device sees
// them.
struct Geometry {
  uint32_t rank = 0;
  uint32_t world = 0;
  uint32_t blocks = 0;  // at most so many of each rank are resident together with all peers'
  uint64_t staging_bytes = 0;
  uint64_t pad[kMaxRanks] = {};
  uint64_t staging[kMaxRanks] = {};
  uint64_t outcome = 0;
  uint64_t host_abort = 0;
  // Where `auto` looks; none: the built-in table.
  const sar_auto_row *auto_rows = nullptr;
  uint32_t auto_count = 0;
};

// One collective, as all ranks called it.
struct Call {
  sar_collective collective = SAR_COLLECTIVE_NONE;
  sar_data_type type = SAR_FLOAT32;
  sar_reduce_op op = SAR_SUM;
  sar_schedule schedule = SAR_AUTO;
  uint32_t root = 0;
  uint64_t count = 0;
  uint32_t number = 0;  // position in a capture; 0 for an eager call
  uint64_t timeout_ticks = 0;
};

// A rank's buffers, as this rank's device sees them; 0: not registered, so peers cannot reach it.
struct RankBuffers {
  uint64_t input = 0;
  uint64_t output = 0;
  bool in_place = false;
};

struct Buffers {
  uint64_t input = 0;  // this rank's own, registered or not
  uint64_t output = 0;
  RankBuffers rank[kMaxRanks];
};

// The schedule that runs: `auto` resolved, and staged write where a buffer is not registered.
struct Choice {
  sar_schedule schedule = SAR_AUTO;
  bool fell_back = false;  // a buffer of some rank was not registered
};
Choice choose(const Geometry &geometry, const Call &call, const Buffers &buffers);

// What the call asks for; if it asks for `auto`, what the table says.
sar_schedule wanted_schedule(const Geometry &geometry, const Call &call);

// Only the low-latency schedule has a size limit: each thread sends one word.
bool fits_low_latency(const Geometry &geometry, const Call &call);

// A collective takes one launch, or several when it has to go through staging in chunks. `done`
// counts elements: pass the value of the launch before, 0 at first. Returns the new value.
// `chunked`: cut a one-shot into staging-sized chunks even if no rank needs its staging buffer (a
// capture plans before it knows the peers' buffers).
struct Planned {
  Launch launch;
  uint32_t threads;  // of a block
  bool low_latency;
  uint64_t done;
};
Planned plan(const Geometry &geometry, const Call &call, const Buffers &buffers,
             sar_schedule schedule, bool chunked, uint64_t done);

// What is compared between ranks: collective, type, operation, schedule, root in one word.
uint32_t kind_of(const Call &call);

}  // namespace sar::gpu

#endif
