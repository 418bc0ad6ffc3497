// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// bench_device.hpp: N ranks on streams of one device or of several, in one process and without a
// communicator: what is measured is the kernels.
#ifndef SPARK_ALLREDUCE_BENCH_BENCH_DEVICE_HPP
#define SPARK_ALLREDUCE_BENCH_BENCH_DEVICE_HPP

#include <cstdint>
#include <functional>
#include <memory>
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
  int ordinal() const { return ordinal_; }
  Kernels& kernels() { return kernels_; }
  int multiprocessors() const { return multiprocessors_; }
  // Makes it current in this thread, as all else of its kind needs it.
  void use() const;
  uint64_t allocate(uint64_t bytes, int fill = 0) const;
  // Lets kernels of this device reach the memory of `other`; false if they cannot.
  bool reaches(const Device& other) const;
  // The benchmark's own kernel with one barrier; NULL where there is none (AMD, the simulation).
  void* one_barrier() const { return one_barrier_; }

 private:
  static const Driver* open(int ordinal, void** context);
  int ordinal_;
  void* context_ = nullptr;
  const Driver* driver_;
  int multiprocessors_ = 0;
  Kernels kernels_;
  void* one_barrier_ = nullptr;
};

// A copy by the driver, on a stream of `from`; of one device, or one way over the link between two.
float copy_microseconds(const Device& from, const Device& to, uint64_t bytes);

using Devices = std::vector<std::unique_ptr<Device>>;

struct Timing {
  float median = 0, low = 0, high = 0;  // microseconds for one collective
};

// The ranks' pads, staging buffers, inputs, outputs and streams. Rank r is on device r % devices.
class World {
 public:
  World(Devices& devices, uint32_t ranks, uint64_t most_bytes, uint64_t staging_bytes);
  ~World();

  uint32_t ranks() const { return ranks_; }
  Device& device_of(uint32_t rank) const { return *devices_[rank % devices_.size()]; }
  Geometry& geometry(uint32_t rank) { return geometries_[rank]; }
  uint64_t input(uint32_t rank) const { return inputs_[rank]; }
  uint64_t output(uint32_t rank) const { return outputs_[rank]; }
  void* stream(uint32_t rank) const { return streams_[rank]; }
  void set_blocks(uint32_t blocks);
  // Fills the input with `tile`, again and again.
  void set_input(uint32_t rank, const std::vector<uint8_t>& tile);
  void poison_outputs(uint64_t bytes);
  std::vector<uint8_t> read_output(uint32_t rank, uint64_t bytes) const;

  // `once()` enqueues one collective of all ranks, each on its stream. Graph: 20 collectives per
  // replay, one graph for each device. No repeats: it runs and is not timed.
  Timing time(bool graph, int repeats, const std::function<void()>& once);
  void run_once(const std::function<void()>& once);
  // All launches of a collective, of all ranks.
  void enqueue(const Call& call, sar_schedule schedule);
  // `overlaps`: launched as the schedules are (Driver::launch_next), otherwise as any kernel.
  void enqueue_one_barrier(bool overlaps);

 private:
  static constexpr int kPerGraph = 20;
  // At a time, so that of several devices none waits for the host, which starts their graphs one
  // after the other.
  static constexpr int kReplays = 10;
  template <typename Body>
  void for_each_device(Body body);  // with the device, its first rank's stream, and its number
  void fork();
  void join();
  Buffers buffers(uint32_t rank) const;

  Devices& devices_;
  const Driver& driver_;
  uint32_t ranks_;
  std::vector<Geometry> geometries_;
  std::vector<uint64_t> pads_, staging_, inputs_, outputs_, outcomes_;
  std::vector<void*> streams_, events_;
  std::vector<void*> ready_;  // by device
  void *start_ = nullptr, *stop_ = nullptr;
  uint64_t most_bytes_;
};

}  // namespace sar::gpu::bench

#endif
