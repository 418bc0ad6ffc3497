// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// layout.hpp: every byte that the host side and the kernels share.
//
// The signal pad, one per rank, in the rank's device memory (fine-grained or uncached where the
// vendor needs it). Peers write into it, the owner reads it; what only the owner writes says so.
//
//   Pad
//   +------------------------------+
//   | abort                        |  any rank: 1 + the rank whose kernel gave up, 0: none
//   | claim                        |  owner: which thread reports the fault (0 -> 1, once)
//   +------------------------------+
//   | epoch[block]                 |  owner: the block's last finished collective
//   | low_latency_epoch[block]     |  owner: ditto for the low-latency schedule
//   +------------------------------+
//   | arrival[block][rank]         |  that rank's block: {digest of its call, epoch} in one store
//   | step[step][block][rank]      |  that rank's block: epoch of the last time it got there
//   +------------------------------+
//   | description[rank]            |  that rank, once, if its kernel gave up: what it had called
//   +------------------------------+
//   | header[parity][block][rank]  |  low latency: {digest, epoch} in one 8-byte store
//   | packet[parity][rank][...]    |  low latency: {word, flag} in one 8-byte store
//   +------------------------------+
//
// A block waits only for the same block of its peers, so no order between blocks is assumed.
#ifndef SPARK_ALLREDUCE_KERNELS_LAYOUT_HPP
#define SPARK_ALLREDUCE_KERNELS_LAYOUT_HPP

#include <stdint.h>

namespace sar::gpu {

inline constexpr uint32_t kMaxRanks = 16;
inline constexpr uint32_t kMaxBlocks = 128;
inline constexpr uint32_t kPackBytes = 16;
// A slice begins at a multiple of this, so that two ranks never write to one memory transaction.
inline constexpr uint32_t kSliceAlignment = 64;
#ifndef SAR_BLOCK_THREADS
#define SAR_BLOCK_THREADS 512
#endif
inline constexpr uint32_t kBlockThreads = SAR_BLOCK_THREADS;
// One thread per peer signals and waits: a communicator has at most this many ranks.
inline constexpr uint32_t kRankLimit = kBlockThreads < kMaxRanks ? kBlockThreads : kMaxRanks;

inline constexpr uint32_t kLowLatencyBlocks = 16;
// A message that needs one block only has one of this many threads, or a multiple.
inline constexpr uint32_t kSmallestBlock = kBlockThreads < 64 ? kBlockThreads : 64;
// A thread sends one word, or two for an 8-byte type.
inline constexpr uint32_t kLowLatencyPackets = kBlockThreads * 2;
// The end of the epoch that a packet carries, beside a part of the call's digest.
inline constexpr uint32_t kFlagEpochBits = 12;

// The barriers of a collective, in the order in which they are passed.
enum Step : uint32_t { kMiddle = 0, kExit = 1, kSteps = 2 };

// What a rank had called when its kernel gave up, for the peers' messages. Each word is marked in
// its upper half once it is there.
struct CallDescription {
  uint64_t kind, call, count_low, count_high;
};

struct Pad {
  uint32_t abort;
  uint32_t claim;
  uint32_t reserved[30];
  uint32_t epoch[kMaxBlocks];
  uint32_t low_latency_epoch[kMaxBlocks];
  // The epoch, and the digest of the call in the upper half: to arrive and to be compared is one
  // 8-byte load.
  uint64_t arrival[kMaxBlocks][kMaxRanks];
  uint32_t step[kSteps][kMaxBlocks][kMaxRanks];
  CallDescription description[kMaxRanks];
  uint64_t header[2][kLowLatencyBlocks][kMaxRanks];
  // Block b's slots begin at b x kLowLatencyPackets, whatever the message's length.
  uint64_t packet[2][kMaxRanks][kLowLatencyBlocks * kLowLatencyPackets];
};

// Why a kernel gave up, in host memory that the device can write. `state` is stored last.
enum Fault : uint32_t { kNoFault = 0, kDeadline = 1, kMismatch = 2, kAbortSeen = 3 };

struct Outcome {
  uint32_t state;  // 0: nothing to report, 1: the fields below are valid
  uint32_t fault;
  uint32_t step;     // which of the collective's waits, from 1
  uint32_t peer;     // the rank waited for, or the rank that gave up first
  uint32_t missing;  // bit r: rank r had not arrived
  uint32_t peer_kind;
  uint32_t peer_call;
  uint32_t my_kind;
  uint64_t peer_count;
  uint64_t my_count;
  uint64_t waited_ticks;
};

inline constexpr uint64_t kNoSkip = ~uint64_t{0};

// Every address that one launch uses. All are as this rank's device sees them, and the host has
// already added the offset of the slice and of the chunk.
struct Addresses {
  uint64_t source[kMaxRanks];       // what the reduction loads, in rank order
  uint64_t target[kMaxRanks];       // where the reduced slice is stored, this rank first
  uint64_t input;                   // this rank's input
  uint64_t output;                  // this rank's output
  uint64_t scatter_to[kMaxRanks];   // where parts of the input are copied before the arrival
  uint64_t gather_from[kMaxRanks];  // what is copied to the output after the reduction
  // All addresses of a phase, or-ed: its alignment.
  uint64_t reduce_alignment, scatter_alignment, gather_alignment;
  uint64_t gather_skip;  // the part that is in its place already, or kNoSkip
};
inline constexpr uint32_t kAddressWords = sizeof(Addresses) / sizeof(uint64_t);

// One launch: the only kernel argument. It says what to move; the schedule is in the addresses.
//
//   scatter   copy input[q x scatter_stride ...] to scatter_to[j], for part            (before the
//             q = (scatter_first + j) mod scatter_parts                                  arrival)
//   arrival   all ranks are here, and called the same
//   reduce    load source[r][...], combine, store to target[...]
//   middle    only if gather needs what peers reduced
//   gather    copy gather_from[q] to output[q x gather_stride ...]
//   exit      nobody uses my memory any more, and all stores to my output are visible
struct Launch {
  // What every kernel reads lies together: each launch begins with cold caches, for its arguments
  // too.
  uint64_t own_pad;
  uint32_t rank, world, blocks, digest;
  uint64_t patched;  // an Addresses in device memory that a capture filled, or 0
  uint64_t count;    // of the whole collective; compared between ranks
  uint64_t reduce_count;
  uint32_t op, targets;
  uint32_t scatter_ranks, gather_ranks;
  uint32_t middle;         // 1: wait between reduce and gather
  uint32_t gather_last;    // 1: gather after the exit, from memory that peers no longer touch
  uint64_t timeout_ticks;  // for each wait
  uint64_t host_abort;     // uint32_t in host memory: not 0 once a host has aborted
  uint64_t outcome;        // Outcome, in host memory
  uint32_t kind;           // collective, type, op, schedule, root: compared between ranks
  uint32_t call;           // number of the call in its capture: compared between ranks
  uint64_t pad[kMaxRanks];
  Addresses addresses;  // used if patched is 0
  uint32_t scatter_first, scatter_parts;
  uint64_t scatter_stride, scatter_each, scatter_total;
  uint64_t gather_stride, gather_each, gather_total;
};
static_assert(sizeof(Launch) <= 4096, "kernel arguments");

// Element e belongs to pack e / (elements per pack) of its slice, and pack p to thread
// p mod (blocks x threads): in every phase, whatever the alignment. So what block b of one rank
// reads was written by block b of another.

}  // namespace sar::gpu

#endif
