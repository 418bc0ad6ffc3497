// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// One rank's end of a communicator: its segment, the peers' segments, and the ways to wait, to
// abort and to report. Collectives are built on top of it (collective.hpp).
#ifndef SPARK_ALLREDUCE_HOST_COMMUNICATOR_HPP
#define SPARK_ALLREDUCE_HOST_COMMUNICATOR_HPP

#include <array>
#include <atomic>
#include <cstdint>

#include "auto_table.hpp"
#include "failure.hpp"
#include "file_mapping.hpp"
#include "layout.hpp"
#include "segment.hpp"
#include "system.hpp"

namespace sar {

// The fields of a call line, read or to be written.
struct CallFields {
  uint64_t count;
  uint64_t total;
  // Packed Locations, or the input of a low-latency call.
  uint64_t input;
  uint64_t output;
  uint32_t collective;
  uint32_t type;
  uint32_t op;
  uint32_t schedule;
  uint32_t root;
  uint32_t flags;
  uint32_t epoch;
  uint32_t chosen = SAR_AUTO;  // host backend: what `schedule` comes to
};

// Memory that all ranks have registered together: where each rank's part is mapped here.
struct Region {
  uint64_t bytes = 0;  // 0: not in use
  FileMapping mappings[SAR_MAX_RANKS];
};

class Communicator {
 public:
  explicit Communicator(const sar_options &options);
  ~Communicator();
  Communicator(const Communicator &) = delete;
  Communicator &operator=(const Communicator &) = delete;

  // What the functions of the C header do.
  sar_status create();
  const Handle &handle() const { return handle_; }
  sar_status connect(const Handle *handles, int64_t timeout_ns);
  sar_status detach();
  sar_status attach();
  sar_status renumber(const uint32_t *members);
  sar_status abort(int32_t culprit_rank, const char *message);
  sar_comm_state_code state() const;

  uint32_t rank() const { return rank_; }
  uint32_t world_size() const { return geometry_.world_size; }
  const Geometry &geometry() const { return geometry_; }
  sar_statistics &statistics() { return statistics_; }
  const sar_statistics &statistics() const { return statistics_; }

  // Where `rank`'s segment is mapped.
  char *segment(uint32_t rank) const { return bases_[rank].load(std::memory_order_relaxed); }
  char *arena() const { return segment(rank_) + geometry_.arena(); }

  // Registered memory. Regions other than the arena are numbered from 1.
  Region &region(uint32_t number) { return regions_[number - 1]; }
  // One above the highest number in use: most calls look at the arena only.
  uint32_t regions_end() const { return regions_end_; }
  void update_regions_end() {
    regions_end_ = kRegions;
    while (regions_end_ > 1 && region_bytes(regions_end_ - 1) == 0) {
      regions_end_--;
    }
  }
  uint64_t region_bytes(uint32_t number) const {
    return number == kArenaRegion ? geometry_.arena_bytes : regions_[number - 1].bytes;
  }
  // Where `rank`'s part of a region is mapped here.
  char *region_base(uint32_t rank, uint32_t number) const {
    return number == kArenaRegion ? segment(rank) + geometry_.arena()
                                  : regions_[number - 1].mappings[member_[rank]].base();
  }
  uint32_t member(uint32_t rank) const { return member_[rank]; }
  Announcement &announcement(uint32_t rank) const {
    return signal_pad(rank).announcements[sequence_ % 2];
  }

  // Refuses, unless collectives may be called.
  sar_status check_open(sar_collective collective) const;

  // A collective: begin, arrive, any number of steps, end. All ranks make the same calls. A failure
  // has been remembered, and all ranks have been told, when one of these returns it.
  // A brief call's clock starts with its first wait.
  void begin(sar_collective collective, int64_t timeout_ns, bool is_brief = false);
  // Barrier: publishes `mine`, and everything written so far, to all ranks; then `all` has the
  // fields of every rank, and what they wrote before is visible.
  sar_status arrive(const CallFields &mine, CallFields (&all)[SAR_MAX_RANKS]);
  // Barrier: everything that any rank wrote before is visible to all behind it.
  sar_status step();
  void end(sar_status status, uint64_t bytes);
  // Instead of end, for what waits like a collective but is not to be counted as one.
  void end_uncounted();

  uint32_t epoch() const { return epoch_; }
  uint64_t sequence() const { return sequence_; }

  // The count of the whole call of which the next collective is a piece.
  void expect_total(uint64_t total) { expected_total_ = total; }
  uint64_t take_total(uint64_t count) {
    const uint64_t total = expected_total_ == kNoTotal ? count : expected_total_;
    expected_total_ = kNoTotal;
    return total;
  }

  // Numbers of the next rounds through the push and the pull halves (layout.hpp).
  uint64_t push_round = 0;
  uint64_t pull_round = 0;

  // What SAR_AUTO chooses from.
  AutoTable auto_table;

  // A failure of the current collective, with its facts filled in.
  Failure failure(sar_status status) const;
  // Aborts the communicator on all ranks. Returns the first cause, which may be an earlier one.
  sar_status fail(const Failure &failure);

