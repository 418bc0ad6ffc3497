// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// collective.hpp: the one kernel body behind all schedules but low latency: scatter, arrival,
// reduce, middle, gather, exit (layout.hpp, Launch). Which of them happen, and where they load and
// store, is in the launch; the host side plans it (gpu/plan.cpp).
#ifndef SPARK_ALLREDUCE_KERNELS_COLLECTIVE_HPP
#define SPARK_ALLREDUCE_KERNELS_COLLECTIVE_HPP

#include "barrier.hpp"
#include "elements.hpp"

namespace sar::gpu {

// Positions in Addresses, as 64-bit words.
inline constexpr uint32_t kSource = 0, kTarget = kSource + kMaxRanks, kInput = kTarget + kMaxRanks,
                          kOutput = kInput + 1, kScatterTo = kOutput + 1,
                          kGatherFrom = kScatterTo + kMaxRanks,
                          kReduceAlignment = kGatherFrom + kMaxRanks,
                          kScatterAlignment = kReduceAlignment + 1,
                          kGatherAlignment = kScatterAlignment + 1,
                          kGatherSkip = kGatherAlignment + 1;
static_assert(kGatherSkip + 1 == kAddressWords);

// One address of this launch: from the argument, or from the row that a capture has filled.
SAR_DEVICE uint64_t address_of(const Launch& launch, uint32_t word) {
  return launch.patched != 0 ? global<const uint64_t>(launch.patched)[word]
                             : reinterpret_cast<const uint64_t*>(&launch.addresses)[word];
}

// Several of them, in registers. Those beyond the ranks that take part are not used.
template <uint32_t N>
struct AddressList {
  uint64_t of[N];
};
template <uint32_t N>
SAR_DEVICE AddressList<N> addresses_of(const Launch& launch, uint32_t first) {
  AddressList<N> list;
  if (launch.patched != 0) {
    SAR_GLOBAL const uint64_t* row = global<const uint64_t>(launch.patched) + first;
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < N; ++i) list.of[i] = in_vector_register(row[i]);
  } else {
    const auto* words = reinterpret_cast<const uint64_t*>(&launch.addresses) + first;
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < N; ++i) list.of[i] = in_vector_register(words[i]);
  }
  return list;
}

// The first pack of a slice that this thread reduces or copies.
SAR_DEVICE uint64_t first_pack() { return uint64_t{block_id()} * kBlockThreads + thread_id(); }

SAR_DEVICE uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

// Elements of part q when `total` elements are cut into parts that begin `stride` apart; 0 if it
// would begin behind them. Not written as `begin >= total ? 0 : ...`: clang 20 drops that
// comparison at -O3 in the loops of copy_parts, on all targets, and a short message ran over its
// buffer.
SAR_DEVICE uint64_t part_of(uint64_t q, uint64_t stride, uint64_t each, uint64_t total) {
  const uint64_t begin = smaller(q * stride, total);
  return smaller(each, total - begin);
}

// Packs that a thread has in flight, in a copy and in the reduction.
inline constexpr uint32_t kInFlight = 8;
#if defined(__AMDGPU__)
inline constexpr uint32_t kReduceInFlight = 4;  // with more, divisions run out of scalar registers
#else
inline constexpr uint32_t kReduceInFlight = 8;
#endif

// Copies parts `begin` to `begin + N` of the input to where they are scattered to, or parts that
// are gathered to the output. As long as all parts last, each thread has one pack of each in
// flight.
template <sar_data_type T, uint32_t N, bool Scatter>
SAR_DEVICE void copy_parts(const Launch& launch, uint32_t begin) {
  const uint32_t ranks = Scatter ? launch.scatter_ranks : launch.gather_ranks;
  const uint32_t parts = Scatter ? launch.scatter_parts : launch.gather_ranks;
  const uint64_t stride = Scatter ? launch.scatter_stride : launch.gather_stride;
  const uint64_t each = Scatter ? launch.scatter_each : launch.gather_each;
  const uint64_t total = Scatter ? launch.scatter_total : launch.gather_total;
  const uint64_t whole = address_of(launch, Scatter ? kInput : kOutput);
  constexpr uint32_t peers = Scatter ? kScatterTo : kGatherFrom;
  const uint64_t stride_bytes = stride * sizeof(Stored<T>);
  const uint32_t skip =
      Scatter ? ~0u : static_cast<uint32_t>(address_of(launch, kGatherSkip)) - begin;
  // Which part of the input or output is number j here.
  const auto part = [&](uint32_t j) {
    if constexpr (!Scatter) return begin + j;
    const uint32_t q = launch.scatter_first + begin + j;
    return q < parts ? q : q - parts;
  };
  const uint64_t alignment =
      address_of(launch, Scatter ? kScatterAlignment : kGatherAlignment) | stride_bytes;
  const bool aligned = alignment % kPackBytes == 0;
  // The last part is the shortest.
  const uint64_t full = aligned ? part_of(parts - 1, stride, each, total) / kPerPack<T> : 0;
  const uint64_t step = uint64_t{launch.blocks} * kBlockThreads;
  uint64_t i = first_pack();
  const AddressList<N> peer = addresses_of<N>(launch, peers + begin);
  uint64_t own[N];
#pragma clang loop unroll(full)
  for (uint32_t j = 0; j < N; ++j) own[j] = in_vector_register(whole + part(j) * stride_bytes);
#pragma clang loop unroll(disable)
  for (; i < full; i += step) {
    Pack pack[N];
    const uint32_t count = opaque(ranks - begin), without = opaque(skip);
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < N; ++j) {
      if (j >= count || j == without) continue;
      pack[j] = load_pack<kStream>((Scatter ? own[j] : peer.of[j]) + i * kPackBytes);
    }
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < N; ++j) {
      if (j >= count || j == without) continue;
      // What is scattered is read again as soon as all have arrived: let it stay in the cache.
      store_pack<Scatter ? kKeep : kStream>((Scatter ? peer.of[j] : own[j]) + i * kPackBytes,
                                            pack[j]);
    }
  }
  // What is left: the end of the longer parts, and buffers that are aligned to the element only.
