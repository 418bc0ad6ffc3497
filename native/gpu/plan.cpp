// Licensed under the Apache License, Version 2.0. See LICENSE.
#include "plan.hpp"

#include <algorithm>

#include "../common/numerics.hpp"

namespace sar::gpu {
namespace {

uint64_t round_down(uint64_t value, uint64_t unit) { return value / unit * unit; }
uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }
uint64_t divide_up(uint64_t value, uint64_t by) { return (value + by - 1) / by; }

// 32 bits that differ for any two descriptions that differ in one field, and for nearly all others.
uint32_t digest_of(uint32_t kind, uint32_t number, uint64_t count) {
  const auto fold = static_cast<uint32_t>(count ^ count >> 32);
  return kind * 0x9e3779b1u ^ number * 0x85ebca6bu ^ fold * 0xc2b2ae35u;
}

// Builds one launch; the schedules below are its only users.
class Builder {
 public:
  Builder(const Geometry &geometry, const Call &call, const Buffers &buffers, sar_schedule schedule,
          uint64_t done)
      : geometry_(geometry),
        call_(call),
        buffers_(buffers),
        size_(element_bytes(call.type)),
        done_(done),
        half_(round_down(geometry.staging_bytes / 2, kSliceAlignment)),
        slot_(round_down(half_ / geometry.world, kSliceAlignment)) {
    Launch &launch = planned_.launch;
    launch = {};
    planned_.threads = kBlockThreads;
    planned_.low_latency = schedule == SAR_LOW_LATENCY;
    launch.own_pad = geometry.pad[geometry.rank];
    std::copy_n(geometry.pad, kMaxRanks, launch.pad);
    launch.outcome = geometry.outcome;
    launch.host_abort = geometry.host_abort;
    launch.timeout_ticks = call.timeout_ticks;
    launch.count = call.count;
    launch.kind = kind_of(call);
    launch.call = call.number;
    launch.digest = digest_of(launch.kind, launch.call, launch.count);
    launch.rank = geometry.rank;
    launch.world = geometry.world;
    launch.op = call.op;
    launch.addresses.input = buffers.input + done * size_;
    launch.addresses.output = buffers.output + done * size_;
  }

  Planned one_shot(bool chunked) {
    const bool staged = chunked || any([](const RankBuffers &b) { return !b.input || b.in_place; });
    const uint64_t n = chunk(staged ? half_ : UINT64_MAX);
    copy_input_if(!buffers_.rank[geometry_.rank].input || buffers_.rank[geometry_.rank].in_place,
                  n);
    for (uint32_t r = 0; r < geometry_.world; ++r) {
      const RankBuffers &peer = buffers_.rank[r];
      addresses().source[r] = peer.input && !peer.in_place ? at(peer.input) : slot(r, 0);
    }
    reduce_to_own(addresses().output, n);
    return end(n);
  }

  Planned two_shot_read() {
    const uint64_t n = chunk_of_slices(half_);
    sources_from_inputs();
    reduce_to_own(result(geometry_.rank, 0), slice_count(n, geometry_.rank));
    planned_.launch.middle = 1;
    gather_slices(n, [&](uint32_t q) { return result(q, 0); });
    return end(n);
  }

  Planned staged_write() {
    const uint64_t n = chunk_of_slices(slot_);
    scatter_slices(n);
    reduce_to_all(n, [&](uint32_t q) { return result(q, geometry_.rank); });
    gather_slices(n, [&](uint32_t q) { return result(geometry_.rank, q); });
    planned_.launch.gather_last = 1;
    return end(n);
  }

  Planned direct_write() {
    const uint64_t n = chunk_of_slices(slot_);
    scatter_slices(n);
    reduce_to_outputs(n);
    return end(n);
  }

  Planned load_reduce_store() {
    const uint64_t n = chunk(UINT64_MAX);
    sources_from_inputs(n);
    reduce_to_outputs(n);
    return end(n);
  }

