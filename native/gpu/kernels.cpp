// Licensed under the Apache License, Version 2.0. See LICENSE.
#include <stdio.h>

#include "../kernels/layout.hpp"
#include "kernel_images.hpp"

namespace sar::gpu {
namespace {

constexpr const char *kTypeNames[] = {"float64",  "float32", "float16",
                                      "bfloat16", "int32",   "int64"};

bool is_amd(const Image &image) { return image.architecture[0] == 'g'; }

}  // namespace

void Kernels::unload() {
  for (uint32_t t = 0; t < kTypes; ++t) {
    if (modules_[t] != nullptr && (t == 0 || !shared_module_)) driver_.module_unload(modules_[t]);
  }
  for (void *&module : modules_) module = nullptr;
  for (auto &functions : functions_) functions[0] = functions[1] = nullptr;
}

int Kernels::load(uint32_t type) {
  if (modules_[type] != nullptr) return 0;
  size_t count = 0;
  const Image *images = embedded_images(&count);
  int error = 209;  // "no binary for this GPU", of both vendors
  for (size_t i = 0; i < count; ++i) {
    const Image &image = images[i];
    if (is_amd(image) != (driver_.vendor == Vendor::kAmd)) continue;
    if (image.type != kTypes && image.type != type) continue;
    // 512 threads of at most 128 registers: a multiprocessor holds at least one block.
    int option = 0;  // CU_JIT_MAX_REGISTERS; machine code ignores it
    void *value = reinterpret_cast<void *>(uintptr_t{128});
    void *module = nullptr;
    const bool jit = driver_.vendor == Vendor::kNvidia;
    error = driver_.module_load(&module, image.data, jit ? 1 : 0, jit ? &option : nullptr,
                                jit ? &value : nullptr);
    if (error != 0) continue;
    architecture_ = image.architecture;
    if (image.type == kTypes) {
      shared_module_ = true;
      for (void *&m : modules_) m = module;
    } else {
      modules_[type] = module;
    }
    return 0;
  }
  return error;
}

int Kernels::find(sar_data_type type, uint32_t world, bool low_latency, void **function) {
  void *&known = functions_[type][low_latency ? 1 : 0];
  if (known != nullptr) {
    *function = known;
    return 0;
  }
  int error = load(type);
  if (error != 0) return error;
  const unsigned ranks = world <= 2 ? 2 : world <= 4 ? 4 : world <= 8 ? 8 : 16;
  char name[64];
  snprintf(name, sizeof name, "sar_%s_%s_%u", low_latency ? "low_latency" : "collective",
           kTypeNames[type], ranks);
  error = driver_.module_function(function, modules_[type], name);
  // NVIDIA's driver loads a function when it is first needed, and waits then for the kernels of the
  // process. Better here than at a launch, when those may wait for this one.
  int blocks = 0;
  if (error == 0) error = driver_.resident_blocks(&blocks, *function, kBlockThreads, 0);
  if (error == 0) known = *function;
  return error;
}

int Kernels::resident_blocks(sar_data_type type, uint32_t world, int *blocks) {
  void *function = nullptr;
  int error = find(type, world, false, &function);
  if (error == 0) error = driver_.resident_blocks(blocks, function, kBlockThreads, 0);
  return error;
}

}  // namespace sar::gpu
