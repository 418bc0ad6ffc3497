// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// auto_table.cpp: which schedule `auto` takes, measured with native/bench (README, docs/tuning).
#include <array>

#include "plan.hpp"

namespace sar::gpu {
namespace {

// The first row whose world size and bytes are not exceeded.
struct Row {
  uint32_t world;
  uint64_t bytes;
  sar_schedule schedule;
};

constexpr std::array kTable = {
    Row{16, 32768, SAR_LOW_LATENCY},
    Row{16, UINT64_MAX, SAR_LOAD_REDUCE_STORE},
};

}  // namespace

sar_schedule choose_auto(uint32_t world, uint64_t bytes) {
  for (const Row &row : kTable) {
    if (world <= row.world && bytes <= row.bytes) return row.schedule;
  }
  return SAR_LOAD_REDUCE_STORE;
}

}  // namespace sar::gpu
