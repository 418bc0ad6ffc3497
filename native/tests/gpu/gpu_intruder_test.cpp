// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// gpu_intruder_test.cpp: a process of the same user writes into what ranks on GPUs share on the
// host. It can spoil a result or end a communicator; it never makes a rank reach outside of
// registered memory. The simulated driver maps each allocation by itself, so that whoever does
// dies.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu_communicator.hpp"
#include "gpu_test.hpp"

namespace sar::gpu::test {
namespace {

struct Field {
  const char* name;
  uint64_t offset, bytes;
};
#define FIELD(field) \
  { #field, offsetof(Control, field), sizeof(Control::field) }
#define ALLOCATION(number, field)                                       \
  {                                                                     \
    "allocation" #number "_" #field,                                    \
        offsetof(Control, allocation) + (number) * sizeof(Allocation) + \
            offsetof(Allocation, field),                                \
        sizeof(Allocation::field)                                       \
  }
#define CAPTURED(field) \
  { "captured_" #field, offsetof(Control, calls) + offsetof(CapturedCall, field), 4 }

const Field kFields[] = {FIELD(magic),           FIELD(arena_bytes),
                         FIELD(staging_bytes),   FIELD(multiprocessors),
                         FIELD(block_threads),   FIELD(ordinal),
                         FIELD(device),          FIELD(verdict),
                         FIELD(allocations),     FIELD(captured),
                         ALLOCATION(0, base),    ALLOCATION(0, bytes),
                         ALLOCATION(1, bytes),   ALLOCATION(2, base),
                         ALLOCATION(2, bytes),   ALLOCATION(2, identity),
                         ALLOCATION(2, handle),  CAPTURED(count),
                         CAPTURED(input_offset), CAPTURED(output_offset),
                         CAPTURED(kind),         CAPTURED(input_allocation),
                         CAPTURED(in_place)};
const uint64_t kPatterns[] = {0, 1, 0x0000'0000'0100'0003, 0x7fff'ffff'ffff'ffff,
                              0xffff'ffff'ffff'ffff};

// What a rank's peers share of it on the host, as another process would map it.
class SharedControl {
 public:
  explicit SharedControl(const uint8_t* handle) {
    Handle copy;
    std::memcpy(&copy, handle, sizeof copy);
    const std::string path = std::string("/dev/shm/") + copy.name;
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    bytes_ = copy.segment_bytes;
    base_ = static_cast<char*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    ::close(file);
    control_ = base_ + bytes_ - copy.arena_bytes;
  }
  ~SharedControl() { munmap(base_, bytes_); }
  SharedControl(const SharedControl&) = delete;
  SharedControl& operator=(const SharedControl&) = delete;

  Control& control() { return *reinterpret_cast<Control*>(control_); }
  void write(const Field& field, uint64_t pattern) {
    for (uint64_t i = 0; i < field.bytes; ++i) {
      __atomic_store_n(control_ + field.offset + i, static_cast<char>(pattern >> (8 * (i % 8))),
                       __ATOMIC_RELAXED);
    }
  }

 private:
  char* base_;
  char* control_;
  uint64_t bytes_;
};

// Whatever fails is fine, and as soon as it does.
void call_everything(Rank& rank) {
  constexpr int64_t patience = 2'000'000'000;
  if (sar_comm_connect(rank.comm, rank.shared->handles, patience) != SAR_OK) return;
  void* base = nullptr;
  uint64_t bytes = 0;
  REQUIRE(sar_comm_arena(rank.comm, &base, &bytes) == SAR_OK);
  auto* arena = static_cast<uint8_t*>(base);
  sar_graph* graph = nullptr;
  sar_status status = SAR_OK;
  for (int i = 0; i < 3 && status == SAR_OK; ++i) {
    status = sar_all_reduce(rank.comm, arena, arena + 65536, 1000, SAR_FLOAT32, SAR_SUM,
                            SAR_DIRECT_WRITE, patience);
    if (status == SAR_OK) status = sar_gpu_register(rank.comm, arena, 64, patience);
    if (status == SAR_OK) status = sar_gpu_capture_begin(rank.comm, patience);
    if (status == SAR_OK) {
      status = sar_all_gather(rank.comm, arena, arena + 65536, 1000, SAR_FLOAT32, patience);
      const sar_status ended = sar_gpu_capture_end(rank.comm, patience, &graph);
      if (status == SAR_OK) status = ended;
    }
    if (status == SAR_OK) status = sar_gpu_replay(graph);
    if (status == SAR_OK) status = sar_gpu_wait(rank.comm, patience);
    if (status != SAR_OK) sar_abort(rank.comm, 0, "something was spoilt");
    sar_gpu_graph_destroy(graph);
    graph = nullptr;
  }
}

class GpuIntruder : public testing::Test {
 protected:
  void SetUp() override {
    if (!simulated()) GTEST_SKIP() << "only the simulated driver is asked";
  }
};

sar_status create(Rank& rank) {
  sar_options options{};
  options.struct_bytes = sizeof options;
  options.rank = rank.rank;
  options.world_size = rank.world;
  options.arena_bytes = options.staging_bytes = 1 << 20;
  const sar_status status = sar_comm_create(&options, &rank.comm);
  if (status != SAR_OK) return status;
  return sar_comm_handle(rank.comm, rank.shared->handles + rank.rank * SAR_HANDLE_BYTES);
}

void spoil_each_field(Rank& rank) {
  for (const Field& field : kFields) {
    REQUIRE(create(rank) == SAR_OK);
    rank.meet();
    SharedControl first(rank.shared->handles), second(rank.shared->handles + SAR_HANDLE_BYTES);
    rank.meet();
    std::atomic<bool> stop{false};
    std::thread intruder([&] {
      for (uint32_t turn = 0; !stop; ++turn) {
        (turn % 3 == 0 ? first : second).write(field, kPatterns[turn % std::size(kPatterns)]);
        std::this_thread::yield();
      }
    });
    call_everything(rank);
    stop = true;
    intruder.join();
    rank.meet();
    rank.close();
  }
}

TEST_F(GpuIntruder, GarbageInEveryFieldThatRanksInProcessesShareNeverLeadsOutside) {
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 2, spoil_each_field));
}

TEST_F(GpuIntruder, GarbageInEveryFieldThatRanksOfOneProcessShareNeverLeadsOutside) {
  EXPECT_RANKS(run_ranks(Ranks::kThreads, 2, spoil_each_field));
}

TEST_F(GpuIntruder, MemoryThatIsLargerThanWhatWasSharedIsRefused) {
  EXPECT_RANKS(run_ranks(Ranks::kProcesses, 2, [](Rank& rank) {
    REQUIRE(create(rank) == SAR_OK);
    rank.meet();
    SharedControl second(rank.shared->handles + SAR_HANDLE_BYTES);
    if (rank.rank == 1) second.control().allocation[kArena].bytes *= 2;
    rank.meet();
    REQUIRE(sar_comm_connect(rank.comm, rank.shared->handles, Rank::kTimeout) == SAR_SYSTEM_ERROR);
    REQUIRE(std::strstr(sar_last_error(), "rank 1 announced memory that is larger") != nullptr);
  }));
}

}  // namespace
}  // namespace sar::gpu::test
