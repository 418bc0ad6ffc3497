// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Reduce-scatter, all-gather and broadcast. Small messages, and those with an unregistered buffer,
// go through staging in rounds; the others are read where they are, with a barrier behind it.
#include "collective.hpp"

namespace sar {

sar_status Collective::reduce_scatter() {
  const bool small = is_small(call_.count * ranks_);
  const bool pushes = small || !input_.registered;
  const auto push = [&](const Range &range) {
    for (uint32_t i = 1; i < ranks_; i++) {
      const uint32_t peer = (rank_ + i) % ranks_;
      copy(push_slot(peer, rank_), in(peer * call_.count + range.begin), range.length());
    }
  };
  if (pushes) {
    push(first_chunk(push_chunk()));
  }
  if (const sar_status status = arrive(pushes); status != SAR_OK) {
    return status;
  }
  const bool registered = all_say(kInputRegistered);
  if (!registered && !small) {
    comm_.statistics().unregistered++;
  }
  const uint64_t own = rank_ * call_.count;
  if (small || !registered) {
    return rounds(push_chunk(), push, [&](const Range &range) {
      ReduceJob job = new_job(range.length());
      job.outputs[job.output_count++] = out(range.begin);
      reduce_pushed(Range{own + range.begin, own + range.end}, job);
      comm_.push_round++;
      return SAR_OK;
    });
  }
  ReduceJob job = new_job(call_.count);
  for (uint32_t peer = 0; peer < ranks_; peer++) {
    job.inputs[peer] = input_of(peer, own);
  }
  job.outputs[job.output_count++] = out(0);
  reduce(job);
  return comm_.step();
}

sar_status Collective::all_gather() {
  const bool small = is_small(call_.count);
  const bool stages = small || !input_.registered;
  const auto fill = [&](const Range &range) {
    copy(pull_half(rank_), in(range.begin), range.length());
  };
  if (stages) {
    fill(first_chunk(pull_chunk()));
  }
  if (const sar_status status = arrive(stages); status != SAR_OK) {
    return status;
  }
  const bool registered = all_say(kInputRegistered);
  if (!registered && !small) {
    comm_.statistics().unregistered++;
  }
  if (small || !registered) {
    return rounds(pull_chunk(), fill, [&](const Range &range) {
      for (uint32_t i = 0; i < ranks_; i++) {
        const uint32_t peer = (rank_ + i) % ranks_;
        copy(out(peer * call_.count + range.begin),
             peer == rank_ ? in(range.begin) : pull_half(peer), range.length());
      }
      comm_.pull_round++;
      return SAR_OK;
    });
  }
  for (uint32_t i = 0; i < ranks_; i++) {
    const uint32_t peer = (rank_ + i) % ranks_;
    copy(out(peer * call_.count), input_of(peer, 0), call_.count);
  }
  return comm_.step();
}

sar_status Collective::broadcast() {
  const bool small = is_small(call_.count);
  const bool is_root = call_.root == rank_;
  const bool stages = small || !input_.registered;
  const auto fill = [&](const Range &range) {
    if (is_root) {
      copy(pull_half(rank_), in(range.begin), range.length());
    }
  };
  if (stages) {
    fill(first_chunk(pull_chunk()));
  }
  // All but the root have nothing to fill, so never hold up the others.
  if (const sar_status status = arrive(stages || !is_root); status != SAR_OK) {
    return status;
  }
  const bool registered = (fields_[call_.root].flags & kInputRegistered) != 0;
  if (!registered && !small) {
    comm_.statistics().unregistered++;
  }
  if (small || !registered) {
    return rounds(pull_chunk(), fill, [&](const Range &range) {
      copy(out(range.begin), is_root ? in(range.begin) : pull_half(call_.root), range.length());
      comm_.pull_round++;
      return SAR_OK;
    });
  }
  copy(out(0), input_of(call_.root, 0), call_.count);
  return comm_.step();
}

}  // namespace sar
