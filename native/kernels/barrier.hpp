// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// barrier.hpp: waiting for the same block of all peers, and giving up.
//
// Every wait ends: by arrival, because a peer's kernel or a host has aborted, or at the deadline.
// Then the kernel ends too, without having touched its epoch: the communicator is dead.
#ifndef SPARK_ALLREDUCE_KERNELS_BARRIER_HPP
#define SPARK_ALLREDUCE_KERNELS_BARRIER_HPP

#include "device.hpp"

namespace sar::gpu {

SAR_DEVICE SAR_GLOBAL Pad* pad_of(const Launch& launch, uint32_t rank) {
  return global<Pad>(launch.pad[rank]);
}

// Epochs wrap; they are never further apart than one.
SAR_DEVICE bool reached(uint32_t seen, uint32_t epoch) {
  return static_cast<int32_t>(seen - epoch) >= 0;
}

SAR_DEVICE uint64_t arrival_flag(uint32_t epoch, uint32_t digest) {
  return uint64_t{digest} << 32 | epoch;
}

// What one of a kernel's waits needs to know to report that it failed.
struct Wait {
  uint32_t step;  // from 1: arrival, middle, exit
  uint32_t epoch;
  uint32_t peer;
  bool low_latency;
  uint64_t waited;
};

// True if `rank` is not where this wait expects it.
SAR_DEVICE bool is_missing(const Launch& launch, const Wait& wait, uint32_t rank) {
  SAR_GLOBAL Pad* pad = pad_of(launch, launch.rank);
  const uint32_t block = block_id();
  if (rank == launch.rank) return false;
  if (wait.low_latency) {
    const uint64_t header =
        load_system<__ATOMIC_RELAXED>(&pad->header[wait.epoch & 1][block][rank]);
    return static_cast<uint32_t>(header >> 32) != wait.epoch;
  }
  if (wait.step == 1) {
    const uint64_t flag = load_system<__ATOMIC_RELAXED>(&pad->arrival[block][rank].flag);
    return !reached(static_cast<uint32_t>(flag), wait.epoch);
  }
  const uint32_t seen = load_system<__ATOMIC_RELAXED>(&pad->step[wait.step - 2][block][rank]);
  return !reached(seen, wait.epoch);
}

// Reports a fault to this rank's host and tells the peers. The first thread of the rank that gets
// here does it; the others only stop.
SAR_DEVICE void give_up(const Launch& launch, Fault fault, const Wait& wait) {
  SAR_GLOBAL Pad* mine = pad_of(launch, launch.rank);
  uint32_t unclaimed = 0;
  // The claim is in this device's own memory: read-modify-write over a link is not always to be
  // had.
  if (!__scoped_atomic_compare_exchange_n(&mine->claim, &unclaimed, 1u, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM)) {
    return;
  }
  SAR_GLOBAL Outcome* outcome = global<Outcome>(launch.outcome);
  outcome->fault = fault;
  outcome->step = wait.step;
  outcome->waited_ticks = wait.waited;
  outcome->my_kind = launch.kind;
  outcome->my_count = launch.count;
  outcome->peer = wait.peer;
  if (fault == kAbortSeen) {
    outcome->peer = load_system<__ATOMIC_RELAXED>(&mine->abort);  // 1 + rank, 0: a host
  }
  if (fault == kMismatch && !wait.low_latency) {
    // The peer wrote its description before the flag that this thread has acquired.
    SAR_GLOBAL ArrivalLine* line = &mine->arrival[block_id()][wait.peer];
    outcome->peer_kind = line->kind;
    outcome->peer_call = line->call;
    outcome->peer_count = line->count;
  }
  uint32_t missing = 0;
  for (uint32_t rank = 0; rank < launch.world; ++rank) {
    if (is_missing(launch, wait, rank)) missing |= 1u << rank;
  }
  outcome->missing = missing;
  // Release: the host reads the fields after it has seen the state.
  store_system<order(kOutcomeState, __ATOMIC_RELEASE)>(&outcome->state, 1u);
  for (uint32_t rank = 0; rank < launch.world; ++rank) {
    // Relaxed: the word is all that the peers' kernels look at.
    store_system<__ATOMIC_RELAXED>(&pad_of(launch, rank)->abort, launch.rank + 1);
  }
}

// Polls until `arrived()` is true. False: the kernel must end; the fault has been reported.
template <class Arrived>
SAR_DEVICE bool wait_until(const Launch& launch, Wait wait, Arrived arrived) {
  if (arrived()) return true;
  SAR_GLOBAL Pad* mine = pad_of(launch, launch.rank);
  const uint64_t start = ticks();
  for (uint32_t polls = 1;; ++polls) {
    if (arrived()) return true;
    pause();
    if (polls % 16 != 0) continue;
    wait.waited = ticks() - start;
    Fault fault = kNoFault;
    if (load_system<__ATOMIC_RELAXED>(&mine->abort) != 0) fault = kAbortSeen;
    // The host's word lies across the bus, so it is looked at less often.
    if (polls % 256 == 0 &&
        load_system<__ATOMIC_RELAXED>(global<const uint32_t>(launch.host_abort)) != 0) {
      fault = kAbortSeen;
    }
    if (fault == kNoFault && wait.waited > launch.timeout_ticks) fault = kDeadline;
    if (fault != kNoFault) {
      give_up(launch, fault, wait);
      return false;
    }
  }
}

// Thread r of the block tells rank r that this block has arrived, and waits for rank r's block.
SAR_DEVICE bool arrive_and_compare(const Launch& launch, uint32_t epoch) {
  const uint32_t peer = thread_id(), block = block_id();
  SAR_GLOBAL ArrivalLine* theirs = &pad_of(launch, peer)->arrival[block][launch.rank];
  theirs->count = launch.count;
  theirs->kind = launch.kind;
  theirs->call = launch.call;
  // Release: publishes the description above, what this block copied to staging buffers (the block
  // barrier before this carries the other threads' stores here), and whatever ran on this stream
  // before the kernel, above all the caller's writes to its input.
  store_system<order(kArrivalSignal, __ATOMIC_RELEASE)>(&theirs->flag,
                                                        arrival_flag(epoch, launch.digest));
  SAR_GLOBAL ArrivalLine* line = &pad_of(launch, launch.rank)->arrival[block][peer];
  Wait wait{1, epoch, peer, false, 0};
  uint64_t flag = 0;
  const bool arrived = wait_until(launch, wait, [&] {
    // Acquire: what the peer published is read after this, not from a cache that holds older bytes.
    flag = load_system<order(kArrivalWait, __ATOMIC_ACQUIRE)>(&line->flag);
    return reached(static_cast<uint32_t>(flag), epoch);
  });
  if (arrived && flag != arrival_flag(epoch, launch.digest)) {
    give_up(launch, kMismatch, wait);
    return false;
  }
  return arrived;
}

SAR_DEVICE bool pass_step(const Launch& launch, Step step, uint32_t epoch) {
  const uint32_t peer = thread_id(), block = block_id();
  // Release: publishes the slices that this block stored into the peers' memory; and this block's
  // loads from them are over, so they may write there again.
  store_system<order(kStepSignal, __ATOMIC_RELEASE)>(
      &pad_of(launch, peer)->step[step][block][launch.rank], epoch);
  SAR_GLOBAL uint32_t* flag = &pad_of(launch, launch.rank)->step[step][block][peer];
  return wait_until(launch, Wait{step + 2u, epoch, peer, false, 0}, [&] {
    // Acquire: the kernel must not end (or read) before the peers' stores into this rank's memory
    // are visible here. A relaxed last barrier was a bug in other implementations.
    return reached(load_system<order(kStepWait, __ATOMIC_ACQUIRE)>(flag), epoch);
  });
}

// One barrier across the ranks for this block: the first `world` threads run `wait`, all threads
// learn whether the kernel goes on. All threads of the block must call it.
template <class WaitFor>
SAR_DEVICE bool rank_barrier(const Launch& launch, WaitFor wait) {
  block_barrier();
  if (thread_id() < launch.world && !wait()) {
    __scoped_atomic_store_n(block_stop(), 1u, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
  }
  block_barrier();
  return __scoped_atomic_load_n(block_stop(), __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP) == 0;
}

}  // namespace sar::gpu

#endif
