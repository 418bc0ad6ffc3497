// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// One eager collective: the hosts arrive and compare their calls, plan the same launches, and run
// them.
#include "../common/numerics.hpp"
#include "gpu_communicator.hpp"

namespace sar::gpu {
namespace {

constexpr uint64_t kLargestBuffer = uint64_t{1} << 56;
// How many elements the input and the output of rank have.
struct Extent {
  uint64_t input, output;
};
Extent extent_of(const Request &request, uint32_t world) {
  return {
      request.collective == SAR_COLLECTIVE_REDUCE_SCATTER ? request.count * world : request.count,
      request.collective == SAR_COLLECTIVE_ALL_GATHER ? request.count * world : request.count};
}

bool overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes) {
  return a_bytes != 0 && b_bytes != 0 && a < b + b_bytes && b < a + a_bytes;
}

uint64_t address(const void *pointer) { return reinterpret_cast<uint64_t>(pointer); }

}  // namespace

Call GpuCommunicator::call_of(const Request &request, uint64_t timeout_ns) const {
  Call call;
  call.collective = request.collective;
  call.type = request.type;
  call.op = request.op;
  call.schedule = request.schedule;
  call.root = request.root;
  call.count = request.count;
  call.timeout_ticks = driver_.ticks_of(timeout_ns);
  return call;
}

sar_status GpuCommunicator::check(const Request &request) const {
  const char *name = collective_name(request.collective);
  if (request.collective == SAR_COLLECTIVE_BARRIER) return SAR_OK;
  const uint64_t size = element_bytes(request.type);
  const uint32_t world = geometry_.world;
  if (size == 0) return refuse(SAR_INVALID_ARGUMENT, "%s: %d is no data type", name, request.type);
  if (static_cast<uint32_t>(request.op) >= kReduceOps) {
    return refuse(SAR_INVALID_ARGUMENT, "%s: %d is no reduce operation", name, request.op);
  }
  if (static_cast<uint32_t>(request.schedule) > SAR_LOW_LATENCY) {
    return refuse(SAR_INVALID_ARGUMENT, "%s: %d is no schedule", name, request.schedule);
  }
  if (request.root >= world) {
    return refuse(SAR_INVALID_ARGUMENT, "%s: root %u, but there are ranks 0 to %u only", name,
                  request.root, world - 1);
  }
  if (request.count > kLargestBuffer / (size * world)) {
    return refuse(SAR_INVALID_ARGUMENT, "%s: %llu elements are more than memory can hold", name,
                  static_cast<unsigned long long>(request.count));
  }
  if (request.schedule == SAR_LOW_LATENCY && !fits_low_latency(geometry_, call_of(request, 0))) {
    return refuse(SAR_UNSUPPORTED,
                  "%s: %llu elements are too many for the low-latency schedule; use SAR_AUTO", name,
                  static_cast<unsigned long long>(request.count));
  }
  if (request.count == 0) return SAR_OK;
  const Extent extent = extent_of(request, world);
  const bool reads =
      request.collective != SAR_COLLECTIVE_BROADCAST || request.root == geometry_.rank;
  if ((reads && request.in == nullptr) || request.out == nullptr) {
    return refuse(SAR_INVALID_ARGUMENT, "%s: the %s is NULL, but has elements", name,
                  request.out == nullptr ? "output" : "input");
  }
  if ((reads && address(request.in) % size != 0) || address(request.out) % size != 0) {
    return refuse(SAR_INVALID_ARGUMENT, "%s: a buffer is not aligned to %s", name,
                  type_name(request.type));
  }
  const uint64_t own = geometry_.rank * request.count * size;
  uint64_t same_in = address(request.in), same_out = address(request.out);
  if (request.collective == SAR_COLLECTIVE_REDUCE_SCATTER) same_in += own;
  if (request.collective == SAR_COLLECTIVE_ALL_GATHER) same_out += own;
  if (reads && same_in != same_out &&
      overlap(address(request.in), extent.input * size, address(request.out),
              extent.output * size)) {
    return refuse(SAR_INVALID_ARGUMENT, "%s: input and output overlap, but are not in place", name);
  }
  return SAR_OK;
}

