// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Memory of others, registered; and communicators that are used again with the ranks in another
// order.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <numeric>

#include "world.hpp"

namespace sar::testing {
namespace {

constexpr uint64_t kPage = 4096;

// A file that this library knows nothing of.
class ForeignFile {
 public:
  explicit ForeignFile(uint64_t bytes, uint32_t number = 0)
      // In the build's folder: a run that is killed leaves nothing in shared memory.
      : path_(std::filesystem::current_path().string() + "/foreign-" + std::to_string(getpid()) +
              "-" + std::to_string(number)) {
    const int fd = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    EXPECT_GE(fd, 0);
    EXPECT_EQ(ftruncate(fd, static_cast<off_t>(bytes)), 0);
    close(fd);
  }
  ~ForeignFile() { unlink(path_.c_str()); }
  ForeignFile(const ForeignFile &) = delete;
  ForeignFile &operator=(const ForeignFile &) = delete;

  const char *path() const { return path_.c_str(); }

 private:
  std::string path_;
};

float *register_floats(sar_comm *comm, const ForeignFile &file, uint64_t offset, uint64_t bytes) {
  void *address = nullptr;
  EXPECT_EQ(sar_register(comm, file.path(), offset, bytes, kPatience, &address), SAR_OK)
      << sar_last_error();
  return static_cast<float *>(address);
}

uint64_t unregistered_calls(const sar_comm *comm) {
  sar_statistics statistics;
  EXPECT_EQ(sar_comm_statistics(comm, &statistics), SAR_OK);
  return statistics.unregistered;
}

class Registration : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(WorldSizes, Registration, ::testing::Values(1u, 2u, 4u, 16u));

TEST_P(Registration, RegisteredMemoryIsReducedInPlaceByEverySchedule) {
  const uint32_t ranks = GetParam();
  constexpr uint64_t kCount = 5000;
  const World world(ranks);
  world.each_rank([&](uint32_t rank) {
    const ForeignFile file(4 * kPage * 4, rank);
    // Each rank takes another part of its file.
    float *values = register_floats(world.comm(rank), file, (rank % 3) * kPage, 5 * kPage);
    for (const sar_schedule schedule : {SAR_ONE_SHOT, SAR_TWO_SHOT_READ, SAR_STAGED_WRITE,
                                        SAR_DIRECT_WRITE, SAR_LOAD_REDUCE_STORE, SAR_AUTO}) {
      for (uint64_t i = 0; i < kCount; i++) {
        values[i] = static_cast<float>(rank + i);
      }
      ASSERT_EQ(sar_all_reduce(world.comm(rank), values, values, kCount, SAR_FLOAT32, SAR_SUM,
                               schedule, kPatience),
                SAR_OK)
          << sar_last_error();
      for (uint64_t i = 0; i < kCount; i++) {
        ASSERT_EQ(values[i], static_cast<float>(ranks * i + ranks * (ranks - 1) / 2));
      }
    }
    EXPECT_EQ(unregistered_calls(world.comm(rank)), 0u);
  });
}

TEST_P(Registration, TheResultLandsInTheFileThatTheOwnerNamed) {
  const uint32_t ranks = GetParam();
  const World world(ranks);
  world.each_rank([&](uint32_t rank) {
    const ForeignFile file(2 * kPage, rank);
    float *values = register_floats(world.comm(rank), file, kPage, kPage);
    auto *ones = reinterpret_cast<float *>(world.arena(rank));
    std::fill_n(ones, 1024, 1.0f);
    ASSERT_EQ(sar_all_reduce(world.comm(rank), ones, values, 1024, SAR_FLOAT32, SAR_SUM,
                             SAR_LOAD_REDUCE_STORE, kPatience),
              SAR_OK);
    const int fd = open(file.path(), O_RDONLY);
    std::vector<float> content(2048);
    ASSERT_EQ(read(fd, content.data(), 2 * kPage), static_cast<ssize_t>(2 * kPage));
    close(fd);
    EXPECT_EQ(std::count(content.begin(), content.begin() + 1024, 0.0f), 1024);
    EXPECT_EQ(std::count(content.begin() + 1024, content.end(), static_cast<float>(ranks)), 1024);
  });
}

TEST_P(Registration, WhatWasDeregisteredIsGoneAndItsPlaceIsUsedAgain) {
  const World world(GetParam());
  world.each_rank([&](uint32_t rank) {
    const ForeignFile file(kPage, rank);
    for (uint32_t round = 0; round < 3 * SAR_MAX_REGIONS; round++) {
      float *values = register_floats(world.comm(rank), file, 0, kPage);
      values[0] = 1;
      ASSERT_EQ(sar_all_reduce(world.comm(rank), values, values, 1, SAR_FLOAT32, SAR_SUM,
                               SAR_LOAD_REDUCE_STORE, kPatience),
                SAR_OK);
      ASSERT_EQ(values[0], static_cast<float>(GetParam()));
      ASSERT_EQ(sar_deregister(world.comm(rank), values, kPatience), SAR_OK);
      ASSERT_EQ(sar_deregister(world.comm(rank), values, kPatience), SAR_INVALID_ARGUMENT);
    }
  });
}

TEST(RegistrationLimits, MoreThanTheMaximumIsRefusedAndAllOfThemServe) {
  const World world(2);
  world.each_rank([&](uint32_t rank) {
    const ForeignFile file(kPage, rank);
    std::vector<float *> all;
    for (uint32_t i = 0; i < SAR_MAX_REGIONS; i++) {
      all.push_back(register_floats(world.comm(rank), file, 0, kPage));
    }
    void *address;
    EXPECT_EQ(sar_register(world.comm(rank), file.path(), 0, kPage, kPatience, &address),
              SAR_INVALID_ARGUMENT);
    EXPECT_TRUE(says(last_failure().message, {"64 regions are registered"}));
    all.back()[1] = 2;
    EXPECT_EQ(sar_all_reduce(world.comm(rank), all.back() + 1, all.front() + 2, 1, SAR_FLOAT32,
                             SAR_SUM, SAR_DIRECT_WRITE, kPatience),
              SAR_OK);
    EXPECT_EQ(all.front()[2], 4.0f);
  });
}

TEST(RegistrationFailures, AFileThatOneRankCannotMapFailsOnAllAndTheCommunicatorLivesOn) {
  const World world(3);
  world.each_rank([&](uint32_t rank) {
    const ForeignFile file(rank == 1 ? kPage : 2 * kPage, rank);
    void *address = nullptr;
    EXPECT_EQ(sar_register(world.comm(rank), file.path(), 0, 2 * kPage, kPatience, &address),
              SAR_SYSTEM_ERROR);
    EXPECT_TRUE(says(last_failure().message, {"rank 1", "has 4096 bytes, too few for 8192"}));
    EXPECT_EQ(address, nullptr);
    EXPECT_EQ(sar_barrier(world.comm(rank), kPatience), SAR_OK);
    const char *none = "/dev/shm/there-is-no-such-file";
    EXPECT_EQ(sar_register(world.comm(rank), rank == 2 ? none : file.path(), 0, kPage, kPatience,
                           &address),
              SAR_SYSTEM_ERROR);
    EXPECT_TRUE(says(last_failure().message, {"rank 2", none}));
    register_floats(world.comm(rank), file, 0, kPage);
  });
}

TEST(RegistrationFailures, LinksFoldersAndMisalignedOffsetsAreRefused) {
  const World world(1);
  void *address = nullptr;
  const ForeignFile file(2 * kPage);
  const std::string link = std::string(file.path()) + "-link";
  ASSERT_EQ(symlink(file.path(), link.c_str()), 0);
  EXPECT_EQ(sar_register(world.comm(0), link.c_str(), 0, kPage, kPatience, &address),
            SAR_SYSTEM_ERROR);
  EXPECT_TRUE(says(last_failure().message, {"symbolic link"}));
  unlink(link.c_str());
  EXPECT_EQ(sar_register(world.comm(0), "/dev/shm", 0, kPage, kPatience, &address),
            SAR_SYSTEM_ERROR);
  EXPECT_EQ(sar_register(world.comm(0), file.path(), 8, kPage, kPatience, &address),
            SAR_INVALID_ARGUMENT);
  EXPECT_TRUE(says(last_failure().message, {"offset 8", "4096"}));
  EXPECT_EQ(sar_register(world.comm(0), file.path(), 0, 0, kPatience, &address),
            SAR_INVALID_ARGUMENT);
}

TEST(RegistrationFailures, DifferentSizesAreAMismatchBeforeAnythingIsMapped) {
  const World world(2);
  world.each_rank([&](uint32_t rank) {
    const ForeignFile file(2 * kPage, rank);
    void *address = nullptr;
    EXPECT_EQ(
        sar_register(world.comm(rank), file.path(), 0, (rank + 1) * kPage, kPatience, &address),
        SAR_MISMATCH);
    EXPECT_TRUE(says(last_failure().message, {"4096", "8192"}));
  });
}

TEST(RegistrationFailures, ABufferAcrossTheBorderOfARegionIsRefused) {
  const World world(1);
  const ForeignFile file(kPage);
  float *values = register_floats(world.comm(0), file, 0, kPage);
  EXPECT_EQ(sar_all_reduce(world.comm(0), values + 1000, values + 1000, 25, SAR_FLOAT32, SAR_SUM,
                           SAR_AUTO, kPatience),
            SAR_INVALID_ARGUMENT);
  EXPECT_TRUE(says(last_failure().message, {"crosses the border of the registered memory"}));
}

TEST(Totals, PiecesOfDifferentCallsAreAMismatchAtTheFirst) {
  const World world(2);
  world.each_rank([&](uint32_t rank) {
    auto *values = reinterpret_cast<int64_t *>(world.arena(rank));
    values[0] = 7;
    ASSERT_EQ(sar_comm_expect_total(world.comm(rank), 100 + rank), SAR_OK);
    EXPECT_EQ(sar_all_reduce(world.comm(rank), values, values, 1, SAR_INT64, SAR_SUM, SAR_AUTO,
                             kPatience),
              SAR_MISMATCH);
    EXPECT_TRUE(says(last_failure().message, {"count 100", "count 101"}));
    EXPECT_EQ(values[0], 7);
  });
}

TEST(Totals, ATotalHoldsForOneCollective) {
  const World world(2);
  world.each_rank([&](uint32_t rank) {
    ASSERT_EQ(sar_comm_expect_total(world.comm(rank), 100), SAR_OK);
    ASSERT_EQ(sar_barrier(world.comm(rank), kPatience), SAR_OK);
    if (rank == 0) {
      // Refused here, so it is not the next collective's either.
      ASSERT_EQ(sar_comm_expect_total(world.comm(rank), 99), SAR_OK);
      ASSERT_EQ(sar_broadcast(world.comm(rank), nullptr, nullptr, 0, SAR_INT64, 5, kPatience),
                SAR_INVALID_ARGUMENT);
    }
    EXPECT_EQ(sar_barrier(world.comm(rank), kPatience), SAR_OK) << sar_last_error();
  });
}

// members[r] is the old rank of rank r.
class Renumbering : public ::testing::TestWithParam<std::vector<uint32_t>> {};
INSTANTIATE_TEST_SUITE_P(Orders, Renumbering,
                         ::testing::Values(std::vector<uint32_t>{1, 0},
                                           std::vector<uint32_t>{2, 0, 1},
                                           std::vector<uint32_t>{3, 1, 0, 2},
                                           std::vector<uint32_t>{0, 1, 2, 3}));

TEST_P(Renumbering, CollectivesFollowTheNewOrder) {
  const std::vector<uint32_t> &members = GetParam();
  const auto ranks = static_cast<uint32_t>(members.size());
  const World world(ranks);
  for (int round = 0; round < 3; round++) {
    world.each_rank([&](uint32_t member) {
      sar_comm *comm = world.comm(member);
      ASSERT_EQ(sar_comm_detach(comm), SAR_OK);
    });
    world.each_rank(
        [&](uint32_t member) { ASSERT_EQ(sar_comm_attach(world.comm(member)), SAR_OK); });
    world.each_rank([&](uint32_t member) {
      sar_comm *comm = world.comm(member);
      ASSERT_EQ(sar_comm_renumber(comm, members.data()), SAR_OK) << sar_last_error();
      const auto rank = static_cast<uint32_t>(std::find(members.begin(), members.end(), member) -
                                              members.begin());
      auto *values = reinterpret_cast<int32_t *>(world.arena(member));
      values[0] = static_cast<int32_t>(rank);
      ASSERT_EQ(sar_all_gather(comm, values, values + 16, 1, SAR_INT32, kPatience), SAR_OK);
      for (uint32_t i = 0; i < ranks; i++) {
        ASSERT_EQ(values[16 + i], static_cast<int32_t>(i));
      }
      // Floating-point sums show the order: rank 0 has the large one and rank 1 cancels it.
      auto *sums = reinterpret_cast<float *>(world.arena(member)) + 64;
      for (const sar_schedule schedule : {SAR_ONE_SHOT, SAR_TWO_SHOT_READ, SAR_STAGED_WRITE,
                                          SAR_DIRECT_WRITE, SAR_LOAD_REDUCE_STORE}) {
        for (int i = 0; i < 2000; i++) {
          sums[i] = rank == 0 ? 1e20f : (rank == 1 ? -1e20f : 1.0f);
        }
        ASSERT_EQ(sar_all_reduce(comm, sums, sums, 2000, SAR_FLOAT32, SAR_SUM, schedule, kPatience),
                  SAR_OK);
        for (int i = 0; i < 2000; i++) {
          ASSERT_EQ(sums[i], static_cast<float>(ranks - 2));
        }
      }
      values[0] = static_cast<int32_t>(100 + rank);
      ASSERT_EQ(sar_broadcast(comm, values, values + 1, 1, SAR_INT32, 1, kPatience), SAR_OK);
      ASSERT_EQ(values[1], 101);
      ASSERT_EQ(sar_barrier(comm, kPatience), SAR_OK);
    });
  }
}

TEST(RenumberingRules, OnlyPermutationsAreTaken) {
  const World world(2);
  const uint32_t twice[] = {1, 1};
  const uint32_t beyond[] = {0, 2};
  EXPECT_EQ(sar_comm_renumber(world.comm(0), twice), SAR_INVALID_ARGUMENT);
  EXPECT_EQ(sar_comm_renumber(world.comm(0), beyond), SAR_INVALID_ARGUMENT);
  EXPECT_TRUE(says(last_failure().message, {"no permutation", "entry 1 is 2"}));
}

TEST(RenumberingRules, RegisteredMemoryKeepsItsOwner) {
  const World world(2);
  world.each_rank([&](uint32_t member) {
    sar_comm *comm = world.comm(member);
    const ForeignFile file(kPage, member);
    float *values = register_floats(comm, file, 0, kPage);
    const uint32_t swapped[] = {1, 0};
    ASSERT_EQ(sar_comm_renumber(comm, swapped), SAR_OK);
    values[0] = member == 1 ? 10.0f : 1.0f;
    ASSERT_EQ(sar_all_reduce(comm, values, values, 1, SAR_FLOAT32, SAR_SUM, SAR_LOAD_REDUCE_STORE,
                             kPatience),
              SAR_OK);
    EXPECT_EQ(values[0], 11.0f);
    ASSERT_EQ(sar_deregister(comm, values, kPatience), SAR_OK);
    EXPECT_EQ(sar_comm_sequence(comm), 3u);
  });
}

}  // namespace
}  // namespace sar::testing
