// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// The reduce loops of two ranks for one output, and memcpy beside them. Bytes are those of one
// input.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "numerics.hpp"
#include "reduce.hpp"

namespace {

constexpr size_t kLine = 64;

// Aligned to a cache line.
class Buffer {
 public:
  explicit Buffer(size_t bytes)
      : data_(static_cast<char *>(std::aligned_alloc(kLine, (bytes + kLine - 1) / kLine * kLine))) {
    std::memset(data_, 1, bytes);
  }
  ~Buffer() { std::free(data_); }
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;
  char *data() const { return data_; }

 private:
  char *data_;
};

void reduce_bench(benchmark::State &state, sar::ReduceFunction function, sar_data_type type,
                  sar_reduce_op op, bool streams) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const Buffer first(bytes);
  const Buffer second(bytes);
  const Buffer output(bytes);
  sar::ReduceJob job{};
  job.inputs[0] = first.data();
  job.inputs[1] = second.data();
  job.outputs[0] = output.data();
  job.input_count = 2;
  job.output_count = 1;
  job.elements = bytes / sar::element_bytes(type);
  job.type = type;
  job.op = op;
  job.streams = streams;
  for (auto _ : state) {
    function(job);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void copy_bench(benchmark::State &state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const Buffer from(bytes);
  const Buffer to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

BENCHMARK(copy_bench)->Name("Copy")->Arg(1 << 12)->Arg(1 << 15)->Arg(1 << 21)->Arg(1 << 24);

struct Variant {
  const char *name;
  sar::ReduceFunction function;
  bool runs_here;
};

const std::vector<Variant> &variants() {
  static const std::vector<Variant> all {
    {"baseline", sar::reduce_baseline, true},
#if defined(__x86_64__)
        {"x86-64-v3", sar::reduce_x86_64_v3, __builtin_cpu_supports("x86-64-v3") != 0},
        {"x86-64-v4", sar::reduce_x86_64_v4, __builtin_cpu_supports("x86-64-v4") != 0},
#endif
  };
  return all;
}

// Every variant, type and operation on a buffer that stays in the first-level cache; sums of
// float32 also on larger ones, with and without streaming stores.
[[maybe_unused]] const bool kRegistered = [] {
  constexpr const char *types[] = {"float64", "float32", "float16", "bfloat16", "int32", "int64"};
  constexpr const char *ops[] = {"sum", "product", "min", "max", "average"};
  for (const Variant &variant : variants()) {
    if (!variant.runs_here) {
      continue;
    }
    const std::string prefix = std::string("Reduce/") + variant.name + "/";
    for (uint32_t type = 0; type < sar::kDataTypes; type++) {
      for (uint32_t op = 0; op < sar::kReduceOps; op++) {
        benchmark::RegisterBenchmark((prefix + types[type] + "/" + ops[op]).c_str(), reduce_bench,
                                     variant.function, static_cast<sar_data_type>(type),
                                     static_cast<sar_reduce_op>(op), false)
            ->Arg(1 << 13);
      }
    }
    for (const bool streams : {false, true}) {
      benchmark::RegisterBenchmark(
          (prefix + (streams ? "float32/sum/streamed" : "float32/sum/large")).c_str(), reduce_bench,
          variant.function, SAR_FLOAT32, SAR_SUM, streams)
          ->Arg(1 << 18)
          ->Arg(1 << 21)
          ->Arg(1 << 24);
    }
  }
  return true;
}();

}  // namespace
