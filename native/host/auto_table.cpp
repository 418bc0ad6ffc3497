// Licensed under the Apache License, Version 2.0. See LICENSE.
#include "auto_table.hpp"

#include <string.h>

#include "failure.hpp"
#include "layout.hpp"

namespace sar {

namespace {

// Where they come from: docs/decisions/0020.
constexpr sar_auto_row kBuiltIn[] = {
    {SAR_MAX_RANKS, SAR_LOW_LATENCY, kLowLatencyBytes},
    {2, SAR_ONE_SHOT, 1024},
    {2, SAR_LOAD_REDUCE_STORE, UINT64_MAX},
    {SAR_MAX_RANKS, SAR_ONE_SHOT, 4096},
    {SAR_MAX_RANKS, SAR_LOAD_REDUCE_STORE, UINT64_MAX},
};

sar_status check_row(const sar_auto_row &row, size_t number) {
  if (row.schedule == SAR_AUTO || row.schedule > SAR_LOW_LATENCY) {
    return refuse(SAR_INVALID_ARGUMENT,
                  "row %zu of the table for auto has schedule %u: it must be one of %s (%d) to %s "
                  "(%d)",
                  number, row.schedule, schedule_name(SAR_ONE_SHOT), SAR_ONE_SHOT,
                  schedule_name(SAR_LOW_LATENCY), SAR_LOW_LATENCY);
  }
  if (row.world_size == 0) {
    return refuse(SAR_INVALID_ARGUMENT,
                  "row %zu of the table for auto has world size 0, which no communicator has",
                  number);
  }
  return SAR_OK;
}

}  // namespace

sar_status AutoTable::set(const sar_auto_row *rows, size_t count) {
  if (count > SAR_MAX_AUTO_ROWS) {
    return refuse(SAR_INVALID_ARGUMENT, "the table for auto has %zu rows, but may have %u at most",
                  count, SAR_MAX_AUTO_ROWS);
  }
  for (size_t i = 0; i < count; i++) {
    if (const sar_status status = check_row(rows[i], i); status != SAR_OK) {
      return status;
    }
  }
  if (count != 0) {
    memcpy(rows_, rows, count * sizeof *rows);
  }
  count_ = static_cast<uint32_t>(count);
  return SAR_OK;
}

sar_schedule AutoTable::choose(uint32_t world_size, uint64_t bytes) const {
  const sar_auto_row *rows = count_ == 0 ? kBuiltIn : rows_;
  const size_t count = count_ == 0 ? sizeof kBuiltIn / sizeof kBuiltIn[0] : count_;
  for (size_t i = 0; i < count; i++) {
    const bool carries = rows[i].schedule != SAR_LOW_LATENCY || bytes <= kLowLatencyBytes;
    if (carries && world_size <= rows[i].world_size && bytes <= rows[i].bytes) {
      return static_cast<sar_schedule>(rows[i].schedule);
    }
  }
  return SAR_LOAD_REDUCE_STORE;
}

}  // namespace sar
