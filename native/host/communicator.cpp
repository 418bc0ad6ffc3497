// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Life of a communicator: create, connect, detach, attach, destroy.
#include "communicator.hpp"

#include <string.h>

namespace sar {

namespace {

constexpr uint64_t kLargestPart = uint64_t{1} << 56;

// Spinning looks at nothing but arrivals and the abort flag; a peer that left or died must be
// noticed soon all the same.
constexpr uint64_t kLongestSpin = 10'000'000;

constexpr uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }
constexpr uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

// To a multiple of `unit`; sizes beyond any memory stay that and are refused by the system.
constexpr uint64_t round_up(uint64_t bytes, uint64_t unit) {
  return (smaller(bytes, kLargestPart) + unit - 1) / unit * unit;
}

}  // namespace

Communicator::Communicator(const sar_options &options)
    : rank_(options.rank),
      geometry_{options.world_size, round_up(options.staging_bytes, kStagingParts * kPageBytes),
                round_up(larger(options.arena_bytes, SAR_MIN_STAGING_BYTES), kPageBytes)},
      spin_ns_(smaller(options.spin_ns, kLongestSpin)),
      oversubscribed_(options.world_size > available_cores()),
      epoch_(options.first_epoch) {
  for (uint32_t rank = 0; rank < SAR_MAX_RANKS; rank++) {
    member_[rank] = rank;
  }
  const ProcessIdentity self = own_process();
  handle_.magic = kHandleMagic;
  handle_.layout_version = kLayoutVersion;
  handle_.rank = rank_;
  handle_.session_high = options.session_high;
  handle_.session_low = options.session_low;
  handle_.world_size = options.world_size;
  handle_.first_epoch = options.first_epoch;
  handle_.pid = self.pid;
  handle_.start_time = self.start_time;
  handle_.pid_namespace = self.pid_namespace;
  handle_.arena_bytes = geometry_.arena_bytes;
  handle_.staging_bytes = geometry_.staging_bytes;
  handle_.segment_bytes = geometry_.segment_bytes();
}

sar_status Communicator::create() {
  const sar_status status = create_segment(handle_, segments_[rank_]);
  if (status == SAR_OK) {
    named_ = true;
    bases_[rank_].store(segments_[rank_].base(), std::memory_order_release);
    peers_[rank_] = handle_;
  }
  return status;
}

Communicator::~Communicator() {
  if (!segments_[member_[rank_]]) {
    return;
  }
  header(rank_).presence.store(kClosed, std::memory_order_seq_cst);
  for (uint32_t peer = 0; peer < world_size(); peer++) {
    if (peer != rank_ && segment(peer) != nullptr) {
      ring(peer);
    }
  }
  if (named_) {
    unlink_segment(handle_);
  }
}

sar_status Communicator::connect(const Handle *handles, int64_t timeout_ns) {
  if (is_aborted()) {
    return remember_cause();
  }
  if (state_.load(std::memory_order_relaxed) != SAR_STATE_OPENING) {
    return refuse(SAR_INVALID_ARGUMENT, "rank %u is connected already", rank_);
  }
  begin(SAR_COLLECTIVE_CONNECT, timeout_ns);
  for (uint32_t peer = 0; peer < world_size(); peer++) {
    if (const sar_status status = check_handle(handles[peer], peer); status != SAR_OK) {
      return status;
    }
    for (uint32_t other = 0; other < peer; other++) {
      if (strcmp(handles[peer].name, handles[other].name) == 0) {
        return refuse(SAR_INVALID_ARGUMENT, "the handle of rank %u names the segment of rank %u",
                      peer, other);
      }
    }
  }
  if (const sar_status status = map_peers(handles); status != SAR_OK) {
    return status;
  }
  for (uint32_t peer = 0; peer < world_size(); peer++) {
    header(peer).attached_ranks.fetch_or(1u << rank_, std::memory_order_seq_cst);
  }
  ring_waiting();
  if (const sar_status status = wait(Target{Target::kAttach, 0}); status != SAR_OK) {
    return status;
  }
  unlink_segment(handle_);
  named_ = false;
  // Present before the barrier: a peer behind it may look at once.
  header(rank_).presence.store(kPresent, std::memory_order_seq_cst);
  if (const sar_status status = step(); status != SAR_OK) {
    return status;
  }
  state_.store(SAR_STATE_OPEN, std::memory_order_relaxed);
  return SAR_OK;
}

