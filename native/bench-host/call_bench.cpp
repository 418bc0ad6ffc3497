// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Whole calls: of one rank, which waits for nobody, and of two, each on a thread of its own.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <thread>
#include <vector>

#include "spark_allreduce.h"

namespace {

constexpr int64_t kPatience = 60'000'000'000;
constexpr uint64_t kArenaBytes = 64 << 20;

sar_comm *comms[2];

bool is_ok(benchmark::State &state, sar_status status) {
  if (status != SAR_OK) {
    state.SkipWithError(sar_last_error());
  }
  return status == SAR_OK;
}

// Communicators of as many ranks as the benchmark has threads.
void open_world(const benchmark::State &state) {
  const auto ranks = static_cast<uint32_t>(state.threads());
  std::vector<unsigned char> handles(ranks * SAR_HANDLE_BYTES);
  for (uint32_t rank = 0; rank < ranks; rank++) {
    sar_options options{};
    options.struct_bytes = sizeof options;
    options.rank = rank;
    options.world_size = ranks;
    options.arena_bytes = kArenaBytes;
    options.staging_bytes = 24 << 20;
    options.spin_ns = 20'000;
    if (sar_comm_create(&options, &comms[rank]) != SAR_OK ||
        sar_comm_handle(comms[rank], &handles[rank * SAR_HANDLE_BYTES]) != SAR_OK) {
      std::abort();
    }
  }
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks; rank++) {
    threads.emplace_back([&, rank] { sar_comm_connect(comms[rank], handles.data(), kPatience); });
  }
  for (std::thread &thread : threads) {
    thread.join();
  }
}

void close_world(const benchmark::State &) {
  for (sar_comm *&comm : comms) {
    sar_comm_destroy(comm);
    comm = nullptr;
  }
}

void barrier_bench(benchmark::State &state) {
  sar_comm *comm = comms[state.thread_index()];
  for (auto _ : state) {
    if (!is_ok(state, sar_barrier(comm, kPatience))) {
      break;
    }
  }
}

void all_reduce_bench(benchmark::State &state) {
  sar_comm *comm = comms[state.thread_index()];
  const auto bytes = static_cast<uint64_t>(state.range(0));
  void *arena = nullptr;
  uint64_t arena_bytes = 0;
  sar_comm_arena(comm, &arena, &arena_bytes);
  void *out = static_cast<char *>(arena) + arena_bytes / 2;
  for (auto _ : state) {
    if (!is_ok(state, sar_all_reduce(comm, arena, out, bytes / sizeof(float), SAR_FLOAT32, SAR_SUM,
                                     SAR_AUTO, kPatience))) {
      break;
    }
  }
}

BENCHMARK(barrier_bench)
    ->Name("Barrier")
    ->Setup(open_world)
    ->Teardown(close_world)
    ->ThreadRange(1, 2)
    ->UseRealTime();
BENCHMARK(all_reduce_bench)
    ->Name("AllReduce")
    ->Setup(open_world)
    ->Teardown(close_world)
    ->ThreadRange(1, 2)
    ->Arg(8)
    ->Arg(512)
    ->Arg(1 << 15)
    ->Arg(1 << 21)
    ->Arg(1 << 24)
    ->UseRealTime();

}  // namespace
