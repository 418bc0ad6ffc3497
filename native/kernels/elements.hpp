// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// elements.hpp: 16-byte packs of elements, in memory and in registers. What is computed is in
// common/numerics.hpp, which the host backend uses as well; here are only the conversions that GPUs
// have an instruction for. Those round to nearest even too, so the bits are the same.
#ifndef SPARK_ALLREDUCE_KERNELS_ELEMENTS_HPP
#define SPARK_ALLREDUCE_KERNELS_ELEMENTS_HPP

#include "../common/numerics.hpp"
#include "device.hpp"

namespace sar::gpu {

typedef uint32_t Pack __attribute__((ext_vector_type(4)));

template <sar_data_type T>
using Stored = typename Element<T>::Stored;
template <sar_data_type T>
inline constexpr uint32_t kPerPack = kPackBytes / sizeof(Stored<T>);

// The elements of one pack, as they are combined.
template <sar_data_type T>
struct Accumulators {
  typename Element<T>::Accumulator value[kPerPack<T>];
};

template <sar_data_type T>
struct Elements {
  Stored<T> value[kPerPack<T>];
};

#if defined(__AMDGPU__) || defined(__NVPTX__)
SAR_DEVICE float widen_float16(uint16_t bits) {
  return static_cast<float>(__builtin_bit_cast(_Float16, bits));
}
SAR_DEVICE uint16_t narrow_float16(float value) {
  const uint16_t bits = __builtin_bit_cast(uint16_t, static_cast<_Float16>(value));
  return value != value ? kNanFloat16 : bits;
}
SAR_DEVICE uint16_t narrow_bfloat16(float value) {
  const uint16_t bits = __builtin_bit_cast(uint16_t, static_cast<__bf16>(value));
  return value != value ? kNanBfloat16 : bits;
}
#else
SAR_DEVICE float widen_float16(uint16_t bits) { return float16_to_float32(bits); }
SAR_DEVICE uint16_t narrow_float16(float value) { return float32_to_float16(value); }
SAR_DEVICE uint16_t narrow_bfloat16(float value) { return float32_to_bfloat16(value); }
#endif

template <sar_data_type T>
SAR_DEVICE Accumulators<T> widen(Pack pack) {
  const auto elements = __builtin_bit_cast(Elements<T>, pack);
  Accumulators<T> wide;
#pragma clang loop unroll(full)
  for (uint32_t i = 0; i < kPerPack<T>; ++i) {
    if constexpr (T == SAR_FLOAT16) {
      wide.value[i] = widen_float16(elements.value[i]);
    } else {
      wide.value[i] = Element<T>::load(elements.value[i]);
    }
  }
  return wide;
}

template <sar_data_type T>
SAR_DEVICE Pack narrow(const Accumulators<T>& wide) {
  Elements<T> elements;
#pragma clang loop unroll(full)
  for (uint32_t i = 0; i < kPerPack<T>; ++i) {
    if constexpr (T == SAR_FLOAT16) {
      elements.value[i] = narrow_float16(wide.value[i]);
    } else if constexpr (T == SAR_BFLOAT16) {
      elements.value[i] = narrow_bfloat16(wide.value[i]);
    } else {
      elements.value[i] = Element<T>::store(wide.value[i]);
    }
  }
  return __builtin_bit_cast(Pack, elements);
}

template <sar_data_type T>
using Accumulator = typename Element<T>::Accumulator;

// The ranks' packs, combined in rank order and rounded once.
template <sar_data_type T, uint32_t Ranks, sar_reduce_op Op>
SAR_DEVICE Pack reduce_packs(const Pack (&pack)[Ranks], uint32_t world) {
  Accumulators<T> sum = widen<T>(pack[0]);
#pragma clang loop unroll(full)
  for (uint32_t r = 1; r < Ranks; ++r) {
    if (r >= world) continue;
    const Accumulators<T> other = widen<T>(pack[r]);
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kPerPack<T>; ++i) {
      sum.value[i] = Operation<Op>::combine(sum.value[i], other.value[i]);
    }
  }
  if constexpr (Op == SAR_AVERAGE) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kPerPack<T>; ++i) {
      sum.value[i] = Operation<Op>::finish(sum.value[i], world);
    }
  }
  return narrow<T>(sum);
}

template <sar_data_type T, uint32_t Ranks, sar_reduce_op Op, uint32_t Packs>
SAR_DEVICE void reduce_packs(const Pack (&pack)[Packs][Ranks], uint32_t world,
                             Pack (&result)[Packs]) {
#pragma clang loop unroll(full)
  for (uint32_t p = 0; p < Packs; ++p) result[p] = reduce_packs<T, Ranks, Op>(pack[p], world);
}

