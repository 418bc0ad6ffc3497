// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Graph mode. Launches that are captured do not know the peers' buffers yet, so each has a row in a
// table of addresses in device memory. The end of the capture exchanges the buffers on the host and
// fills the table, before the first replay.
#include <stdlib.h>
#include <string.h>

#include "../common/numerics.hpp"
#include "gpu_communicator.hpp"

namespace sar::gpu {
namespace {

// Stands for a peer's buffer that is registered but not known yet.
constexpr uint64_t kUnknown = 64;

Buffers unknown_buffers(uint32_t rank, uint64_t input, uint64_t output, bool in_place) {
  Buffers buffers;
  buffers.input = input;
  buffers.output = output;
  for (RankBuffers &b : buffers.rank) b = {kUnknown, kUnknown, false};
  buffers.rank[rank] = {input, output, in_place};
  return buffers;
}

}  // namespace

sar_status GpuCommunicator::capture_begin(int64_t replay_timeout_ns) {
  if (replay_timeout_ns <= 0) {
    return refuse(SAR_INVALID_ARGUMENT, "the replays' time-out must be above zero");
  }
  if (const sar_status status = check_ready(SAR_COLLECTIVE_NONE, "a capture"); status != SAR_OK) {
    return status;
  }
  if (const int error = use_device(); error != 0) return fail_call(error, "use the device");
  if (recorded_ == nullptr) {
    recorded_ = static_cast<Recorded *>(calloc(kMostCaptured, sizeof(Recorded)));
    if (recorded_ == nullptr) return refuse(SAR_OUT_OF_MEMORY, "out of heap memory");
  }
  if (const int error = driver_.memory_allocate(&table_, kMostCaptured * sizeof(Addresses));
      error != 0) {
    return fail_call(error, "allocate the table of addresses");
  }
  if (const int error = driver_.capture_begin(stream_, kCaptureRelaxed); error != 0) {
    driver_.memory_free(table_);
    table_ = 0;
    return fail_call(error, "begin a capture");
  }
  replay_timeout_ = static_cast<uint64_t>(replay_timeout_ns);
  recorded_count_ = launches_ = 0;
  capturing_ = true;
  return SAR_OK;
}

sar_status GpuCommunicator::record(const Request &request) {
  if (recorded_count_ == kMostCaptured) {
    return refuse(SAR_UNSUPPORTED, "a capture holds at most %u collectives", kMostCaptured);
  }
  Recorded &recorded = recorded_[recorded_count_];
  recorded.call = call_of(request, replay_timeout_);
  // Captures are numbered alike on all ranks: a replay of another graph is a mismatch.
  recorded.call.number = captures_ << 16 | (recorded_count_ + 1);
  recorded.input = reinterpret_cast<uint64_t>(request.in);
  recorded.output = reinterpret_cast<uint64_t>(request.out);
  recorded.first_launch = launches_;
  const bool in_place =
      request.collective == SAR_COLLECTIVE_ALL_REDUCE && request.in == request.out;
  const Buffers buffers =
      unknown_buffers(geometry_.rank, recorded.input, recorded.output, in_place);
  recorded.schedule = choose(geometry_, recorded.call, buffers).schedule;
  void *function = nullptr;
  if (const sar_status status =
          load_kernel(recorded.call, recorded.schedule == SAR_LOW_LATENCY, &function);
      status != SAR_OK) {
    return fail_with_last(status);
  }
  uint64_t done = 0;
  do {
    if (launches_ == kMostCaptured) {
      return refuse(SAR_UNSUPPORTED, "a capture holds at most %u launches: allow more staging",
                    kMostCaptured);
    }
    Planned planned = plan(geometry_, recorded.call, buffers, recorded.schedule, true, done);
    planned.launch.patched = table_ + launches_ * sizeof(Addresses);
    if (const sar_status status = launch(planned, function); status != SAR_OK) {
      return fail_with_last(status);
    }
    ++launches_;
    done = planned.done;
  } while (done < request.count);
  ++recorded_count_;
  return SAR_OK;
}

sar_status GpuCommunicator::exchange_captured() {
  Control &mine = control_of(geometry_.rank);
  for (uint32_t i = 0; i < recorded_count_; ++i) {
    Recorded &r = recorded_[i];
    r.input_place = r.output_place = Place{kArena, 0};
    const uint64_t size = element_bytes(r.call.type);
    CapturedCall &c = mine.calls[i];
    c = {};
    c.count = r.call.count;
    c.kind = kind_of(r.call);
    c.chosen = wanted_schedule(geometry_, r.call);
    c.in_place = r.call.collective == SAR_COLLECTIVE_ALL_REDUCE && r.input == r.output ? 1 : 0;
    c.input_allocation = c.output_allocation = kArena;
    if (r.call.count == 0 || r.call.collective == SAR_COLLECTIVE_BARRIER) continue;
    const uint64_t wide = r.call.count * size * geometry_.world, narrow = r.call.count * size;
    const auto place = [&](uint64_t address, uint64_t bytes, Place &p, uint16_t &allocation,
                           uint64_t &offset) {
      p = find_place(address, bytes);
      if (p.allocation == kMostAllocations) {
        uint32_t added = 0;
        if (const sar_status status = add_allocation(address, &added); status != SAR_OK) {
          return status;
        }
        p = find_place(address, bytes);
        if (p.allocation == kMostAllocations) {
          return refuse(SAR_INVALID_ARGUMENT, "a captured buffer is longer than its allocation");
        }
      }
      allocation = static_cast<uint16_t>(p.allocation);
      offset = p.offset;
      return SAR_OK;
    };
    const bool reads =
        r.call.collective != SAR_COLLECTIVE_BROADCAST || r.call.root == geometry_.rank;
    sar_status status = SAR_OK;
    if (reads) {
      status = place(r.input, r.call.collective == SAR_COLLECTIVE_REDUCE_SCATTER ? wide : narrow,
                     r.input_place, c.input_allocation, c.input_offset);
    }
    if (status == SAR_OK) {
      status = place(r.output, r.call.collective == SAR_COLLECTIVE_ALL_GATHER ? wide : narrow,
                     r.output_place, c.output_allocation, c.output_offset);
    }
    if (status != SAR_OK) return fail_with_last(status);
  }
  mine.captured = recorded_count_;
  const CallFields fields{
      recorded_count_, recorded_count_, 0, 0, SAR_COLLECTIVE_BARRIER, 0, 0, kCaptureMarker, 0, 0,
      control_.epoch()};
  CallFields all[SAR_MAX_RANKS];
  if (const sar_status status = control_.arrive(fields, all); status != SAR_OK) return status;
  if (const sar_status status = compare(all, "sar_gpu_capture_end"); status != SAR_OK) {
    return status;
  }
  if (const sar_status status = compare_captured(); status != SAR_OK) return status;
  const sar_status status = map_new_memory();
  return status == SAR_OK ? SAR_OK : fail_with_last(status);
}

sar_status GpuCommunicator::compare_captured() {
  for (uint32_t r = 0; r < geometry_.world; ++r) {
    for (uint32_t i = 0; i < recorded_count_; ++i) {
      const CapturedCall &first = control_of(0).calls[i], &theirs = control_of(r).calls[i];
      if (theirs.kind == first.kind && theirs.count == first.count &&
          theirs.chosen == first.chosen) {
        continue;
      }
      Failure cause = control_.failure(SAR_MISMATCH);
      cause.facts.culprit_rank = static_cast<int32_t>(r);
      cause.message.append(
          "the ranks captured different collectives: number %u is %s of %llu elements (kind %#x, "
          "schedule %s) on rank 0, but %s of %llu (kind %#x, schedule %s) on rank %u",
          i + 1, collective_name(first.kind & 0xf), static_cast<unsigned long long>(first.count),
          first.kind, schedule_name(first.chosen), collective_name(theirs.kind & 0xf),
          static_cast<unsigned long long>(theirs.count), theirs.kind, schedule_name(theirs.chosen),
          r);
      return control_.fail(cause);
    }
  }
  return SAR_OK;
}

sar_status GpuCommunicator::fill_addresses(uint64_t table) {
  for (uint32_t i = 0; i < recorded_count_; ++i) {
    const Recorded &recorded = recorded_[i];
    Buffers buffers;
    buffers.input = recorded.input;
    buffers.output = recorded.output;
    const auto own = [&](const Place &place) {
      return mapped_[geometry_.rank][place.allocation] + place.offset;
    };
    const Call &call = recorded.call;
    const bool in_place =
        call.collective == SAR_COLLECTIVE_ALL_REDUCE && recorded.input == recorded.output;
    buffers.rank[geometry_.rank] = {own(recorded.input_place), own(recorded.output_place),
                                    in_place};
    const uint64_t size = element_bytes(call.type);
    const bool moves = call.count != 0 && call.collective != SAR_COLLECTIVE_BARRIER;
    const uint64_t narrow = moves ? call.count * size : 0, wide = narrow * geometry_.world;
    for (uint32_t r = 0; r < geometry_.world; ++r) {
      if (r == geometry_.rank) continue;
      CapturedCall c;
      memcpy(&c, &control_of(r).calls[i], sizeof c);
      __asm__ volatile("" ::: "memory");  // what is checked is what is used
      const bool reads = call.collective != SAR_COLLECTIVE_BROADCAST || call.root == r;
      RankBuffers &theirs = buffers.rank[r];
      theirs.in_place = c.in_place != 0;
      if (!locate(r, c.input_allocation, c.input_offset,
                  call.collective == SAR_COLLECTIVE_REDUCE_SCATTER ? wide
                  : reads                                          ? narrow
                                                                   : 0,
                  size, &theirs.input) ||
          !locate(r, c.output_allocation, c.output_offset,
                  call.collective == SAR_COLLECTIVE_ALL_GATHER ? wide : narrow, size,
                  &theirs.output) ||
          theirs.input == 0 || theirs.output == 0) {
        return refuse(SAR_SYSTEM_ERROR, "rank %u announced a buffer outside of its memory", r);
      }
    }
    uint64_t done = 0;
    uint32_t row = recorded.first_launch;
    do {
      const Planned planned =
          plan(geometry_, recorded.call, buffers, recorded.schedule, true, done);
      const int error = driver_.copy_in(table + row * sizeof(Addresses), &planned.launch.addresses,
                                        sizeof(Addresses));
      if (error != 0) return driver_failure(error, "fill the table of addresses");
      ++row;
      done = planned.done;
    } while (done < recorded.call.count);
  }
  return SAR_OK;
}

sar_status GpuCommunicator::capture_end(int64_t timeout_ns, sar_graph **graph) {
  if (!capturing_) return refuse(SAR_INVALID_ARGUMENT, "no capture is in progress");
  if (timeout_ns <= 0) return refuse(SAR_INVALID_ARGUMENT, "the time-out must be above zero");
  if (const int error = use_device(); error != 0) return fail_call(error, "use the device");
  auto *created = static_cast<sar_graph *>(calloc(1, sizeof(sar_graph)));
  if (created == nullptr) {
    capture_cancel();
    control_.begin(SAR_COLLECTIVE_BARRIER, timeout_ns);
    return fail_with_last(refuse(SAR_OUT_OF_MEMORY, "out of heap memory"));
  }
  capturing_ = false;
  ++captures_;
  void *captured = nullptr;
  const int error = driver_.capture_end(stream_, &captured);
  created->communicator = this;
  created->graph = captured;
  created->table = table_;
  table_ = 0;
  control_.begin(SAR_COLLECTIVE_BARRIER, timeout_ns);
  sar_status status = SAR_OK;
  if (error != 0) status = fail_with_last(driver_failure(error, "end the capture"));
  if (status == SAR_OK) status = exchange_captured();
  // The others wait for this rank: they are told what keeps it.
  if (status == SAR_OK) {
    status = fill_addresses(created->table);
    if (status != SAR_OK) status = fail_with_last(status);
  }
  if (status == SAR_OK) {
    const int e = driver_.graph_instantiate(&created->executable, created->graph, 0);
    if (e != 0) status = fail_with_last(driver_failure(e, "instantiate the graph"));
  }
  if (status == SAR_OK) {
    for (uint32_t a = kArena; a < own_allocations_; ++a) {
      bool used = false;
      for (uint32_t i = 0; i < recorded_count_; ++i) {
        used |=
            recorded_[i].input_place.allocation == a || recorded_[i].output_place.allocation == a;
      }
      if (used) created->used[created->used_count++] = allocations_[geometry_.rank][a];
    }
    // Nobody replays before all tables are filled; and the next capture may overwrite the calls.
    status = control_.step();
  }
  control_.end_uncounted();
  if (status != SAR_OK) {
    sar_gpu_graph_destroy(created);
    return status;
  }
  *graph = created;
  return SAR_OK;
}

sar_status GpuCommunicator::capture_cancel() {
  if (!capturing_) return refuse(SAR_INVALID_ARGUMENT, "no capture is in progress");
  if (const int error = use_device(); error != 0) return driver_failure(error, "use the device");
  capturing_ = false;
  ++captures_;
  void *captured = nullptr;
  const int error = driver_.capture_end(stream_, &captured);
  if (captured != nullptr) driver_.graph_destroy(captured);
  driver_.memory_free(table_);
  table_ = 0;
  return error == 0 ? SAR_OK : driver_failure(error, "end the capture");
}

sar_status GpuCommunicator::wait(int64_t timeout_ns) {
  if (const sar_status status = check_ready(SAR_COLLECTIVE_NONE, "a wait"); status != SAR_OK) {
    return status;
  }
  if (const int error = use_device(); error != 0) return fail_call(error, "use the device");
  control_.begin(SAR_COLLECTIVE_NONE, timeout_ns);
  return finish(static_cast<uint64_t>(timeout_ns));
}

}  // namespace sar::gpu

