// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// cpu_world.hpp: N ranks that run the CPU-built kernels in one process: pads, staging buffers,
// grids.
#ifndef SPARK_ALLREDUCE_TESTS_GPU_CPU_WORLD_HPP
#define SPARK_ALLREDUCE_TESTS_GPU_CPU_WORLD_HPP

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "../../gpu/plan.hpp"
#include "cpu_launcher.hpp"
#include "reference.hpp"

namespace sar::gpu::test {

// Memory at a chosen distance from a 64-byte boundary, with canaries on both sides.
class Guarded {
 public:
  Guarded() = default;
  Guarded(uint64_t bytes, uint64_t offset) : bytes_(bytes), memory_(bytes + 2 * kGuard + 64, 0xa5) {
    const auto base = reinterpret_cast<uintptr_t>(memory_.data());
    begin_ = (base + 63) / 64 * 64 - base + kGuard + offset;
  }
  uint8_t* data() { return memory_.data() + begin_; }
  const uint8_t* data() const { return memory_.data() + begin_; }
  uint64_t address() const { return reinterpret_cast<uint64_t>(data()); }
  void poison() { std::memset(data(), 0xee, bytes_); }
  bool guards_hold() const {
    for (size_t i = 0; i < memory_.size(); ++i) {
      if ((i < begin_ || i >= begin_ + bytes_) && memory_[i] != 0xa5) return false;
    }
    return true;
  }

 private:
  static constexpr uint64_t kGuard = 128;
  uint64_t bytes_ = 0;
  std::vector<uint8_t> memory_;
  size_t begin_ = 0;
};

class CpuWorld {
 public:
  CpuWorld(uint32_t world, uint32_t blocks, uint64_t staging_bytes, uint32_t first_epoch = 0)
      : world_(world), ranks_(world) {
    for (Rank& rank : ranks_) {
      rank.pad.reset(static_cast<Pad*>(std::aligned_alloc(64, (sizeof(Pad) + 63) / 64 * 64)));
      std::memset(static_cast<void*>(rank.pad.get()), 0, sizeof(Pad));
      set_epochs(*rank.pad, first_epoch);
      rank.staging = Guarded(staging_bytes, 0);
      rank.grid = std::make_unique<cpu::Grid>(blocks);
    }
    for (uint32_t r = 0; r < world; ++r) {
      Geometry& g = ranks_[r].geometry;
      g.rank = r;
      g.world = world;
      g.blocks = blocks;
      g.staging_bytes = staging_bytes;
      for (uint32_t q = 0; q < world; ++q) {
        g.pad[q] = reinterpret_cast<uint64_t>(ranks_[q].pad.get());
        g.staging[q] = ranks_[q].staging.address();
      }
      g.outcome = reinterpret_cast<uint64_t>(&ranks_[r].outcome);
      g.host_abort = reinterpret_cast<uint64_t>(&ranks_[r].host_abort);
    }
  }

  static void set_epochs(Pad& pad, uint32_t first) {
    for (uint32_t b = 0; b < kMaxBlocks; ++b) {
      pad.epoch[b] = pad.low_latency_epoch[b] = first;
      for (uint32_t r = 0; r < kMaxRanks; ++r) {
        pad.arrival[b][r] = first;
        pad.step[kMiddle][b][r] = pad.step[kExit][b][r] = first;
      }
    }
  }

  const Geometry& geometry(uint32_t rank) const { return ranks_[rank].geometry; }
  const Pad& pad(uint32_t rank) const { return *ranks_[rank].pad; }
  const Outcome& outcome(uint32_t rank) const { return ranks_[rank].outcome; }
  void raise_host_abort(uint32_t rank) {
    __atomic_store_n(&ranks_[rank].host_abort, 1u, __ATOMIC_RELAXED);
  }
  bool staging_guards_hold() const {
    for (const Rank& rank : ranks_) {
      if (!rank.staging.guards_hold()) return false;
    }
    return true;
  }

  // All launches of one collective of one rank.
  void run(uint32_t rank, const Call& call, const Buffers& buffers, bool chunked = false) {
    const Geometry& geometry = ranks_[rank].geometry;
    const sar_schedule schedule = choose(geometry, call, buffers).schedule;
    uint64_t done = 0;
    do {
      const Planned planned = plan(geometry, call, buffers, schedule, chunked, done);
      ranks_[rank].grid->run(cpu::find_kernel(call.type, world_, planned.low_latency),
                             planned.launch, planned.launch.blocks);
      if (ranks_[rank].outcome.state != 0) return;
      done = planned.done;
    } while (done < call.count);
  }

  // Runs `body` for all ranks at once.
  void each(const std::function<void(uint32_t)>& body) {
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < world_; ++r) threads.emplace_back([&body, r] { body(r); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  struct Free {
    void operator()(Pad* pad) const { std::free(pad); }
  };
  struct Rank {
    std::unique_ptr<Pad, Free> pad;
    Guarded staging;
    Outcome outcome{};
    uint32_t host_abort = 0;
    Geometry geometry;
    std::unique_ptr<cpu::Grid> grid;
  };
  uint32_t world_;
  std::vector<Rank> ranks_;
};

}  // namespace sar::gpu::test

#endif
