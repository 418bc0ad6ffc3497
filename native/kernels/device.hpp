// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// device.hpp: the few things in which AMD, NVIDIA and the CPU build of the tests differ: who am I,
// the block barrier, block-shared memory, the clock, and memory ordering. On the CPU one thread
// plays one device thread; cpu_grid.hpp of the tests starts them.
#ifndef SPARK_ALLREDUCE_KERNELS_DEVICE_HPP
#define SPARK_ALLREDUCE_KERNELS_DEVICE_HPP

#include <stdint.h>

#include "layout.hpp"

#if defined(__AMDGPU__) || defined(__NVPTX__)
#include <gpuintrin.h>
#define SAR_GLOBAL __attribute__((address_space(1)))
#define SAR_SHARED __attribute__((address_space(3)))
#else
#include "cpu_grid.hpp"
#define SAR_GLOBAL
#define SAR_SHARED
#endif

// A kernel whose blocks have at least `least` threads.
#if defined(__AMDGPU__)
#define SAR_KERNEL(least) \
  extern "C" __gpu_kernel \
      __attribute__((amdgpu_flat_work_group_size(least, sar::gpu::kBlockThreads)))
#elif defined(__NVPTX__)
#define SAR_KERNEL(least) extern "C" __gpu_kernel
#else
#define SAR_KERNEL(least) extern "C"
#endif
#define SAR_DEVICE static inline __attribute__((always_inline))
// For what hardly ever runs: kept out of the instruction cache's way.
#define SAR_DEVICE_COLD static __attribute__((noinline, cold))

namespace sar::gpu {

// --- who am I ------------------------------------------------------------------------------------

#if defined(__AMDGPU__) || defined(__NVPTX__)
SAR_DEVICE uint32_t thread_id() { return __gpu_thread_id_x(); }
SAR_DEVICE uint32_t block_id() { return __gpu_block_id_x(); }

// Shared by the threads of one block. Not initialised: thread 0 does, before the first barrier.
[[clang::loader_uninitialized]] static SAR_SHARED uint32_t shared_stop;
[[clang::loader_uninitialized]] static SAR_SHARED uint64_t shared_pads[kMaxRanks];
SAR_DEVICE SAR_SHARED uint64_t* block_pads() { return shared_pads; }
SAR_DEVICE SAR_SHARED uint32_t* block_stop() { return &shared_stop; }
#else
SAR_DEVICE uint32_t thread_id() { return cpu::thread.id; }
SAR_DEVICE uint32_t block_id() { return cpu::thread.block->id; }
SAR_DEVICE uint64_t* block_pads() { return cpu::thread.block->pads; }
SAR_DEVICE uint32_t* block_stop() { return &cpu::thread.block->stop; }
#endif

// A kernel begins with this. On NVIDIA its blocks may come onto the device while the last ones of
// the kernel before it on the stream are ending (Driver::launch_next); from here on that kernel has
// ended, and what it stored is visible.
SAR_DEVICE void wait_for_stream() {
#if defined(__NVPTX__)
  __asm__ volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// --- the block barrier ---------------------------------------------------------------------------

// All threads of the block pass together, and see what each of them wrote before.
SAR_DEVICE void block_barrier() {
#if defined(__NVPTX__)
  __nvvm_bar_sync(0);
#elif defined(__AMDGPU__)
  // Agent scope and not workgroup: each wave waits until its own stores have left it. The wave that
  // signals afterwards releases at system scope, but its wait counters count its own stores only.
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
#else
  cpu::thread.block->barrier.arrive_and_wait();
#endif
}

// Orders block-shared memory only: on AMD it does not wait for stores that are on their way to
// peers.
SAR_DEVICE void shared_barrier() {
#if defined(__AMDGPU__)
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
#else
  block_barrier();
#endif
}

// --- time ----------------------------------------------------------------------------------------

#if defined(__AMDGPU__)
inline constexpr uint64_t kTicksPerSecond = 100'000'000;
#else
inline constexpr uint64_t kTicksPerSecond = 1'000'000'000;
#endif

// NVIDIA: nanoseconds (globaltimer); AMD: 100 MHz (s_memrealtime); CPU: nanoseconds.
SAR_DEVICE uint64_t ticks() {
#if defined(__AMDGPU__) || defined(__NVPTX__)
  return __builtin_readsteadycounter();
#else
  return cpu::nanoseconds();
#endif
}

SAR_DEVICE void pause() {
#if defined(__AMDGPU__)
  __builtin_amdgcn_s_sleep(1);
#elif !defined(__NVPTX__)
  cpu::yield();
#endif
}

// The same value, of which the compiler knows nothing. On AMD it would otherwise keep one lane mask
// for each `r < world` of an unrolled loop and run out of scalar registers.
SAR_DEVICE uint32_t opaque(uint32_t value) {
#if defined(__AMDGPU__)
  value = __builtin_amdgcn_readfirstlane(value);
  __asm__ volatile("" : "+s"(value));
#endif
  return value;
}

// The value is read here and not where it is used.
SAR_DEVICE void now([[maybe_unused]] uint64_t& value) {
#if defined(__NVPTX__)
  __asm__ volatile("" : "+l"(value));
#endif
}

// On AMD: into a vector register, of which there are more than scalar ones.
SAR_DEVICE uint64_t in_vector_register(uint64_t value) {
#if defined(__AMDGPU__)
  __asm__ volatile("" : "+v"(value));
#endif
  return value;
}

// --- memory ordering -----------------------------------------------------------------------------

// Each place where ordering matters has a name, so that the mutation check can weaken one at a time
// (-DSAR_WEAKEN=<number>) and show that ThreadSanitizer notices.
enum Site : int {
  kArrivalSignal = 1,
  kArrivalWait = 2,
  kStepSignal = 3,
  kStepWait = 4,
  kOutcomeState = 5,
};
#ifndef SAR_WEAKEN
#define SAR_WEAKEN 0
#endif
constexpr int order(Site site, int intended) {
  return site == SAR_WEAKEN ? __ATOMIC_RELAXED : intended;
}

// System scope: the other side is another device, another process, or the host.
template <int Order, class T>
SAR_DEVICE void store_system(SAR_GLOBAL T* address, T value) {
  __scoped_atomic_store_n(address, value, Order, __MEMORY_SCOPE_SYSTEM);
}
template <int Order, class T>
SAR_DEVICE T load_system(const SAR_GLOBAL T* address) {
  return __scoped_atomic_load_n(address, Order, __MEMORY_SCOPE_SYSTEM);
}

template <class T>
SAR_DEVICE SAR_GLOBAL T* global(uint64_t address) {
  return reinterpret_cast<SAR_GLOBAL T*>(address);
}

}  // namespace sar::gpu

#endif
