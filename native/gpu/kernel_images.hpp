// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// kernel_images.hpp: the device code embedded in the library, and the kernels in it.
#ifndef SPARK_ALLREDUCE_GPU_KERNEL_IMAGES_HPP
#define SPARK_ALLREDUCE_GPU_KERNEL_IMAGES_HPP

#include <stddef.h>

#include "driver.hpp"
#include "spark_allreduce.h"

namespace sar::gpu {

inline constexpr uint32_t kTypes = 6;

struct Image {
  const char *architecture;  // "gfx942", "sm_90" (machine code) or "ptx"
  uint32_t type;             // the data type, or kTypes: all of them
  const void *data;
  size_t bytes;
};

// Newest first; the first that the driver accepts is used.
const Image *embedded_images(size_t *count);

// The kernels of one device, loaded when a type is first used.
class Kernels {
 public:
  explicit Kernels(const Driver &driver) : driver_(driver) {}
  ~Kernels() { unload(); }
  Kernels(const Kernels &) = delete;
  Kernels &operator=(const Kernels &) = delete;

  // The device must be current, and the world always the same. 0, or a driver error.
  int find(sar_data_type type, uint32_t world, bool low_latency, void **function);
  // Whether both kernels of the type have been found, so that the driver has loaded them.
  bool has(sar_data_type type) const {
    return functions_[type][0] != nullptr && functions_[type][1] != nullptr;
  }
  // Blocks of the type's hungriest kernel that one multiprocessor holds.
  int resident_blocks(sar_data_type type, uint32_t world, int *blocks);
  // While the device is current.
  void unload();
  const char *architecture() const { return architecture_; }

 private:
  int load(uint32_t type);

  const Driver &driver_;
  const char *architecture_ = "none";
  void *modules_[kTypes] = {};
  void *functions_[kTypes][2] = {};  // by type; then: the low-latency one
  bool shared_module_ = false;
};

}  // namespace sar::gpu

#endif
