// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Waiting for peers: look for some microseconds, then spin with yields, then sleep on the doorbell
// in the own segment.
//
// A sleeper says for whom it waits, and only that rank rings when it arrives, so a barrier of N
// ranks costs each at most N wake-ups and mostly one. Neither side can miss the other: the sleeper
// writes waiting_for and then looks at the arrival, the peer writes its arrival and then looks at
// waiting_for, all four sequentially consistent.
#include "communicator.hpp"

namespace sar {

namespace {

// How often a wait looks whether its peers' processes still exist, in case nobody rings.
constexpr uint64_t kLookAtProcessesNs = 10'000'000;

// How often a wait looks before it asks on which cores the others are: about a microsecond.
constexpr uint32_t kFirstLooks = 32;

// How often it looks before it yields the core: a few microseconds, which is what it costs to
// change from one process to another and back.
constexpr uint32_t kLooksPerYield = 128;

// How many waits in turn find the awaited rank on their own core before one of the two moves: about
// 0.1 ms, ten times what moving costs.
constexpr uint32_t kWaitsBeforeMove = 16;

bool has_passed(uint32_t epoch, uint32_t target) {
  return static_cast<int32_t>(epoch - target) >= 0;
}

}  // namespace

void Communicator::begin(sar_collective collective, int64_t timeout_ns, bool is_brief) {
  collective_ = collective;
  step_ = 0;
  started_ = is_brief ? kNotTimed : now_ns();
  wait_started_ = started_;
  timeout_ns_ = static_cast<uint64_t>(timeout_ns);
  if (collective != SAR_COLLECTIVE_CONNECT && collective != SAR_COLLECTIVE_NONE) {
    sequence_++;
  }
}

void Communicator::end(sar_status status, uint64_t bytes) {
  if (status == SAR_OK) {
    statistics_.collectives++;
    statistics_.bytes += bytes;
  }
  end_uncounted();
}

void Communicator::end_uncounted() {
  if (started_ != kNotTimed) {
    statistics_.total_ns += now_ns() - started_;
  }
}

sar_status Communicator::arrive(const CallFields &mine, CallFields (&all)[SAR_MAX_RANKS]) {
  constexpr auto relaxed = std::memory_order_relaxed;
  CallLine &line = signal_pad(rank_).calls[sequence_ % 2];
  line.count.store(mine.count, relaxed);
  line.total.store(mine.total, relaxed);
  line.input_offset.store(mine.input, relaxed);
  line.output_offset.store(mine.output, relaxed);
  line.collective.store(mine.collective, relaxed);
  line.type.store(static_cast<uint16_t>(mine.type), relaxed);
  line.op.store(static_cast<uint16_t>(mine.op), relaxed);
  line.schedule.store(static_cast<uint16_t>(mine.schedule), relaxed);
  line.root.store(static_cast<uint16_t>(mine.root), relaxed);
  line.chosen.store(static_cast<uint16_t>(mine.chosen), relaxed);
  line.flags.store(mine.flags, relaxed);
  line.epoch.store(mine.epoch, relaxed);
  line.sequence.store(sequence_, std::memory_order_seq_cst);
  ring_waiting();
  if (const sar_status status = wait(Target{Target::kCall, sequence_}); status != SAR_OK) {
    return status;
  }
  // Peers have read it to its end, and the next write is a step's: a fifth of a call of 8 KiB.
  prefetch_to_write(&signal_pad(rank_).step);
  for (uint32_t peer = 0; peer < world_size(); peer++) {
    // Read once: what is checked is what is used.
    const CallLine &theirs = signal_pad(peer).calls[sequence_ % 2];
    all[peer] = CallFields{theirs.count.load(relaxed),        theirs.total.load(relaxed),
                           theirs.input_offset.load(relaxed), theirs.output_offset.load(relaxed),
                           theirs.collective.load(relaxed),   theirs.type.load(relaxed),
                           theirs.op.load(relaxed),           theirs.schedule.load(relaxed),
                           theirs.root.load(relaxed),         theirs.flags.load(relaxed),
                           theirs.epoch.load(relaxed),        theirs.chosen.load(relaxed)};
  }
  return SAR_OK;
}

sar_status Communicator::step() {
  epoch_++;
  signal_pad(rank_).step.epoch.store(epoch_, std::memory_order_seq_cst);
  ring_waiting();
  return wait(Target{Target::kStep, epoch_});
}

void Communicator::ring_waiting() {
  for (uint32_t peer = 0; peer < world_size(); peer++) {
    if (header(peer).waiting_for.load(std::memory_order_seq_cst) == rank_ + 1) {
      ring(peer);
    }
  }
}

void Communicator::ring(uint32_t peer) {
  Header &theirs = header(peer);
  theirs.doorbell.fetch_add(1, std::memory_order_seq_cst);
  if (theirs.waiting_for.load(std::memory_order_seq_cst) != kNotWaiting) {
    futex_wake(theirs.doorbell);
  }
}

bool Communicator::has_arrived(const Target &target, uint32_t peer) const {
  switch (target.kind) {
    case Target::kAttach:
      return (header(rank_).attached_ranks.load(std::memory_order_seq_cst) >> peer & 1u) != 0;
    case Target::kCall:
      return signal_pad(peer).calls[target.value % 2].sequence.load(std::memory_order_seq_cst) ==
             target.value;
    case Target::kStep:
      break;
  }
  return has_passed(signal_pad(peer).step.epoch.load(std::memory_order_seq_cst),
                    static_cast<uint32_t>(target.value));
}

uint32_t Communicator::still_missing(const Target &target, uint32_t missing) const {
  for (uint32_t left = missing; left != 0; left &= left - 1) {
    const auto peer = static_cast<uint32_t>(__builtin_ctz(left));
    if (has_arrived(target, peer)) {
      missing &= ~(1u << peer);
    }
  }
  return missing;
}

sar_status Communicator::wait(const Target &target) {
  step_++;
  uint32_t missing = everybody() & ~(1u << rank_);
  // Two looks at the clock would take a fifth of the time of a small collective, so that a wait
  // that ends here is not measured.
  // With more ranks than cores, whoever is awaited may need this one.
  if (look_often(target, oversubscribed_ ? 1 : kFirstLooks, missing)) {
    return SAR_OK;
  }
  wait_started_ = now_ns();
  if (started_ == kNotTimed) {
    started_ = wait_started_;
  }
  const sar_status status = wait_for(target, missing);
  if (collective_ != SAR_COLLECTIVE_CONNECT) {
    const uint64_t waited = now_ns() - wait_started_;
    statistics_.wait_ns += waited;
    statistics_.peer_wait_ns[awaited_] += waited;
  }
  return status;
}

// True if all have arrived.
bool Communicator::look_often(const Target &target, uint32_t looks, uint32_t &missing) const {
  for (uint32_t i = 0; i < looks; i++) {
    missing = still_missing(target, missing);
    if (missing == 0) {
      return true;
    }
    cpu_relax();
  }
  return false;
}

bool Communicator::holds_up(uint32_t missing) {
  constexpr auto relaxed = std::memory_order_relaxed;
  const uint32_t core = current_core() + 1;
  if (core != published_core_) {  // peers read that line at every arrival: leave it alone
    published_core_ = core;
    header(rank_).core.store(core, relaxed);
  }
  for (uint32_t left = missing; left != 0; left &= left - 1) {
    if (header(static_cast<uint32_t>(__builtin_ctz(left))).core.load(relaxed) == core) {
      return true;
    }
  }
  return false;
}

// The scheduler leaves two ranks on one core for tens of milliseconds while another is idle, since
// both were running a moment ago.
void Communicator::part_ranks_on_one_core() {
  if (oversubscribed_ || ++waits_on_one_core_ < kWaitsBeforeMove) {
    return;
  }
  waits_on_one_core_ = 0;
  uint32_t taken[SAR_MAX_RANKS];
  bool lower_is_here = false;  // of the ranks on a core the lowest stays
  for (uint32_t rank = 0; rank < world_size(); rank++) {
    const uint32_t core = header(rank).core.load(std::memory_order_relaxed);
    taken[rank] = core - 1;
    lower_is_here = lower_is_here || (rank < rank_ && core == published_core_);
  }
  // As many as there are cores, and two of them here: then some core of this thread is idle. Beside
  // a thread that computes on it a rank would wait for milliseconds.
  if (lower_is_here && running_threads() <= available_cores()) {
    move_to_core_outside({taken, world_size()});
  }
}

// True if all have arrived.
bool Communicator::spin(const Target &target, uint32_t &missing) {
  while (true) {
    awaited_ = static_cast<uint32_t>(__builtin_ctz(missing));
    if (holds_up(missing)) {
      part_ranks_on_one_core();
    } else {
      waits_on_one_core_ = 0;
      if (look_often(target, kLooksPerYield, missing)) {
        return true;
      }
    }
    yield_core();
    if (look_often(target, 1, missing)) {
      return true;
    }
    const uint64_t now = now_ns();
    if (is_aborted() || now - wait_started_ >= spin_ns_ || now - started_ >= timeout_ns_) {
      return false;
    }
  }
}

sar_status Communicator::wait_for(const Target &target, uint32_t missing) {
  if (spin(target, missing)) {
    return SAR_OK;
  }
  uint64_t looked = wait_started_;
  while (true) {
    const uint64_t now = now_ns();
    const bool look_at_processes = now - looked >= kLookAtProcessesNs;
    if (look_at_processes) {
      looked = now;
    }
    missing = still_missing(target, missing);
    if (missing == 0) {
      return SAR_OK;
    }
    if (const sar_status status = look_for_trouble(target, missing, look_at_processes);
        status != SAR_OK) {
      return status;
    }
    const uint64_t spent = now - started_;
    if (spent >= timeout_ns_) {
      return time_is_up(missing);
    }
    const uint64_t left = timeout_ns_ - spent;
    sleep(target, missing, left < kLookAtProcessesNs ? left : kLookAtProcessesNs);
  }
}

void Communicator::sleep(const Target &target, uint32_t missing, uint64_t timeout_ns) {
  const auto peer = static_cast<uint32_t>(__builtin_ctz(missing));
  awaited_ = peer;
  Header &mine = header(rank_);
  const uint32_t doorbell = mine.doorbell.load(std::memory_order_seq_cst);
  mine.waiting_for.store(peer + 1, std::memory_order_seq_cst);
  const bool gone = header(peer).presence.load(std::memory_order_seq_cst) >= kDetached;
  if (!has_arrived(target, peer) && !is_aborted() && !gone) {
    futex_wait(mine.doorbell, doorbell, timeout_ns);
  }
  mine.waiting_for.store(kNotWaiting, std::memory_order_relaxed);
}

sar_status Communicator::look_for_trouble(const Target &target, uint32_t missing,
                                          bool look_at_processes) {
  if (is_aborted()) {
    return remember_cause();
  }
  const ProcessIdentity self{handle_.pid, handle_.start_time, handle_.pid_namespace};
  uint32_t dead = 0;
  for (uint32_t left = missing; left != 0; left &= left - 1) {
    const auto peer = static_cast<uint32_t>(__builtin_ctz(left));
    // A rank that aborts before it has mapped this one cannot write here. A record that is taken,
    // but not written yet, may wait for that rank's kernels (claim_abort): the next look is soon
    // enough.
    if (header(peer).abort.state.load(std::memory_order_acquire) > kAbortBeingWritten) {
      fail(read_cause(peer));
      return remember_cause();
    }
    // A rank may arrive, finish and leave between two looks.
    if (header(peer).presence.load(std::memory_order_acquire) >= kDetached &&
        !has_arrived(target, peer)) {
      return peer_has_left(peer, missing);
    }
    const Handle &handle = this->peer(peer);
    if (look_at_processes &&
        has_ended(ProcessIdentity{handle.pid, handle.start_time, handle.pid_namespace}, self) &&
        !has_arrived(target, peer)) {
      dead |= 1u << peer;
    }
  }
  return dead == 0 ? SAR_OK
                   : peer_has_died(static_cast<uint32_t>(__builtin_ctz(dead)), missing, dead);
}

namespace {

void name_collective(const Failure &failure, Message &message) {
  if (failure.facts.collective == SAR_COLLECTIVE_NONE) {
    return;
  }
  message.append(" in %s", collective_name(failure.facts.collective));
  if (failure.facts.sequence != 0) {
    message.append(" number %llu", static_cast<unsigned long long>(failure.facts.sequence));
  }
}

}  // namespace

// Which wait it was, and how long it had lasted.
void Communicator::name_wait(Failure &cause) const {
  if (cause.facts.collective == SAR_COLLECTIVE_NONE) {
    return;
  }
  cause.message.append(", after rank %u had waited %.3f s for it", rank_,
                       static_cast<double>(cause.facts.waited_ns) * 1e-9);
  if (cause.facts.step != 0) {
    cause.message.append(" (wait %u of the collective)", cause.facts.step);
  }
}

uint64_t Communicator::last_call(uint32_t peer) const {
  const CallLine *calls = signal_pad(peer).calls;
  const uint64_t a = calls[0].sequence.load(std::memory_order_relaxed);
  const uint64_t b = calls[1].sequence.load(std::memory_order_relaxed);
  return a > b ? a : b;
}

sar_status Communicator::peer_has_left(uint32_t peer, uint32_t missing) {
  Failure cause = failure(SAR_PEER_LOST);
  cause.facts.missing_ranks = missing;
  cause.facts.waited_ns = now_ns() - wait_started_;
  name_gone({0, 1u << peer}, "", cause);
  return fail(cause);
}

sar_status Communicator::peer_has_died(uint32_t peer, uint32_t missing, uint32_t dead) {
  Failure cause = failure(SAR_PEER_LOST);
  cause.facts.missing_ranks = missing;
  cause.facts.waited_ns = now_ns() - wait_started_;
  name_gone({dead | 1u << peer, 0}, "", cause);
  return fail(cause);
}

Communicator::Gone Communicator::gone() const {
  const ProcessIdentity self{handle_.pid, handle_.start_time, handle_.pid_namespace};
  const auto has_left = [&](uint32_t peer) {
    return header(peer).presence.load(std::memory_order_acquire) >= kDetached;
  };
  Gone gone;
  for (uint32_t peer = 0; peer < world_size(); peer++) {
    const Handle &handle = this->peer(peer);
    const bool ended =
        peer != rank_ && !has_left(peer) &&
        has_ended(ProcessIdentity{handle.pid, handle.start_time, handle.pid_namespace}, self);
    // A process may leave and end between two looks.
    if (peer != rank_ && has_left(peer)) {
      gone.left |= 1u << peer;
    } else if (ended) {
      gone.dead |= 1u << peer;
    }
  }
  return gone;
}

void Communicator::name_gone(const Gone &gone, const char *where, Failure &cause) const {
  const uint32_t peer =
      static_cast<uint32_t>(__builtin_ctz(gone.dead != 0 ? gone.dead : gone.left));
  cause.facts.culprit_rank = static_cast<int32_t>(peer);
  cause.facts.dead_ranks = gone.dead;
  if (gone.dead != 0) {
    cause.message.append("the process of ").append_ranks(gone.dead).append(" has ended");
  } else {
    cause.message.append("rank %u has left the communicator behind call number %llu", peer,
                         static_cast<unsigned long long>(last_call(peer)));
    if (cause.facts.collective != SAR_COLLECTIVE_NONE) {
      cause.message.append(", and is needed");
    }
  }
  name_collective(cause, cause.message);
  cause.message.append("%s", where);
  name_wait(cause);
  if (gone.dead != 0) {
    cause.message.append(" (process %d): was it killed, or out of memory? see that executor's log",
                         this->peer(peer).pid);
  } else {
    cause.message.append(": its task has ended or failed; see that task's log");
  }
}

sar_status Communicator::time_is_up(uint32_t missing) {
  Failure cause = failure(SAR_TIMEOUT);
  cause.facts.missing_ranks = missing;
  if (__builtin_popcount(missing) == 1) {
    cause.facts.culprit_rank = __builtin_ctz(missing);
  }
  cause.facts.waited_ns = now_ns() - wait_started_;
  cause.message.append("time-out after %.3f s", static_cast<double>(timeout_ns_) * 1e-9);
  name_collective(cause, cause.message);
  cause.message.append(": rank %u still waits for ", rank_)
      .append_ranks(missing)
      .append(" (wait %u of the collective)", cause.facts.step);
  name_states(missing, cause.message);
  cause.message.append("; look at what those tasks do, or allow more time");
  return fail(cause);
}

void Communicator::name_states(uint32_t missing, Message &message) const {
  for (uint32_t left = missing; left != 0; left &= left - 1) {
    name_state(static_cast<uint32_t>(__builtin_ctz(left)), message);
  }
}

// Late is not dead: what is known of a rank that has not come.
void Communicator::name_state(uint32_t peer, Message &message) const {
  const Handle &handle = this->peer(peer);
  const ProcessIdentity self{handle_.pid, handle_.start_time, handle_.pid_namespace};
  switch (process_state({handle.pid, handle.start_time, handle.pid_namespace}, self)) {
    case 0:
      message.append("; rank %u cannot be examined from here", peer);
      break;
    case 'T':
    case 't':
      message.append("; rank %u is alive, but stopped (state T: a signal or a debugger)", peer);
      break;
    default:
      message.append("; rank %u is alive, but late", peer);
  }
  if (collective_ != SAR_COLLECTIVE_CONNECT) {
    message.append(", its last call is number %llu",
                   static_cast<unsigned long long>(last_call(peer)));
  }
}

}  // namespace sar
