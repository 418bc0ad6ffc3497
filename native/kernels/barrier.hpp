// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// barrier.hpp: waiting for the same block of all peers, and giving up.
//
// Every wait ends: by arrival, because a peer's kernel or a host has aborted, or at the deadline.
// Then the kernel ends too, and the communicator is dead.
#ifndef SPARK_ALLREDUCE_KERNELS_BARRIER_HPP
#define SPARK_ALLREDUCE_KERNELS_BARRIER_HPP

#include "device.hpp"

namespace sar::gpu {

SAR_DEVICE SAR_GLOBAL Pad* own_pad(const Launch& launch) { return global<Pad>(launch.own_pad); }
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

// A described word is marked, since 0 is a value too.
SAR_DEVICE uint64_t described(uint32_t word) { return uint64_t{1} << 32 | word; }

// What one of a kernel's waits needs to know to report that it failed. By value: a reference to the
// launch would make it a copy in every kernel.
struct Wait {
  uint64_t outcome, count;
  uint32_t kind, call, rank, world;
  uint32_t step;  // from 1: arrival, middle, exit
  uint32_t epoch;
  uint32_t peer;
  bool low_latency;
};

SAR_DEVICE Wait wait_of(const Launch& launch, uint32_t step, uint32_t epoch, uint32_t peer,
                        bool low_latency) {
  return {launch.outcome, launch.count, launch.kind, launch.call, launch.rank,
          launch.world,   step,         epoch,       peer,        low_latency};
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
    const uint64_t flag = load_system<__ATOMIC_RELAXED>(&pad->arrival[block][rank]);
    return !reached(static_cast<uint32_t>(flag), wait.epoch);
  }
  const uint32_t seen = load_system<__ATOMIC_RELAXED>(&pad->step[wait.step - 2][block][rank]);
  return !reached(seen, wait.epoch);
}

// Tells `rank` what this rank has called: only a rank that gives up does, so an arrival is one
// store.
SAR_DEVICE void describe_call(const Wait& wait, uint32_t rank) {
  SAR_GLOBAL CallDescription* theirs = &global<Pad>(block_pads()[rank])->description[wait.rank];
  // Relaxed: each word carries its own mark, as the packets of the low-latency schedule do.
  store_system<__ATOMIC_RELAXED>(&theirs->kind, described(wait.kind));
  store_system<__ATOMIC_RELAXED>(&theirs->call, described(wait.call));
  store_system<__ATOMIC_RELAXED>(&theirs->count_low, described(static_cast<uint32_t>(wait.count)));
  store_system<__ATOMIC_RELAXED>(&theirs->count_high,
                                 described(static_cast<uint32_t>(wait.count >> 32)));
}

// A word that `rank` has described: it gives up as well, since the calls differ or because this
// rank has told it to. 0 if it does not within the patience: it may have died.
SAR_DEVICE uint32_t description_of(const SAR_GLOBAL uint64_t* word) {
  const uint64_t start = ticks();
  for (;;) {
    const uint64_t seen = load_system<__ATOMIC_RELAXED>(word);
    if (seen >> 32 != 0) return static_cast<uint32_t>(seen);
    if (ticks() - start > kTicksPerSecond * 2) return 0;
    pause();
  }
}

// Reports a fault to this rank's host and tells the peers. The first thread of the rank that gets
// here does it; the others only stop.
SAR_DEVICE_COLD void report_fault(uint32_t fault, uint64_t waited, uint64_t outcome_address,
                                  uint64_t count, uint32_t kind, uint32_t call, uint32_t rank,
                                  uint32_t world, uint32_t step, uint32_t epoch, uint32_t peer,
                                  bool low_latency) {
  const Wait wait{outcome_address, count, kind, call, rank, world, step, epoch, peer, low_latency};
  SAR_GLOBAL Pad* mine = global<Pad>(block_pads()[rank]);
  // Another thread of this rank has set the word, and reports.
  if (fault == kAbortSeen && load_system<__ATOMIC_RELAXED>(&mine->abort) == rank + 1) return;
  uint32_t unclaimed = 0;
  // The claim is in this device's own memory: read-modify-write over a link is not always to be
  // had.
  if (!__scoped_atomic_compare_exchange_n(&mine->claim, &unclaimed, 1u, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM)) {
    return;
  }
  SAR_GLOBAL Outcome* outcome = global<Outcome>(outcome_address);
  outcome->fault = fault;
  outcome->step = step;
  outcome->waited_ticks = waited;
  outcome->my_kind = kind;
  outcome->my_count = count;
  outcome->peer = peer;
  if (fault == kAbortSeen) {
    outcome->peer = load_system<__ATOMIC_RELAXED>(&mine->abort);  // 1 + rank, 0: a host
  }
  uint32_t missing = 0;
  for (uint32_t r = 0; r < world; ++r) {
    if (is_missing(wait, r)) missing |= 1u << r;
  }
  outcome->missing = missing;
  for (uint32_t r = 0; r < world; ++r) {
    describe_call(wait, r);
    // Relaxed: the word is all that the peers' kernels look at.
    store_system<__ATOMIC_RELAXED>(&global<Pad>(block_pads()[r])->abort, rank + 1);
  }
  if (fault == kMismatch) {
    SAR_GLOBAL CallDescription* theirs = &mine->description[peer];
    outcome->peer_kind = description_of(&theirs->kind);
    outcome->peer_call = description_of(&theirs->call);
    outcome->peer_count =
        uint64_t{description_of(&theirs->count_high)} << 32 | description_of(&theirs->count_low);
  }
  // Release: the host reads the fields after it has seen the state.
  store_system<order(kOutcomeState, __ATOMIC_RELEASE)>(&outcome->state, 1u);
}

