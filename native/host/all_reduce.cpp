// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// The schedules of all-reduce. Barriers for a message that fits into staging, arrival included:
//
//   low latency         1  barrier, whose flags bring the inputs along; reduce all of it
//   one-shot            1  copy the input into the own pull half; barrier; reduce all of it
//   two-shot read       2  barrier; reduce the own slice into the own pull half; barrier; copy the
//                          other slices from the peers' pull halves
//   staged write        2  push slice q into rank q's push half; barrier; reduce the own slice into
//                          every peer's pull half; barrier; copy them from the own pull half
//   direct write        2  push slice q into rank q's push half; barrier; reduce the own slice into
//                          every output; barrier
//   load-reduce/store   2  barrier; reduce the own slice of all inputs into every output; barrier
//
// What a schedule cannot do with unregistered buffers, staged write does.
#include "collective.hpp"

namespace sar {

namespace {

// With outputs of so many bytes, those of all ranks together, they are written past the caches:
// with the inputs they no longer fit there (32 MiB on the machine of docs/decisions/0020, which has
// the times). Not in a piece of a call: that is read at once, from caches that it fits into.
constexpr uint64_t kStreamedBytes = 16 << 20;

// Which buffers peers must be able to reach.
uint32_t needs(sar_schedule schedule) {
  switch (schedule) {
    case SAR_TWO_SHOT_READ:
      return kInputRegistered;
    case SAR_DIRECT_WRITE:
      return kOutputRegistered;
    case SAR_LOAD_REDUCE_STORE:
      return kInputRegistered | kOutputRegistered;
    default:
      return 0;
  }
}

bool pushes(sar_schedule schedule) {
  return schedule == SAR_STAGED_WRITE || schedule == SAR_DIRECT_WRITE;
}

}  // namespace

sar_status Collective::all_reduce() {
  wanted_ = call_.schedule != SAR_AUTO
                ? call_.schedule
                : comm_.auto_table.choose(ranks_, call_.count * element_bytes_);
  const uint32_t needed = needs(wanted_);
  const uint32_t available =
      (input_.registered ? kInputRegistered : 0u) | (output_.registered ? kOutputRegistered : 0u);
  // A rank whose own buffers do not serve knows already how it will end.
  const sar_schedule expected = (available & needed) == needed ? wanted_ : SAR_STAGED_WRITE;
  const bool fills_early = expected == SAR_ONE_SHOT || pushes(expected);
  if (expected == SAR_ONE_SHOT) {
    copy(pull_half(rank_), in(0), first_chunk(pull_chunk()).length());
  } else if (pushes(expected)) {
    push_slices(first_chunk(push_chunk() * ranks_));
  }
  if (const sar_status status = arrive(fills_early); status != SAR_OK) {
    return status;
  }
  const sar_schedule schedule = all_say(needed) ? wanted_ : SAR_STAGED_WRITE;
  if (schedule != wanted_) {
    comm_.statistics().unregistered++;
  }
  if (call_.count == 0) {
    return SAR_OK;
  }
  switch (schedule) {
    case SAR_LOW_LATENCY:
      return low_latency();
    case SAR_ONE_SHOT:
      return one_shot();
    case SAR_TWO_SHOT_READ:
      return two_shot_read();
    case SAR_DIRECT_WRITE:
      return direct_write();
    case SAR_LOAD_REDUCE_STORE:
      return load_reduce_store();
    default:
      return staged_write();
  }
}

sar_status Collective::low_latency() {
  uint64_t inputs[SAR_MAX_RANKS][kLowLatencyBytes / sizeof(uint64_t)];
  ReduceJob job = new_job(call_.count);
  for (uint32_t peer = 0; peer < ranks_; peer++) {
    inputs[peer][0] = fields_[peer].input;
    inputs[peer][1] = fields_[peer].output;
    job.inputs[peer] = inputs[peer];
  }
  job.outputs[job.output_count++] = out(0);
  reduce(job);
  return SAR_OK;
}

sar_status Collective::one_shot() {
  return rounds(
      pull_chunk(),
      [&](const Range &range) { copy(pull_half(rank_), in(range.begin), range.length()); },
      [&](const Range &range) {
        ReduceJob job = new_job(range.length());
        for (uint32_t peer = 0; peer < ranks_; peer++) {
          job.inputs[peer] = pull_half(peer);
        }
        job.outputs[job.output_count++] = out(range.begin);
        reduce(job);
        comm_.pull_round++;
        return SAR_OK;
      });
}

sar_status Collective::two_shot_read() {
  const auto reduce_own_slice = [&](const Range &range) {
    const Range mine = slice(range, rank_);
    ReduceJob job = new_job(mine.length());
    for (uint32_t peer = 0; peer < ranks_; peer++) {
      job.inputs[peer] = input_of(peer, mine.begin);
    }
    job.outputs[job.output_count++] = pull_half(rank_);
    reduce(job);
  };
  const auto read_all_slices = [&](const Range &range) {
    for (uint32_t i = 0; i < ranks_; i++) {
      const uint32_t peer = (rank_ + i) % ranks_;
      const Range theirs = slice(range, peer);
      copy(out(theirs.begin), pull_half(peer), theirs.length());
    }
    comm_.pull_round++;
    return SAR_OK;
  };
  return rounds(pull_chunk() * ranks_, reduce_own_slice, read_all_slices);
}

void Collective::push_slices(const Range &range) {
  for (uint32_t i = 1; i < ranks_; i++) {
    const uint32_t peer = (rank_ + i) % ranks_;
    const Range theirs = slice(range, peer);
    copy(push_slot(peer, rank_), in(theirs.begin), theirs.length());
  }
}

void Collective::reduce_pushed(const Range &mine, ReduceJob &job) const {
  for (uint32_t peer = 0; peer < ranks_; peer++) {
    job.inputs[peer] = peer == rank_ ? in(mine.begin) : push_slot(rank_, peer);
  }
  reduce(job);
}

sar_status Collective::staged_write() {
  return rounds(
      push_chunk() * ranks_, [&](const Range &range) { push_slices(range); },
      [&](const Range &range) {
        const Range mine = slice(range, rank_);
        ReduceJob job = new_job(mine.length());
        job.outputs[job.output_count++] = out(mine.begin);
        for (uint32_t i = 1; i < ranks_; i++) {
          const uint32_t peer = (rank_ + i) % ranks_;
          job.outputs[job.output_count++] =
              pull_half(peer) + (mine.begin - range.begin) * element_bytes_;
        }
        reduce_pushed(mine, job);
        if (const sar_status status = comm_.step(); status != SAR_OK) {
          return status;
        }
        const char *results = pull_half(rank_);
        copy(out(range.begin), results, mine.begin - range.begin);
        copy(out(mine.end), results + (mine.end - range.begin) * element_bytes_,
             range.end - mine.end);
        comm_.push_round++;
        comm_.pull_round++;
        return SAR_OK;
      });
}

sar_status Collective::direct_write() {
  const sar_status status = rounds(
      push_chunk() * ranks_, [&](const Range &range) { push_slices(range); },
      [&](const Range &range) {
        const Range mine = slice(range, rank_);
        ReduceJob job = new_job(mine.length());
        for (uint32_t i = 0; i < ranks_; i++) {
          job.outputs[job.output_count++] = output_of((rank_ + i) % ranks_, mine.begin);
        }
        reduce_pushed(mine, job);
        comm_.push_round++;
        return SAR_OK;
      });
  return status == SAR_OK ? comm_.step() : status;
}

sar_status Collective::load_reduce_store() {
  const Range mine = slice(Range{0, call_.count}, rank_);
  ReduceJob job = new_job(mine.length());
  for (uint32_t peer = 0; peer < ranks_; peer++) {
    job.inputs[peer] = input_of(peer, mine.begin);
  }
  for (uint32_t i = 0; i < ranks_; i++) {
    job.outputs[job.output_count++] = output_of((rank_ + i) % ranks_, mine.begin);
  }
  job.streams = call_.count == total_ && ranks_ * call_.count * element_bytes_ >= kStreamedBytes;
  reduce(job);
  return comm_.step();
}

}  // namespace sar