  Planned low_latency() {
    planned_.done = call_.count;
    const uint64_t units = divide_up(call_.count, size_ == 2 ? 2 : 1);
    planned_.launch.blocks =
        static_cast<uint32_t>(std::max<uint64_t>(1, divide_up(units, kBlockThreads)));
    // A small block starts and ends sooner.
    if (planned_.launch.blocks == 1) {
      planned_.threads =
          static_cast<uint32_t>(std::max<uint64_t>(1, divide_up(units, kSmallestBlock))) *
          kSmallestBlock;
    }
    return planned_;
  }

  Planned reduce_scatter() {
    const bool staged = any([](const RankBuffers &b) { return !b.input; });
    const uint64_t n = chunk(staged ? slot_ : UINT64_MAX);
    if (!buffers_.rank[geometry_.rank].input) {
      scatter_to_others([&](uint32_t q) { return slot(geometry_.rank, q); });
      scatter(call_.count, n, geometry_.world * call_.count);
    }
    for (uint32_t r = 0; r < geometry_.world; ++r) {
      const RankBuffers &peer = buffers_.rank[r];
      const uint64_t input = r == geometry_.rank ? addresses().input
                             : peer.input        ? at(peer.input)
                                                 : 0;
      addresses().source[r] =
          input != 0 ? input + geometry_.rank * call_.count * size_ : slot(r, geometry_.rank);
    }
    reduce_to_own(addresses().output, n);
    return end(n);
  }

  Planned all_gather() {
    const bool staged = any([](const RankBuffers &b) { return !b.input; });
    const uint64_t n = chunk(staged ? half_ : UINT64_MAX);
    copy_input_if(!buffers_.rank[geometry_.rank].input, n);
    for (uint32_t q = 0; q < geometry_.world; ++q) {
      const RankBuffers &peer = buffers_.rank[q];
      addresses().gather_from[q] = q == geometry_.rank ? addresses().input
                                   : peer.input        ? at(peer.input)
                                                       : slot(q, 0);
    }
    gather(geometry_.world, call_.count, n, geometry_.world * call_.count);
    return end(n);
  }

  Planned broadcast() {
    const RankBuffers &root = buffers_.rank[call_.root];
    const bool is_root = call_.root == geometry_.rank;
    const uint64_t n = chunk(root.input ? UINT64_MAX : half_);
    copy_input_if(is_root && !root.input, n);
    addresses().gather_from[0] = is_root      ? addresses().input
                                 : root.input ? at(root.input)
                                              : slot(call_.root, 0);
    gather(1, 0, n, n);
    return end(n);
  }

  Planned barrier() { return end(0); }

 private:
  Addresses &addresses() { return planned_.launch.addresses; }
  uint64_t at(uint64_t base) const { return base + done_ * size_; }
  uint64_t slot(uint32_t owner, uint32_t r) const { return geometry_.staging[owner] + r * slot_; }
  uint64_t result(uint32_t owner, uint32_t r) const {
    return geometry_.staging[owner] + half_ + r * slot_;
  }

  template <class Predicate>
  bool any(Predicate predicate) const {
    return std::any_of(buffers_.rank, buffers_.rank + geometry_.world, predicate);
  }

  uint64_t chunk(uint64_t bytes) const { return std::min(call_.count - done_, bytes / size_); }

  // A chunk whose slices are at most `bytes` long.
  uint64_t chunk_of_slices(uint64_t bytes) {
    return std::min(call_.count - done_,
                    round_down(bytes, kSliceAlignment) / size_ * geometry_.world);
  }

  uint64_t slice(uint64_t n) const {
    return round_up(divide_up(n, geometry_.world), kSliceAlignment / size_);
  }
  uint64_t slice_count(uint64_t n, uint32_t q) const {
    const uint64_t begin = q * slice(n);
    return begin >= n ? 0 : std::min(slice(n), n - begin);
  }

  void scatter(uint64_t stride, uint64_t each, uint64_t total) {
    Launch &launch = planned_.launch;
    launch.scatter_stride = stride;
    launch.scatter_each = each;
    // The launch begins at element `done` of every part, but the parts' distance stays.
    launch.scatter_total = total - done_;
    longest_ = std::max(longest_, each);
  }

