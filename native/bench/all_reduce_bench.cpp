// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// all_reduce_bench.cpp: every schedule at every size, side by side in one run, in the manner of
// rccl-tests, and NCCL or RCCL beside them. The ranks are streams of one device, so that local
// memory traffic is measured and no link, or of several.
//
//   all_reduce_bench [--ranks 2,8] [--devices 0,1,...] [--types bfloat16,float32] [--blocks N]
//                    [--repeats 20] [--eager] [--from BYTES] [--to BYTES] [--nccl LIBRARY|find]
//
// --repeats 0 times nothing: what comes out is checked only.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "../tests/gpu/reference.hpp"
#include "bench_device.hpp"
#include "nccl.hpp"

namespace sar::gpu::bench {
namespace {

struct Options {
  std::vector<uint32_t> ranks = {2, 8};
  std::vector<uint32_t> devices = {0};
  std::vector<sar_data_type> types = {SAR_BFLOAT16};
  uint32_t blocks = 0;
  int repeats = 20;
  bool eager = false;
  uint64_t from = 0, to = 64u << 20;  // bytes
  std::string nccl;                   // empty: without
};

struct Size {
  std::string name;
  uint64_t bytes;
};

constexpr sar_schedule kSchedules[] = {SAR_ONE_SHOT,     SAR_TWO_SHOT_READ,     SAR_STAGED_WRITE,
                                       SAR_DIRECT_WRITE, SAR_LOAD_REDUCE_STORE, SAR_LOW_LATENCY};
constexpr const char* kNames[] = {"auto",         "one-shot",     "two-shot-read",
                                  "staged-write", "direct-write", "load-reduce-store",
                                  "low-latency"};
constexpr uint64_t kMost = 256u << 20;
// The input is made of it; odd, so that no two slices of it are alike.
constexpr uint64_t kTileElements = 1'000'003;

const char* name_of(sar_data_type type) { return type == SAR_FLOAT32 ? "float32" : "bfloat16"; }

std::vector<Size> sizes(const Options& options, uint64_t element) {
  std::vector<Size> result;
  const auto add = [&](const std::string& name, uint64_t bytes) {
    if (bytes >= options.from && bytes <= options.to) result.push_back({name, bytes});
  };
  for (uint64_t bytes = 512; bytes <= kMost; bytes *= 2) {
    add(bytes < 1024        ? std::to_string(bytes) + " B"
        : bytes < (1 << 20) ? std::to_string(bytes >> 10) + " KiB"
                            : std::to_string(bytes >> 20) + " MiB",
        bytes);
  }
  for (auto [rows, columns] :
       {std::pair{440, 5120}, {512, 5120}, {512, 7168}, {512, 8192}, {632, 5120}, {680, 5120}}) {
    add(std::to_string(rows) + "x" + std::to_string(columns),
        static_cast<uint64_t>(rows) * static_cast<uint64_t>(columns) * element);
  }
  return result;
}

// A figure, or a dash: the simulated driver has no time, and not all schedules take all sizes.
void cell(int width, int digits, float value) {
  if (std::isfinite(value) && value > 0) {
    std::printf(" %*.*f", width, digits, value);
  } else {
    std::printf(" %*s", width, "-");
  }
}

class Bench {
 public:
  Bench(Devices& devices, const Options& options, Nccl* nccl)
      : devices_(devices), options_(options), nccl_(nccl) {}

  // False if a result was wrong.
  bool run(uint32_t ranks, sar_data_type type) {
    // Their kernels are those of one world size.
    for (const auto& device : devices_) device->use(), device->kernels().unload();
    type_ = type;
    element_ = element_bytes(type);
    const std::vector<Size> all = sizes(options_, element_);
    most_ = 0;
    for (const Size& size : all) most_ = std::max(most_, size.bytes);
    if (most_ == 0) return true;
    World world(devices_, ranks, most_, 2 * most_ + (2 << 20));
    prepare(world);
    const float barrier = time_barrier(world, false), overlapping = time_barrier(world, true);
    const bool beside = nccl_ != nullptr && nccl_->connect(world);
    head(world, barrier, overlapping, beside);
    best_.clear();
    squares_.clear();
    for (const Size& size : all) row(world, size, barrier, beside);
    foot(world);
    if (nccl_ != nullptr) nccl_->disconnect();
    return ok_;
  }