// Everything in a handle but its name must be what this rank would have written in the peer's
// place.
sar_status Communicator::check_handle(const Handle &handle, uint32_t rank) const {
  if (handle.magic != kHandleMagic) {
    return refuse(SAR_INVALID_ARGUMENT, "the handle of rank %u is not a handle of this backend",
                  rank);
  }
  if (handle.layout_version != kLayoutVersion) {
    return refuse(
        SAR_INVALID_ARGUMENT,
        "rank %u runs another version of this library (layout %u, rank %u has %u): use one "
        "version on all executors",
        rank, handle.layout_version, rank_, kLayoutVersion);
  }
  if (handle.session_high != handle_.session_high || handle.session_low != handle_.session_low) {
    return refuse(SAR_INVALID_ARGUMENT, "the handle of rank %u belongs to another session", rank);
  }
  const struct {
    const char *name;
    uint64_t expected;
    uint64_t found;
  } fields[] = {{"rank", rank, handle.rank},
                {"world_size", handle_.world_size, handle.world_size},
                {"first_epoch", handle_.first_epoch, handle.first_epoch},
                {"arena_bytes", handle_.arena_bytes, handle.arena_bytes},
                {"staging_bytes", handle_.staging_bytes, handle.staging_bytes},
                {"segment_bytes", handle_.segment_bytes, handle.segment_bytes}};
  for (const auto &field : fields) {
    if (field.found != field.expected) {
      return refuse(SAR_INVALID_ARGUMENT,
                    "the handle of rank %u has %s %llu, but rank %u expects %llu: use the same "
                    "options on all ranks, and handles in rank order",
                    rank, field.name, static_cast<unsigned long long>(field.found), rank_,
                    static_cast<unsigned long long>(field.expected));
    }
  }
  if (!has_proper_name(handle)) {
    return refuse(SAR_INVALID_ARGUMENT,
                  "the handle of rank %u has a name that its process would not have chosen: do all "
                  "executors run as the same user?",
                  rank);
  }
  if (rank == rank_ && memcmp(&handle, &handle_, sizeof handle) != 0) {
    return refuse(SAR_INVALID_ARGUMENT, "the handle of rank %u is not its own", rank);
  }
  if (bases_[rank].load(std::memory_order_relaxed) != nullptr &&
      memcmp(&handle, &peers_[rank], sizeof handle) != 0) {
    return refuse(SAR_INVALID_ARGUMENT, "rank %u has another handle than in an earlier attempt",
                  rank);
  }
  return SAR_OK;
}

sar_status Communicator::map_peers(const Handle *handles) {
  for (uint32_t peer = 0; peer < world_size(); peer++) {
    if (bases_[peer].load(std::memory_order_relaxed) != nullptr) {
      continue;
    }
    const sar_status status = open_segment(handles[peer], segments_[peer]);
    if (status == SAR_INVALID_ARGUMENT) {
      return status;
    }
    if (status != SAR_OK) {
      Failure cause = failure(status);
      cause.facts.culprit_rank = static_cast<int32_t>(peer);
      cause.message.append("%s", last_message());
      return fail(cause);
    }
    peers_[peer] = handles[peer];
    bases_[peer].store(segments_[peer].base(), std::memory_order_release);
  }
  return SAR_OK;
}

sar_comm_state_code Communicator::state() const {
  return is_aborted() ? SAR_STATE_ABORTED
                      : static_cast<sar_comm_state_code>(state_.load(std::memory_order_relaxed));
}

sar_status Communicator::check_open(sar_collective collective) const {
  switch (state()) {
    case SAR_STATE_OPEN:
      return SAR_OK;
    case SAR_STATE_ABORTED:
      return remember_cause();
    case SAR_STATE_DETACHED:
      return refuse(SAR_INVALID_ARGUMENT, "%s on rank %u, which is detached: attach it first",
                    collective_name(collective), rank_);
    case SAR_STATE_OPENING:
      break;
  }
  return refuse(SAR_INVALID_ARGUMENT, "%s on rank %u, which is not connected yet: connect it first",
                collective_name(collective), rank_);
}

sar_status Communicator::detach() {
  if (is_aborted()) {
    return remember_cause();
  }
  if (state_.load(std::memory_order_relaxed) != SAR_STATE_OPEN) {
    return refuse(SAR_INVALID_ARGUMENT, "rank %u is not attached", rank_);
  }
  state_.store(SAR_STATE_DETACHED, std::memory_order_relaxed);
  header(rank_).presence.store(kDetached, std::memory_order_seq_cst);
  for (uint32_t peer = 0; peer < world_size(); peer++) {
    ring(peer);
  }
  return SAR_OK;
}

sar_status Communicator::attach() {
  if (is_aborted()) {
    return remember_cause();
  }
  if (state_.load(std::memory_order_relaxed) != SAR_STATE_DETACHED) {
    return refuse(SAR_INVALID_ARGUMENT, "rank %u is not detached", rank_);
  }
  begin(SAR_COLLECTIVE_NONE, INT64_MAX);
  const ProcessIdentity self{handle_.pid, handle_.start_time, handle_.pid_namespace};
  for (uint32_t peer = 0; peer < world_size(); peer++) {
    const Handle &handle = this->peer(peer);
    if (has_ended(ProcessIdentity{handle.pid, handle.start_time, handle.pid_namespace}, self)) {
      return peer_has_died(peer, 1u << peer, 1u << peer);
    }
    if (header(peer).presence.load(std::memory_order_acquire) == kClosed) {
      return peer_has_left(peer, 1u << peer);
    }
  }
  header(rank_).presence.store(kPresent, std::memory_order_seq_cst);
  state_.store(SAR_STATE_OPEN, std::memory_order_relaxed);
  return SAR_OK;
}

sar_status Communicator::renumber(const uint32_t *members) {
  if (is_aborted()) {
    return remember_cause();
  }
  if (state_.load(std::memory_order_relaxed) != SAR_STATE_OPEN) {
    return refuse(SAR_INVALID_ARGUMENT, "rank %u is not attached", rank_);
  }
  uint32_t seen = 0;
  for (uint32_t rank = 0; rank < world_size(); rank++) {
    if (members[rank] >= world_size() || (seen >> members[rank] & 1u) != 0) {
      return refuse(SAR_INVALID_ARGUMENT,
                    "the new order of ranks is no permutation: entry %u is %u", rank,
                    members[rank]);
    }
    seen |= 1u << members[rank];
  }
  const uint32_t own = member_[rank_];
  for (uint32_t rank = 0; rank < world_size(); rank++) {
    member_[rank] = members[rank];
    bases_[rank].store(segments_[members[rank]].base(), std::memory_order_release);
    if (members[rank] == own) {
      rank_ = rank;
    }
  }
  return SAR_OK;
}

}  // namespace sar