  // A rank's own part stays where it is. Each rank begins with the one after it, so that they do
  // not all store to the same one at once.
  template <class TargetOf>
  void scatter_to_others(TargetOf target_of) {
    Launch &launch = planned_.launch;
    launch.scatter_ranks = geometry_.world - 1;
    launch.scatter_parts = geometry_.world;
    launch.scatter_first = (geometry_.rank + 1) % geometry_.world;
    for (uint32_t j = 0; j < launch.scatter_ranks; ++j) {
      addresses().scatter_to[j] = target_of((geometry_.rank + 1 + j) % geometry_.world);
    }
  }

  void copy_input_if(bool needed, uint64_t n) {
    longest_ = std::max(longest_, n);  // on all ranks: they must have equally many blocks
    if (!needed) return;
    planned_.launch.scatter_ranks = planned_.launch.scatter_parts = 1;
    addresses().scatter_to[0] = slot(geometry_.rank, 0);
    scatter(0, n, n + done_);
  }

  void scatter_slices(uint64_t n) {
    scatter_to_others([&](uint32_t q) { return slot(q, geometry_.rank); });
    for (uint32_t q = 0; q < geometry_.world; ++q) {
      addresses().source[q] =
          q == geometry_.rank ? addresses().input + q * slice(n) * size_ : slot(geometry_.rank, q);
    }
    scatter(slice(n), slice(n), n + done_);
  }

  void sources_from_inputs() { sources_from_inputs(chunk_of_slices(half_)); }
  void sources_from_inputs(uint64_t n) {
    for (uint32_t r = 0; r < geometry_.world; ++r) {
      addresses().source[r] = at(buffers_.rank[r].input) + geometry_.rank * slice(n) * size_;
    }
  }

  void reduce_to_own(uint64_t target, uint64_t n) {
    addresses().target[0] = target;
    planned_.launch.targets = 1;
    planned_.launch.reduce_count = n;
    longest_ = std::max(longest_, n);
  }

  // Every rank stores to itself first and then to the next ones, so not all to the same at once.
  template <class TargetOf>
  void reduce_to_all(uint64_t n, TargetOf target_of) {
    for (uint32_t t = 0; t < geometry_.world; ++t) {
      addresses().target[t] = target_of((geometry_.rank + t) % geometry_.world);
    }
    planned_.launch.targets = geometry_.world;
    planned_.launch.reduce_count = slice_count(n, geometry_.rank);
    longest_ = std::max(longest_, slice(n));
  }

  void reduce_to_outputs(uint64_t n) {
    reduce_to_all(n, [&](uint32_t q) {
      return at(buffers_.rank[q].output) + geometry_.rank * slice(n) * size_;
    });
  }

  void gather(uint32_t ranks, uint64_t stride, uint64_t each, uint64_t total) {
    Launch &launch = planned_.launch;
    launch.gather_ranks = ranks;
    launch.gather_stride = stride;
    launch.gather_each = each;
    launch.gather_total = total;
    longest_ = std::max(longest_, each);
  }

  template <class FromOf>
  void gather_slices(uint64_t n, FromOf from_of) {
    for (uint32_t q = 0; q < geometry_.world; ++q) addresses().gather_from[q] = from_of(q);
    gather(geometry_.world, slice(n), slice(n), n);
  }

  // What the kernel wants to know about all addresses of a phase together.
  void summarize() {
    Addresses &a = addresses();
    const Launch &launch = planned_.launch;
    for (uint32_t r = 0; launch.targets != 0 && r < geometry_.world; ++r) {
      a.reduce_alignment |= a.source[r];
    }
    for (uint32_t t = 0; t < launch.targets; ++t) a.reduce_alignment |= a.target[t];
    a.scatter_alignment = a.input;
    for (uint32_t j = 0; j < launch.scatter_ranks; ++j) a.scatter_alignment |= a.scatter_to[j];
    // In place, one part of a gather is there already, and peers may be reading it.
    a.gather_skip = kNoSkip;
    a.gather_alignment = a.output;
    for (uint32_t q = 0; q < launch.gather_ranks; ++q) {
      if (a.gather_from[q] == a.output + q * launch.gather_stride * size_) {
        a.gather_skip = q;
      } else {
        a.gather_alignment |= a.gather_from[q];
      }
    }
  }

