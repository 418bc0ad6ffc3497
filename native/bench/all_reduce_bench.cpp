// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// all_reduce_bench.cpp: every schedule at every size, side by side in one run, in the manner of
// rccl-tests. The ranks are streams of one device, so local memory traffic is measured and no link.
//
//   all_reduce_bench [--ranks 2,8] [--blocks N] [--repeats 20] [--eager] [--from BYTES] [--to
//   BYTES] [--device 0]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "../tests/gpu/reference.hpp"
#include "bench_device.hpp"

namespace sar::gpu::bench {
namespace {

struct Options {
  std::vector<uint32_t> ranks = {2, 8};
  uint32_t blocks = 0;
  int repeats = 20;
  bool eager = false;
  uint64_t from = 0, to = UINT64_MAX;  // bytes
  int device = 0;
};

struct Size {
  std::string name;
  uint64_t elements;
};

constexpr sar_schedule kSchedules[] = {SAR_ONE_SHOT,     SAR_TWO_SHOT_READ,     SAR_STAGED_WRITE,
                                       SAR_DIRECT_WRITE, SAR_LOAD_REDUCE_STORE, SAR_LOW_LATENCY};
constexpr uint64_t kMost = 64u << 20;

std::vector<Size> sizes() {
  std::vector<Size> result;
  for (uint64_t bytes = 512; bytes <= kMost; bytes *= 2) {
    const std::string name = bytes < 1024        ? std::to_string(bytes) + " B"
                             : bytes < (1 << 20) ? std::to_string(bytes >> 10) + " KiB"
                                                 : std::to_string(bytes >> 20) + " MiB";
    result.push_back({name, bytes / 2});
  }
  for (auto [rows, columns] :
       {std::pair{440, 5120}, {512, 5120}, {512, 7168}, {512, 8192}, {632, 5120}, {680, 5120}}) {
    result.push_back({std::to_string(rows) + "x" + std::to_string(columns),
                      static_cast<uint64_t>(rows) * static_cast<uint64_t>(columns)});
  }
  return result;
}

class Bench {
 public:
  Bench(Device& device, const Options& options) : device_(device), options_(options) {}

  // False if a result was wrong.
  bool run(uint32_t ranks) {
    World world(device_, ranks, kMost, 2 * kMost + (2 << 20));
    int resident = 0;
    require(device_.driver(), device_.kernels().resident_blocks(SAR_BFLOAT16, ranks, &resident),
            "occupancy");
    const uint32_t blocks =
        options_.blocks != 0
            ? options_.blocks
            : std::min(kMaxBlocks,
                       static_cast<uint32_t>(resident * device_.multiprocessors()) / ranks);
    world.set_blocks(blocks);
    prepare(world);
    const Timing barrier = world.time(!options_.eager, options_.repeats, [&](uint32_t r, void* s) {
      world.enqueue_one_barrier(r, s);
    });
    std::printf(
        "\n# %u ranks, bf16 sum, %s, %u blocks of %u threads a rank (%d a multiprocessor), "
        "median of %d runs of 20, us; kernel with one barrier: %.2f us\n",
        ranks, options_.eager ? "eager" : "graph replay", blocks, kBlockThreads, resident,
        options_.repeats, barrier.median);
    std::printf("%-10s %10s %9s %9s %9s %9s %9s %9s %9s | %7s %8s %9s %6s\n", "size", "bytes",
                "one-shot", "two-shot", "staged", "direct", "ld-st", "low-lat", "auto", "dir/stg",
                "ldst/dir", "auto/best", "wrong");
    for (const Size& size : sizes()) {
      if (size.elements * 2 < options_.from || size.elements * 2 > options_.to) continue;
      row(world, size, barrier.median);
    }
    return ok_;
  }

 private:
  void prepare(World& world) {
    inputs_.clear();
    for (uint32_t r = 0; r < world.ranks(); ++r) {
      inputs_.push_back(test::random_elements(SAR_BFLOAT16, kMost / 2, r + 1));
    }
    world.set_inputs(inputs_);
    std::vector<const uint8_t*> pointers;
    for (const auto& input : inputs_) pointers.push_back(input.data());
    expected_ = test::reduced(SAR_BFLOAT16, SAR_SUM, pointers, kMost / 2);
  }

