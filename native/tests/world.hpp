// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// A communicator of N ranks in this process, one thread for each, and buffers with canaries.
#ifndef SPARK_ALLREDUCE_TESTS_WORLD_HPP
#define SPARK_ALLREDUCE_TESTS_WORLD_HPP

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "reference.hpp"
#include "spark_allreduce.h"

namespace sar::testing {

inline constexpr int64_t kMillisecond = 1'000'000;
// Long enough never to matter, unless something hangs.
inline constexpr int64_t kPatience = 60'000 * kMillisecond;

struct WorldOptions {
  uint32_t first_epoch = 0;
  uint64_t arena_bytes = 1 << 20;
  uint64_t staging_bytes = SAR_MIN_STAGING_BYTES;
  uint64_t spin_ns = 20'000;
};

// A session that no other test has.
sar_options options_for(uint32_t rank, uint32_t world_size, const WorldOptions &options,
                        uint64_t session);
uint64_t new_session();

class World {
 public:
  explicit World(uint32_t size, const WorldOptions &options = {});
  ~World();
  World(const World &) = delete;
  World &operator=(const World &) = delete;

  uint32_t size() const { return static_cast<uint32_t>(comms_.size()); }
  sar_comm *comm(uint32_t rank) const { return comms_[rank]; }
  unsigned char *arena(uint32_t rank) const;
  // Destroys this rank's communicator now.
  void destroy(uint32_t rank);

  // Runs `body(rank)` for all ranks at once, each on a thread of its own.
  void each_rank(const std::function<void(uint32_t)> &body) const;

 private:
  std::vector<sar_comm *> comms_;
};

void on_threads(uint32_t count, const std::function<void(uint32_t)> &body);

// A buffer in given memory with canaries before and behind it.
class GuardedBuffer {
 public:
  static constexpr size_t kCanaryBytes = 64;
  // The memory that a buffer of `bytes` takes up.
  static size_t footprint(size_t bytes) { return bytes + 2 * kCanaryBytes; }

  GuardedBuffer(unsigned char *memory, size_t bytes);

  unsigned char *data() const { return memory_ + kCanaryBytes; }
  // Fills it with a pattern that no result should leave.
  void poison() const;
  void fill(const void *bytes) const;
  bool equals(const void *bytes) const;
  bool is_poisoned() const;
  bool canaries_alive() const;

 private:
  unsigned char *memory_;
  size_t bytes_;
};

// What the calling thread's last failure was.
struct LastFailure {
  std::string message;
  sar_failure facts;
};
LastFailure last_failure();

// That the message contains all of these.
::testing::AssertionResult says(const std::string &message, const std::vector<std::string> &parts);

// Names of segments that the process (0: this one) has left in /dev/shm.
std::vector<std::string> leftover_names(int process = 0);

}  // namespace sar::testing

#endif  // SPARK_ALLREDUCE_TESTS_WORLD_HPP
