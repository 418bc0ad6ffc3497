// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// The reader of the control block: rank 0 makes one collective, while header, call lines, steps and
// announcements of both ranks hold whatever the input says. Whatever that is, the call ends, with a
// status of the header's, and touches nothing but its buffers and registered memory, which the
// sanitizers look after.
//
//   input: collective, type, op, schedule, then any number of {segment, offset (2), length, bytes}
#include <cstdlib>
#include <cstring>
#include <vector>

#include "fuzzing.hpp"
#include "layout.hpp"
#include "spark_allreduce.h"

namespace {

using sar::testing::Input;
using sar::testing::require;

constexpr int64_t kShort = 1'000;   // ns: a wait that is not over at once ends with the deadline
constexpr uint64_t kCount = 1'500;  // of float64: more than a staging slot
constexpr uint64_t kElementBytes = 8;

class Pair {
 public:
  Pair() {
    for (uint32_t rank = 0; rank < 2; rank++) {
      sar_options options{};
      options.struct_bytes = sizeof options;
      options.rank = rank;
      options.world_size = 2;
      options.session_low = 7;
      options.arena_bytes = SAR_MIN_STAGING_BYTES;
      options.staging_bytes = SAR_MIN_STAGING_BYTES;
      require(sar_comm_create(&options, &comms_[rank]) == SAR_OK);
      require(sar_comm_handle(comms_[rank], &handles_[rank]) == SAR_OK);
      void *arena = nullptr;
      uint64_t bytes = 0;
      require(sar_comm_arena(comms_[rank], &arena, &bytes) == SAR_OK);
      const sar::Geometry geometry{2, handles_[rank].staging_bytes, handles_[rank].arena_bytes};
      segments_[rank] = static_cast<char *>(arena) - geometry.arena();
    }
    // What rank 1 would have done by now, so that rank 0 connects by itself.
    sar::header_of(segments_[0]).attached_ranks = 0b10;
    sar::signal_pad_of(segments_[1]).step.epoch = 1;
    require(sar_comm_connect(comms_[0], handles_, 60'000'000'000) == SAR_OK);
  }
  ~Pair() {
    sar_comm_destroy(comms_[0]);
    sar_comm_destroy(comms_[1]);
  }
  Pair(const Pair &) = delete;
  Pair &operator=(const Pair &) = delete;

  sar_comm *comm() const { return comms_[0]; }
  char *segment(uint32_t rank) const { return segments_[rank]; }

 private:
  sar_comm *comms_[2];
  sar::Handle handles_[2];
  char *segments_[2];
};

struct Call {
  uint8_t collective;
  uint8_t type;
  uint8_t op;
  uint8_t schedule;
};

// Rank 1 makes the same call; the input may say otherwise afterwards.
void arrive_as_rank_1(const Pair &pair, const Call &call) {
  sar::SignalPad &pad = sar::signal_pad_of(pair.segment(1));
  sar::CallLine &line = pad.calls[1];
  line.sequence = 1;
  line.count = kCount;
  line.total = kCount;
  line.collective = call.collective;
  line.type = call.type;
  line.op = call.op;
  line.schedule = call.schedule;
  line.flags = sar::kInputRegistered | sar::kOutputRegistered;
  line.epoch = 1;
  pad.step.epoch = 1'000;  // past every step
}

void tamper(const Pair &pair, Input &input) {
  while (!input.empty()) {
    char *segment = pair.segment(input.byte() % 2);
    const size_t offset = (input.byte() | size_t{input.byte()} << 8) % sar::kStagingOffset;
    const size_t length = input.byte();
    for (size_t i = 0; i < length && offset + i < sar::kStagingOffset && !input.empty(); i++) {
      segment[offset + i] = static_cast<char>(input.byte());
    }
  }
}

sar_status run(sar_comm *comm, const Call &call, bool registered) {
  void *arena = nullptr;
  uint64_t bytes = 0;
  require(sar_comm_arena(comm, &arena, &bytes) == SAR_OK);
  std::vector<char> heap(4 * kCount * kElementBytes);
  char *in = registered ? static_cast<char *>(arena) : heap.data();
  char *out = in + 2 * kCount * kElementBytes;
  const auto type = static_cast<sar_data_type>(call.type);
  const auto op = static_cast<sar_reduce_op>(call.op);
  switch (call.collective) {
    case SAR_COLLECTIVE_ALL_REDUCE:
      return sar_all_reduce(comm, in, out, kCount, type, op,
                            static_cast<sar_schedule>(call.schedule), kShort);
    case SAR_COLLECTIVE_REDUCE_SCATTER:
      return sar_reduce_scatter(comm, in, out, kCount, type, op, kShort);
    case SAR_COLLECTIVE_ALL_GATHER:
      return sar_all_gather(comm, in, out, kCount, type, kShort);
    case SAR_COLLECTIVE_BROADCAST:
      return sar_broadcast(comm, in, out, kCount, type, 1, kShort);
    case SAR_COLLECTIVE_REGISTER: {
      void *address = nullptr;
      return sar_register(comm, "/dev/shm/no-such-file", 0, kCount, kShort, &address);
    }
    default:
      return sar_barrier(comm, kShort);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Input input(data, size);
  const uint8_t first = input.byte();
  const bool registered = (first & 0x80) != 0;
  const Call call{static_cast<uint8_t>(SAR_COLLECTIVE_BARRIER + first % 6),
                  static_cast<uint8_t>(input.byte() % 6), static_cast<uint8_t>(input.byte() % 5),
                  static_cast<uint8_t>(input.byte() % 6)};
  const Pair pair;
  arrive_as_rank_1(pair, call);
  tamper(pair, input);
  const sar_status status = run(pair.comm(), call, registered);
  require(status >= SAR_OK && status <= SAR_UNSUPPORTED);
  if (status != SAR_OK) {
    sar_failure failure;
    sar_last_failure(&failure);
    require(failure.status == static_cast<uint32_t>(status));
    require(failure.origin_rank >= -1 && failure.origin_rank < 2);
    require(failure.culprit_rank >= -1 && failure.culprit_rank < 2);
    require(strlen(sar_last_error()) < SAR_MESSAGE_BYTES);
  }
  return 0;
}
