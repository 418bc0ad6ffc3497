// Licensed under the Apache License, Version 2.0. See LICENSE.
#ifndef SPARK_ALLREDUCE_FUZZ_FUZZING_HPP
#define SPARK_ALLREDUCE_FUZZ_FUZZING_HPP

#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace sar::testing {

// What must hold for every input; libFuzzer keeps the input that ends here.
inline void require(bool condition) {
  if (!condition) {
    abort();
  }
}

// The fuzzer's bytes, taken from the front; zeros behind the end.
class Input {
 public:
  Input(const uint8_t *data, size_t size) : data_(data), left_(size) {}

  bool empty() const { return left_ == 0; }
  uint8_t byte() {
    if (empty()) {
      return 0;
    }
    left_--;
    return *data_++;
  }
  void xor_to(void *to, size_t bytes) {
    for (size_t i = 0; i < bytes && !empty(); i++) {
      static_cast<uint8_t *>(to)[i] ^= byte();
    }
  }

 private:
  const uint8_t *data_;
  size_t left_;
};

}  // namespace sar::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif  // SPARK_ALLREDUCE_FUZZ_FUZZING_HPP
