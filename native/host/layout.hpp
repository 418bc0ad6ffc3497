// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// Every byte that processes share, and nothing else in the library knows an offset: the segment
// that each rank owns, and the handle by which its peers find it. A change here raises
// SAR_ABI_VERSION.
//
//   segment of one rank, /dev/shm/spark-allreduce-<uid>-<pid>-<start time>-<pid namespace>-<random>
//
//      0 +--------------------------------------------------------------------------+
//        | Header       who owns this, who has attached, doorbell, cause of an abort |
//   4096 +--------------------------------------------------------------------------+
//        | SignalPad    written by the owner only: two call lines, a step line, two   |
//        |              announcements of registrations                               |
//   8192 +--------------------------------------------------------------------------+  -+
//        | push half 0  one slot per source rank, written by that rank               |   |
//        +--------------------------------------------------------------------------+   | staging,
//        | push half 1                                                               |   | a
//        quarter
//        +--------------------------------------------------------------------------+   | each
//        | pull half 0  read by every rank                                           |   |
//        +--------------------------------------------------------------------------+   |
//        | pull half 1                                                               |   |
//        +--------------------------------------------------------------------------+  -+
//        | arena        registered buffers                                           |
//        +--------------------------------------------------------------------------+
//
// The invariant of the staging halves, which lets a rank fill them before its peers have arrived:
// every use is a round (write, barrier, read), rounds are numbered alike on all ranks, and round r
// uses half r mod 2. A rank writes round r + 2 only after the barrier of round r + 1, which every
// rank enters only after it has finished reading round r. So nothing unread is ever overwritten,
// also between collectives, and no barrier is needed behind the last read.
//
// The invariant of the call lines: collective number s uses line s mod 2. A rank writes line s + 2
// only after all peers have arrived at s + 1, and so have finished reading line s.
#ifndef SPARK_ALLREDUCE_HOST_LAYOUT_HPP
#define SPARK_ALLREDUCE_HOST_LAYOUT_HPP

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "spark_allreduce.h"

namespace sar {

inline constexpr uint64_t kSegmentMagic = 0x3147534552534153u;  // "SASREGS1", little endian
inline constexpr uint64_t kHandleMagic = 0x314e414852534153u;   // "SASRHAN1"
inline constexpr uint32_t kLayoutVersion = SAR_ABI_VERSION;

inline constexpr uint64_t kLineBytes = 64;
inline constexpr uint64_t kPageBytes = 4096;

// What an owner says about itself, in Header::presence.
enum Presence : uint32_t {
  kOpening = 0,   // connect has not ended yet
  kPresent = 1,   // takes part in collectives
  kDetached = 2,  // its stage is over; it may come back
  kClosed = 3     // it has destroyed its communicator
};

// Stages of AbortRecord::state; it only grows.
enum AbortState : uint32_t { kNoAbort = 0, kAbortBeingWritten = 1, kAborted = 2 };

// Header::waiting_for: the rank that has to ring, plus 1.
inline constexpr uint32_t kNotWaiting = 0;

// Header::core: the number of the core, plus 1.
inline constexpr uint32_t kNoCore = 0;

// Written once, by whoever wins the change of `state` from 0 to 1; read after `state` is 2.
struct AbortRecord {
  std::atomic<uint32_t> state;
  uint32_t status;
  int32_t origin_rank;
  int32_t culprit_rank;
  uint32_t collective;
  uint32_t missing_ranks;
  uint32_t dead_ranks;
  uint32_t step;
  uint64_t sequence;
  uint64_t waited_ns;
  char message[SAR_MESSAGE_BYTES];
};

struct Header {
  // Written by the owner before its handle leaves it, never afterwards.
  uint64_t magic;
  uint32_t layout_version;
  uint32_t rank;
  uint64_t session_high;
  uint64_t session_low;
  uint32_t world_size;
  uint32_t first_epoch;
  int32_t pid;
  uint32_t reserved;
  uint64_t start_time;
  uint64_t pid_namespace;
  uint64_t segment_bytes;
  uint64_t arena_bytes;
  uint64_t staging_bytes;

  // Bit r is set by rank r once it has mapped this segment.
  alignas(kLineBytes) std::atomic<uint32_t> attached_ranks;

  alignas(kLineBytes) std::atomic<uint32_t> presence;

  // The owner sleeps on `doorbell` and says in `waiting_for` whose arrival it waits for. `core` is
  // where it ran when it last waited: a hint, for peers that hold up that core.
  alignas(kLineBytes) std::atomic<uint32_t> doorbell;
  std::atomic<uint32_t> waiting_for;
  std::atomic<uint32_t> core;

