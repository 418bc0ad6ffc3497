// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// bench_device.hpp: N ranks on N streams of one device, without a communicator: what is measured is
// the kernels.
#ifndef SPARK_ALLREDUCE_BENCH_BENCH_DEVICE_HPP
#define SPARK_ALLREDUCE_BENCH_BENCH_DEVICE_HPP

#include <cstdint>
#include <functional>
#include <vector>

#include "../gpu/driver.hpp"
#include "../gpu/kernel_images.hpp"
#include "../gpu/plan.hpp"

namespace sar::gpu::bench {

// Ends the program with a message if a driver call failed.
void require(const Driver& driver, int error, const char* what);

class Device {
 public:
  explicit Device(int ordinal);
  const Driver& driver() const { return *driver_; }
  Kernels& kernels() { return kernels_; }
  int multiprocessors() const { return multiprocessors_; }
  uint64_t allocate(uint64_t bytes, int fill = 0);
  void* function(const char* name) const;  // of the benchmark's own module
  // Both directions count: a copy of `bytes` reads and writes that many.
  float copy_microseconds(uint64_t bytes);

 private:
  static const Driver* open(int ordinal);
  const Driver* driver_;
  int multiprocessors_ = 0;
  Kernels kernels_;
  void* module_ = nullptr;
};

struct Timing {
  float median = 0, low = 0, high = 0;  // microseconds for one collective
};

// The ranks' pads, staging buffers, inputs, outputs and streams.
class World {
 public:
  World(Device& device, uint32_t ranks, uint64_t most_bytes, uint64_t staging_bytes);
  ~World();

  uint32_t ranks() const { return ranks_; }
  Geometry& geometry(uint32_t rank) { return geometries_[rank]; }
  void set_blocks(uint32_t blocks);
  void set_inputs(const std::vector<std::vector<uint8_t>>& inputs);
  void poison_outputs(uint64_t bytes);
  std::vector<uint8_t> output(uint32_t rank, uint64_t bytes);

  // `once(rank, stream)` enqueues one collective of one rank. Graph: 20 collectives per replay.
  Timing time(bool graph, int repeats, const std::function<void(uint32_t, void*)>& once);
  void run_once(const std::function<void(uint32_t, void*)>& once);
  // All launches of a collective on a rank's stream.
  void enqueue(uint32_t rank, void* stream, const Call& call, sar_schedule schedule);
  void enqueue_one_barrier(uint32_t rank, void* stream);

 private:
  static constexpr int kPerGraph = 20;
  void fork();
  void join();
  Buffers buffers(uint32_t rank) const;

  Device& device_;
  uint32_t ranks_;
  uint64_t most_bytes_;
  std::vector<Geometry> geometries_;
  std::vector<uint64_t> pads_, staging_, inputs_, outputs_, outcomes_;
  std::vector<void*> streams_, events_;
  void *start_ = nullptr, *stop_ = nullptr, *ready_ = nullptr;
  void* one_barrier_ = nullptr;
};

}  // namespace sar::gpu::bench

#endif
