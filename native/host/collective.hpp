// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// One collective call on one rank. Each schedule is a function in all_reduce.cpp or
// data_movement.cpp; what they share is here.
#ifndef SPARK_ALLREDUCE_HOST_COLLECTIVE_HPP
#define SPARK_ALLREDUCE_HOST_COLLECTIVE_HPP

#include <cstdint>

#include "communicator.hpp"
#include "reduce.hpp"

namespace sar {

struct Call {
  sar_collective collective;
  const void *in;
  void *out;
  uint64_t count;
  sar_data_type type;
  sar_reduce_op op = SAR_SUM;
  sar_schedule schedule = SAR_AUTO;
  uint32_t root = 0;
};

// Elements begin to end - 1.
struct Range {
  uint64_t begin;
  uint64_t end;

  uint64_t length() const { return end - begin; }
};

class Collective {
 public:
  Collective(Communicator &communicator, const Call &call);

  // Checks the call, then takes part in it.
  sar_status run(int64_t timeout_ns);

  // The same for a registration of call.count bytes, and for its end.
  sar_status register_file(const char *path, uint64_t offset, int64_t timeout_ns, void **address);
  sar_status deregister(uint32_t number, int64_t timeout_ns);

 private:
  // How a buffer takes part: where it is and whether peers can reach it.
  struct Buffer {
    uint64_t bytes = 0;
    Location location{kArenaRegion, 0};
    bool registered = false;
  };

  sar_status check();
  sar_status check_buffer(const char *name, const void *address, uint64_t elements, Buffer &buffer);
  sar_status check_overlap();
  sar_status take_part();

  sar_status begin_registration(int64_t timeout_ns);
  sar_status map_region(Region &region, const char *path, uint64_t offset);
  // `own`: this rank's status, which its announcement may not say any more.
  sar_status first_failure(uint32_t Announcement::*status, sar_status own) const;

  sar_status all_reduce();
  sar_status low_latency();
  sar_status one_shot();
  sar_status two_shot_read();
  sar_status staged_write();
  sar_status direct_write();
  sar_status load_reduce_store();
  sar_status reduce_scatter();
  sar_status all_gather();
  sar_status broadcast();

  // Arrival, after which fields_ has every rank's call, all found equal. `filled`: this rank has
  // filled its part of the first round already.
  sar_status arrive(bool filled);
  bool fields_agree() const;
  sar_status compare_fields();
  sar_status compare_field(const char *name, uint32_t CallFields::*field,
                           const char *(*value_name)(uint32_t));
  sar_status compare_count(const char *name, uint64_t CallFields::*field);
  sar_status check_offsets();
  sar_status mismatch(uint32_t rank, const char *name, const char *first, const char *second);

  // For each chunk of the call: fill(range), barrier, drain(range). Before the first barrier counts
  // what ranks have filled before they arrived.
  template <typename Fill, typename Drain>
  sar_status rounds(uint64_t chunk, Fill fill, Drain drain);
  Range first_chunk(uint64_t chunk) const;

  // The part of `range` that is this rank's (or `rank`'s) to reduce; cut at whole cache lines.
  Range slice(const Range &range, uint32_t rank) const;

  bool is_small(uint64_t elements) const;
  // True if every rank has set all of these CallFlags.
  bool all_say(uint32_t flags) const;

  const char *in(uint64_t element) const { return in_ + element * element_bytes_; }
  char *out(uint64_t element) const { return out_ + element * element_bytes_; }
  // In any rank's registered buffer, as mapped here.
  const char *input_of(uint32_t rank, uint64_t element) const;
  char *output_of(uint32_t rank, uint64_t element) const;
  char *push_slot(uint32_t owner, uint32_t source) const;
  char *pull_half(uint32_t owner) const;
  void copy(void *to, const void *from, uint64_t elements) const;

  // Push: rank q's slice of `range` into q's slot for this rank, and reducing what came in.
  void push_slices(const Range &range);
  void reduce_pushed(const Range &range, ReduceJob &job) const;
  uint64_t push_chunk() const;
  uint64_t pull_chunk() const;

  ReduceJob new_job(uint64_t elements) const;

  Communicator &comm_;
  const Call call_;
  const uint64_t total_;
  const uint32_t rank_;
  const uint32_t ranks_;
  const uint64_t element_bytes_;
  const char *const in_;
  char *const out_;
  Buffer input_;
  Buffer output_;
  sar_schedule wanted_ = SAR_AUTO;  // an all-reduce's schedule, never SAR_AUTO once it has begun
  CallFields fields_[SAR_MAX_RANKS];
};

template <typename Fill, typename Drain>
sar_status Collective::rounds(uint64_t chunk, Fill fill, Drain drain) {
  const bool filled = (fields_[rank_].flags & kFilledEarly) != 0;
  const bool all_filled = all_say(kFilledEarly);
  for (uint64_t begin = 0; begin < call_.count; begin += chunk) {
    const Range range{begin, call_.count - begin < chunk ? call_.count : begin + chunk};
    if (begin != 0 || !filled) {
      fill(range);
    }
    if (begin != 0 || !all_filled) {
      if (const sar_status status = comm_.step(); status != SAR_OK) {
        return status;
      }
    }
    if (const sar_status status = drain(range); status != SAR_OK) {
      return status;
    }
  }
  return SAR_OK;
}

}  // namespace sar

#endif  // SPARK_ALLREDUCE_HOST_COLLECTIVE_HPP
