// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// auto_table.cpp: which schedule `auto` takes, unless sar_comm_set_auto_table says otherwise.
#include <span>

#include "../common/numerics.hpp"
#include "plan.hpp"

namespace sar::gpu {
namespace {

// Measured with native/bench on one H200, ranks emulated on streams (docs/decisions/0017).
constexpr sar_auto_row kBuiltIn[] = {
    {SAR_MAX_RANKS, SAR_LOW_LATENCY, 32768},
    {SAR_MAX_RANKS, SAR_LOAD_REDUCE_STORE, UINT64_MAX},
};

}  // namespace

sar_schedule wanted_schedule(const Geometry &geometry, const Call &call) {
  if (call.collective != SAR_COLLECTIVE_ALL_REDUCE || call.schedule != SAR_AUTO) {
    return call.schedule;
  }
  const uint64_t bytes = call.count * element_bytes(call.type);
  const auto table = geometry.auto_count == 0 ? std::span<const sar_auto_row>(kBuiltIn)
                                              : std::span(geometry.auto_rows, geometry.auto_count);
  for (const sar_auto_row &row : table) {
    if (geometry.world > row.world_size || bytes > row.bytes) continue;
    if (row.schedule == SAR_LOW_LATENCY && !fits_low_latency(geometry, call)) continue;
    return static_cast<sar_schedule>(row.schedule);
  }
  return SAR_LOAD_REDUCE_STORE;
}

}  // namespace sar::gpu
