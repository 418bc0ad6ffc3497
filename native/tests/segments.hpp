// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// For tests that look into, or tamper with, what ranks of the host backend share.
#ifndef SPARK_ALLREDUCE_TESTS_SEGMENTS_HPP
#define SPARK_ALLREDUCE_TESTS_SEGMENTS_HPP

#include <cstring>
#include <thread>

#include "layout.hpp"
#include "world.hpp"

namespace sar::testing {

inline Handle handle_of(sar_comm *comm) {
  Handle handle;
  sar_comm_handle(comm, &handle);
  return handle;
}

// Where the rank's segment is mapped.
inline char *segment_of(const World &world, uint32_t rank) {
  const Handle handle = handle_of(world.comm(rank));
  const Geometry geometry{handle.world_size, handle.staging_bytes, handle.arena_bytes};
  return reinterpret_cast<char *>(world.arena(rank)) - geometry.arena();
}

// Returns once the rank sleeps in a wait.
inline void await_sleep(const World &world, uint32_t rank) {
  const Header &header = header_of(segment_of(world, rank));
  while (header.waiting_for.load() == kNotWaiting) {
    std::this_thread::yield();
  }
}

}  // namespace sar::testing

#endif  // SPARK_ALLREDUCE_TESTS_SEGMENTS_HPP