#pragma clang loop unroll(disable)
  for (; i * kPerPack<T> < part_of(0, stride, each, total); i += step) {
#pragma clang loop unroll(disable)
    for (uint32_t j = 0; j < N && begin + j < ranks; ++j) {
      if (j == skip) continue;
      const uint64_t n = part_of(part(j), stride, each, total);
      const uint64_t here = whole + part(j) * stride_bytes;
      const uint64_t there = address_of(launch, peers + begin + j);
#pragma clang loop unroll(disable)
      for (uint64_t e = i * kPerPack<T>; e < n && e < (i + 1) * kPerPack<T>; ++e) {
        global<Stored<T>>(Scatter ? there : here)[e] =
            global<const Stored<T>>(Scatter ? here : there)[e];
      }
    }
  }
}

template <sar_data_type T, uint32_t Ranks, bool Scatter>
SAR_DEVICE void copy_slices(const Launch& launch) {
  constexpr uint32_t at_once = Ranks < kInFlight ? Ranks : kInFlight;
  const uint32_t ranks = Scatter ? launch.scatter_ranks : launch.gather_ranks;
#pragma clang loop unroll(disable)
  for (uint32_t begin = 0; begin < ranks; begin += at_once) {
    copy_parts<T, at_once, Scatter>(launch, begin);
  }
}

// Reduces pack `i` of the slice, `n` elements of it, element by element: unaligned buffers and the
// end.
template <sar_data_type T>
SAR_DEVICE void reduce_elements(const Launch& launch, uint64_t i, uint32_t n) {
#pragma clang loop unroll(disable)
  for (uint32_t e = 0; e < n; ++e) {
    const uint64_t offset = i * kPackBytes + e * sizeof(Stored<T>);
    Accumulator<T> sum = load_element<T>(address_of(launch, kSource) + offset);
#pragma clang loop unroll(disable)
    for (uint32_t rank = 1; rank < launch.world; ++rank) {
      const Accumulator<T> next = load_element<T>(address_of(launch, kSource + rank) + offset);
      sum = combine_any<T>(sum, next, launch.op);
    }
    const Stored<T> result = finish_any<T>(sum, launch.op, launch.world);
#pragma clang loop unroll(disable)
    for (uint32_t t = 0; t < launch.targets; ++t) {
      *global<Stored<T>>(address_of(launch, kTarget + t) + offset) = result;
    }
  }
}

template <uint32_t Ranks>
struct ReduceAddresses {
  AddressList<Ranks> source, target;
};
template <uint32_t Ranks>
SAR_DEVICE ReduceAddresses<Ranks> reduce_addresses(const Launch& launch) {
  ReduceAddresses<Ranks> addresses = {addresses_of<Ranks>(launch, kSource),
                                      addresses_of<Ranks>(launch, kTarget)};
#pragma clang loop unroll(full)
  for (uint32_t r = 0; r < Ranks; ++r) {
    now(addresses.source.of[r]);
    now(addresses.target.of[r]);
  }
  return addresses;
}

// Packs of the slice that can be reduced as a whole.
template <sar_data_type T>
SAR_DEVICE uint64_t full_packs(const Launch& launch) {
  const bool aligned = address_of(launch, kReduceAlignment) % kPackBytes == 0;
  uint64_t full = aligned ? launch.reduce_count / kPerPack<T> : 0;
  now(full);
  return full;
}

