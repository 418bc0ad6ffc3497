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
inline constexpr uint32_t kInput = 0, kOutput = 1, kScatterTo = 2, kSource = kScatterTo + kMaxRanks,
                          kTarget = kSource + kMaxRanks, kGatherFrom = kTarget + kMaxRanks;
static_assert(kGatherFrom + kMaxRanks == kAddressWords);

SAR_DEVICE uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

// Elements of part q when `total` elements are cut into parts that begin `stride` apart.
SAR_DEVICE uint64_t part_of(uint64_t q, uint64_t stride, uint64_t each, uint64_t total) {
  const uint64_t begin = q * stride;
  return begin >= total ? 0 : smaller(each, total - begin);
}

// One part of a copy: `n` elements.
struct Part {
  uint64_t from, to, n;
};

// Copies the parts that `part(q)` describes, for q < ranks <= Ranks; q == skip is left alone. As
// long as all parts last, each thread has one pack of every part in flight. StoreOnce: nobody on
// this device reads the copy soon.
template <sar_data_type T, uint32_t Ranks, bool StoreOnce, class PartOf>
SAR_DEVICE void copy_parts(const Launch& launch, uint32_t ranks, uint32_t skip, PartOf part) {
  uint64_t from[Ranks], to[Ranks], alignment = 0, shortest = ~uint64_t{0}, longest = 0;
#pragma clang loop unroll(full)
  for (uint32_t q = 0; q < Ranks; ++q) {
    from[q] = to[q] = 0;
    if (q >= ranks || q == skip) continue;
    const Part p = part(q);
    from[q] = p.from;
    to[q] = p.to;
    alignment |= p.from | p.to;
    shortest = smaller(shortest, p.n);
    longest = p.n > longest ? p.n : longest;
  }
  const bool aligned = alignment % kPackBytes == 0;
  const uint64_t full = aligned && longest != 0 ? shortest / kPerPack<T> : 0;
  const uint64_t stride = uint64_t{launch.blocks} * kBlockThreads;
  uint64_t i = uint64_t{block_id()} * kBlockThreads + thread_id();
  for (; i < full; i += stride) {
    Pack pack[Ranks];
    const uint32_t loads = opaque(ranks), stores = opaque(ranks), without = opaque(skip);
#pragma clang loop unroll(full)
    for (uint32_t q = 0; q < Ranks; ++q) {
      if (q < loads && q != without) pack[q] = load_pack<true>(from[q] + i * kPackBytes);
    }
#pragma clang loop unroll(full)
    for (uint32_t q = 0; q < Ranks; ++q) {
      if (q < stores && q != without) store_pack<StoreOnce>(to[q] + i * kPackBytes, pack[q]);
    }
  }
  // What is left: the end of the longer parts, and buffers that are aligned to the element only.
  for (; i * kPerPack<T> < longest; i += stride) {
    for (uint32_t q = 0; q < ranks; ++q) {
      if (q == skip) continue;
      const Part p = part(q);
      if (i * kPerPack<T> >= p.n) continue;
      if (aligned && (i + 1) * kPerPack<T> <= p.n) {
        store_pack<false>(p.to + i * kPackBytes, load_pack<false>(p.from + i * kPackBytes));
        continue;
      }
      for (uint64_t e = i * kPerPack<T>; e < p.n && e < (i + 1) * kPerPack<T>; ++e) {
        global<Stored<T>>(p.to)[e] = global<const Stored<T>>(p.from)[e];
      }
    }
  }
}

// Reduces pack `i` of the slice, `n` elements of it, element by element: unaligned buffers and the
// end.
template <sar_data_type T, sar_reduce_op Op>
SAR_DEVICE void reduce_elements(const Launch& launch, uint64_t i, uint32_t n) {
  for (uint32_t e = 0; e < n; ++e) {
    const uint64_t offset = i * kPackBytes + e * sizeof(Stored<T>);
    Accumulators<T> sum = widen<T>(load_elements<T>(block_addresses()[kSource] + offset, 1));
    for (uint32_t rank = 1; rank < launch.world; ++rank) {
      combine<T, Op>(sum, load_elements<T>(block_addresses()[kSource + rank] + offset, 1));
    }
    finish<T, Op>(sum, launch.world);
    const Pack result = narrow<T>(sum);
    for (uint32_t t = 0; t < launch.targets; ++t) {
      store_elements<T>(block_addresses()[kTarget + t] + offset, result, 1);
    }
  }
}

