// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// nccl.hpp: the all-reduce of NCCL, or of RCCL, which has the same functions: found at run time and
// never linked, to be measured beside ours on the same buffers and streams.
#ifndef SPARK_ALLREDUCE_BENCH_NCCL_HPP
#define SPARK_ALLREDUCE_BENCH_NCCL_HPP

#include <string>

#include "bench_device.hpp"

namespace sar::gpu::bench {

class Nccl {
 public:
  // `library`: a file, or empty: where the system's loader finds one. Multicast (NVLS) is off.
  explicit Nccl(const std::string& library);
  ~Nccl() { disconnect(); }

  // For these ranks, from the next call on. False, and why_not() says why, if it does not take
  // part.
  bool connect(const World& world);
  void disconnect();
  const std::string& why_not() const { return why_not_; }
  int version() const { return version_; }
  // Enqueues a sum of all ranks.
  void all_reduce(const World& world, uint64_t count, sar_data_type type);

 private:
  bool refused(int error, const char* what);

  std::string why_not_;
  int version_ = 0;
  std::vector<void*> ranks_;
  int (*get_version_)(int*) = nullptr;
  int (*init_all_)(void**, int, const int*) = nullptr;
  int (*destroy_)(void*) = nullptr;
  int (*group_start_)() = nullptr;
  int (*group_end_)() = nullptr;
  int (*all_reduce_)(const void*, void*, size_t, int, int, void*, void*) = nullptr;
  const char* (*error_text_)(int) = nullptr;
};

}  // namespace sar::gpu::bench

#endif