 private:
  void prepare(World& world) {
    blocks_ = options_.blocks != 0 ? options_.blocks : kMaxBlocks;
    for (const auto& device : devices_) {
      device->use();
      require(device->driver(), device->kernels().resident_blocks(type_, world.ranks(), &resident_),
              "occupancy");
      // Before the first launch: to load a kernel may mean to wait for those that run, and they for
      // the rank that is not launched yet.
      void* function = nullptr;
      require(device->driver(), device->kernels().find(type_, world.ranks(), true, &function),
              "kernel");
      uint32_t on_device = 0;
      for (uint32_t r = 0; r < world.ranks(); ++r) {
        if (world.device_of(r).ordinal() == device->ordinal()) ++on_device;
      }
      if (options_.blocks == 0 && on_device != 0) {
        const auto most = static_cast<uint32_t>(resident_ * device->multiprocessors());
        blocks_ = std::min(blocks_, most / on_device);
      }
    }
    world.set_blocks(blocks_);
    std::vector<std::vector<uint8_t>> tiles;
    const uint64_t elements = std::min(kTileElements, most_ / element_);
    for (uint32_t r = 0; r < world.ranks(); ++r) {
      tiles.push_back(test::random_elements(type_, elements, r + 1));
      world.set_input(r, tiles.back());
    }
    std::vector<const uint8_t*> pointers;
    for (const auto& tile : tiles) pointers.push_back(tile.data());
    expected_ = test::reduced(type_, SAR_SUM, pointers, elements);
  }

  float time_barrier(World& world, bool overlaps) {
    if (devices_[0]->one_barrier() == nullptr) return 0;
    return world
        .time(!options_.eager, options_.repeats, [&] { world.enqueue_one_barrier(overlaps); })
        .median;
  }

  void head(const World& world, float barrier, float overlapping, bool beside) const {
    std::printf(
        "\n# %u ranks on %zu device%s, %s sum, %s, %u blocks of %u threads a rank (%d a "
        "multiprocessor), median of %d runs of 20, us\n",
        world.ranks(), devices_.size(), devices_.size() == 1 ? "" : "s", name_of(type_),
        options_.eager ? "eager" : "graph replay", blocks_, kBlockThreads, resident_,
        options_.repeats);
    if (barrier > 0) {
      std::printf("# kernel with one barrier: %.2f us, launched as the schedules are: %.2f us\n",
                  barrier, overlapping);
    }
    if (beside) {
      std::printf("# NCCL version %d beside it; its sums are not compared: it rounds otherwise\n",
                  nccl_->version());
    } else if (nccl_ != nullptr) {
      std::printf("# NCCL: not run: %s\n", nccl_->why_not().c_str());
    }
    std::printf("%-10s %10s %9s %9s %9s %9s %9s %9s %9s %9s | %7s %8s %9s %9s %6s\n", "size",
                "bytes", "one-shot", "two-shot", "staged", "direct", "ld-st", "low-lat", "auto",
                "NCCL", "dir/stg", "ldst/dir", "auto/best", "auto/NCCL", "wrong");
  }

  uint64_t wrong_ranks(const World& world, uint64_t bytes) const {
    uint64_t bad = 0;
    for (uint32_t r = 0; r < world.ranks(); ++r) {
      const std::vector<uint8_t> out = world.read_output(r, bytes);
      bool equal = true;
      for (uint64_t at = 0; at < bytes && equal; at += expected_.size()) {
        const uint64_t piece = std::min<uint64_t>(expected_.size(), bytes - at);
        equal = std::memcmp(out.data() + at, expected_.data(), piece) == 0;
      }
      if (!equal) ++bad;
    }
    return bad;
  }

