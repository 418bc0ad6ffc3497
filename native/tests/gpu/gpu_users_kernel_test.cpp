// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// gpu_users_kernel_test.cpp: collectives between kernels of the user's own, on one stream and
// without a wait. The kernel in front writes what the collective reads, the one behind reads what
// it has written.
#include <dlfcn.h>

#include <algorithm>
#include <cmath>

#include "../../gpu/driver.hpp"
#include "gpu_test.hpp"

namespace sar::gpu::test {
namespace {

// Doubles each value.
constexpr char kBody[] = R"(
  .reg .pred %p<2>;
  .reg .b32 %r<5>;
  .reg .b64 %a<3>;
  .reg .f32 %f<2>;
  ld.param.u64 %a1, [values];
  ld.param.u32 %r1, [count];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r2, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r2, %r1;
  @%p1 ret;
  mul.wide.u32 %a2, %r2, 4;
  add.u64 %a1, %a1, %a2;
  ld.global.f32 %f1, [%a1];
  add.f32 %f1, %f1, %f1;
  st.global.f32 [%a1], %f1;
  ret;
}
)";

// As any kernel, and as one that lets the next one onto the device at once and is launched so
// itself.
std::string doubling() {
  const std::string parameters = "(.param .u64 values, .param .u32 count) {\n";
  return ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry doubling" + parameters +
         kBody + ".visible .entry overlapping_doubling" + parameters +
         "griddepcontrol.launch_dependents;\ngriddepcontrol.wait;\n" + kBody;
}

// The user's own calls of NVIDIA's driver, or of the simulated one.
class UsersKernels {
 public:
  UsersKernels() {
    const char* simulated_driver = std::getenv("SPARK_ALLREDUCE_GPU_DRIVER");
    driver_ = dlopen(simulated_driver != nullptr ? simulated_driver : "libcuda.so.1", RTLD_NOW);
    find("cuModuleLoadData", load_);
    find("cuModuleGetFunction", get_function_);
    find("cuLaunchKernelEx", launch_);
  }
  bool found() const { return launch_ != nullptr; }
  // On a thread whose context is the device's.
  bool load() {
    void* module = nullptr;
    return load_(&module, doubling().c_str()) == 0 &&
           get_function_(&plain_, module, "doubling") == 0 &&
           get_function_(&overlapping_, module, "overlapping_doubling") == 0;
  }
  bool twice(void* stream, uint8_t* values, uint32_t count, bool overlapping) const {
    constexpr unsigned kThreads = 256;
    void* arguments[] = {&values, &count};
    const CudaLaunchAttribute attribute{kCudaOverlapWithEnd, 0, {overlapping ? 1 : 0}};
    const CudaLaunch launch{
        {(count + kThreads - 1) / kThreads, 1, 1}, {kThreads, 1, 1}, 0, stream, &attribute, 1};
    return launch_(&launch, overlapping ? overlapping_ : plain_, arguments, nullptr) == 0;
  }

 private:
  template <class Function>
  void find(const char* name, Function& function) {
    void* symbol = driver_ != nullptr ? dlsym(driver_, name) : nullptr;
    std::memcpy(&function, &symbol, sizeof symbol);
  }
  void* driver_;
  int (*load_)(void**, const void*);
  int (*get_function_)(void**, void*, const char*);
  int (*launch_)(const CudaLaunch*, void*, void**, void**);
  void *plain_ = nullptr, *overlapping_ = nullptr;
};

// The smallest of all ranks' values: one that was read too early, or written over too late, lacks a
// doubling and shows.
void double_and_reduce(Rank& rank, UsersKernels& kernels, sar_schedule schedule, bool graph) {
  const uint64_t large = simulated() ? 2000 : 300'000, small = simulated() ? kTiny : 4000;
  const uint64_t count = schedule == SAR_LOW_LATENCY ? small : large;
  uint8_t *in = rank.arena, *out = rank.arena + (2 << 20);
  void* stream = nullptr;
  REQUIRE(sar_gpu_stream(rank.comm, &stream) == SAR_OK);
  const auto value_of = [](uint32_t r, uint64_t e) {
    return static_cast<float>((e * 7 + r * 13) % 61 + 1) * 0x1p-100f;
  };
  Bytes mine(count * 4), expected(count * 4);
  const int rounds = simulated() ? 4 : 40, replays = 3;
  for (uint64_t e = 0; e < count; ++e) {
    float smallest = value_of(0, e);
    for (uint32_t r = 1; r < rank.world; ++r) smallest = std::min(smallest, value_of(r, e));
    const float first = value_of(rank.rank, e), last = std::ldexp(smallest, rounds * replays);
    std::memcpy(&mine[e * 4], &first, 4);
    std::memcpy(&expected[e * 4], &last, 4);
  }
  rank.write(in, mine);
  rank.write(out, Bytes(count * 4, 0));
  const auto enqueue = [&] {
    for (int i = 0; i < rounds; ++i) {
      uint8_t *from = i % 2 == 0 ? in : out, *to = i % 2 == 0 ? out : in;
      REQUIRE(kernels.twice(stream, from, static_cast<uint32_t>(count), i % 3 == 0));
      if (!graph) REQUIRE(sar_gpu_enqueue_next(rank.comm) == SAR_OK);
      REQUIRE(sar_all_reduce(rank.comm, from, to, count, SAR_FLOAT32, SAR_MIN, schedule,
                             Rank::kTimeout) == SAR_OK);
    }
  };
  sar_graph* captured = nullptr;
  if (graph) {
    REQUIRE(sar_gpu_capture_begin(rank.comm, Rank::kTimeout) == SAR_OK);
    enqueue();
    REQUIRE(sar_gpu_capture_end(rank.comm, Rank::kTimeout, &captured) == SAR_OK);
  }
  for (int i = 0; i < replays; ++i) {
    if (graph) REQUIRE(sar_gpu_replay(captured) == SAR_OK);
    if (!graph) enqueue();
    // The ranks are in one process: a second replay could stand in front of a peer's first one, in
    // the same hardware queue.
    REQUIRE(sar_gpu_wait(rank.comm, Rank::kTimeout) == SAR_OK);
  }
  REQUIRE(rank.read(in, count * 4) == expected, "schedule %d, graph %d", schedule, graph);
  rank.meet();
  sar_gpu_graph_destroy(captured);
}

TEST_F(Gpu, UsersKernelsInFrontAndBehindSeeWholeCollectives) {
  if (!UsersKernels().found()) GTEST_SKIP() << "the user's kernel of this test is NVIDIA's";
  // Each rank's stream needs a hardware queue of its own, and a process has eight if it asks for no
  // more: otherwise the user's kernel of one rank can stand in front of the collective of another.
  EXPECT_RANKS(run_ranks(Ranks::kThreads, std::min(most_ranks(), 4u), [](Rank& rank) {
    REQUIRE(rank.open() == SAR_OK);
    UsersKernels kernels;
    REQUIRE(kernels.load());
    // The driver loads a kernel at its first launch, and waits then for those that run: before one
    // of ours waits for this rank.
    void* stream = nullptr;
    REQUIRE(sar_gpu_stream(rank.comm, &stream) == SAR_OK);
    for (bool overlapping : {false, true})
      REQUIRE(kernels.twice(stream, rank.arena, 1, overlapping));
    REQUIRE(sar_gpu_wait(rank.comm, Rank::kTimeout) == SAR_OK);
    rank.meet();
    for (sar_schedule schedule : kSchedules) {
      for (bool graph : {false, true}) double_and_reduce(rank, kernels, schedule, graph);
    }
  }));
}

}  // namespace
}  // namespace sar::gpu::test
