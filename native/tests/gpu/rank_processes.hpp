// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// rank_processes.hpp: runs a test body once per rank, as processes or as threads of one process.
// The test program itself never touches the driver, which does not survive a fork.
#ifndef SPARK_ALLREDUCE_TESTS_GPU_RANK_PROCESSES_HPP
#define SPARK_ALLREDUCE_TESTS_GPU_RANK_PROCESSES_HPP

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <thread>
#include <vector>

#include "spark_allreduce.h"

namespace sar::gpu::test {

enum class Ranks { kProcesses, kThreads };

// What the ranks of one test share besides the communicator: the handles that Java would exchange.
struct Shared {
  std::atomic<uint32_t> arrived[8];
  uint8_t handles[SAR_MAX_RANKS * SAR_HANDLE_BYTES];
  std::atomic<uint32_t> word;
};

class Rank {
 public:
  Rank(uint32_t rank, uint32_t world, Shared* shared) : rank(rank), world(world), shared(shared) {}
  ~Rank() {
    if (comm != nullptr) sar_comm_destroy(comm);
  }

  sar_status open(uint64_t arena = 8 << 20, uint64_t staging = 1 << 20, uint32_t first_epoch = 0,
                  uint64_t session = 1) {
    sar_options options{};
    options.struct_bytes = sizeof options;
    options.rank = rank;
    options.world_size = world;
    options.first_epoch = first_epoch;
    options.session_low = session;
    options.arena_bytes = arena;
    options.staging_bytes = staging;
    options.spin_ns = 20000;
    sar_status status = select_device();
    if (status == SAR_OK) status = sar_comm_create(&options, &comm);
    if (status != SAR_OK) return status;
    status = sar_comm_handle(comm, shared->handles + rank * SAR_HANDLE_BYTES);
    meet();
    if (status == SAR_OK) status = sar_comm_connect(comm, shared->handles, kTimeout);
    void* base = nullptr;
    uint64_t bytes = 0;
    if (status == SAR_OK) status = sar_comm_arena(comm, &base, &bytes);
    this->arena = static_cast<uint8_t*>(base);
    return status;
  }
  void close() {
    sar_comm_destroy(comm);
    comm = nullptr;
  }
  // All ranks of the test are here.
  void meet() {
    std::atomic<uint32_t>& counter = shared->arrived[meetings_++ % 8];
    const uint32_t target = (meetings_ - 1) / 8 * world + world;
    counter++;
    while (counter < target) sched_yield();
  }
  std::vector<uint8_t> read(const void* device, uint64_t bytes) {
    std::vector<uint8_t> result(bytes);
    if (sar_gpu_copy_to_host(comm, result.data(), device, bytes) != SAR_OK) std::abort();
    return result;
  }
  void write(void* device, const std::vector<uint8_t>& bytes) {
    if (sar_gpu_copy_to_device(comm, device, bytes.data(), bytes.size()) != SAR_OK) std::abort();
  }

  static constexpr int64_t kTimeout = 60'000'000'000;
  const uint32_t rank, world;
  Shared* const shared;
  sar_comm* comm = nullptr;
  uint8_t* arena = nullptr;

 private:
  // SAR_TEST_DEVICES: so many devices take turns. Otherwise a test may have chosen one.
  sar_status select_device() const {
    const char* devices = std::getenv("SAR_TEST_DEVICES");
    if (devices == nullptr) return SAR_OK;
    return sar_gpu_select_device(rank % static_cast<uint32_t>(std::atoi(devices)));
  }

  uint32_t meetings_ = 0;
};

// Ends the rank's process: the test has failed.
#define REQUIRE(condition, ...)                                                                    \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      std::fprintf(stderr, "%s:%d: rank %u: %s is not true; last error: %s; ", __FILE__, __LINE__, \
                   rank.rank, #condition, sar_last_error());                                       \
      std::fprintf(stderr, "" __VA_ARGS__);                                                        \
      std::fprintf(stderr, "\n");                                                                  \
      _exit(1);                                                                                    \
    }                                                                                              \
  } while (false)

using Body = std::function<void(Rank&)>;

// True if all ranks ended well. A rank that is in `may_die` may be killed.
inline bool run_ranks(Ranks how, uint32_t world, const Body& body, uint32_t may_die = 0) {
  // Two, for tests that open two communicators.
  constexpr size_t bytes = 2 * sizeof(Shared);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* shared = new (memory) Shared[2]{};
  std::fflush(stdout);
  std::vector<pid_t> children;
  const uint32_t processes = how == Ranks::kProcesses ? world : 1;
  for (uint32_t p = 0; p < processes; ++p) {
    const pid_t child = fork();
    if (child == 0) {
      if (how == Ranks::kProcesses) {
        Rank rank(p, world, shared);
        body(rank);
        if (rank.comm != nullptr) rank.close();
      } else {
        std::vector<std::thread> threads;
        for (uint32_t r = 0; r < world; ++r) {
          threads.emplace_back([&, r] {
            Rank rank(r, world, shared);
            body(rank);
          });
        }
        for (std::thread& thread : threads) thread.join();
      }
      _exit(0);
    }
    children.push_back(child);
  }
  bool ok = true;
  for (uint32_t p = 0; p < processes; ++p) {
    int status = 0;
    waitpid(children[p], &status, 0);
    const bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (well || (may_die >> p & 1) != 0) continue;
    if (WIFSIGNALED(status)) {
      std::fprintf(stderr, "process %u ended by signal %d\n", p, WTERMSIG(status));
    }
    ok = false;
  }
  munmap(memory, bytes);
  return ok;
}

}  // namespace sar::gpu::test

#endif
