// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// How a communicator ends early: the first cause is written into every rank's segment, and
// everybody who sleeps is woken.
#include <string.h>

#include "communicator.hpp"

namespace sar {

namespace {

// What is checked is what is used: the compiler must not read it again from shared memory.
template <typename T>
T read_once(const T &shared) {
  return *static_cast<const volatile T *>(&shared);
}

}  // namespace

bool Communicator::is_aborted() const {
  return header(rank_).abort.state.load(std::memory_order_acquire) != kNoAbort;
}

sar_status Communicator::abort(int32_t culprit_rank, const char *message) {
  // Not failure(): this may be another thread than the one inside of a collective.
  Failure cause(SAR_ABORTED);
  cause.facts.origin_rank = static_cast<int32_t>(rank_);
  cause.facts.culprit_rank = culprit_rank;
  cause.message.append("%s", message);
  for (uint32_t rank = 0; rank < world_size(); rank++) {
    if (bases_[rank].load(std::memory_order_acquire) != nullptr && write_cause(rank, cause)) {
      ring(rank);
    }
  }
  return SAR_OK;
}

Failure Communicator::failure(sar_status status) const {
  Failure failure(status);
  failure.facts.collective = collective_;
  failure.facts.sequence = sequence_;
  failure.facts.origin_rank = static_cast<int32_t>(rank_);
  failure.facts.step = step_;
  return failure;
}

bool Communicator::claim_abort() {
  claimed_ = claim(rank_);
  return claimed_;
}

sar_status Communicator::fail(const Failure &failure) {
  if (claimed_) {
    write_claimed(rank_, failure);
    claimed_ = false;
  } else if (!write_cause(rank_, failure)) {
    return remember_cause();
  }
  for (uint32_t peer = 0; peer < world_size(); peer++) {
    if (peer != rank_ && segment(peer) != nullptr && write_cause(peer, failure)) {
      ring(peer);
    }
  }
  return remember(failure);
}

bool Communicator::claim(uint32_t rank) {
  uint32_t expected = kNoAbort;
  return header(rank).abort.state.compare_exchange_strong(expected, kAbortBeingWritten,
                                                          std::memory_order_seq_cst);
}

bool Communicator::write_cause(uint32_t rank, const Failure &failure) {
  if (!claim(rank)) {
    return false;
  }
  write_claimed(rank, failure);
  return true;
}

void Communicator::write_claimed(uint32_t rank, const Failure &failure) {
  AbortRecord &record = header(rank).abort;
  record.status = failure.facts.status;
  record.origin_rank = failure.facts.origin_rank;
  record.culprit_rank = failure.facts.culprit_rank;
  record.collective = failure.facts.collective;
  record.missing_ranks = failure.facts.missing_ranks;
  record.dead_ranks = failure.facts.dead_ranks;
  record.step = failure.facts.step;
  record.sequence = failure.facts.sequence;
  record.waited_ns = failure.facts.waited_ns;
  memcpy(record.message, failure.message.text(), sizeof record.message);
  record.state.store(kAborted, std::memory_order_seq_cst);
}

Failure Communicator::read_cause(uint32_t rank) const {
  const AbortRecord &record = header(rank).abort;
  // Writing takes less than a microsecond, unless the writer is killed in the middle.
  constexpr uint64_t patience_ns = 100'000'000;
  const uint64_t started = now_ns();
  while (record.state.load(std::memory_order_acquire) != kAborted) {
    if (now_ns() - started > patience_ns) {
      Failure unknown(SAR_PEER_LOST);
      unknown.message.append("aborted by a rank that ended before it could say why");
      return unknown;
    }
    cpu_relax();
  }
  // Any process of this user can have written this: only what can be true is passed on.
  const uint32_t status = read_once(record.status);
  const bool proper = status > SAR_OK && status <= SAR_UNSUPPORTED;
  const auto known_rank = [&](int32_t named) {
    return named >= 0 && named < static_cast<int32_t>(world_size()) ? named : -1;
  };
  Failure cause(proper ? static_cast<sar_status>(status) : SAR_SYSTEM_ERROR);
  cause.facts.origin_rank = known_rank(read_once(record.origin_rank));
  cause.facts.culprit_rank = known_rank(read_once(record.culprit_rank));
  cause.facts.collective = record.collective;
  cause.facts.missing_ranks = record.missing_ranks & everybody();
  cause.facts.dead_ranks = record.dead_ranks & everybody();
  cause.facts.step = record.step;
  cause.facts.sequence = record.sequence;
  cause.facts.waited_ns = record.waited_ns;
  cause.message.append("%.*s", static_cast<int>(sizeof record.message - 1), record.message);
  return cause;
}

sar_status Communicator::remember_cause() const {
  const Failure cause = read_cause(rank_);
  Failure told(cause.status());
  told.facts = cause.facts;
  const int32_t origin = cause.facts.origin_rank;
  if (origin >= 0 && origin != static_cast<int32_t>(rank_)) {
    told.message.append("rank %d reports: ", origin);
  }
  told.message.append("%s", cause.message.text());
  return remember(told);
}

}  // namespace sar