// The operation is chosen here, between loads and stores, so that a kernel has those only once: it
// stays small, which short messages feel, since each launch begins with a cold instruction cache.
template <sar_data_type T, uint32_t Ranks, uint32_t Packs>
SAR_DEVICE void reduce_packs(const Pack (&pack)[Packs][Ranks], uint32_t op, uint32_t world,
                             Pack (&result)[Packs]) {
  const uint32_t combined = opaque(world);
  if (__builtin_expect(op == SAR_SUM, 1)) {
    return reduce_packs<T, Ranks, SAR_SUM, Packs>(pack, combined, result);
  }
  switch (op) {
    case SAR_PRODUCT:
      return reduce_packs<T, Ranks, SAR_PRODUCT, Packs>(pack, combined, result);
    case SAR_MIN:
      return reduce_packs<T, Ranks, SAR_MIN, Packs>(pack, combined, result);
    case SAR_MAX:
      return reduce_packs<T, Ranks, SAR_MAX, Packs>(pack, combined, result);
    default:
      return reduce_packs<T, Ranks, SAR_AVERAGE, Packs>(pack, combined, result);
  }
}

// The same for one element.
template <sar_data_type T>
SAR_DEVICE Accumulator<T> combine_any(Accumulator<T> a, Accumulator<T> b, uint32_t op) {
  switch (op) {
    case SAR_PRODUCT:
      return Operation<SAR_PRODUCT>::combine(a, b);
    case SAR_MIN:
      return Operation<SAR_MIN>::combine(a, b);
    case SAR_MAX:
      return Operation<SAR_MAX>::combine(a, b);
    default:
      return Operation<SAR_SUM>::combine(a, b);
  }
}

template <sar_data_type T>
SAR_DEVICE Stored<T> finish_any(Accumulator<T> sum, uint32_t op, uint32_t world) {
  if (op == SAR_AVERAGE) sum = Operation<SAR_AVERAGE>::finish(sum, world);
  Accumulators<T> wide = {};
  wide.value[0] = sum;
  return __builtin_bit_cast(Elements<T>, narrow<T>(wide)).value[0];
}

// --- in memory -----------------------------------------------------------------------------------

// How long a pack should stay in the cache. Hints only, on AMD as on NVIDIA: visibility comes from
// the releases and acquires.
enum Cache : uint32_t { kKeep, kStream };
template <Cache Hint>
struct CacheHint {
  static constexpr Cache kHint = Hint;
};

template <Cache Hint>
SAR_DEVICE Pack load_pack(uint64_t address) {
#if defined(__NVPTX__)
  if constexpr (Hint == kStream) {  // clang has no other way to say it
    Pack pack;
    __asm__ volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(pack[0]), "=r"(pack[1]), "=r"(pack[2]), "=r"(pack[3])
                     : "l"(address)
                     : "memory");
    return pack;
  }
#endif
  if constexpr (Hint == kStream) return __builtin_nontemporal_load(global<const Pack>(address));
  return *global<const Pack>(address);
}

template <Cache Hint>
SAR_DEVICE void store_pack(uint64_t address, Pack pack) {
#if defined(__NVPTX__)
  if constexpr (Hint == kStream) {
    __asm__ volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(pack[0]),
                     "r"(pack[1]), "r"(pack[2]), "r"(pack[3])
                     : "memory");
    return;
  }
#endif
  if constexpr (Hint == kStream) {
    __builtin_nontemporal_store(pack, global<Pack>(address));
  } else {
    *global<Pack>(address) = pack;
  }
}

template <sar_data_type T>
SAR_DEVICE Accumulator<T> load_element(uint64_t address) {
  Elements<T> elements = {};
  elements.value[0] = *global<const Stored<T>>(address);
  return widen<T>(__builtin_bit_cast(Pack, elements)).value[0];
}

// The first `n` elements of a pack, at an address that is aligned to the element only.
template <sar_data_type T>
SAR_DEVICE Pack load_elements(uint64_t address, uint32_t n) {
  Elements<T> elements = {};
#pragma clang loop unroll(full)
  for (uint32_t i = 0; i < kPerPack<T>; ++i) {
    if (i < n) elements.value[i] = global<const Stored<T>>(address)[i];
  }
  return __builtin_bit_cast(Pack, elements);
}

template <sar_data_type T>
SAR_DEVICE void store_elements(uint64_t address, Pack pack, uint32_t n) {
  const auto elements = __builtin_bit_cast(Elements<T>, pack);
#pragma clang loop unroll(full)
  for (uint32_t i = 0; i < kPerPack<T>; ++i) {
    if (i < n) global<Stored<T>>(address)[i] = elements.value[i];
  }
}

}  // namespace sar::gpu

#endif
