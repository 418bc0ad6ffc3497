// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// simulated_stream.hpp: NOT A GPU. A stream of simulated_driver.cpp is a thread that runs its work
// in order; a capture collects work instead.
#ifndef SPARK_ALLREDUCE_TESTS_GPU_SIMULATED_STREAM_HPP
#define SPARK_ALLREDUCE_TESTS_GPU_SIMULATED_STREAM_HPP

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cpu_launcher.hpp"
#include "simulated_device.hpp"

namespace {

using Work = std::function<void()>;

// Runs its work in order on a thread of its own.
class Stream {
 public:
  Stream() : thread_([this] { run(); }) {}
  ~Stream() {
    {
      std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void enqueue(Work work) {
    std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_all();
  }
  bool idle() {
    std::lock_guard lock(mutex_);
    return work_.empty();
  }
  void synchronize() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return work_.empty(); });
  }
  void launch(cpu::Kernel kernel, const Launch& launch, uint32_t blocks) {
    if (grid_ == nullptr || grid_blocks_ < blocks) {
      grid_.reset();
      grid_ = std::make_unique<cpu::Grid>(blocks);
      grid_blocks_ = blocks;
    }
    grid_->run(kernel, launch, blocks);
  }
  std::unique_ptr<std::vector<Work>> captured;
  const int device = current_device;

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ending_ || !work_.empty(); });
      if (work_.empty()) return;
      lock.unlock();
      work_.front()();
      lock.lock();
      work_.pop_front();
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> work_;
  bool ending_ = false;
  std::unique_ptr<cpu::Grid> grid_;
  uint32_t grid_blocks_ = 0;
  std::thread thread_;
};

Stream* stream_of(void* handle) { return static_cast<Stream*>(handle); }

void submit(void* handle, Work work) {
  Stream* stream = stream_of(handle);
  if (stream->captured != nullptr) {
    stream->captured->push_back(std::move(work));
  } else {
    stream->enqueue(std::move(work));
  }
}

struct Event {
  std::atomic<uint64_t> recorded{0}, reached{0};
};

}  // namespace

#endif
