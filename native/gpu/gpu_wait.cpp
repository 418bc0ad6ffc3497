// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Waiting for the device, and what its kernels report. Kernels end by arrival, at their deadline,
// or because a word in host memory tells them to; whether the peers' processes still exist is for
// the host to see.
#include <sched.h>
#include <time.h>

#include "gpu_communicator.hpp"

namespace sar::gpu {
namespace {

// How long a kernel may go on after an abort before the device is taken for hung.
constexpr uint64_t kGraceNs = 10'000'000'000;
// How often a rank that waits for its device looks whether its peers still exist.
constexpr uint64_t kLookAtPeersNs = 10'000'000;
// A peer that leaves waits for its own kernels before. So what is left to do on this device needs
// none of it, and ends in this time; or else the peer has not called it.
constexpr uint64_t kLeftNs = 250'000'000;

void sleep_ns(long nanoseconds) {
  const timespec time{0, nanoseconds};
  nanosleep(&time, nullptr);
}

void pause_for(uint64_t waited_ns) {
  if (waited_ns < 100'000) {
    cpu_relax();
  } else if (waited_ns < 1'000'000) {
    sched_yield();
  } else {
    sleep_ns(20'000);
  }
}

}  // namespace

sar_status GpuCommunicator::finish(uint64_t timeout_ns, void *event) {
  const uint64_t started = now_ns();
  Watch watch;
  watch.looked = started;
  bool told = false;
  for (;;) {
    const int error = event == nullptr ? driver_.stream_query(stream_) : driver_.event_query(event);
    if (error == 0) return watch.claimed ? report_gone(watch.gone) : report();
    const uint64_t now = now_ns(), waited = now - started;
    if (error != kNotReady) {
      Failure cause = control_.failure(SAR_SYSTEM_ERROR);
      cause.facts.culprit_rank = static_cast<int32_t>(geometry_.rank);
      cause.message.append(
          "the device of rank %u failed: %s (driver error %d); restart its process", geometry_.rank,
          driver_.error_text(error), error);
      return control_.fail(cause);
    }
    look_at_peers(watch, now);
    // The kernels keep the deadline themselves; the host steps in for those that cannot run.
    if (!told && waited > timeout_ns + kGraceNs / 10) {
      Failure cause = control_.failure(SAR_TIMEOUT);
      cause.facts.waited_ns = waited;
      cause.message.append("time-out after %.3f s: the kernels of rank %u have not ended",
                           static_cast<double>(waited) * 1e-9, geometry_.rank);
      control_.fail(cause);
      watch.claimed = false;
      told = true;
    }
    if (waited > timeout_ns + kGraceNs) {
      return refuse(SAR_SYSTEM_ERROR, "the device of rank %u hangs; restart its process",
                    geometry_.rank);
    }
    pause_for(waited);
  }
}

void GpuCommunicator::drain() {
  // A stream of the caller's may hold work of others, which takes as long as it takes.
  constexpr uint64_t for_ever = uint64_t{1} << 62;
  // The caller has a failure to tell already, or none.
  Failure last(static_cast<sar_status>(last_facts().status));
  last.facts = last_facts();
  last.message.append("%s", last_message());
  if (ready_ && use_device() == 0) finish(for_ever);
  if (stream_ != nullptr) driver_.stream_synchronize(stream_);
  remember(last);
}

// Tells the kernels to stop if they wait for ranks that cannot come. Those that have all they need
// end as they would have.
void GpuCommunicator::look_at_peers(Watch &watch, uint64_t now) {
  if (now - watch.looked < kLookAtPeersNs) return;
  watch.looked = now;
  if (watch.stopping_since != 0) {
    if (watch.claimed && now - watch.stopping_since > kGraceNs) {
      fail_gone(watch.gone, nullptr);
      watch.claimed = false;
    }
    return;
  }
  watch.gone = control_.gone();
  if (watch.left_since == 0 && watch.gone.left != 0) watch.left_since = now;
  const bool needed = watch.left_since != 0 && now - watch.left_since > kLeftNs;
  if (watch.gone.dead == 0 && !needed) return;
  watch.stopping_since = now;
  watch.claimed = control_.claim_abort();
}

void GpuCommunicator::name_call(const Outcome &outcome, Failure &cause, Message &where) const {
  cause.facts.step = outcome.step;
  cause.facts.waited_ns =
      driver_.vendor == Vendor::kAmd ? outcome.waited_ticks * 10 : outcome.waited_ticks;
  if (cause.facts.collective != SAR_COLLECTIVE_NONE) return;
  cause.facts.collective = outcome.my_kind & 0xf;
  where.append(" (enqueued or replayed; the last call was number %llu)",
               static_cast<unsigned long long>(cause.facts.sequence));
  cause.facts.sequence = 0;
}

sar_status GpuCommunicator::fail_gone(const sar::Communicator::Gone &gone, const Outcome *outcome) {
  Failure cause = control_.failure(SAR_PEER_LOST);
  cause.facts.step = 0;
  cause.facts.missing_ranks = gone.dead != 0 ? gone.dead : gone.left;
  Message where;
  if (outcome != nullptr) name_call(*outcome, cause, where);
  control_.name_gone(gone, where.text(), cause);
  return control_.fail(cause);
}

sar_status GpuCommunicator::report_gone(const sar::Communicator::Gone &gone) {
  const Outcome &outcome = control_of(geometry_.rank).outcome;
  if (__atomic_load_n(&outcome.state, __ATOMIC_ACQUIRE) == 0) {
    fail_gone(gone, nullptr);  // for the next call: these kernels had all they needed
    return SAR_OK;
  }
  return outcome.fault == kMismatch ? report() : fail_gone(gone, &outcome);
}

sar_status GpuCommunicator::report() {
  const Outcome &outcome = control_of(geometry_.rank).outcome;
  if (__atomic_load_n(&outcome.state, __ATOMIC_ACQUIRE) == 0) {
    // An abort that came after the kernels' last look does not undo what they did.
    return SAR_OK;
  }
  if (outcome.fault == kAbortSeen) {
    // A host wrote the cause already, or the host of the kernel that gave up is about to.
    for (const uint64_t started = now_ns(); now_ns() - started < kGraceNs; sleep_ns(20'000)) {
      if (control_.state() == SAR_STATE_ABORTED) return control_.check_open(SAR_COLLECTIVE_NONE);
      if (now_ns() - started < kLookAtPeersNs) continue;
      if (const auto gone = control_.gone(); gone.dead != 0) return fail_gone(gone, &outcome);
    }
  }
  if (outcome.fault != kMismatch) {
    if (const auto gone = control_.gone(); gone.dead != 0) return fail_gone(gone, &outcome);
  }
  const uint32_t missing = outcome.missing & ((1u << geometry_.world) - 1);
  Failure cause = control_.failure(outcome.fault == kMismatch   ? SAR_MISMATCH
                                   : outcome.fault == kDeadline ? SAR_TIMEOUT
                                                                : SAR_PEER_LOST);
  Message where;
  name_call(outcome, cause, where);
  cause.facts.missing_ranks = missing;
  if (__builtin_popcount(missing) == 1) cause.facts.culprit_rank = __builtin_ctz(missing);
  if (outcome.fault == kMismatch) {
    if (outcome.peer < geometry_.world) {
      cause.facts.culprit_rank = static_cast<int32_t>(outcome.peer);
    }
    cause.message.append(
        "the ranks run different collectives on the device: rank %u has kind %#x, count %llu, rank "
        "%u kind %#x, count %llu, position %u; nothing was written; replay the same graphs in the "
        "same order on all ranks",
        geometry_.rank, outcome.my_kind, static_cast<unsigned long long>(outcome.my_count),
        outcome.peer, outcome.peer_kind, static_cast<unsigned long long>(outcome.peer_count),
        outcome.peer_call);
    return control_.fail(cause);
  }
  cause.message.append("time-out after %.3f s on the device in %s",
                       static_cast<double>(cause.facts.waited_ns) * 1e-9,
                       collective_name(cause.facts.collective));
  if (cause.facts.sequence != 0) {
    cause.message.append(" number %llu", static_cast<unsigned long long>(cause.facts.sequence));
  }
  cause.message.append("%s", where.text())
      .append(": rank %u still waits for ", geometry_.rank)
      .append_ranks(missing)
      .append(" (wait %u of the collective)", outcome.step);
  control_.name_states(missing, cause.message);
  cause.message.append("; look at what those tasks do, or allow more time");
  bool together = false;
  for (uint32_t r = 0; r < geometry_.world; ++r) {
    together |= (missing >> r & 1) != 0 && is_same_process(r);
  }
  // Launches of different streams in one hardware queue start one after the other.
  if (together) {
    cause.message.append(
        "; ranks of one process need a hardware queue each: set %s before it starts",
        driver_.vendor == Vendor::kNvidia ? "CUDA_DEVICE_MAX_CONNECTIONS=32"
                                          : "GPU_MAX_HW_QUEUES to more than the ranks");
  }
  return control_.fail(cause);
}

}  // namespace sar::gpu