  Planned end(uint64_t n) {
    summarize();
    // All ranks see the same longest part, so they all launch equally many blocks.
    const uint64_t wanted = divide_up(longest_ * size_, uint64_t{kPackBytes} * kBlockThreads);
    planned_.launch.blocks = static_cast<uint32_t>(
        std::clamp<uint64_t>(wanted, 1, std::min(geometry_.blocks, kMaxBlocks)));
    planned_.done = done_ + n;
    return planned_;
  }

  const Geometry &geometry_;
  const Call &call_;
  const Buffers &buffers_;
  const uint64_t size_, done_, half_, slot_;
  uint64_t longest_ = 0;  // elements of the longest part that one phase works on
  Planned planned_;
};

}  // namespace

uint32_t kind_of(const Call &call) {
  return static_cast<uint32_t>(call.collective) | static_cast<uint32_t>(call.type) << 4 |
         static_cast<uint32_t>(call.op) << 8 | static_cast<uint32_t>(call.schedule) << 12 |
         call.root << 16;
}

bool fits_low_latency(const Geometry &geometry, const Call &call) {
  const uint64_t threads = uint64_t{std::min(geometry.blocks, kLowLatencyBlocks)} * kBlockThreads;
  const uint64_t per_thread = element_bytes(call.type) == 2 ? 2 : 1;
  return call.count <= threads * per_thread;
}

Choice choose(const Geometry &geometry, const Call &call, const Buffers &buffers) {
  const RankBuffers *begin = buffers.rank, *end = begin + geometry.world;
  const bool inputs = std::all_of(begin, end, [](const RankBuffers &b) { return b.input != 0; });
  const bool outputs = std::all_of(begin, end, [](const RankBuffers &b) { return b.output != 0; });
  if (call.collective != SAR_COLLECTIVE_ALL_REDUCE) {
    const bool root = buffers.rank[call.root].input != 0;
    return {SAR_AUTO, call.collective == SAR_COLLECTIVE_BROADCAST ? !root : !inputs};
  }
  const sar_schedule wanted = wanted_schedule(geometry, call);
  switch (wanted) {
    case SAR_ONE_SHOT:
      return {wanted, !inputs};
    case SAR_TWO_SHOT_READ:
      return inputs ? Choice{wanted, false} : Choice{SAR_STAGED_WRITE, true};
    case SAR_DIRECT_WRITE:
      return outputs ? Choice{wanted, false} : Choice{SAR_STAGED_WRITE, true};
    case SAR_LOAD_REDUCE_STORE:
      if (inputs && outputs) return {wanted, false};
      // One rank's output cannot be stored to, so no rank's is.
      return {outputs ? SAR_DIRECT_WRITE : SAR_STAGED_WRITE, true};
    default:
      return {wanted, false};
  }
}

Planned plan(const Geometry &geometry, const Call &call, const Buffers &buffers,
             sar_schedule schedule, bool chunked, uint64_t done) {
  Builder builder(geometry, call, buffers, schedule, done);
  switch (call.collective) {
    case SAR_COLLECTIVE_REDUCE_SCATTER:
      return builder.reduce_scatter();
    case SAR_COLLECTIVE_ALL_GATHER:
      return builder.all_gather();
    case SAR_COLLECTIVE_BROADCAST:
      return builder.broadcast();
    case SAR_COLLECTIVE_ALL_REDUCE:
      break;
    default:
      return builder.barrier();
  }
  switch (schedule) {
    case SAR_ONE_SHOT:
      return builder.one_shot(chunked);
    case SAR_TWO_SHOT_READ:
      return builder.two_shot_read();
    case SAR_DIRECT_WRITE:
      return builder.direct_write();
    case SAR_LOAD_REDUCE_STORE:
      return builder.load_reduce_store();
    case SAR_LOW_LATENCY:
      return builder.low_latency();
    default:
      return builder.staged_write();
  }
}

}  // namespace sar::gpu
