// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// low_latency.hpp: the all-reduce for small messages. A word of data and a flag travel in one
// 8-byte store, the largest that is known to arrive whole, so data and flag need no order between
// them: there is no fence and no separate barrier. Each thread owns one word (two for an 8-byte
// type). The flag says which call the word belongs to, so each thread stores its result as soon as
// it has its own words of all peers, and no thread writes what another call sent.
//
// Why two parities are enough: a rank ends call k only when it has every peer's packets of call k.
// A peer sends those of call k + 1 after its own call k has ended, so whoever writes call k + 2
// into the slots of call k knows that all ranks have read them.
#ifndef SPARK_ALLREDUCE_KERNELS_LOW_LATENCY_HPP
#define SPARK_ALLREDUCE_KERNELS_LOW_LATENCY_HPP

#include "barrier.hpp"
#include "elements.hpp"

namespace sar::gpu {

SAR_DEVICE uint64_t packet(uint32_t word, uint32_t flag) { return uint64_t{flag} << 32 | word; }

// The flag of a call's packets: a bit that unused slots, which hold 0, do not have, most of the
// digest, and the end of the epoch. Calls that differ in their kind alone, or length, or capture,
// or place in it, differ in these 19 bits of the digest too; of others one pair in half a million
// does not, and then only the headers, which hold all of it, tell them apart.
//
// The end of the epoch comes round again after 4096 calls. Each slot gets a new packet at least
// once in 2 x kLowLatencyPackets calls (freshen_slot), so none holds a flag that old.
inline constexpr uint32_t kFlagEpochs = 1u << kFlagEpochBits;
static_assert(4 * kLowLatencyPackets <= kFlagEpochs);
SAR_DEVICE uint32_t flag_of(const Launch& launch, uint32_t epoch) {
  return 1u << 31 | launch.digest >> (kFlagEpochBits + 1) << kFlagEpochBits | epoch % kFlagEpochs;
}
// Never 0, which is what unused headers hold. The step over it is a whole round of the flags and of
// the slots that are freshened, so both go on as if there were none.
SAR_DEVICE uint32_t epoch_after(uint32_t last) { return last == ~0u ? kFlagEpochs : last + 1; }

// What one thread reduces: one element of 4 or 8 bytes, or up to two of 2 bytes.
template <sar_data_type T>
struct Unit {
  static constexpr uint32_t kElements = sizeof(Stored<T>) == 2 ? 2 : 1;
  static constexpr uint32_t kWords = sizeof(Stored<T>) == 8 ? 2 : 1;
};

// Sends this thread's words to all peers, and this block's header.
template <sar_data_type T, uint32_t Ranks>
SAR_DEVICE void send_unit(const Launch& launch, uint32_t epoch, bool has, Pack mine) {
  constexpr uint32_t words = Unit<T>::kWords;
  const uint32_t flag = flag_of(launch, epoch);
  const uint32_t parity = epoch & 1, thread = thread_id(), block = block_id();
  const uint64_t slot = uint64_t{block} * kLowLatencyPackets + thread * words;
#pragma clang loop unroll(full)
  for (uint32_t r = 0; r < Ranks; ++r) {
    if (!has || r >= launch.world || r == launch.rank) continue;
    SAR_GLOBAL uint64_t* to = &pad_of(launch, r)->packet[parity][launch.rank][slot];
    // Relaxed: the packet carries its own flag.
    store_system<__ATOMIC_RELAXED>(to, packet(mine[0], flag));
    if constexpr (words == 2) store_system<__ATOMIC_RELAXED>(to + 1, packet(mine[1], flag));
  }
  if (thread >= launch.world || thread == launch.rank) return;
  store_system<__ATOMIC_RELAXED>(&pad_of(launch, thread)->header[parity][block][launch.rank],
                                 packet(launch.digest, epoch));
}

// An empty packet into each peer's slots that this message does not fill, another one in each call:
// so no slot ever holds a flag that comes round again. A peer may send the next call's packets
// already, but those are of the other parity. A rank does it in its own pad: a peer may have ended,
// and freed its pad, as soon as it has this rank's packets. Only slots of this block: another
// block's epochs are not this one's.
template <sar_data_type T>
SAR_DEVICE void freshen_slot(const Launch& launch, uint32_t epoch) {
  if (thread_id() >= launch.world || thread_id() == launch.rank) return;
  const uint64_t units = (launch.count + Unit<T>::kElements - 1) / Unit<T>::kElements;
  const uint64_t before = uint64_t{block_id()} * kBlockThreads;
  const uint64_t left = units > before ? units - before : 0;
  const uint64_t sent = (left < kBlockThreads ? left : kBlockThreads) * Unit<T>::kWords;
  const uint64_t slot = (epoch >> 1) % kLowLatencyPackets;
  if (slot < sent) return;
  // Relaxed: whoever stores here next has seen this rank's packets of the next call, which its next
  // kernel sends.
  store_system<__ATOMIC_RELAXED>(
      &own_pad(launch)
           ->packet[epoch & 1][thread_id()][uint64_t{block_id()} * kLowLatencyPackets + slot],
      packet(0, flag_of(launch, epoch)));
}

// Waits for the same words of all peers, and thread r for rank r's header too; all of them are
// asked for before the first is looked at. False: a rank is missing, or calls something else.
template <sar_data_type T, uint32_t Ranks>
SAR_DEVICE bool receive_unit(const Launch& launch, uint32_t epoch, bool has, Pack (&pack)[Ranks]) {
  constexpr uint32_t words = Unit<T>::kWords;
  const uint32_t peer = thread_id(), flag = flag_of(launch, epoch);
  const bool compares = peer < launch.world && peer != launch.rank;
  if (!has && !compares) return true;
  SAR_GLOBAL Pad* mine = own_pad(launch);
  SAR_GLOBAL uint64_t* slots =
      mine->packet[epoch & 1][0] + uint64_t{block_id()} * kLowLatencyPackets + thread_id() * words;
  constexpr uint64_t next_rank = kLowLatencyBlocks * kLowLatencyPackets;
  const Wait wait = wait_of(launch, 1, epoch, compares ? peer : launch.rank, true);
  const uint64_t expected = packet(launch.digest, epoch);
  uint64_t header = expected;
  // A peer that calls something else never sends what this call waits for.
  const auto differs = [&] {
    return header != expected && static_cast<uint32_t>(header >> 32) == epoch;
  };
  const bool arrived = wait_until(launch, wait, [&] {
    uint64_t seen[Ranks][words];
    if (compares) {
      header = load_system<__ATOMIC_RELAXED>(&mine->header[epoch & 1][block_id()][peer]);
    }
#pragma clang loop unroll(full)
    for (uint32_t r = 0; r < Ranks; ++r) {
#pragma clang loop unroll(full)
      for (uint32_t w = 0; w < words; ++w) {
        seen[r][w] = packet(0, flag);
        if (!has || r >= launch.world || r == launch.rank) continue;
        seen[r][w] = load_system<__ATOMIC_RELAXED>(slots + r * next_rank + w);
      }
    }
    bool all = header == expected;
#pragma clang loop unroll(full)
    for (uint32_t r = 0; r < Ranks; ++r) {
#pragma clang loop unroll(full)
      for (uint32_t w = 0; w < words; ++w) {
        all &= static_cast<uint32_t>(seen[r][w] >> 32) == flag;
        pack[r][w] = static_cast<uint32_t>(seen[r][w]);
      }
    }
    // A thread that left the loop now would wait behind it for the others of its wave, and they for
    // packets. So all leave it by the abort word.
    if (differs()) store_system<__ATOMIC_RELAXED>(&mine->abort, launch.rank + 1);
    return all;
  });
  if (!arrived && differs()) give_up(kMismatch, wait, 0);
  return arrived;
}

template <sar_data_type T, uint32_t Ranks>
SAR_DEVICE void low_latency(const Launch& launch) {
  wait_for_stream();
  const uint32_t block = block_id(), thread = thread_id();
  SAR_GLOBAL Pad* pad = own_pad(launch);
  const uint32_t epoch = epoch_after(pad->low_latency_epoch[block]);
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
  send_unit<T, Ranks>(launch, epoch, has, mine);
  // While the packets are on their way.
  freshen_slot<T>(launch, epoch);
  prepare_barriers(launch);  // what the report of a fault needs
  shared_barrier();          // all threads of the block have read the epoch
  // After an abort it does not matter any more: the communicator is dead.
  if (thread == 0) pad->low_latency_epoch[block] = epoch;
  Pack pack[1][Ranks] = {};
  if (!receive_unit<T, Ranks>(launch, epoch, has, pack[0])) return;
  if (!has) return;
#pragma clang loop unroll(full)
  for (uint32_t r = 0; r < Ranks; ++r) {
    if (r == launch.rank) pack[0][r] = mine;
  }
  Pack result[1];
  reduce_packs<T, Ranks, 1>(pack, launch.op, launch.world, result);
  store_elements<T>(output + first * sizeof(Stored<T>), result[0], n);
}

}  // namespace sar::gpu

#endif
