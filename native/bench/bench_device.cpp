// Licensed under the Apache License, Version 2.0. See LICENSE.
#include "bench_device.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

extern "C" const char sar_bench_kernels[];  // one_barrier.cpp, compiled

namespace sar::gpu::bench {

void require(const Driver& driver, int error, const char* what) {
  if (error == 0) return;
  std::fprintf(stderr, "%s: %s (%d)\n", what, driver.error_text(error), error);
  std::exit(1);
}

const Driver* Device::open(int ordinal, void** context) {
  const char* why = nullptr;
  const Driver* driver = gpu::driver(&why);
  if (driver == nullptr) {
    std::fprintf(stderr, "%s\n", why);
    std::exit(1);
  }
  require(*driver, driver->retain_device(ordinal, context), "open the device");
  require(*driver, driver->use_device(ordinal, *context), "use the device");
  return driver;
}

Device::Device(int ordinal)
    : ordinal_(ordinal), driver_(open(ordinal, &context_)), kernels_(*driver_) {
  require(*driver_, driver_->multiprocessors(ordinal, &multiprocessors_), "ask the device");
  void* module = nullptr;
  if (driver_->vendor == Vendor::kNvidia) {
    require(*driver_, driver_->module_load(&module, sar_bench_kernels, 0, nullptr, nullptr),
            "load the benchmark's kernel");
    if (driver_->module_function(&one_barrier_, module, "sar_one_barrier") != 0) {
      one_barrier_ = nullptr;  // the simulated driver knows the library's kernels only
      return;
    }
    int blocks = 0;  // to be asked loads it, before ranks wait for each other
    require(*driver_, driver_->resident_blocks(&blocks, one_barrier_, kBlockThreads, 0), "kernel");
  }
}

void Device::use() const {
  require(*driver_, driver_->use_device(ordinal_, context_), "use the device");
}

uint64_t Device::allocate(uint64_t bytes, int fill) const {
  use();
  uint64_t address = 0;
  require(*driver_, driver_->memory_allocate(&address, bytes), "allocate device memory");
  require(*driver_, driver_->memory_set(address, static_cast<unsigned char>(fill), bytes), "fill");
  return address;
}

bool Device::reaches(const Device& other) const {
  if (other.ordinal_ == ordinal_) return true;
  int can = 0;
  require(*driver_, driver_->can_access_peer(&can, ordinal_, other.ordinal_), "ask the driver");
  if (can == 0) return false;
  use();
  require(*driver_, driver_->enable_peer(other.ordinal_), "reach a peer's memory");
  return true;
}

float copy_microseconds(const Device& from, const Device& to, uint64_t bytes) {
  const Driver& driver = from.driver();
  int (*copy)(uint64_t, uint64_t, size_t, void*) = nullptr;
  const bool cuda = driver.vendor == Vendor::kNvidia;
  *reinterpret_cast<void**>(&copy) =
      dlsym(dlopen(driver.library, RTLD_NOW), cuda ? "cuMemcpyDtoDAsync_v2" : "hipMemcpyDtoDAsync");
  const uint64_t target = to.allocate(bytes), source = from.allocate(bytes, 1);
  void *stream = nullptr, *start = nullptr, *stop = nullptr;
  require(driver, driver.stream_create(&stream, kNonBlockingStream), "stream");
  require(driver, driver.event_create(&start, 0), "event");
  require(driver, driver.event_create(&stop, 0), "event");
  std::vector<float> times;
  for (int i = 0; i < 12; ++i) {
    require(driver, driver.event_record(start, stream), "record");
    for (int k = 0; k < 10; ++k) require(driver, copy(target, source, bytes, stream), "copy");
    require(driver, driver.event_record(stop, stream), "record");
    require(driver, driver.event_synchronize(stop), "wait");
    float ms = 0;
    require(driver, driver.event_elapsed(&ms, start, stop), "time");
    if (i >= 2) times.push_back(ms * 100);
  }
  driver.memory_free(source);
  driver.memory_free(target);
  driver.stream_destroy(stream);
  driver.event_destroy(start);
  driver.event_destroy(stop);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

World::World(Devices& devices, uint32_t ranks, uint64_t most_bytes, uint64_t staging_bytes)
    : devices_(devices),
      driver_(devices[0]->driver()),
      ranks_(ranks),
      geometries_(ranks),
      most_bytes_(most_bytes) {
  for (uint32_t r = 0; r < ranks; ++r) {
    const Device& device = device_of(r);
    pads_.push_back(device.allocate(sizeof(Pad)));
    staging_.push_back(device.allocate(staging_bytes));
    inputs_.push_back(device.allocate(most_bytes));
    outputs_.push_back(device.allocate(most_bytes));
    outcomes_.push_back(device.allocate(4096));
    void *stream = nullptr, *event = nullptr;
    require(driver_, driver_.stream_create(&stream, kNonBlockingStream), "stream");
    require(driver_, driver_.event_create(&event, kNoTiming), "event");
    streams_.push_back(stream);
    events_.push_back(event);
  }
  for (uint32_t r = 0; r < ranks; ++r) {
    Geometry& g = geometries_[r];
    g.rank = r;
    g.world = ranks;
    g.staging_bytes = staging_bytes;
    std::copy(pads_.begin(), pads_.end(), g.pad);
    std::copy(staging_.begin(), staging_.end(), g.staging);
    g.outcome = outcomes_[r];
    g.host_abort = outcomes_[r] + 2048;
  }
  ready_.resize(devices.size());
  for_each_device([&](void*, size_t d) {
    require(driver_, driver_.event_create(&ready_[d], kNoTiming), "event");
  });
  devices_[0]->use();
  require(driver_, driver_.event_create(&start_, 0), "event");
  require(driver_, driver_.event_create(&stop_, 0), "event");
}

World::~World() {
  for (uint32_t r = 0; r < ranks_; ++r) {
    device_of(r).use();
    for (auto* list : {&pads_, &staging_, &inputs_, &outputs_, &outcomes_}) {
      driver_.memory_free((*list)[r]);
    }
    driver_.stream_destroy(streams_[r]);
    driver_.event_destroy(events_[r]);
  }
  for (void* event : ready_) driver_.event_destroy(event);
  driver_.event_destroy(start_);
  driver_.event_destroy(stop_);
}

template <typename Body>
void World::for_each_device(Body body) {
  const size_t used = std::min(devices_.size(), static_cast<size_t>(ranks_));
  for (size_t d = 0; d < used; ++d) {
    devices_[d]->use();
    body(streams_[d], d);
  }
}

void World::set_blocks(uint32_t blocks) {
  for (Geometry& g : geometries_) g.blocks = blocks;
}

void World::set_input(uint32_t rank, const std::vector<uint8_t>& tile) {
  device_of(rank).use();
  for (uint64_t at = 0; at < most_bytes_; at += tile.size()) {
    const uint64_t bytes = std::min<uint64_t>(tile.size(), most_bytes_ - at);
    require(driver_, driver_.copy_in(inputs_[rank] + at, tile.data(), bytes), "copy");
  }
}

void World::poison_outputs(uint64_t bytes) {
  for (uint32_t r = 0; r < ranks_; ++r) {
    device_of(r).use();
    require(driver_, driver_.memory_set(outputs_[r], 0xee, bytes), "poison");
    // The fill runs on the default stream, which the ranks' streams do not wait for.
    require(driver_, driver_.stream_synchronize(nullptr), "synchronize");
  }
}

std::vector<uint8_t> World::read_output(uint32_t rank, uint64_t bytes) const {
  device_of(rank).use();
  std::vector<uint8_t> result(bytes);
  require(driver_, driver_.copy_to_host(result.data(), outputs_[rank], bytes), "copy");
  return result;
}

Buffers World::buffers(uint32_t rank) const {
  Buffers b;
  b.input = inputs_[rank];
  b.output = outputs_[rank];
  for (uint32_t q = 0; q < ranks_; ++q) b.rank[q] = {inputs_[q], outputs_[q], false};
  return b;
}

void World::enqueue(const Call& call, sar_schedule schedule) {
  for (uint32_t r = 0; r < ranks_; ++r) {
    Device& device = device_of(r);
    if (devices_.size() > 1) device.use();
    uint64_t done = 0;
    do {
      Planned planned = plan(geometries_[r], call, buffers(r), schedule, false, done);
      void* function = nullptr;
      require(driver_, device.kernels().find(call.type, ranks_, planned.low_latency, &function),
              "kernel");
      require(driver_,
              driver_.launch_next(function, planned.launch.blocks, planned.threads, streams_[r],
                                  &planned.launch),
              "launch");
      done = planned.done;
    } while (done < call.count);
  }
}

void World::enqueue_one_barrier(bool overlaps) {
  Call call;
  call.collective = SAR_COLLECTIVE_BARRIER;
  call.timeout_ticks = driver_.ticks_of(5'000'000'000);
  for (uint32_t r = 0; r < ranks_; ++r) {
    const Device& device = device_of(r);
    if (devices_.size() > 1) device.use();
    Planned planned = plan(geometries_[r], call, buffers(r), SAR_AUTO, false, 0);
    void* arguments[] = {&planned.launch};
    const int error = overlaps ? driver_.launch_next(device.one_barrier(), 1, kBlockThreads,
                                                     streams_[r], &planned.launch)
                               : driver_.launch(device.one_barrier(), 1, 1, 1, kBlockThreads, 1, 1,
                                                0, streams_[r], arguments, nullptr);
    require(driver_, error, "launch");
  }
}

// The first rank's stream of each device begins, and the device's others follow it.
void World::fork() {
  for_each_device([&](void* first, size_t d) {
    require(driver_, driver_.event_record(ready_[d], first), "record");
    for (size_t r = d + devices_.size(); r < ranks_; r += devices_.size()) {
      require(driver_, driver_.stream_wait_event(streams_[r], ready_[d], 0), "wait");
    }
  });
}

void World::join() {
  for_each_device([&](void* first, size_t d) {
    for (size_t r = d + devices_.size(); r < ranks_; r += devices_.size()) {
      require(driver_, driver_.event_record(events_[r], streams_[r]), "record");
      require(driver_, driver_.stream_wait_event(first, events_[r], 0), "wait");
    }
  });
}

void World::run_once(const std::function<void()>& once) {
  once();
  for (uint32_t r = 0; r < ranks_; ++r) {
    device_of(r).use();
    require(driver_, driver_.stream_synchronize(streams_[r]), "synchronize");
  }
}

Timing World::time(bool graph, int repeats, const std::function<void()>& once) {
  const auto enqueue_all = [&] {
    fork();
    for (int k = 0; k < kPerGraph; ++k) once();
    join();
  };
  run_once(once);  // loads what has to be loaded
  std::vector<void*> graphs(devices_.size()), executables(devices_.size());
  if (graph) {
    for_each_device([&](void* first, size_t) {
      require(driver_, driver_.capture_begin(first, kCaptureRelaxed), "begin the capture");
    });
    enqueue_all();
    for_each_device([&](void* first, size_t d) {
      require(driver_, driver_.capture_end(first, &graphs[d]), "end the capture");
      require(driver_, driver_.graph_instantiate(&executables[d], graphs[d], 0), "instantiate");
    });
  }
  std::vector<float> times;
  const int rounds = repeats == 0 ? 1 : repeats + 2;
  const int replays = repeats == 0 || devices_.size() == 1 ? 1 : kReplays;
  for (int i = 0; i < rounds; ++i) {
    devices_[0]->use();
    require(driver_, driver_.event_record(start_, streams_[0]), "record");
    for (int k = 0; k < replays; ++k) {
      if (!graph) {
        enqueue_all();
        continue;
      }
      for_each_device([&](void* first, size_t d) {
        require(driver_, driver_.graph_launch(executables[d], first), "replay");
      });
    }
    devices_[0]->use();
    require(driver_, driver_.event_record(stop_, streams_[0]), "record");
    require(driver_, driver_.event_synchronize(stop_), "wait");
    float ms = 0;
    require(driver_, driver_.event_elapsed(&ms, start_, stop_), "time");
    if (i >= 2) times.push_back(ms * 1000 / static_cast<float>(kPerGraph * replays));
  }
  for_each_device([&](void* first, size_t d) {
    require(driver_, driver_.stream_synchronize(first), "synchronize");
    if (graph) {
      driver_.graph_exec_destroy(executables[d]);
      driver_.graph_destroy(graphs[d]);
    }
  });
  if (times.empty()) return {};
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front(), times.back()};
}

}  // namespace sar::gpu::bench
