// Licensed under the Apache License, Version 2.0. See LICENSE.
#include "world.hpp"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>

namespace sar::testing {

uint64_t new_session() {
  static std::atomic<uint64_t> next{1};
  return static_cast<uint64_t>(getpid()) << 32 | next++;
}

sar_options options_for(uint32_t rank, uint32_t world_size, const WorldOptions &options,
                        uint64_t session) {
  sar_options result{};
  result.struct_bytes = sizeof result;
  result.rank = rank;
  result.world_size = world_size;
  result.first_epoch = options.first_epoch;
  result.session_high = 0x5eed;
  result.session_low = session;
  result.arena_bytes = options.arena_bytes;
  result.staging_bytes = options.staging_bytes;
  result.spin_ns = options.spin_ns;
  return result;
}

void on_threads(uint32_t count, const std::function<void(uint32_t)> &body) {
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < count; i++) {
    threads.emplace_back([&body, i] { body(i); });
  }
  for (std::thread &thread : threads) {
    thread.join();
  }
}

World::World(uint32_t size, const WorldOptions &options) : comms_(size) {
  const uint64_t session = new_session();
  std::vector<unsigned char> handles(size * SAR_HANDLE_BYTES);
  for (uint32_t rank = 0; rank < size; rank++) {
    const sar_options mine = options_for(rank, size, options, session);
    EXPECT_EQ(sar_comm_create(&mine, &comms_[rank]), SAR_OK) << sar_last_error();
    EXPECT_EQ(sar_comm_handle(comms_[rank], &handles[rank * SAR_HANDLE_BYTES]), SAR_OK);
  }
  each_rank([&](uint32_t rank) {
    EXPECT_EQ(sar_comm_connect(comms_[rank], handles.data(), kPatience), SAR_OK)
        << sar_last_error();
  });
}

World::~World() {
  for (sar_comm *comm : comms_) {
    sar_comm_destroy(comm);
  }
}

void World::destroy(uint32_t rank) {
  sar_comm_destroy(comms_[rank]);
  comms_[rank] = nullptr;
}

unsigned char *World::arena(uint32_t rank) const {
  void *base = nullptr;
  uint64_t bytes = 0;
  EXPECT_EQ(sar_comm_arena(comms_[rank], &base, &bytes), SAR_OK);
  return static_cast<unsigned char *>(base);
}

void World::each_rank(const std::function<void(uint32_t)> &body) const { on_threads(size(), body); }

namespace {
constexpr unsigned char kCanary = 0xa5;
constexpr unsigned char kPoison = 0xcd;

bool all_are(const unsigned char *bytes, size_t count, unsigned char value) {
  return std::all_of(bytes, bytes + count, [&](unsigned char byte) { return byte == value; });
}
}  // namespace

GuardedBuffer::GuardedBuffer(unsigned char *memory, size_t bytes) : memory_(memory), bytes_(bytes) {
  std::memset(memory_, kCanary, kCanaryBytes);
  std::memset(data() + bytes_, kCanary, kCanaryBytes);
}

void GuardedBuffer::poison() const { std::memset(data(), kPoison, bytes_); }

void GuardedBuffer::fill(const void *bytes) const {
  if (bytes_ != 0) {
    std::memcpy(data(), bytes, bytes_);
  }
}

bool GuardedBuffer::equals(const void *bytes) const {
  return bytes_ == 0 || std::memcmp(data(), bytes, bytes_) == 0;
}

bool GuardedBuffer::is_poisoned() const { return all_are(data(), bytes_, kPoison); }

bool GuardedBuffer::canaries_alive() const {
  return all_are(memory_, kCanaryBytes, kCanary) && all_are(data() + bytes_, kCanaryBytes, kCanary);
}

LastFailure last_failure() {
  LastFailure failure{sar_last_error(), {}};
  sar_last_failure(&failure.facts);
  return failure;
}

::testing::AssertionResult says(const std::string &message, const std::vector<std::string> &parts) {
  for (const std::string &part : parts) {
    if (message.find(part) == std::string::npos) {
      return ::testing::AssertionFailure() << "'" << part << "' is not in: " << message;
    }
  }
  return ::testing::AssertionSuccess();
}

std::vector<std::string> leftover_names(int process) {
  const std::string prefix = "spark-allreduce-" + std::to_string(geteuid()) + "-" +
                             std::to_string(process == 0 ? getpid() : process) + "-";
  std::vector<std::string> names;
  for (const auto &entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (name.starts_with(prefix)) {
      names.push_back(name);
    }
  }
  return names;
}

}  // namespace sar::testing