sar_status GpuCommunicator::run(const Request &request, int64_t timeout_ns) {
  if (timeout_ns <= 0) {
    return refuse(SAR_INVALID_ARGUMENT, "%s: the time-out must be above zero, but is %lld ns",
                  collective_name(request.collective), static_cast<long long>(timeout_ns));
  }
  // They hold for this collective, whatever becomes of it.
  const bool enqueue = enqueue_next_;
  enqueue_next_ = false;
  const uint64_t whole = control_.take_total(request.count);
  if (!capturing_) {
    const sar_status status = check_ready(request.collective, collective_name(request.collective));
    if (status != SAR_OK) return status;
  }
  if (const sar_status status = check(request); status != SAR_OK) return status;
  if (const int error = use_device(); error != 0) return fail_call(error, "use the device");
  if (capturing_) return record(request);
  control_.begin(request.collective, timeout_ns);
  const sar_status status = take_part(request, whole, timeout_ns, enqueue);
  control_.end(status, request.count * element_bytes(request.type));
  return status;
}

// All fields of all ranks must be equal; the first difference is reported.
sar_status GpuCommunicator::compare(const CallFields (&all)[SAR_MAX_RANKS], const char *what) {
  const struct {
    const char *name;
    uint32_t CallFields::*field;
    const char *(*text)(uint32_t);
  } fields[] = {{"collective", &CallFields::collective, collective_name},
                {"data type", &CallFields::type, type_name},
                {"reduce op", &CallFields::op, op_name},
                {"schedule", &CallFields::schedule, schedule_name},
                {"root", &CallFields::root, nullptr}};
  for (uint32_t r = 1; r < geometry_.world; ++r) {
    Message difference;
    for (const auto &f : fields) {
      const uint32_t first = all[0].*f.field, second = all[r].*f.field;
      if (first == second) continue;
      if (f.text != nullptr) {
        difference.append("rank 0 has %s %s, rank %u %s", f.name, f.text(first), r, f.text(second));
      } else {
        difference.append("rank 0 has %s %u, rank %u %u", f.name, first, r, second);
      }
      break;
    }
    if (difference.text()[0] == 0 && all[r].count != all[0].count) {
      difference.append("rank 0 has count %llu, rank %u %llu",
                        static_cast<unsigned long long>(all[0].count), r,
                        static_cast<unsigned long long>(all[r].count));
    }
    if (difference.text()[0] == 0 && all[r].total != all[0].total) {
      difference.append("rank 0 has total count %llu, rank %u %llu",
                        static_cast<unsigned long long>(all[0].total), r,
                        static_cast<unsigned long long>(all[r].total));
    }
    // Last: another count is why another schedule is chosen.
    if (difference.text()[0] == 0 && all[r].chosen != all[0].chosen) {
      difference.append("rank 0 has schedule chosen by auto %s, rank %u %s",
                        schedule_name(all[0].chosen), r, schedule_name(all[r].chosen));
    }
    if (difference.text()[0] == 0) continue;
    Failure cause = control_.failure(SAR_MISMATCH);
    cause.message.append(
        "the ranks called different collectives: in %s, call number %llu, %s; nothing was written; "
        "all ranks must make the same calls in the same order",
        what, static_cast<unsigned long long>(control_.sequence()), difference.text());
    return control_.fail(cause);
  }
  return SAR_OK;
}

sar_status GpuCommunicator::load_kernel(const Call &call, bool low_latency, void **function) {
  const int error = kernels_.find(call.type, geometry_.world, low_latency, function);
  return error == 0 ? SAR_OK : driver_failure(error, "load the kernels for this device");
}

sar_status GpuCommunicator::preload(const Request &request, int64_t timeout_ns) {
  const Call call = call_of(request, 0);
  // Enqueued kernels may wait for those of another rank of this process, which could not launch
  // them while this thread loads a module and waits for the kernels.
  if (!kernels_.has(call.type)) {
    const sar_status status = finish(static_cast<uint64_t>(timeout_ns));
    if (status != SAR_OK) return status;
  }
  void *function = nullptr;
  sar_status status = load_kernel(call, false, &function);
  return status == SAR_OK ? load_kernel(call, true, &function) : status;
}