  alignas(kLineBytes) AbortRecord abort;
};

// Bits of CallLine::flags.
enum CallFlags : uint32_t {
  kInputRegistered = 1,   // input_offset is valid
  kOutputRegistered = 2,  // output_offset is valid
  kFilledEarly = 4        // this rank's part of the first staging round is already written
};

// A place in a rank's registered memory, in 64 bits: which region, and the bytes from its start.
// Region 0 is the arena; the others are what the ranks have registered, numbered alike on all
// ranks.
struct Location {
  static constexpr uint32_t kRegionShift = 56;

  uint32_t region;
  uint64_t offset;

  constexpr uint64_t packed() const { return uint64_t{region} << kRegionShift | offset; }
  static constexpr Location unpack(uint64_t packed) {
    return {static_cast<uint32_t>(packed >> kRegionShift),
            packed & ((uint64_t{1} << kRegionShift) - 1)};
  }
};

inline constexpr uint32_t kArenaRegion = 0;
inline constexpr uint32_t kRegions = 1 + SAR_MAX_REGIONS;
static_assert(kRegions <= 1u << (64 - Location::kRegionShift));

// What the owner is about to do. The fields are written before `sequence`, which says that they are
// there, and read after it. The low-latency schedule needs no places in memory: the line brings the
// input itself there instead, so that data and flag come in one.
struct alignas(kLineBytes) CallLine {
  std::atomic<uint64_t> sequence;
  std::atomic<uint64_t> count;
  std::atomic<uint64_t> total;         // of the whole call, of which this may be a piece
  std::atomic<uint64_t> input_offset;  // where in the owner's registered memory, see Location
  std::atomic<uint64_t> output_offset;
  std::atomic<uint32_t> collective;
  std::atomic<uint32_t> flags;
  std::atomic<uint32_t> epoch;  // the owner's last step, which must be everybody's
  std::atomic<uint16_t> type;
  std::atomic<uint16_t> op;
  std::atomic<uint16_t> schedule;
  std::atomic<uint16_t> root;
  std::atomic<uint16_t> chosen;  // the schedule that will run, if no buffer is in its way
};

// The later barriers of a collective: the epoch only grows, and wraps.
struct alignas(kLineBytes) StepLine {
  std::atomic<uint32_t> epoch;
};

// As much as the two places take.
inline constexpr uint64_t kLowLatencyBytes = 16;

inline constexpr uint32_t kPathBytes = 1024;

// What the owner has to say in a registration: which memory, and whether it could map the others'.
// Registration number s (counted with the collectives) uses announcement s mod 2, as the call lines
// do.
struct alignas(kLineBytes) Announcement {
  uint32_t opened_status;  // sar_status; read after the arrival
  uint32_t mapped_status;  // sar_status; read after the step behind it
  uint64_t device;
  uint64_t inode;
  uint64_t offset;
  char path[kPathBytes];            // ends with a zero byte
  char message[SAR_MESSAGE_BYTES];  // why a status is not SAR_OK
};

struct SignalPad {
  CallLine calls[2];
  StepLine step;
  Announcement announcements[2];
};

inline constexpr uint32_t kNameBytes = 168;

// What sar_comm_handle writes: where the segment is and what its header must say.
struct Handle {
  uint64_t magic;
  uint32_t layout_version;
  uint32_t rank;
  uint64_t session_high;
  uint64_t session_low;
  uint32_t world_size;
  uint32_t first_epoch;
  int32_t pid;
  uint32_t reserved;
  uint64_t start_time;
  uint64_t pid_namespace;
  uint64_t arena_bytes;
  uint64_t staging_bytes;
  uint64_t segment_bytes;
  char name[kNameBytes];  // in /dev/shm, ends with a zero byte
};

inline constexpr char kSharedMemoryFolder[] = "/dev/shm";
inline constexpr char kNamePrefix[] = "spark-allreduce-";
inline constexpr uint32_t kNameRandomBytes = 16;

inline constexpr uint64_t kHeaderOffset = 0;
inline constexpr uint64_t kAttachedOffset = 128;
inline constexpr uint64_t kPresenceOffset = 192;
inline constexpr uint64_t kDoorbellOffset = 256;
inline constexpr uint64_t kWaitingForOffset = 260;
inline constexpr uint64_t kCoreOffset = 264;
inline constexpr uint64_t kAbortOffset = 320;
inline constexpr uint64_t kAbortMessageOffset = kAbortOffset + 48;
inline constexpr uint64_t kSignalPadOffset = kHeaderOffset + kPageBytes;
inline constexpr uint64_t kStepLineOffset = 2 * kLineBytes;
inline constexpr uint64_t kAnnouncementsOffset = 3 * kLineBytes;
inline constexpr uint64_t kStagingOffset = kSignalPadOffset + kPageBytes;
inline constexpr uint32_t kStagingParts = 4;

static_assert(sizeof(std::atomic<uint32_t>) == 4 && sizeof(std::atomic<uint64_t>) == 8);
static_assert(std::atomic<uint32_t>::is_always_lock_free);
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(offsetof(Header, magic) == 0);
static_assert(offsetof(Header, layout_version) == 8);
static_assert(offsetof(Header, rank) == 12);
static_assert(offsetof(Header, session_high) == 16);
static_assert(offsetof(Header, session_low) == 24);
static_assert(offsetof(Header, world_size) == 32);
static_assert(offsetof(Header, first_epoch) == 36);
static_assert(offsetof(Header, pid) == 40);
static_assert(offsetof(Header, start_time) == 48);
static_assert(offsetof(Header, pid_namespace) == 56);
static_assert(offsetof(Header, segment_bytes) == 64);
static_assert(offsetof(Header, arena_bytes) == 72);
static_assert(offsetof(Header, staging_bytes) == 80);
static_assert(offsetof(Header, attached_ranks) == kAttachedOffset);
static_assert(offsetof(Header, presence) == kPresenceOffset);
static_assert(offsetof(Header, doorbell) == kDoorbellOffset);
static_assert(offsetof(Header, waiting_for) == kWaitingForOffset);
static_assert(offsetof(Header, core) == kCoreOffset);
static_assert(offsetof(Header, abort) == kAbortOffset);
static_assert(offsetof(AbortRecord, sequence) == 32);
static_assert(offsetof(AbortRecord, message) == kAbortMessageOffset - kAbortOffset);
static_assert(sizeof(Header) == 896 && sizeof(Header) <= kPageBytes);
static_assert(offsetof(CallLine, count) == 8);
static_assert(offsetof(CallLine, total) == 16);
static_assert(offsetof(CallLine, input_offset) == 24);
static_assert(offsetof(CallLine, output_offset) == 32);
static_assert(offsetof(CallLine, input_offset) + kLowLatencyBytes ==
              offsetof(CallLine, collective));
static_assert(offsetof(CallLine, collective) == 40);
static_assert(offsetof(CallLine, flags) == 44);
static_assert(offsetof(CallLine, epoch) == 48);
static_assert(offsetof(CallLine, type) == 52);
static_assert(offsetof(CallLine, op) == 54);
static_assert(offsetof(CallLine, schedule) == 56);
static_assert(offsetof(CallLine, root) == 58);
static_assert(offsetof(CallLine, chosen) == 60);
static_assert(sizeof(CallLine) == kLineBytes);
static_assert(sizeof(StepLine) == kLineBytes);
static_assert(offsetof(SignalPad, step) == kStepLineOffset);
static_assert(offsetof(Announcement, device) == 8);
static_assert(offsetof(Announcement, inode) == 16);
static_assert(offsetof(Announcement, offset) == 24);
static_assert(offsetof(Announcement, path) == 32);
static_assert(offsetof(Announcement, message) == 32 + kPathBytes);
static_assert(sizeof(Announcement) == 1600);
static_assert(offsetof(SignalPad, announcements) == kAnnouncementsOffset);
static_assert(sizeof(SignalPad) <= kPageBytes);
static_assert(offsetof(Handle, arena_bytes) == 64);
static_assert(offsetof(Handle, segment_bytes) == 80);
static_assert(offsetof(Handle, name) == 88);
static_assert(sizeof(Handle) == SAR_HANDLE_BYTES);

// Where things are in a segment of given size; the same on all ranks.
struct Geometry {
  uint32_t world_size;
  uint64_t staging_bytes;  // a multiple of kStagingParts pages
  uint64_t arena_bytes;    // a multiple of a page

  constexpr uint64_t part_bytes() const { return staging_bytes / kStagingParts; }
  constexpr uint64_t slot_bytes() const {
    return part_bytes() / world_size / kLineBytes * kLineBytes;
  }
  constexpr uint64_t push_slot(uint64_t round, uint32_t source) const {
    return kStagingOffset + (round % 2) * part_bytes() + source * slot_bytes();
  }
  constexpr uint64_t pull_half(uint64_t round) const {
    return kStagingOffset + (2 + round % 2) * part_bytes();
  }
  constexpr uint64_t arena() const { return kStagingOffset + staging_bytes; }
  constexpr uint64_t segment_bytes() const { return arena() + arena_bytes; }
};

// Even the smallest staging area has a line for every source rank.
static_assert(Geometry{SAR_MAX_RANKS, SAR_MIN_STAGING_BYTES, 0}.slot_bytes() >= kLineBytes);

inline Header &header_of(char *segment) {
  return *reinterpret_cast<Header *>(segment + kHeaderOffset);
}
inline SignalPad &signal_pad_of(char *segment) {
  return *reinterpret_cast<SignalPad *>(segment + kSignalPadOffset);
}

}  // namespace sar

#endif  // SPARK_ALLREDUCE_HOST_LAYOUT_HPP
