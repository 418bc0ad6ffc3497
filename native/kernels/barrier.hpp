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

// What one of a kernel's waits needs to know to report that it failed. Everything by value, and the
// pads from block-shared memory: a reference to the launch would make it a copy in every kernel.
struct Wait {
  uint64_t outcome, count;
  uint32_t kind, rank, world;
  uint32_t step;  // from 1: arrival, middle, exit
  uint32_t epoch;
  uint32_t peer;
  bool low_latency;
};

SAR_DEVICE Wait wait_of(const Launch& launch, uint32_t step, uint32_t epoch, uint32_t peer,
                        bool low_latency) {
  return {launch.outcome, launch.count, launch.kind, launch.rank, launch.world,
          step,           epoch,        peer,        low_latency};
}

// True if `rank` is not where this wait expects it.
SAR_DEVICE bool is_missing(const Wait& wait, uint32_t rank) {
  SAR_GLOBAL Pad* pad = global<Pad>(block_pads()[wait.rank]);
  const uint32_t block = block_id();
  if (rank == wait.rank) return false;
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
SAR_DEVICE_COLD void give_up(Fault fault, Wait wait, uint64_t waited) {
  SAR_GLOBAL Pad* mine = global<Pad>(block_pads()[wait.rank]);
  uint32_t unclaimed = 0;
  // The claim is in this device's own memory: read-modify-write over a link is not always to be
  // had.
  if (!__scoped_atomic_compare_exchange_n(&mine->claim, &unclaimed, 1u, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM)) {
    return;
  }
  SAR_GLOBAL Outcome* outcome = global<Outcome>(wait.outcome);
  outcome->fault = fault;
  outcome->step = wait.step;
  outcome->waited_ticks = waited;
  outcome->my_kind = wait.kind;
  outcome->my_count = wait.count;
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
  for (uint32_t rank = 0; rank < wait.world; ++rank) {
    if (is_missing(wait, rank)) missing |= 1u << rank;
  }
  outcome->missing = missing;
  // Release: the host reads the fields after it has seen the state.
  store_system<order(kOutcomeState, __ATOMIC_RELEASE)>(&outcome->state, 1u);
  for (uint32_t rank = 0; rank < wait.world; ++rank) {
    // Relaxed: the word is all that the peers' kernels look at.
    store_system<__ATOMIC_RELAXED>(&global<Pad>(block_pads()[rank])->abort, wait.rank + 1);
  }
}

// Why a wait has to end without an arrival; kNoFault if it has not.
SAR_DEVICE Fault look_for_trouble(const Launch& launch, uint32_t polls, uint64_t waited) {
  SAR_GLOBAL Pad* mine = pad_of(launch, launch.rank);
  if (load_system<__ATOMIC_RELAXED>(&mine->abort) != 0) return kAbortSeen;
  // The host's word lies across the bus, so it is looked at less often.
  if (polls % 256 == 0 &&
      load_system<__ATOMIC_RELAXED>(global<const uint32_t>(launch.host_abort)) != 0) {
    return kAbortSeen;
  }
  return waited > launch.timeout_ticks ? kDeadline : kNoFault;
}

// Polls until `arrived()` is true. False: the kernel must end; the fault has been reported.
template <class Arrived>
SAR_DEVICE bool wait_until(const Launch& launch, const Wait& wait, Arrived arrived) {
  uint64_t start = 0;
  for (uint32_t polls = 1;; ++polls) {
    if (arrived()) return true;
    pause();
    if (polls % 16 != 0) continue;
    // The clock is first read here: most waits are over before.
    if (start == 0) start = ticks();
    const uint64_t waited = ticks() - start;
    const Fault fault = look_for_trouble(launch, polls, waited);
    if (fault != kNoFault) {
      give_up(fault, wait, waited);
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
  const Wait wait = wait_of(launch, 1, epoch, peer, false);
  uint64_t flag = 0;
  const bool arrived = wait_until(launch, wait, [&] {
    // Acquire: what the peer published is read after this, not from a cache that holds older bytes.
    flag = load_system<order(kArrivalWait, __ATOMIC_ACQUIRE)>(&line->flag);
    return reached(static_cast<uint32_t>(flag), epoch);
  });
  if (arrived && flag != arrival_flag(epoch, launch.digest)) {
    give_up(kMismatch, wait, 0);
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
  return wait_until(launch, wait_of(launch, step + 2u, epoch, peer, false), [&] {
    // Acquire: the kernel must not end (or read) before the peers' stores into this rank's memory
    // are visible here. A relaxed last barrier was a bug in other implementations.
    return reached(load_system<order(kStepWait, __ATOMIC_ACQUIRE)>(flag), epoch);
  });
}

// One barrier across the ranks for this block: the first `world` threads run `wait`, all threads
// learn whether the kernel goes on. All threads of the block must call it.
// Before the first barrier of a kernel.
SAR_DEVICE void prepare_barriers(const Launch& launch) {
  if (thread_id() < launch.world) block_pads()[thread_id()] = launch.pad[thread_id()];
  if (thread_id() == 0) {
    __scoped_atomic_store_n(block_stop(), 0u, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
  }
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