sar_status GpuCommunicator::take_part(const Request &request, uint64_t whole, int64_t timeout_ns,
                                      bool enqueue) {
  const uint64_t size =
      request.collective == SAR_COLLECTIVE_BARRIER ? 1 : element_bytes(request.type);
  const Extent extent = extent_of(request, geometry_.world);
  // Who reads no input announces its output, which has been looked at.
  const bool reads =
      request.collective != SAR_COLLECTIVE_BROADCAST || request.root == geometry_.rank;
  const Place in = request.count == 0
                       ? Place{kArena, 0}
                       : find_place(address(reads ? request.in : request.out), extent.input * size);
  const Place out = request.count == 0 ? Place{kArena, 0}
                                       : find_place(address(request.out), extent.output * size);
  const bool in_place = request.count != 0 && request.collective == SAR_COLLECTIVE_ALL_REDUCE &&
                        request.in == request.out;
  const CallFields mine{request.count,
                        whole,
                        in.offset,
                        out.offset,
                        static_cast<uint32_t>(request.collective),
                        static_cast<uint32_t>(request.type),
                        static_cast<uint32_t>(request.op),
                        static_cast<uint32_t>(request.schedule),
                        request.root,
                        in.allocation | out.allocation << 8 | (in_place ? 1u << 16 : 0u),
                        control_.epoch(),
                        static_cast<uint32_t>(wanted_schedule(geometry_, call_of(request, 0)))};
  // Before the arrival: behind it a peer's kernel may run already and wait for this rank, and
  // loading a module waits for the kernels of the process.
  if (const sar_status status = preload(request, timeout_ns); status != SAR_OK) {
    return control_.state() == SAR_STATE_ABORTED ? status : fail_with_last(status);
  }
  CallFields all[SAR_MAX_RANKS];
  const uint64_t started = now_ns();
  if (const sar_status status = control_.arrive(mine, all); status != SAR_OK) return status;
  if (const sar_status status = compare(all, collective_name(request.collective));
      status != SAR_OK) {
    return status;
  }
  Buffers buffers;
  buffers.input = address(request.in);
  buffers.output = address(request.out);
  const auto own = [&](const Place &place) {
    return place.allocation == kMostAllocations
               ? 0
               : mapped_[geometry_.rank][place.allocation] + place.offset;
  };
  buffers.rank[geometry_.rank] = {own(in), own(out), in_place};
  for (uint32_t r = 0; r < geometry_.world; ++r) {
    if (r == geometry_.rank) continue;
    RankBuffers &theirs = buffers.rank[r];
    theirs.in_place = (all[r].flags >> 16 & 1) != 0;
    if (!locate(r, all[r].flags & 0xff, all[r].input, extent.input * size, size, &theirs.input) ||
        !locate(r, all[r].flags >> 8 & 0xff, all[r].output, extent.output * size, size,
                &theirs.output)) {
      Failure cause = control_.failure(SAR_SYSTEM_ERROR);
      cause.facts.culprit_rank = static_cast<int32_t>(r);
      cause.message.append("rank %u announced a buffer outside of its memory; nothing was written",
                           r);
      return control_.fail(cause);
    }
  }
  const uint64_t spent = now_ns() - started;
  const auto total = static_cast<uint64_t>(timeout_ns);
  const uint64_t left = spent < total ? total - spent : 1;
  const Call call = call_of(request, left);
  const Choice choice = choose(geometry_, call, buffers);
  if (choice.fell_back) control_.statistics().unregistered++;
  if (const sar_status status = run_launches(call, buffers, choice.schedule); status != SAR_OK) {
    return fail_with_last(status);  // the peers' kernels would wait for this rank's
  }
  return enqueue ? SAR_OK : finish(left);
}

sar_status GpuCommunicator::launch(const Planned &planned, void *function) {
  Launch argument = planned.launch;
  const int error =
      driver_.launch_next(function, planned.launch.blocks, planned.threads, stream_, &argument);
  return error == 0 ? SAR_OK : driver_failure(error, "launch a kernel");
}

sar_status GpuCommunicator::run_launches(const Call &call, const Buffers &buffers,
                                         sar_schedule schedule) {
  void *function = nullptr;
  if (const sar_status status = load_kernel(call, schedule == SAR_LOW_LATENCY, &function);
      status != SAR_OK) {
    return status;
  }
  uint64_t done = 0;
  do {
    const Planned planned = plan(geometry_, call, buffers, schedule, false, done);
    if (const sar_status status = launch(planned, function); status != SAR_OK) return status;
    done = planned.done;
  } while (done < call.count);
  return SAR_OK;
}

}  // namespace sar::gpu