  uint64_t wrong_ranks(World& world, uint64_t elements) {
    uint64_t bad = 0;
    for (uint32_t r = 0; r < world.ranks(); ++r) {
      const std::vector<uint8_t> out = world.output(r, elements * 2);
      if (std::memcmp(out.data(), expected_.data(), out.size()) != 0) ++bad;
    }
    return bad;
  }

  void row(World& world, const Size& size, float barrier) {
    Call call;
    call.collective = SAR_COLLECTIVE_ALL_REDUCE;
    call.type = SAR_BFLOAT16;
    call.count = size.elements;
    call.timeout_ticks = device_.driver().ticks_of(5'000'000'000);
    float us[8] = {};
    uint64_t bad = 0;
    std::printf("%-10s %10llu", size.name.c_str(),
                static_cast<unsigned long long>(size.elements * 2));
    float best = 1e30f;
    for (sar_schedule schedule : kSchedules) {
      call.schedule = schedule;
      if (schedule == SAR_LOW_LATENCY && !fits_low_latency(world.geometry(0), call)) {
        std::printf(" %9s", "-");
        continue;
      }
      const auto once = [&](uint32_t r, void* s) { world.enqueue(r, s, call, schedule); };
      world.poison_outputs(size.elements * 2);
      world.run_once(once);
      bad += wrong_ranks(world, size.elements);
      us[schedule] = world.time(!options_.eager, options_.repeats, once).median;
      best = std::min(best, us[schedule]);
      std::printf(" %9.2f", us[schedule]);
    }
    // Timed once more by itself: two measurements of one schedule differ by some per cent.
    call.schedule = SAR_AUTO;
    const sar_schedule chosen = wanted_schedule(world.geometry(0), call);
    const auto once = [&](uint32_t r, void* s) { world.enqueue(r, s, call, chosen); };
    us[SAR_AUTO] = world.time(!options_.eager, options_.repeats, once).median;
    std::printf(" %9.2f | %7.3f %8.3f %9.3f %6llu", us[SAR_AUTO],
                us[SAR_DIRECT_WRITE] / us[SAR_STAGED_WRITE],
                us[SAR_LOAD_REDUCE_STORE] / us[SAR_DIRECT_WRITE], us[SAR_AUTO] / best,
                static_cast<unsigned long long>(bad));
    if (size.elements == 256) std::printf("  low-lat/barrier %.3f", us[SAR_LOW_LATENCY] / barrier);
    if (size.elements * 2 == kMost) {
      const float copy = device_.copy_microseconds(kMost * world.ranks());
      std::printf("  copy of the same bytes %.1f us, ld-st reaches %.1f %%", copy,
                  100 * copy / us[SAR_LOAD_REDUCE_STORE]);
    }
    std::printf("\n");
    std::fflush(stdout);
    ok_ = ok_ && bad == 0;
  }

  Device& device_;
  const Options& options_;
  std::vector<std::vector<uint8_t>> inputs_;
  std::vector<uint8_t> expected_;
  bool ok_ = true;
};

Options parse(int count, char** values) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string name = values[i];
    const char* value = i + 1 < count ? values[i + 1] : "";
    if (name == "--eager") {
      options.eager = true;
      continue;
    }
    ++i;
    if (name == "--ranks") {
      options.ranks.clear();
      for (const char* text = value; *text != 0;) {
        char* end = nullptr;
        options.ranks.push_back(static_cast<uint32_t>(std::strtoul(text, &end, 10)));
        text = *end == ',' ? end + 1 : "";
      }
    } else if (name == "--blocks") {
      options.blocks = static_cast<uint32_t>(std::atoi(value));
    } else if (name == "--repeats") {
      options.repeats = std::atoi(value);
    } else if (name == "--from") {
      options.from = std::strtoull(value, nullptr, 10);
    } else if (name == "--to") {
      options.to = std::strtoull(value, nullptr, 10);
    } else if (name == "--device") {
      options.device = std::atoi(value);
    } else {
      std::fprintf(stderr,
                   "usage: %s [--ranks 2,8] [--blocks N] [--repeats N] [--eager] [--from BYTES] "
                   "[--to BYTES] [--device N]\n",
                   values[0]);
      std::exit(2);
    }
  }
  return options;
}

}  // namespace
}  // namespace sar::gpu::bench

int main(int count, char** values) {
  using namespace sar::gpu::bench;
  const Options options = parse(count, values);
  Device device(options.device);
  bool ok = true;
  Bench bench(device, options);
  for (uint32_t ranks : options.ranks) ok = bench.run(ranks) && ok;
  return ok ? 0 : 1;
}