SAR_DEVICE void give_up(Fault fault, const Wait& wait, uint64_t waited) {
  report_fault(fault, waited, wait.outcome, wait.count, wait.kind, wait.call, wait.rank, wait.world,
               wait.step, wait.epoch, wait.peer, wait.low_latency);
}

// Why a wait has to end without an arrival; kNoFault if it has not.
SAR_DEVICE Fault look_for_trouble(const Launch& launch, uint32_t polls, uint64_t waited) {
  SAR_GLOBAL Pad* mine = own_pad(launch);
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

// Thread r of the block tells rank r that this block has arrived...
SAR_DEVICE void signal_arrival(const Launch& launch, uint32_t epoch) {
  // Release: publishes what this block copied to staging buffers (a block barrier before this
  // carries the other threads' stores here), and whatever ran on this stream before the kernel,
  // above all the caller's writes to its input.
  store_system<order(kArrivalSignal, __ATOMIC_RELEASE)>(
      &pad_of(launch, thread_id())->arrival[block_id()][launch.rank],
      arrival_flag(epoch, launch.digest));
}

// ...and waits for rank r's block.
SAR_DEVICE bool await_arrival(const Launch& launch, uint32_t epoch) {
  const uint32_t peer = thread_id();
  SAR_GLOBAL uint64_t* line = &own_pad(launch)->arrival[block_id()][peer];
  const Wait wait = wait_of(launch, 1, epoch, peer, false);
  uint64_t flag = 0;
  const bool arrived = wait_until(launch, wait, [&] {
    // Acquire: what the peer published is read after this, not from a cache that holds older bytes.
    flag = load_system<order(kArrivalWait, __ATOMIC_ACQUIRE)>(line);
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
  SAR_GLOBAL uint32_t* flag = &own_pad(launch)->step[step][block][peer];
  return wait_until(launch, wait_of(launch, step + 2u, epoch, peer, false), [&] {
    // Acquire: the kernel must not end (or read) before the peers' stores into this rank's memory
    // are visible here. A relaxed last barrier was a bug in other implementations.
    return reached(load_system<order(kStepWait, __ATOMIC_ACQUIRE)>(flag), epoch);
  });
}

// Before the first barrier of a kernel.
SAR_DEVICE void prepare_barriers(const Launch& launch) {
  if (thread_id() < launch.world) block_pads()[thread_id()] = launch.pad[thread_id()];
  if (thread_id() == 0) {
    __scoped_atomic_store_n(block_stop(), 0u, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
  }
}

// All threads of the block must end, and learn it behind the next block barrier.
SAR_DEVICE void stop_block() {
  __scoped_atomic_store_n(block_stop(), 1u, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
}
SAR_DEVICE bool block_stops() {
  return __scoped_atomic_load_n(block_stop(), __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP) != 0;
}

// The first `world` threads of the block run `wait`, all threads learn whether the kernel goes on.
// All threads of the block must call it, behind a block barrier.
template <class WaitFor>
SAR_DEVICE bool wait_together(const Launch& launch, WaitFor wait) {
  if (thread_id() < launch.world && !wait()) stop_block();
  block_barrier();
  return !block_stops();
}

// A barrier across the ranks for this block.
template <class WaitFor>
SAR_DEVICE bool rank_barrier(const Launch& launch, WaitFor wait) {
  block_barrier();
  return wait_together(launch, wait);
}

// The same at the end of a kernel: the threads that do not wait end here. The kernel ends when all
// have, which is what its stream waits for.
template <class WaitFor>
SAR_DEVICE void last_rank_barrier(const Launch& launch, WaitFor wait) {
  block_barrier();
  if (thread_id() < launch.world) wait();
}

}  // namespace sar::gpu

#endif
