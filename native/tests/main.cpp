// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// After each test, whatever it was about, nothing may be left in shared memory.
#include <gtest/gtest.h>

#include "world.hpp"

namespace {

class NothingIsLeft : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo &) override {
    for (const std::string &name : sar::testing::leftover_names()) {
      ADD_FAILURE() << "left in shared memory: " << name;
    }
  }
};

}  // namespace

int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  // In front of the printer, so that a failure counts for the test that has just ended.
  auto &listeners = testing::UnitTest::GetInstance()->listeners();
  testing::TestEventListener *printer = listeners.Release(listeners.default_result_printer());
  listeners.Append(printer);
  listeners.Append(new NothingIsLeft);
  return RUN_ALL_TESTS();
}
