// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// The reader of handles: rank 0 connects to a rank 1 whose handle, and the header of whose segment,
// the input has changed. Nothing but the right handle is accepted.
//
//   input: what is xor-ed to the handle (256), then to the header
#include <cstring>

#include "fuzzing.hpp"
#include "layout.hpp"
#include "spark_allreduce.h"

using sar::testing::Input;
using sar::testing::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Input input(data, size);
  sar_comm *comms[2];
  sar::Handle handles[2];
  for (uint32_t rank = 0; rank < 2; rank++) {
    sar_options options{};
    options.struct_bytes = sizeof options;
    options.rank = rank;
    options.world_size = 2;
    options.session_low = 7;
    options.arena_bytes = SAR_MIN_STAGING_BYTES;
    options.staging_bytes = SAR_MIN_STAGING_BYTES;
    require(sar_comm_create(&options, &comms[rank]) == SAR_OK);
    require(sar_comm_handle(comms[rank], &handles[rank]) == SAR_OK);
  }
  void *arena = nullptr;
  uint64_t bytes = 0;
  require(sar_comm_arena(comms[1], &arena, &bytes) == SAR_OK);
  const sar::Geometry geometry{2, handles[1].staging_bytes, handles[1].arena_bytes};
  sar::Handle changed = handles[1];
  input.xor_to(&changed, sizeof changed);
  // The fields that the owner writes before its handle leaves it.
  input.xor_to(static_cast<char *>(arena) - geometry.arena(), sar::kAttachedOffset);
  const sar::Handle sent[2] = {handles[0], changed};
  const sar_status status = sar_comm_connect(comms[0], sent, 1'000);
  require(status != SAR_OK);  // rank 1 never comes
  require(strlen(sar_last_error()) < SAR_MESSAGE_BYTES);
  if (status == SAR_TIMEOUT) {  // it was accepted: all but the reserved bytes must be right
    changed.reserved = handles[1].reserved;
    require(memcmp(&changed, &handles[1], offsetof(sar::Handle, name)) == 0);
    require(strcmp(changed.name, handles[1].name) == 0);
  }
  sar_comm_destroy(comms[0]);
  sar_comm_destroy(comms[1]);
  return 0;
}
