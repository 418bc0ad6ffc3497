// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// What another language repeats of the C header, for a test there to compare.
#include <stddef.h>

#include "layout.hpp"
#include "spark_allreduce.h"

namespace {

#define SAR_CONSTANT(name) \
  { #name, static_cast < uint64_t>(name) }
#define SAR_SIZE(type) \
  { "sizeof(" #type ")", sizeof(type) }
#define SAR_OFFSET(type, field) \
  { #type "." #field, offsetof(type, field) }

constexpr sar_constant kConstants[] = {
    SAR_CONSTANT(SAR_ABI_VERSION),
    SAR_CONSTANT(SAR_MAX_RANKS),
    SAR_CONSTANT(SAR_HANDLE_BYTES),
    SAR_CONSTANT(SAR_MESSAGE_BYTES),
    SAR_CONSTANT(SAR_MAX_REGIONS),
    SAR_CONSTANT(SAR_MIN_STAGING_BYTES),
    SAR_CONSTANT(SAR_MAX_AUTO_ROWS),

    SAR_CONSTANT(SAR_OK),
    SAR_CONSTANT(SAR_INVALID_ARGUMENT),
    SAR_CONSTANT(SAR_MISMATCH),
    SAR_CONSTANT(SAR_TIMEOUT),
    SAR_CONSTANT(SAR_ABORTED),
    SAR_CONSTANT(SAR_PEER_LOST),
    SAR_CONSTANT(SAR_OUT_OF_MEMORY),
    SAR_CONSTANT(SAR_SYSTEM_ERROR),
    SAR_CONSTANT(SAR_UNSUPPORTED),

    SAR_CONSTANT(SAR_FLOAT64),
    SAR_CONSTANT(SAR_FLOAT32),
    SAR_CONSTANT(SAR_FLOAT16),
    SAR_CONSTANT(SAR_BFLOAT16),
    SAR_CONSTANT(SAR_INT32),
    SAR_CONSTANT(SAR_INT64),

    SAR_CONSTANT(SAR_SUM),
    SAR_CONSTANT(SAR_PRODUCT),
    SAR_CONSTANT(SAR_MIN),
    SAR_CONSTANT(SAR_MAX),
    SAR_CONSTANT(SAR_AVERAGE),

    SAR_CONSTANT(SAR_AUTO),
    SAR_CONSTANT(SAR_ONE_SHOT),
    SAR_CONSTANT(SAR_TWO_SHOT_READ),
    SAR_CONSTANT(SAR_STAGED_WRITE),
    SAR_CONSTANT(SAR_DIRECT_WRITE),
    SAR_CONSTANT(SAR_LOAD_REDUCE_STORE),
    SAR_CONSTANT(SAR_LOW_LATENCY),

    SAR_CONSTANT(SAR_COLLECTIVE_NONE),
    SAR_CONSTANT(SAR_COLLECTIVE_CONNECT),
    SAR_CONSTANT(SAR_COLLECTIVE_BARRIER),
    SAR_CONSTANT(SAR_COLLECTIVE_ALL_REDUCE),
    SAR_CONSTANT(SAR_COLLECTIVE_REDUCE_SCATTER),
    SAR_CONSTANT(SAR_COLLECTIVE_ALL_GATHER),
    SAR_CONSTANT(SAR_COLLECTIVE_BROADCAST),
    SAR_CONSTANT(SAR_COLLECTIVE_REGISTER),
    SAR_CONSTANT(SAR_COLLECTIVE_DEREGISTER),

    SAR_CONSTANT(SAR_STATE_OPENING),
    SAR_CONSTANT(SAR_STATE_OPEN),
    SAR_CONSTANT(SAR_STATE_DETACHED),
    SAR_CONSTANT(SAR_STATE_ABORTED),

    SAR_CONSTANT(SAR_NVIDIA),
    SAR_CONSTANT(SAR_AMD),

    SAR_SIZE(sar_options),
    SAR_OFFSET(sar_options, struct_bytes),
    SAR_OFFSET(sar_options, rank),
    SAR_OFFSET(sar_options, world_size),
    SAR_OFFSET(sar_options, first_epoch),
    SAR_OFFSET(sar_options, session_high),
    SAR_OFFSET(sar_options, session_low),
    SAR_OFFSET(sar_options, arena_bytes),
    SAR_OFFSET(sar_options, staging_bytes),
    SAR_OFFSET(sar_options, spin_ns),

    SAR_SIZE(sar_failure),
    SAR_OFFSET(sar_failure, status),
    SAR_OFFSET(sar_failure, collective),
    SAR_OFFSET(sar_failure, sequence),
    SAR_OFFSET(sar_failure, origin_rank),
    SAR_OFFSET(sar_failure, culprit_rank),
    SAR_OFFSET(sar_failure, missing_ranks),
    SAR_OFFSET(sar_failure, dead_ranks),
    SAR_OFFSET(sar_failure, step),
    SAR_OFFSET(sar_failure, waited_ns),

    SAR_SIZE(sar_statistics),
    SAR_OFFSET(sar_statistics, collectives),
    SAR_OFFSET(sar_statistics, bytes),
    SAR_OFFSET(sar_statistics, wait_ns),
    SAR_OFFSET(sar_statistics, total_ns),
    SAR_OFFSET(sar_statistics, unregistered),
    SAR_OFFSET(sar_statistics, peer_wait_ns),

    SAR_SIZE(sar_auto_row),
    SAR_OFFSET(sar_auto_row, world_size),
    SAR_OFFSET(sar_auto_row, schedule),
    SAR_OFFSET(sar_auto_row, bytes),

    SAR_SIZE(sar_gpu_facts),
    SAR_OFFSET(sar_gpu_facts, vendor),
    SAR_OFFSET(sar_gpu_facts, driver_version),
    SAR_OFFSET(sar_gpu_facts, memory_bytes),
    SAR_OFFSET(sar_gpu_facts, name),
    SAR_OFFSET(sar_gpu_facts, uuid),
    SAR_OFFSET(sar_gpu_facts, bus_id),

    SAR_SIZE(sar_constant),
    SAR_OFFSET(sar_constant, name),
    SAR_OFFSET(sar_constant, value),
};

}  // namespace

const sar_constant *sar_constants(size_t *count) {
  if (count != nullptr) {
    *count = sizeof kConstants / sizeof kConstants[0];
  }
  return kConstants;
}