// Loads one pack of every rank, all in flight before the first is combined, and stores the result.
template <sar_data_type T, uint32_t Ranks, sar_reduce_op Op>
SAR_DEVICE void reduce(const Launch& launch) {
  uint64_t source[Ranks], target[Ranks], alignment = 0;
#pragma clang loop unroll(full)
  for (uint32_t r = 0; r < Ranks; ++r) {
    source[r] = r < launch.world ? block_addresses()[kSource + r] : 0;
    target[r] = r < launch.targets ? block_addresses()[kTarget + r] : 0;
    alignment |= source[r] | target[r];
  }
  const uint64_t full = alignment % kPackBytes == 0 ? launch.reduce_count / kPerPack<T> : 0;
  const uint64_t stride = uint64_t{launch.blocks} * kBlockThreads;
  uint64_t i = uint64_t{block_id()} * kBlockThreads + thread_id();
  for (; i < full; i += stride) {
    Pack pack[Ranks];
    const uint32_t loads = opaque(launch.world), combined = opaque(launch.world);
    const uint32_t stores = opaque(launch.targets);
#pragma clang loop unroll(full)
    for (uint32_t r = 0; r < Ranks; ++r) {
      if (r < loads) pack[r] = load_pack<true>(source[r] + i * kPackBytes);
    }
    Accumulators<T> sum = widen<T>(pack[0]);
#pragma clang loop unroll(full)
    for (uint32_t r = 1; r < Ranks; ++r) {
      if (r < combined) combine<T, Op>(sum, pack[r]);
    }
    finish<T, Op>(sum, launch.world);
    const Pack result = narrow<T>(sum);
#pragma clang loop unroll(full)
    for (uint32_t t = 0; t < Ranks; ++t) {
      if (t < stores) store_pack<true>(target[t] + i * kPackBytes, result);
    }
  }
  for (; i * kPerPack<T> < launch.reduce_count; i += stride) {
    const uint64_t rest = launch.reduce_count - i * kPerPack<T>;
    reduce_elements<T, Op>(launch, i, static_cast<uint32_t>(smaller(kPerPack<T>, rest)));
  }
}

template <sar_data_type T, uint32_t Ranks>
SAR_DEVICE void reduce_any(const Launch& launch) {
  switch (launch.op) {
    case SAR_SUM:
      return reduce<T, Ranks, SAR_SUM>(launch);
    case SAR_PRODUCT:
      return reduce<T, Ranks, SAR_PRODUCT>(launch);
    case SAR_MIN:
      return reduce<T, Ranks, SAR_MIN>(launch);
    case SAR_MAX:
      return reduce<T, Ranks, SAR_MAX>(launch);
    default:
      return reduce<T, Ranks, SAR_AVERAGE>(launch);
  }
}

inline constexpr uint32_t kNoSkip = ~0u;

template <sar_data_type T, uint32_t Ranks>
SAR_DEVICE void scatter(const Launch& launch) {
  copy_parts<T, Ranks, false>(launch, launch.scatter_ranks, kNoSkip, [&](uint32_t j) {
    // Each rank begins with another peer, so that they do not all store to the same one at once.
    uint32_t q = launch.rank + j;
    if (q >= launch.scatter_ranks) q = launch.scatter_ranks == 1 ? 0 : q - launch.scatter_ranks;
    return Part{block_addresses()[kInput] + q * launch.scatter_stride * sizeof(Stored<T>),
                block_addresses()[kScatterTo + q],
                part_of(q, launch.scatter_stride, launch.scatter_each, launch.scatter_total)};
  });
}

template <sar_data_type T, uint32_t Ranks>
SAR_DEVICE void gather(const Launch& launch) {
  auto part = [&](uint32_t q) {
    return Part{block_addresses()[kGatherFrom + q],
                block_addresses()[kOutput] + q * launch.gather_stride * sizeof(Stored<T>),
                part_of(q, launch.gather_stride, launch.gather_each, launch.gather_total)};
  };
  // In place, one part is there already, and peers may be reading it.
  uint32_t skip = kNoSkip;
  for (uint32_t q = 0; q < launch.gather_ranks; ++q) {
    const Part p = part(q);
    if (p.from == p.to) skip = q;
  }
  copy_parts<T, Ranks, true>(launch, launch.gather_ranks, skip, part);
}

template <sar_data_type T, uint32_t Ranks>
SAR_DEVICE void collective(const Launch& launch) {
  const uint32_t block = block_id(), thread = thread_id();
  SAR_GLOBAL Pad* pad = pad_of(launch, launch.rank);
  // Only this block writes it, at the end of the launch before.
  const uint32_t epoch = pad->epoch[block] + 1;
  prepare_barriers(launch);
  for (uint32_t word = thread; word < kAddressWords; word += kBlockThreads) {
    block_addresses()[word] = launch.patched != 0
                                  ? global<const uint64_t>(launch.patched)[word]
                                  : reinterpret_cast<const uint64_t*>(&launch.addresses)[word];
  }
  if (launch.scatter_ranks != 0) {
    block_barrier();
    scatter<T, Ranks>(launch);
  }
  if (!rank_barrier(launch, [&] { return arrive_and_compare(launch, epoch); })) return;
  if (launch.targets != 0) reduce_any<T, Ranks>(launch);
  if (launch.middle != 0 &&
      !rank_barrier(launch, [&] { return pass_step(launch, kMiddle, epoch); })) {
    return;
  }
  if (launch.gather_ranks != 0 && launch.gather_last == 0) gather<T, Ranks>(launch);
  if (!rank_barrier(launch, [&] { return pass_step(launch, kExit, epoch); })) return;
  if (thread == 0) pad->epoch[block] = epoch;
  if (launch.gather_ranks != 0 && launch.gather_last != 0) gather<T, Ranks>(launch);
}

}  // namespace sar::gpu

#endif
