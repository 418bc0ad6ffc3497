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

const Driver* Device::open(int ordinal) {
  const char* why = nullptr;
  const Driver* driver = gpu::driver(&why);
  if (driver == nullptr) {
    std::fprintf(stderr, "%s\n", why);
    std::exit(1);
  }
  void* context = nullptr;
  require(*driver, driver->retain_device(ordinal, &context), "open the device");
  require(*driver, driver->use_device(ordinal, context), "use the device");
  return driver;
}

Device::Device(int ordinal) : driver_(open(ordinal)), kernels_(*driver_) {
  require(*driver_, driver_->multiprocessors(ordinal, &multiprocessors_), "ask the device");
  if (driver_->vendor == Vendor::kNvidia) {
    require(*driver_, driver_->module_load(&module_, sar_bench_kernels, 0, nullptr, nullptr),
            "load the benchmark's kernel");
  }
}

void* Device::function(const char* name) const {
  void* function = nullptr;
  if (module_ != nullptr) {
    require(*driver_, driver_->module_function(&function, module_, name), name);
  }
  return function;
}

uint64_t Device::allocate(uint64_t bytes, int fill) {
  uint64_t address = 0;
  require(*driver_, driver_->memory_allocate(&address, bytes), "allocate device memory");
  require(*driver_, driver_->memory_set(address, static_cast<unsigned char>(fill), bytes), "fill");
  return address;
}

