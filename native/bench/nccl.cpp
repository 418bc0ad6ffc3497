// Licensed under the Apache License, Version 2.0. See LICENSE.
#include "nccl.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace sar::gpu::bench {
namespace {

// Values of ncclDataType_t and ncclRedOp_t.
constexpr int kFloat32 = 7, kBfloat16 = 9, kSum = 0;

template <typename Function>
bool find(void* library, const char* name, Function* function) {
  *reinterpret_cast<void**>(function) = dlsym(library, name);
  return *function != nullptr;
}

}  // namespace

Nccl::Nccl(const std::string& library) {
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  void* opened = nullptr;
  if (!library.empty()) {
    opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) why_not_ = dlerror();
  } else {
    for (const char* name : {"libnccl.so.2", "librccl.so.1"}) {
      if (opened == nullptr) opened = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (opened == nullptr) why_not_ = "neither libnccl.so.2 nor librccl.so.1 was found";
  }
  if (opened == nullptr) return;
  if (!find(opened, "ncclGetVersion", &get_version_) ||
      !find(opened, "ncclCommInitAll", &init_all_) || !find(opened, "ncclCommDestroy", &destroy_) ||
      !find(opened, "ncclGroupStart", &group_start_) ||
      !find(opened, "ncclGroupEnd", &group_end_) || !find(opened, "ncclAllReduce", &all_reduce_) ||
      !find(opened, "ncclGetErrorString", &error_text_)) {
    why_not_ = "it lacks a function";
    return;
  }
  get_version_(&version_);
}

bool Nccl::refused(int error, const char* what) {
  if (error == 0) return false;
  why_not_ = std::string(what) + ": " + error_text_(error);
  return true;
}

bool Nccl::connect(const World& world) {
  disconnect();
  if (version_ == 0) return false;
  why_not_.clear();
  std::vector<int> devices;
  for (uint32_t r = 0; r < world.ranks(); ++r) devices.push_back(world.device_of(r).ordinal());
  std::vector<void*> ranks(world.ranks());
  if (refused(init_all_(ranks.data(), static_cast<int>(ranks.size()), devices.data()),
              "it refuses these ranks")) {
    return false;
  }
  ranks_ = ranks;
  return true;
}

void Nccl::disconnect() {
  for (void* rank : ranks_) destroy_(rank);
  ranks_.clear();
}

void Nccl::all_reduce(const World& world, uint64_t count, sar_data_type type) {
  int error = group_start_();
  for (uint32_t r = 0; r < world.ranks() && error == 0; ++r) {
    error = all_reduce_(
        reinterpret_cast<const void*>(world.input(r)), reinterpret_cast<void*>(world.output(r)),
        count, type == SAR_FLOAT32 ? kFloat32 : kBfloat16, kSum, ranks_[r], world.stream(r));
  }
  if (const int ended = group_end_(); error == 0) error = ended;
  if (error == 0) return;
  std::fprintf(stderr, "NCCL's all-reduce: %s\n", error_text_(error));
  std::exit(1);
}

}  // namespace sar::gpu::bench
