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

template <sar_data_type T, sar_reduce_op Op>
SAR_DEVICE void combine(Accumulators<T>& into, Pack pack) {
  const Accumulators<T> other = widen<T>(pack);
#pragma clang loop unroll(full)
  for (uint32_t i = 0; i < kPerPack<T>; ++i) {
    into.value[i] = Operation<Op>::combine(into.value[i], other.value[i]);
  }
}

template <sar_data_type T, sar_reduce_op Op>
SAR_DEVICE void finish(Accumulators<T>& wide, uint32_t world) {
  if constexpr (Op == SAR_AVERAGE) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kPerPack<T>; ++i) {
      wide.value[i] = Operation<Op>::finish(wide.value[i], world);
    }
  }
}

// --- in memory -----------------------------------------------------------------------------------

// Once: nobody on this device needs the pack again soon, so it should not stay in the cache. A hint
// only, on AMD as on NVIDIA: visibility comes from the releases and acquires.
template <bool Once>
SAR_DEVICE Pack load_pack(uint64_t address) {
#if defined(__NVPTX__)
  if constexpr (Once) {  // clang has no other way to say it
    Pack pack;
    __asm__ volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(pack[0]), "=r"(pack[1]), "=r"(pack[2]), "=r"(pack[3])
                     : "l"(address)
                     : "memory");
    return pack;
  }
#endif
  if constexpr (Once) return __builtin_nontemporal_load(global<const Pack>(address));
  return *global<const Pack>(address);
}

template <bool Once>
SAR_DEVICE void store_pack(uint64_t address, Pack pack) {
#if defined(__NVPTX__)
  if constexpr (Once) {
    __asm__ volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(pack[0]),
                     "r"(pack[1]), "r"(pack[2]), "r"(pack[3])
                     : "memory");
    return;
  }
#endif
  if constexpr (Once) {
    __builtin_nontemporal_store(pack, global<Pack>(address));
  } else {
    *global<Pack>(address) = pack;
  }
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