float Device::copy_microseconds(uint64_t bytes) {
  int (*copy)(uint64_t, uint64_t, size_t, void*) = nullptr;
  const bool cuda = driver_->vendor == Vendor::kNvidia;
  *reinterpret_cast<void**>(&copy) = dlsym(dlopen(driver_->library, RTLD_NOW),
                                           cuda ? "cuMemcpyDtoDAsync_v2" : "hipMemcpyDtoDAsync");
  const uint64_t from = allocate(bytes, 1), to = allocate(bytes);
  void *stream = nullptr, *start = nullptr, *stop = nullptr;
  require(*driver_, driver_->stream_create(&stream, kNonBlockingStream), "stream");
  require(*driver_, driver_->event_create(&start, 0), "event");
  require(*driver_, driver_->event_create(&stop, 0), "event");
  std::vector<float> times;
  for (int i = 0; i < 12; ++i) {
    require(*driver_, driver_->event_record(start, stream), "record");
    for (int k = 0; k < 10; ++k) require(*driver_, copy(to, from, bytes, stream), "copy");
    require(*driver_, driver_->event_record(stop, stream), "record");
    require(*driver_, driver_->event_synchronize(stop), "wait");
    float ms = 0;
    require(*driver_, driver_->event_elapsed(&ms, start, stop), "time");
    if (i >= 2) times.push_back(ms * 100);
  }
  driver_->memory_free(from);
  driver_->memory_free(to);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

World::World(Device& device, uint32_t ranks, uint64_t most_bytes, uint64_t staging_bytes)
    : device_(device), ranks_(ranks), most_bytes_(most_bytes), geometries_(ranks) {
  const Driver& driver = device.driver();
  for (uint32_t r = 0; r < ranks; ++r) {
    pads_.push_back(device.allocate(sizeof(Pad)));
    staging_.push_back(device.allocate(staging_bytes));
    inputs_.push_back(device.allocate(most_bytes));
    outputs_.push_back(device.allocate(most_bytes));
    outcomes_.push_back(device.allocate(4096));
    void *stream = nullptr, *event = nullptr;
    require(driver, driver.stream_create(&stream, kNonBlockingStream), "stream");
    require(driver, driver.event_create(&event, kNoTiming), "event");
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
  require(driver, driver.event_create(&start_, 0), "event");
  require(driver, driver.event_create(&stop_, 0), "event");
  require(driver, driver.event_create(&ready_, kNoTiming), "event");
  one_barrier_ = device.function("sar_one_barrier");
}

World::~World() {
  const Driver& driver = device_.driver();
  for (auto* list : {&pads_, &staging_, &inputs_, &outputs_, &outcomes_}) {
    for (uint64_t address : *list) driver.memory_free(address);
  }
  for (void* stream : streams_) driver.stream_destroy(stream);
  for (void* event : events_) driver.event_destroy(event);
  for (void* event : {start_, stop_, ready_}) driver.event_destroy(event);
}

void World::set_blocks(uint32_t blocks) {
  for (Geometry& g : geometries_) g.blocks = blocks;
}

void World::set_inputs(const std::vector<std::vector<uint8_t>>& inputs) {
  for (uint32_t r = 0; r < ranks_; ++r) {
    require(device_.driver(),
            device_.driver().copy_to_device(inputs_[r], inputs[r].data(), inputs[r].size()),
            "copy");
  }
}

void World::poison_outputs(uint64_t bytes) {
  for (uint64_t output : outputs_) {
    require(device_.driver(), device_.driver().memory_set(output, 0xee, bytes), "poison");
  }
  // The fill runs on the default stream, which the ranks' streams do not wait for.
  require(device_.driver(), device_.driver().stream_synchronize(nullptr), "synchronize");
}

std::vector<uint8_t> World::output(uint32_t rank, uint64_t bytes) {
  std::vector<uint8_t> result(bytes);
  require(device_.driver(), device_.driver().copy_to_host(result.data(), outputs_[rank], bytes),
          "copy");
  return result;
}

Buffers World::buffers(uint32_t rank) const {
  Buffers b;
  b.input = inputs_[rank];
  b.output = outputs_[rank];
  for (uint32_t q = 0; q < ranks_; ++q) b.rank[q] = {inputs_[q], outputs_[q], false};
  return b;
}

void World::enqueue(uint32_t rank, void* stream, const Call& call, sar_schedule schedule) {
  const Driver& driver = device_.driver();
  uint64_t done = 0;
  do {
    Planned planned = plan(geometries_[rank], call, buffers(rank), schedule, false, done);
    void* function = nullptr;
    require(driver, device_.kernels().find(call.type, ranks_, planned.low_latency, &function),
            "kernel");
    void* arguments[] = {&planned.launch};
    require(driver,
            driver.launch(function, planned.launch.blocks, 1, 1, kBlockThreads, 1, 1, 0, stream,
                          arguments, nullptr),
            "launch");
    done = planned.done;
  } while (done < call.count);
}

void World::enqueue_one_barrier(uint32_t rank, void* stream) {
  Call call;
  call.collective = SAR_COLLECTIVE_BARRIER;
  call.timeout_ticks = device_.driver().ticks_of(5'000'000'000);
  Planned planned = plan(geometries_[rank], call, buffers(rank), SAR_AUTO, false, 0);
  void* arguments[] = {&planned.launch};
  require(device_.driver(),
          device_.driver().launch(one_barrier_, 1, 1, 1, kBlockThreads, 1, 1, 0, stream, arguments,
                                  nullptr),
          "launch");
}

void World::fork() {
  const Driver& driver = device_.driver();
  require(driver, driver.event_record(ready_, streams_[0]), "record");
  for (uint32_t r = 1; r < ranks_; ++r) {
    require(driver, driver.stream_wait_event(streams_[r], ready_, 0), "wait");
  }
}

void World::join() {
  const Driver& driver = device_.driver();
  for (uint32_t r = 1; r < ranks_; ++r) {
    require(driver, driver.event_record(events_[r], streams_[r]), "record");
    require(driver, driver.stream_wait_event(streams_[0], events_[r], 0), "wait");
  }
}

void World::run_once(const std::function<void(uint32_t, void*)>& once) {
  for (uint32_t r = 0; r < ranks_; ++r) once(r, streams_[r]);
  for (void* stream : streams_) {
    require(device_.driver(), device_.driver().stream_synchronize(stream), "synchronize");
  }
}

Timing World::time(bool graph, int repeats, const std::function<void(uint32_t, void*)>& once) {
  const Driver& driver = device_.driver();
  auto enqueue_all = [&] {
    fork();
    for (int k = 0; k < kPerGraph; ++k) {
      for (uint32_t r = 0; r < ranks_; ++r) once(r, streams_[r]);
    }
    join();
  };
  run_once(once);  // loads what has to be loaded
  void *graph_handle = nullptr, *executable = nullptr;
  if (graph) {
    require(driver, driver.capture_begin(streams_[0], kCaptureRelaxed), "begin the capture");
    enqueue_all();
    require(driver, driver.capture_end(streams_[0], &graph_handle), "end the capture");
    require(driver, driver.graph_instantiate(&executable, graph_handle, 0), "instantiate");
  }
  std::vector<float> times;
  for (int i = 0; i < repeats + 2; ++i) {
    require(driver, driver.event_record(start_, streams_[0]), "record");
    if (graph) {
      require(driver, driver.graph_launch(executable, streams_[0]), "replay");
    } else {
      enqueue_all();
    }
    require(driver, driver.event_record(stop_, streams_[0]), "record");
    require(driver, driver.event_synchronize(stop_), "wait");
    float ms = 0;
    require(driver, driver.event_elapsed(&ms, start_, stop_), "time");
    if (i >= 2) times.push_back(ms * 1000 / kPerGraph);
  }
  if (graph) {
    driver.graph_exec_destroy(executable);
    driver.graph_destroy(graph_handle);
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front(), times.back()};
}

}  // namespace sar::gpu::bench