sar_status sar_gpu_replay(sar_graph *graph) {
  using namespace sar;
  if (graph == nullptr) return refuse(SAR_INVALID_ARGUMENT, "sar_gpu_replay: graph is NULL");
  gpu::GpuCommunicator &communicator = *graph->communicator;
  const gpu::Driver &driver = communicator.driver();
  const sar_status status = communicator.control().check_open(SAR_COLLECTIVE_NONE);
  if (status != SAR_OK) return status;
  if (const int error = communicator.use_device(); error != 0) {
    return communicator.fail_call(error, "use the device");
  }
  for (uint32_t i = 0; i < graph->used_count; ++i) {
    if (gpu::is_alive(driver, graph->used[i])) continue;
    return refuse(SAR_INVALID_ARGUMENT,
                  "the buffer at %#llx was freed after it was captured: keep captured buffers as "
                  "long as their graph, or capture again",
                  static_cast<unsigned long long>(graph->used[i].base));
  }
  const int error = driver.graph_launch(graph->executable, communicator.stream());
  return error == 0 ? SAR_OK : communicator.fail_call(error, "launch the graph");
}

void sar_gpu_graph_destroy(sar_graph *graph) {
  if (graph == nullptr) return;
  const sar::gpu::Driver &driver = graph->communicator->driver();
  graph->communicator->use_device();
  // A replay may still be reading the table.
  graph->communicator->drain();
  if (graph->executable != nullptr) driver.graph_exec_destroy(graph->executable);
  if (graph->graph != nullptr) driver.graph_destroy(graph->graph);
  if (graph->table != 0) driver.memory_free(graph->table);
  free(graph);
}