  // For waits that a device keeps, whose kernels do not see the peers' processes.
  struct Gone {
    uint32_t dead = 0;  // their process has ended
    uint32_t left = 0;  // they have closed or detached their end
  };
  Gone gone() const;
  // Adds which ranks are gone, in which wait, and how long it lasted: those facts are filled in.
  // `where` follows the collective's name.
  void name_gone(const Gone &gone, const char *where, Failure &cause) const;
  // Whether the ranks in `missing` are late or stopped, as far as can be told.
  void name_states(uint32_t missing, Message &message) const;
  // Takes this rank's abort record, which stops its kernels, so that what they report can be part
  // of the cause; `fail` must follow soon. False if there is a cause already.
  bool claim_abort();
  // The handle of a rank, as it came and was checked.
  const Handle &handle_of(uint32_t rank) const { return peer(rank); }

 private:
  static constexpr uint64_t kNoTotal = UINT64_MAX;

  // What a peer has to do before a wait ends.
  struct Target {
    enum Kind { kAttach, kCall, kStep } kind;
    uint64_t value;
  };

  bool has_arrived(const Target &target, uint32_t peer) const;
  uint32_t still_missing(const Target &target, uint32_t missing) const;
  sar_status wait(const Target &target);
  sar_status wait_for(const Target &target, uint32_t missing);
  bool look_often(const Target &target, uint32_t looks, uint32_t &missing) const;
  // True if a missing rank cannot go on while this thread holds its core.
  bool holds_up(uint32_t missing);
  void part_ranks_on_one_core();
  bool spin(const Target &target, uint32_t &missing);
  void sleep(const Target &target, uint32_t missing, uint64_t timeout_ns);
  // Looks for a reason why a wait for the missing ranks will never end.
  sar_status look_for_trouble(const Target &target, uint32_t missing, bool look_at_processes);
  sar_status peer_has_left(uint32_t peer, uint32_t missing);
  sar_status peer_has_died(uint32_t peer, uint32_t missing, uint32_t dead);
  sar_status time_is_up(uint32_t missing);
  // The facts must say how long it was waited.
  void name_wait(Failure &cause) const;
  void name_state(uint32_t peer, Message &message) const;
  // The number of the last collective that a rank has begun.
  uint64_t last_call(uint32_t peer) const;

  sar_status check_handle(const Handle &handle, uint32_t rank) const;
  sar_status map_peers(const Handle *handles);

  // Wakes those peers who wait for this rank.
  void ring_waiting();
  void ring(uint32_t peer);
  bool is_aborted() const;
  // The cause in `rank`'s segment, as it was written there.
  Failure read_cause(uint32_t rank) const;
  // Remembers the cause in this rank's segment, with the rank that noticed it.
  sar_status remember_cause() const;
  // False if the segment has a cause already.
  bool write_cause(uint32_t rank, const Failure &failure);
  // False if the record of that segment was taken before.
  bool claim(uint32_t rank);
  void write_claimed(uint32_t rank, const Failure &failure);

  Header &header(uint32_t rank) const { return header_of(segment(rank)); }
  SignalPad &signal_pad(uint32_t rank) const { return signal_pad_of(segment(rank)); }
  uint32_t everybody() const { return (1u << world_size()) - 1u; }

  // The peer's handle; those of the ranks that were connected, by member.
  const Handle &peer(uint32_t rank) const { return peers_[member_[rank]]; }

  uint32_t rank_;
  // member_[r]: the rank that rank r had when the communicator was connected.
  uint32_t member_[SAR_MAX_RANKS];
  Geometry geometry_;
  uint64_t spin_ns_;
  bool oversubscribed_;  // more ranks than cores
  Handle handle_{};
  bool named_ = false;                        // the segment's name may still be in the file system
  SegmentReference segments_[SAR_MAX_RANKS];  // by member, as the next
  Handle peers_[SAR_MAX_RANKS] = {};
  Region regions_[SAR_MAX_REGIONS];
  uint32_t regions_end_ = 1;
  // By rank. Null until mapped. Atomic, since sar_abort may run while connect fills them.
  std::atomic<char *> bases_[SAR_MAX_RANKS] = {};
  std::atomic<uint32_t> state_{SAR_STATE_OPENING};
  sar_statistics statistics_{};

  uint64_t sequence_ = 0;
  uint32_t epoch_;

  static constexpr uint64_t kNotTimed = 0;

  // The current collective.
  sar_collective collective_ = SAR_COLLECTIVE_NONE;
  uint32_t step_ = 0;
  uint64_t started_ = kNotTimed;
  uint64_t timeout_ns_ = 0;
  uint64_t expected_total_ = kNoTotal;
  uint64_t wait_started_ = 0;
  uint32_t awaited_ = 0;  // the rank that the current wait is for; the last one to come ends it
  uint32_t published_core_ = kNoCore;  // what the own header says
  uint32_t waits_on_one_core_ = 0;     // in turn, each for a rank that was last seen on this core
  bool claimed_ = false;               // the own abort record is taken, but not written yet
};

}  // namespace sar

// What the C header leaves opaque.
struct sar_comm {
  explicit sar_comm(const sar_options &options) : communicator(options) {}
  sar::Communicator communicator;
};

#endif  // SPARK_ALLREDUCE_HOST_COMMUNICATOR_HPP
