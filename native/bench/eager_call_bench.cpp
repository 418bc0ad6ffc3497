// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// eager_call_bench.cpp: what one all-reduce of device memory costs its caller, called through the C
// header in a loop. The measure for what Java adds to it (bin/bench-gpu). Ranks are threads of this
// process: contexts of different processes take turns on one device, which would hide microseconds.
//
//   eager_call_bench RANKS BYTES CALLS
//
// prints one line for each kind of call: its name, then nanoseconds of rank 0: median, 10th and
// 90th percentile.
#include <algorithm>
#include <chrono>

#include "../tests/gpu/rank_processes.hpp"

namespace sar::gpu::test {
namespace {

using Clock = std::chrono::steady_clock;

template <typename Call>
void measure(Rank& rank, const char* name, int calls, Call call) {
  std::vector<int64_t> nanos;
  for (int i = -calls; i < calls; ++i) {
    const Clock::time_point start = Clock::now();
    call();
    const Clock::time_point end = Clock::now();
    if (i >= 0) nanos.push_back((end - start).count());
  }
  if (rank.rank != 0) return;
  std::sort(nanos.begin(), nanos.end());
  const auto at = [&](size_t percent) {
    return static_cast<long long>(nanos[(nanos.size() - 1) * percent / 100]);
  };
  std::printf("%s %lld %lld %lld\n", name, at(50), at(10), at(90));
}

void bench(Rank& rank, uint64_t bytes, int calls) {
  const uint64_t count = bytes / sizeof(float);
  REQUIRE(rank.open(2 * bytes + (1 << 20), 1 << 20) == SAR_OK);
  uint8_t* in = rank.arena;
  uint8_t* out = rank.arena + bytes;
  const auto all_reduce = [&] {
    REQUIRE(sar_all_reduce(rank.comm, in, out, count, SAR_FLOAT32, SAR_SUM, SAR_AUTO,
                           Rank::kTimeout) == SAR_OK);
  };
  measure(rank, "eager", calls, all_reduce);

  sar_graph* graph = nullptr;
  REQUIRE(sar_gpu_capture_begin(rank.comm, Rank::kTimeout) == SAR_OK);
  all_reduce();
  REQUIRE(sar_gpu_capture_end(rank.comm, Rank::kTimeout, &graph) == SAR_OK);
  measure(rank, "replay", calls, [&] {
    REQUIRE(sar_gpu_replay(graph) == SAR_OK);
    REQUIRE(sar_gpu_wait(rank.comm, Rank::kTimeout) == SAR_OK);
  });
  sar_gpu_graph_destroy(graph);
}

}  // namespace
}  // namespace sar::gpu::test

int main(int argc, char** argv) {
  using namespace sar::gpu::test;
  const int ranks = argc == 4 ? std::atoi(argv[1]) : 0;
  const long long bytes = argc == 4 ? std::atoll(argv[2]) : 0;
  const int calls = argc == 4 ? std::atoi(argv[3]) : 0;
  if (ranks < 1 || ranks > static_cast<int>(SAR_MAX_RANKS) || bytes < 16 || calls < 10) {
    std::fprintf(stderr, "usage: eager_call_bench RANKS BYTES CALLS\n");
    return 2;
  }
  const bool ok =
      run_ranks(Ranks::kThreads, static_cast<uint32_t>(ranks), [bytes, calls](Rank& rank) {
        bench(rank, static_cast<uint64_t>(bytes), calls);
        std::fflush(stdout);
      });
  return ok ? 0 : 1;
}