// Loads `Packs` packs of every rank, all in flight before the first is combined, and stores the
// results.
template <sar_data_type T, uint32_t Ranks, uint32_t Packs>
SAR_DEVICE void reduce_full(const Launch& launch, const ReduceAddresses<Ranks>& addresses,
                            uint64_t i, uint64_t step) {
  Pack pack[Packs][Ranks];
  const auto load = [&](auto hint) {
    const uint32_t loads = opaque(launch.world);
#pragma clang loop unroll(full)
    for (uint32_t p = 0; p < Packs; ++p) {
#pragma clang loop unroll(full)
      for (uint32_t r = 0; r < Ranks; ++r) {
        if (r >= loads) continue;
        pack[p][r] =
            load_pack<decltype(hint)::kHint>(addresses.source.of[r] + (i + p * step) * kPackBytes);
      }
    }
  };
  // Nobody reads a slot again, but maybe the input.
  if (launch.scatter_ranks != 0) {
    load(CacheHint<kStream>());
  } else {
    load(CacheHint<kKeep>());
  }
  Pack result[Packs];
  reduce_packs<T, Ranks, Packs>(pack, launch.op, launch.world, result);
  const uint32_t stores = opaque(launch.targets);
#pragma clang loop unroll(full)
  for (uint32_t p = 0; p < Packs; ++p) {
#pragma clang loop unroll(full)
    for (uint32_t t = 0; t < Ranks; ++t) {
      if (t >= stores) continue;
      store_pack<kStream>(addresses.target.of[t] + (i + p * step) * kPackBytes, result[p]);
    }
  }
}

template <sar_data_type T, uint32_t Ranks>
SAR_DEVICE void reduce(const Launch& launch, const ReduceAddresses<Ranks>& addresses,
                       uint64_t full) {
  constexpr uint32_t packs = Ranks < kReduceInFlight ? kReduceInFlight / Ranks : 1;
  const uint64_t step = uint64_t{launch.blocks} * kBlockThreads;
  uint64_t i = first_pack();
  if constexpr (packs > 1) {
#pragma clang loop unroll(disable)
    for (; i + (packs - 1) * step < full; i += packs * step) {
      reduce_full<T, Ranks, packs>(launch, addresses, i, step);
    }
  }
#pragma clang loop unroll(disable)
  for (; i < full; i += step) reduce_full<T, Ranks, 1>(launch, addresses, i, step);
#pragma clang loop unroll(disable)
  for (; i * kPerPack<T> < launch.reduce_count; i += step) {
    const uint64_t rest = launch.reduce_count - i * kPerPack<T>;
    reduce_elements<T>(launch, i, static_cast<uint32_t>(smaller(kPerPack<T>, rest)));
  }
}

template <sar_data_type T, uint32_t Ranks>
SAR_DEVICE void collective(const Launch& launch) {
  wait_for_stream();
  const uint32_t block = block_id();
  SAR_GLOBAL Pad* pad = own_pad(launch);
  // Only this block writes it, in the launch before.
  uint32_t epoch = thread_id() < launch.world ? pad->epoch[block] : 0;  // others need it not
  if (__builtin_expect(launch.scatter_ranks != 0, 0)) {
    copy_slices<T, Ranks, true>(launch);
    block_barrier();  // the other threads' stores are published as well
  }
  ++epoch;
  if (thread_id() < launch.world) signal_arrival(launch, epoch);
  // What is needed behind the arrival, while the signals are on their way.
  prepare_barriers(launch);
  const ReduceAddresses<Ranks> addresses = reduce_addresses<Ranks>(launch);
  const uint64_t full = full_packs<T>(launch);
  shared_barrier();
  if (!wait_together(launch, [&] { return await_arrival(launch, epoch); })) return;
  if (launch.targets != 0) reduce<T, Ranks>(launch, addresses, full);
  // What gather needs of the peers: two-shot read waits in the middle for it, staged write at the
  // exit, since peers store no more afterwards.
  const bool last = launch.gather_last != 0;
  if (__builtin_expect(launch.middle != 0 || last, 0)) {
    const Step step = last ? kExit : kMiddle;
    if (!rank_barrier(launch, [&] { return pass_step(launch, step, epoch); })) return;
  }
  if (__builtin_expect(launch.gather_ranks != 0, 0)) copy_slices<T, Ranks, false>(launch);
  // After an abort the epoch does not matter any more: the communicator is dead.
  if (thread_id() == 0) pad->epoch[block] = epoch;
  if (!last) last_rank_barrier(launch, [&] { return pass_step(launch, kExit, epoch); });
}

}  // namespace sar::gpu

#endif