  void row(World& world, const Size& size, float barrier, bool beside) {
    Call call;
    call.collective = SAR_COLLECTIVE_ALL_REDUCE;
    call.type = type_;
    call.count = size.bytes / element_;
    call.timeout_ticks = devices_[0]->driver().ticks_of(5'000'000'000);
    float us[8] = {};
    uint64_t bad = 0;
    std::printf("%-10s %10llu", size.name.c_str(), static_cast<unsigned long long>(size.bytes));
    float best = 1e30f;
    for (sar_schedule schedule : kSchedules) {
      call.schedule = schedule;
      if (schedule == SAR_LOW_LATENCY && !fits_low_latency(world.geometry(0), call)) {
        cell(9, 2, 0);
        continue;
      }
      const auto once = [&] { world.enqueue(call, schedule); };
      world.poison_outputs(size.bytes);
      world.run_once(once);
      bad += wrong_ranks(world, size.bytes);
      us[schedule] = world.time(!options_.eager, options_.repeats, once).median;
      best = std::min(best, us[schedule]);
      cell(9, 2, us[schedule]);
      if (us[schedule] > 0) best_[size.bytes][schedule] = us[schedule];
    }
    // Timed once more by itself: two measurements of one schedule differ by some per cent.
    call.schedule = SAR_AUTO;
    const sar_schedule chosen = wanted_schedule(world.geometry(0), call);
    us[SAR_AUTO] =
        world.time(!options_.eager, options_.repeats, [&] { world.enqueue(call, chosen); }).median;
    cell(9, 2, us[SAR_AUTO]);
    const float nccl = beside ? world
                                    .time(!options_.eager, options_.repeats,
                                          [&] { nccl_->all_reduce(world, call.count, type_); })
                                    .median
                              : 0;
    cell(9, 2, nccl);
    std::printf(" |");
    cell(7, 3, us[SAR_DIRECT_WRITE] / us[SAR_STAGED_WRITE]);
    cell(8, 3, us[SAR_LOAD_REDUCE_STORE] / us[SAR_DIRECT_WRITE]);
    cell(9, 3, us[SAR_AUTO] / best);
    cell(9, 3, us[SAR_AUTO] / nccl);
    std::printf(" %6llu", static_cast<unsigned long long>(bad));
    if (size.bytes == 512 && barrier > 0) {
      std::printf("  low-lat/barrier %.3f", us[SAR_LOW_LATENCY] / barrier);
    }
    if (size.name.find('x') != std::string::npos && us[SAR_STAGED_WRITE] > 0) {
      squares_.push_back({us[SAR_DIRECT_WRITE] / us[SAR_STAGED_WRITE],
                          us[SAR_LOAD_REDUCE_STORE] / us[SAR_DIRECT_WRITE]});
    }
    std::printf("\n");
    std::fflush(stdout);
    ok_ = ok_ && bad == 0;
  }

  void foot(World& world) {
    if (squares_.size() == 6) {
      double direct = 1, load = 1;
      for (const auto& [d, l] : squares_) direct *= d, load *= l;
      std::printf("# geometric mean over the six shapes: direct/staged %.3f, ld-st/direct %.3f\n",
                  std::pow(direct, 1.0 / 6), std::pow(load, 1.0 / 6));
    }
    if (most_ >= (64u << 20) && devices_.size() == 1) {
      const uint64_t bytes = most_ * world.ranks();
      const float copy = copy_microseconds(*devices_[0], *devices_[0], bytes);
      std::printf("# copy of %llu bytes, as many as all ranks' inputs: %.1f us\n",
                  static_cast<unsigned long long>(bytes), copy);
    }
    print_auto_rows(world.ranks());
  }

  // For each size the fastest; the one of the size before, where that is as good but for 2 %.
  void print_auto_rows(uint32_t ranks) const {
    if (best_.empty()) return;
    std::printf("# rows for auto, of these %s figures (backend, world size, bytes, schedule):\n",
                name_of(type_));
    uint32_t last = 0;
    uint64_t last_bytes = 0;
    for (const auto& [bytes, times] : best_) {
      uint32_t fastest = times.begin()->first;
      for (const auto& [schedule, us] : times) {
        if (us < times.at(fastest)) fastest = schedule;
      }
      const auto same = times.find(last);
      if (same != times.end() && same->second <= times.at(fastest) * 1.02f) fastest = last;
      if (last != 0 && fastest != last) {
        std::printf("gpu %u %llu %s\n", ranks, static_cast<unsigned long long>(last_bytes),
                    kNames[last]);
      }
      last = fastest;
      last_bytes = bytes;
    }
    std::printf("gpu %u * %s\n", ranks, kNames[last]);
  }

  Devices& devices_;
  const Options& options_;
  Nccl* nccl_;
  sar_data_type type_ = SAR_BFLOAT16;
  uint64_t element_ = 2, most_ = 0;
  uint32_t blocks_ = 0;
  int resident_ = 0;
  std::vector<uint8_t> expected_;
  std::map<uint64_t, std::map<uint32_t, float>> best_;  // microseconds by bytes and schedule
  std::vector<std::pair<float, float>> squares_;
  bool ok_ = true;
};

// One way between each two devices, as the driver copies.
void print_links(const Devices& devices, uint64_t most) {
  if (devices.size() < 2) return;
  const uint64_t large_bytes = std::min<uint64_t>(256u << 20, most);
  constexpr uint64_t kSmall = 4096;
  std::printf("\n# copies from one device to another, one way: GB/s of %llu bytes, us of 4096\n",
              static_cast<unsigned long long>(large_bytes));
  for (const auto& from : devices) {
    for (const auto& to : devices) {
      if (from == to) continue;
      const float large = copy_microseconds(*from, *to, large_bytes);
      const float small = copy_microseconds(*from, *to, kSmall);
      std::printf("%d -> %d:", from->ordinal(), to->ordinal());
      cell(7, 1, static_cast<float>(large_bytes) / large * 1e-3f);
      cell(7, 2, small);
      std::printf("\n");
    }
  }
}

std::vector<std::string> words(const char* text) {
  std::vector<std::string> result(1);
  for (; *text != 0; ++text) {
    if (*text == ',') {
      result.emplace_back();
    } else {
      result.back() += *text;
    }
  }
  return result;
}

std::vector<uint32_t> numbers(const char* text) {
  std::vector<uint32_t> result;
  for (const std::string& word : words(text)) {
    result.push_back(static_cast<uint32_t>(std::strtoul(word.c_str(), nullptr, 10)));
  }
  return result;
}

[[noreturn]] void usage(const char* program) {
  std::fprintf(stderr,
               "usage: %s [--ranks 2,8] [--devices 0,1] [--types bfloat16,float32] [--blocks N] "
               "[--repeats N] [--eager] [--from BYTES] [--to BYTES] [--nccl LIBRARY|find]\n",
               program);
  std::exit(2);
}

Options parse(int count, char** values) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string name = values[i];
    if (name == "--eager") {
      options.eager = true;
      continue;
    }
    if (i + 1 == count) usage(values[0]);
    const char* value = values[++i];
    if (name == "--ranks") {
      options.ranks = numbers(value);
    } else if (name == "--devices") {
      options.devices = numbers(value);
    } else if (name == "--types") {
      options.types.clear();
      for (const std::string& type : words(value)) {
        if (type != "bfloat16" && type != "float32") usage(values[0]);
        options.types.push_back(type == "float32" ? SAR_FLOAT32 : SAR_BFLOAT16);
      }
    } else if (name == "--blocks") {
      options.blocks = static_cast<uint32_t>(std::atoi(value));
    } else if (name == "--repeats") {
      options.repeats = std::max(0, std::atoi(value));
    } else if (name == "--from") {
      options.from = std::strtoull(value, nullptr, 10);
    } else if (name == "--to") {
      options.to = std::strtoull(value, nullptr, 10);
    } else if (name == "--nccl") {
      options.nccl = value;
    } else {
      usage(values[0]);
    }
  }
  return options;
}

}  // namespace
}  // namespace sar::gpu::bench

int main(int count, char** values) {
  using namespace sar::gpu::bench;
  const Options options = parse(count, values);
  Devices devices;
  for (uint32_t ordinal : options.devices) {
    devices.push_back(std::make_unique<Device>(static_cast<int>(ordinal)));
  }
  for (const auto& device : devices) {
    for (const auto& other : devices) {
      if (device->reaches(*other)) continue;
      std::fprintf(stderr, "device %d cannot reach the memory of device %d: no peer access\n",
                   device->ordinal(), other->ordinal());
      return 1;
    }
  }
  std::unique_ptr<Nccl> nccl;
  if (!options.nccl.empty()) {
    nccl = std::make_unique<Nccl>(options.nccl == "find" ? "" : options.nccl);
  }
  if (options.repeats > 0) print_links(devices, options.to);
  bool ok = true;
  Bench bench(devices, options, nccl.get());
  for (sar_data_type type : options.types) {
    for (uint32_t ranks : options.ranks) ok = bench.run(ranks, type) && ok;
  }
  return ok ? 0 : 1;
}
