// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// no_driver_test.cpp: the GPU library, as it is in the jar, on a machine without a GPU driver: a
// status and a message that says what to do, and the host backend goes on working beside it.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "spark_allreduce.h"

namespace {

// The libraries have the same functions, so each is opened for itself, as a Java program does.
class Library {
 public:
  explicit Library(const char *path) : handle_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) ADD_FAILURE() << dlerror();
  }
  template <class Function>
  Function *find(const char *name) const {
    auto *function = reinterpret_cast<Function *>(dlsym(handle_, name));
    EXPECT_NE(function, nullptr) << name;
    return function;
  }

 private:
  void *handle_;
};

class NoDriver : public testing::Test {
 protected:
  void SetUp() override {
    uint32_t count = 0;
    status_ = gpu_.find<decltype(sar_gpu_device_count)>("sar_gpu_device_count")(&count);
    if (status_ == SAR_OK) GTEST_SKIP() << "this machine has a GPU driver";
  }
  std::string message() const { return gpu_.find<decltype(sar_last_error)>("sar_last_error")(); }

  Library gpu_{SAR_GPU_LIBRARY};
  sar_status status_ = SAR_OK;
};

TEST_F(NoDriver, CountingDevicesSaysWhatWasLookedFor) {
  EXPECT_EQ(status_, SAR_UNSUPPORTED);
  // Or, where a driver is installed but has no device, that it does not start.
  const bool named = message().find("libcuda.so.1") != std::string::npos ||
                     message().find("libamdhip64.so") != std::string::npos;
  EXPECT_TRUE(named) << message();
}

sar_options options_of_one_rank() {
  sar_options options{};
  options.struct_bytes = sizeof options;
  options.world_size = 1;
  options.arena_bytes = options.staging_bytes = SAR_MIN_STAGING_BYTES;
  return options;
}

TEST_F(NoDriver, ACommunicatorIsRefusedAndTheHostBackendOfTheSameProcessWorks) {
  const sar_options options = options_of_one_rank();
  sar_comm *comm = nullptr;
  EXPECT_EQ(gpu_.find<decltype(sar_comm_create)>("sar_comm_create")(&options, &comm),
            SAR_UNSUPPORTED);
  EXPECT_EQ(comm, nullptr);

  const Library host(SAR_HOST_LIBRARY);
  EXPECT_EQ(host.find<decltype(sar_abi_version)>("sar_abi_version")(),
            gpu_.find<decltype(sar_abi_version)>("sar_abi_version")());
  ASSERT_EQ(host.find<decltype(sar_comm_create)>("sar_comm_create")(&options, &comm), SAR_OK);
  char handle[SAR_HANDLE_BYTES];
  ASSERT_EQ(host.find<decltype(sar_comm_handle)>("sar_comm_handle")(comm, handle), SAR_OK);
  constexpr int64_t patience = 60'000'000'000;
  ASSERT_EQ(host.find<decltype(sar_comm_connect)>("sar_comm_connect")(comm, handle, patience),
            SAR_OK);
  const float in = 2.5f;
  float out = 0;
  EXPECT_EQ(host.find<decltype(sar_all_reduce)>("sar_all_reduce")(comm, &in, &out, 1, SAR_FLOAT32,
                                                                  SAR_SUM, SAR_AUTO, patience),
            SAR_OK);
  EXPECT_EQ(out, 2.5f);
  host.find<decltype(sar_comm_destroy)>("sar_comm_destroy")(comm);
}

}  // namespace
