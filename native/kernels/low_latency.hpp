// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// low_latency.hpp: the all-reduce for small messages. A word of data and the epoch travel in one
// 8-byte store, the largest that is known to arrive whole, so data and flag need no order between
// them: there is no fence and no separate barrier. Each thread owns one word (two for an 8-byte
// type).
//
// Why two parities are enough: a rank ends call k only when it has every peer's packets of call k.
// A peer sends those of call k + 1 after its own call k has ended, so whoever writes call k + 2
// into the slots of call k knows that all ranks have read them.
#ifndef SPARK_ALLREDUCE_KERNELS_LOW_LATENCY_HPP
#define SPARK_ALLREDUCE_KERNELS_LOW_LATENCY_HPP

#include "barrier.hpp"
#include "elements.hpp"

namespace sar::gpu {

SAR_DEVICE uint64_t packet(uint32_t word, uint32_t epoch) { return uint64_t{epoch} << 32 | word; }

// What one thread reduces: one element of 4 or 8 bytes, or up to two of 2 bytes.
template <sar_data_type T>
struct Unit {
  static constexpr uint32_t kElements = sizeof(Stored<T>) == 2 ? 2 : 1;
  static constexpr uint32_t kWords = sizeof(Stored<T>) == 8 ? 2 : 1;
};

template <sar_data_type T, uint32_t Ranks, sar_reduce_op Op>
SAR_DEVICE Pack reduce_packs(const Pack (&pack)[Ranks], uint32_t world) {
  Accumulators<T> sum = widen<T>(pack[0]);
#pragma clang loop unroll(full)
  for (uint32_t r = 1; r < Ranks; ++r) {
    if (r < world) combine<T, Op>(sum, pack[r]);
  }
  finish<T, Op>(sum, world);
  return narrow<T>(sum);
}

template <sar_data_type T, uint32_t Ranks>
SAR_DEVICE Pack reduce_unit(const Pack (&pack)[Ranks], uint32_t op, uint32_t world) {
  switch (op) {
    case SAR_SUM:
      return reduce_packs<T, Ranks, SAR_SUM>(pack, world);
    case SAR_PRODUCT:
      return reduce_packs<T, Ranks, SAR_PRODUCT>(pack, world);
    case SAR_MIN:
      return reduce_packs<T, Ranks, SAR_MIN>(pack, world);
    case SAR_MAX:
      return reduce_packs<T, Ranks, SAR_MAX>(pack, world);
    default:
      return reduce_packs<T, Ranks, SAR_AVERAGE>(pack, world);
  }
}

// Sends this thread's words to all peers; and once in a while an empty packet into each slot that
// messages seldom fill, so that no slot ever holds an epoch that is 2^32 calls old.
template <sar_data_type T>
SAR_DEVICE void send_unit(const Launch& launch, uint32_t epoch, uint64_t units, bool has,
                          Pack mine) {
  constexpr uint32_t words = Unit<T>::kWords;
  const uint32_t parity = epoch & 1, thread = thread_id(), block = block_id();
  const uint64_t first_slot = uint64_t{block} * kLowLatencyPackets;
  for (uint32_t r = 1; has && r < launch.world; ++r) {
    const uint32_t peer =
        launch.rank + r < launch.world ? launch.rank + r : launch.rank + r - launch.world;
    SAR_GLOBAL uint64_t* slot =
        &pad_of(launch, peer)->packet[parity][launch.rank][first_slot + thread * words];
    // Relaxed: the packet carries its own flag.
    store_system<__ATOMIC_RELAXED>(slot, packet(mine[0], epoch));
    if constexpr (words == 2) store_system<__ATOMIC_RELAXED>(slot + 1, packet(mine[1], epoch));
  }
  if (thread >= launch.world || thread == launch.rank) return;
  SAR_GLOBAL Pad* pad = pad_of(launch, thread);
  store_system<__ATOMIC_RELAXED>(&pad->header[parity][block][launch.rank],
                                 packet(launch.digest, epoch));
  // Only slots of this block: another block's epochs are not this one's.
  const uint64_t left = units - uint64_t{block} * kBlockThreads;
  const uint64_t sent = (left < kBlockThreads ? left : kBlockThreads) * words;
  const uint64_t slot = (epoch >> 1) % kLowLatencyPackets;
  if (slot >= sent) {
    store_system<__ATOMIC_RELAXED>(&pad->packet[parity][launch.rank][first_slot + slot],
                                   packet(0, epoch));
  }
}

// Waits for the same words of all peers; all of them are asked for before the first is looked at.
template <sar_data_type T, uint32_t Ranks>
SAR_DEVICE bool receive_unit(const Launch& launch, uint32_t epoch, Pack (&pack)[Ranks]) {
  constexpr uint32_t words = Unit<T>::kWords;
  SAR_GLOBAL Pad* mine = pad_of(launch, launch.rank);
  const uint64_t slot = uint64_t{block_id()} * kLowLatencyPackets + thread_id() * words;
  return wait_until(launch, wait_of(launch, 1, epoch, launch.rank, true), [&] {
    uint64_t seen[Ranks][words];
#pragma clang loop unroll(full)
    for (uint32_t r = 0; r < Ranks; ++r) {
#pragma clang loop unroll(full)
      for (uint32_t w = 0; w < words; ++w) {
        if (r >= launch.world || r == launch.rank) continue;
        seen[r][w] = load_system<__ATOMIC_RELAXED>(&mine->packet[epoch & 1][r][slot + w]);
      }
    }
    bool all = true;
#pragma clang loop unroll(full)
    for (uint32_t r = 0; r < Ranks; ++r) {
      if (r >= launch.world || r == launch.rank) continue;
#pragma clang loop unroll(full)
      for (uint32_t w = 0; w < words; ++w) {
        all &= static_cast<uint32_t>(seen[r][w] >> 32) == epoch;
        pack[r][w] = static_cast<uint32_t>(seen[r][w]);
      }
    }
    return all;
  });
}

// Thread r compares rank r's call with this one. Only then is anything written.
SAR_DEVICE bool compare_header(const Launch& launch, uint32_t epoch) {
  const uint32_t peer = thread_id();
  if (peer == launch.rank) return true;
  SAR_GLOBAL uint64_t* slot = &pad_of(launch, launch.rank)->header[epoch & 1][block_id()][peer];
  const Wait wait = wait_of(launch, 1, epoch, peer, true);
  uint64_t header = 0;
  const bool arrived = wait_until(launch, wait, [&] {
    header = load_system<__ATOMIC_RELAXED>(slot);
    return static_cast<uint32_t>(header >> 32) == epoch;
  });
  if (arrived && static_cast<uint32_t>(header) != launch.digest) {
    give_up(kMismatch, wait, 0);
    return false;
  }
  return arrived;
}

template <sar_data_type T, uint32_t Ranks>
SAR_DEVICE void low_latency(const Launch& launch) {
  const uint32_t block = block_id(), thread = thread_id();
  SAR_GLOBAL Pad* pad = pad_of(launch, launch.rank);
  // Never 0, which is what unused slots hold; the step over it keeps the parities alternating.
  const uint32_t last = pad->low_latency_epoch[block];
  const uint32_t epoch = last == ~0u ? 2 : last + 1;
  const uint64_t unit = uint64_t{block} * kBlockThreads + thread;
  const uint64_t first = unit * Unit<T>::kElements;
  const bool has = first < launch.count;
  const auto n =
      has ? static_cast<uint32_t>(launch.count - first < Unit<T>::kElements ? launch.count - first
                                                                            : Unit<T>::kElements)
          : 0u;
  const bool patched = launch.patched != 0;
  SAR_GLOBAL const Addresses* table = global<const Addresses>(launch.patched);
  const uint64_t input = patched ? table->input : launch.addresses.input;
  const uint64_t output = patched ? table->output : launch.addresses.output;
  const Pack mine = load_elements<T>(input + first * sizeof(Stored<T>), n);
  prepare_barriers(launch);
  const uint64_t units = (launch.count + Unit<T>::kElements - 1) / Unit<T>::kElements;
  send_unit<T>(launch, epoch, units, has, mine);
  block_barrier();  // the block-shared words are set
  Pack pack[Ranks] = {};
  bool going = !has || receive_unit<T, Ranks>(launch, epoch, pack);
#pragma clang loop unroll(full)
  for (uint32_t r = 0; r < Ranks; ++r) {
    if (r == launch.rank) pack[r] = mine;
  }
  going = going && (thread >= launch.world || compare_header(launch, epoch));
  if (!going) __scoped_atomic_store_n(block_stop(), 1u, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
  block_barrier();
  if (__scoped_atomic_load_n(block_stop(), __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP) != 0) return;
  if (has) {
    const Pack result = reduce_unit<T, Ranks>(pack, launch.op, launch.world);
    store_elements<T>(output + first * sizeof(Stored<T>), result, n);
  }
  if (thread == 0) pad->low_latency_epoch[block] = epoch;
}

}  // namespace sar::gpu

#endif
