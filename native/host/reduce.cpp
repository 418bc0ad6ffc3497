// Licensed under the Apache License, Version 2.0. See LICENSE.
#include "reduce.hpp"

#include <atomic>

namespace sar {

namespace {

// A library built with -ffast-math that was loaded earlier may have told this thread to flush
// subnormal numbers to zero. That would make results differ between ranks.
class StandardRounding {
 public:
#if defined(__x86_64__)
  StandardRounding() : saved_(__builtin_ia32_stmxcsr()) {
    if ((saved_ & kModeBits) != kStandard) {
      __builtin_ia32_ldmxcsr((saved_ & ~kModeBits) | kStandard);
    }
  }
  ~StandardRounding() {
    if ((saved_ & kModeBits) != kStandard) {
      __builtin_ia32_ldmxcsr(saved_);
    }
  }

 private:
  // Flush to zero, rounding, exception masks, subnormals are zeros. Standard: to nearest, all
  // masked.
  static constexpr unsigned kModeBits = 0xffc0;
  static constexpr unsigned kStandard = 0x1f80;
  unsigned saved_;
#else
  StandardRounding() {}
#endif
};

ReduceFunction choose() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v4")) {
    return reduce_x86_64_v4;
  }
  if (__builtin_cpu_supports("x86-64-v3")) {
    return reduce_x86_64_v3;
  }
#endif
  return reduce_baseline;
}

}  // namespace

ReduceFunction chosen_reduce_function() {
  static constinit std::atomic<ReduceFunction> chosen{nullptr};
  ReduceFunction function = chosen.load(std::memory_order_relaxed);
  if (function == nullptr) {
    function = choose();  // every thread chooses the same
    chosen.store(function, std::memory_order_relaxed);
  }
  return function;
}

void reduce(const ReduceJob &job) {
  const StandardRounding guard;
  chosen_reduce_function()(job);
}

}  // namespace sar
