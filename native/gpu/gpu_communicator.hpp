// Licensed under the Apache License, Version 2.0. See LICENSE.
//
// gpu_communicator.hpp: one rank's end of a communicator on a GPU. The control plane (who is there,
// waiting, aborting, naming the culprit) is the host backend's Communicator, over its shared
// memory; this class adds device memory, kernels and graphs.
#ifndef SPARK_ALLREDUCE_GPU_GPU_COMMUNICATOR_HPP
#define SPARK_ALLREDUCE_GPU_GPU_COMMUNICATOR_HPP

#include "allocations.hpp"
#include "communicator.hpp"
#include "kernel_images.hpp"
#include "plan.hpp"

namespace sar::gpu {

inline constexpr uint32_t kMostAllocations = 64;
inline constexpr uint32_t kMostCaptured = 4096;
inline constexpr uint32_t kPinnedBuffers = 2;
inline constexpr uint32_t kSignals = 0, kStaging = 1, kArena = 2;  // the first allocations

// In CallFields::schedule of what is no collective of the C header.
inline constexpr uint32_t kRegisterMarker = 0x100, kCaptureMarker = 0x101;

// A collective that was recorded: what peers compare, and where its buffers are.
struct CapturedCall {
  uint64_t count;
  uint64_t input_offset, output_offset;
  uint32_t kind;
  uint16_t input_allocation, output_allocation;
  uint32_t in_place;
  uint32_t chosen;  // the schedule that `auto` comes to
};

// What a rank says of its part in something that all do together or not at all.
struct Verdict {
  uint32_t status;  // sar_status
  char message[SAR_MESSAGE_BYTES];
};

// What a rank tells its peers, in the arena of its control segment. The owner writes it before a
// barrier, peers read it behind.
//
//   +-----------+------------------------------------------------+
//   | outcome   | written by the owner's kernels                 |
//   | rank      | device, sizes: before connect                  |
//   | verdict   | how its part of an agreement went; two by turns |
//   | memory    | allocations that peers may open                |
//   | captured  | the sequence of the capture that is ending     |
//   +-----------+------------------------------------------------+
struct Control {
  Outcome outcome;
  uint64_t magic;
  uint64_t arena_bytes, staging_bytes;
  uint32_t multiprocessors, block_threads;
  uint32_t ordinal;  // of the device, in the owner's process
  char device[64];   // PCI bus id
  Verdict verdict[2];
  uint32_t allocations;
  uint32_t captured;
  Allocation allocation[kMostAllocations];
  CapturedCall calls[kMostCaptured];
};
inline constexpr uint64_t kControlMagic = 0x314c525443554753u;  // "SGUCTRL1"

struct Request {
  sar_collective collective;
  const void *in;
  void *out;
  uint64_t count;
  sar_data_type type = SAR_FLOAT32;
  sar_reduce_op op = SAR_SUM;
  sar_schedule schedule = SAR_AUTO;
  uint32_t root = 0;
};

class GpuCommunicator {
 public:
  GpuCommunicator(const Driver &driver, int device, const sar_options &options);
  ~GpuCommunicator();
  GpuCommunicator(const GpuCommunicator &) = delete;
  GpuCommunicator &operator=(const GpuCommunicator &) = delete;

  sar_status create();
  sar_status connect(const Handle *handles, int64_t timeout_ns);
  sar_status run(const Request &request, int64_t timeout_ns);
  sar_status register_memory(uint64_t address, uint64_t bytes, int64_t timeout_ns);
  sar_status wait(int64_t timeout_ns);
  void enqueue_next() { enqueue_next_ = true; }

  // What the functions of these names in the C header do.
  sar_status use_stream(void *stream);
  sar_status pinned(uint32_t buffer, void **base, uint64_t *bytes) const;
  sar_status pinned_to_device(uint32_t buffer, uint64_t device, uint64_t bytes);
  sar_status device_to_pinned(uint32_t buffer, uint64_t device, uint64_t bytes);
  sar_status pinned_wait(uint32_t buffer, int64_t timeout_ns);

  // What sar_comm_set_auto_table does.
  sar_status set_auto_table(const sar_auto_row *rows, size_t count);

  sar_status capture_begin(int64_t replay_timeout_ns);
  sar_status capture_end(int64_t timeout_ns, sar_graph **graph);
  sar_status capture_cancel();

  sar::Communicator &control() { return control_; }
  const sar::Communicator &control() const { return control_; }
  const Driver &driver() const { return driver_; }
  void *stream() const { return stream_; }
  uint64_t arena() const { return mine_[kArena]; }
  uint64_t arena_bytes() const { return arena_bytes_; }
  int use_device() const { return driver_.use_device(device_, context_); }
  // One thread at a time: false if another is inside of a call.
  bool enter() { return !__atomic_test_and_set(&inside_, __ATOMIC_ACQUIRE); }
  void leave() { __atomic_clear(&inside_, __ATOMIC_RELEASE); }
  // Remembers a failed driver call of this rank only.
  sar_status driver_failure(int error, const char *what) const;
  // Aborts because of a failed driver call, of which the peers would wait for this rank in vain.
  sar_status fail_call(int error, const char *what) {
    return fail_with_last(driver_failure(error, what));
  }
  // Waits until the stream is idle: at the latest at the kernels' deadline, and not for peers that
  // are gone.
  void drain();

 private:
  // A buffer of this rank: which allocation, how far in; kMostAllocations: not registered.
  struct Place {
    uint32_t allocation = kMostAllocations;
    uint64_t offset = 0;
  };
  struct Recorded {
    Call call;
    sar_schedule schedule;
    uint64_t input, output;
    Place input_place, output_place;  // filled when the capture ends
    uint32_t first_launch;
  };

  // What a rank says of its device, copied once: what lies in shared memory may change.
  struct Description {
    uint32_t multiprocessors = 0;
    char device[sizeof(Control::device)] = {};
  };

  Control &control_of(uint32_t rank) const;
  const char *device_of(uint32_t rank) const { return descriptions_[rank].device; }
  sar_status describe_device(Control &control);
  sar_status allocate();
  sar_status allocate_device_memory();
  sar_status allocate_pinned_memory();
  sar_status set_first_epoch();
  sar_status too_little_memory() const;
  sar_status compare_options();
  sar_status count_blocks();
  sar_status check_peer_access(uint32_t rank) const;
  bool is_same_process(uint32_t rank) const;
  sar_status note_allocation(uint32_t index, const Allocation &allocation);
  bool is_large_enough(uint32_t rank, uint32_t allocation) const;
  int reach(uint32_t rank, uint32_t allocation);
  sar_status map_peer_memory(uint32_t rank, uint32_t allocation);
  sar_status map_new_memory();
  void forget_new_memory();
  void unmap(uint32_t rank, uint32_t allocation);
  // Refuses, unless all ranks are connected and no capture is in progress.
  sar_status check_ready(sar_collective collective, const char *what) const;
  // An agreement: each rank says before a barrier how its part went; behind it `verdict` is the
  // first failure of any rank, so all come to the same answer.
  void announce(sar_status status);
  sar_status verdict();
  // Aborts with this thread's last failure as the cause, for which this rank is to blame.
  sar_status fail_with_last(sar_status status);
  sar_status share(uint64_t address, uint64_t bytes);
  sar_status check_foreign(uint64_t address, uint64_t bytes) const;
  sar_status copy_pinned(uint32_t buffer, uint64_t bytes, const char *what, bool to_device,
                         uint64_t device);
  Place find_place(uint64_t address, uint64_t bytes) const;
  sar_status add_allocation(uint64_t address, uint32_t *index);
  // The address of a buffer of `bytes` that a peer has announced; 0: it is not registered. False if
  // it is not inside of what that rank has shared, or not aligned to its elements.
  bool locate(uint32_t rank, uint32_t allocation, uint64_t offset, uint64_t bytes, uint64_t element,
              uint64_t *address) const;

  sar_status check(const Request &request) const;
  Call call_of(const Request &request, uint64_t timeout_ns) const;
  sar_status load_kernel(const Call &call, bool low_latency, void **function);
  sar_status preload(const Request &request, int64_t timeout_ns);
  sar_status take_part(const Request &request, uint64_t whole, int64_t timeout_ns, bool enqueue);
  sar_status compare(const CallFields (&all)[SAR_MAX_RANKS], const char *what);
  sar_status launch(const Planned &planned, void *function);
  sar_status run_launches(const Call &call, const Buffers &buffers, sar_schedule schedule);
  // What a rank that waits for its device knows of its peers.
  struct Watch {
    uint64_t looked = 0;          // when it last looked
    uint64_t left_since = 0;      // when it first saw that a peer had left; 0: none has
    uint64_t stopping_since = 0;  // when it told its kernels to stop; 0: it has not
    bool claimed = false;         // it has yet to say why
    sar::Communicator::Gone gone{};
  };

  // Waits until the stream is idle, or until it has reached `event`, then tells what the kernels
  // reported.
  sar_status finish(uint64_t timeout_ns, void *event = nullptr);
  void look_at_peers(Watch &watch, uint64_t now);
  sar_status report();
  sar_status report_gone(const sar::Communicator::Gone &gone);
  // Aborts because of ranks that are gone, with what the kernels reported, if they did.
  sar_status fail_gone(const sar::Communicator::Gone &gone, const Outcome *outcome);
  // Which collective the kernels were in, for messages: by its number, or if it was enqueued or
  // replayed, by that of the last call. Fills the facts.
  void name_call(const Outcome &outcome, Failure &cause, Message &where) const;

  sar_status record(const Request &request);
  sar_status exchange_captured();
  sar_status compare_captured();
  sar_status fill_addresses(uint64_t table);

  const Driver &driver_;
  int device_;
  void *context_ = nullptr;
  bool retained_ = false;
  bool inside_ = false;
  sar::Communicator control_;
  Kernels kernels_;
  void *own_stream_ = nullptr;
  void *stream_ = nullptr;     // what work goes to: the own one, or the caller's
  void *switching_ = nullptr;  // an event: the streams follow each other
  bool ready_ = false;         // connected
  bool enqueue_next_ = false;
  uint32_t agreements_ = 0;
  uint32_t first_epoch_;
  uint64_t arena_bytes_, staging_bytes_;
  uint64_t mine_[3] = {};
  uint64_t pinned_bytes_ = 0;
  void *pinned_[kPinnedBuffers] = {};
  void *copied_[kPinnedBuffers] = {};  // events: the buffer's last copy has ended
  void *registered_host_ = nullptr;
  uint64_t control_on_device_ = 0;
  Geometry geometry_;
  AutoTable auto_table_;
  // Where this process sees rank r's allocation a; 0: not mapped.
  uint64_t mapped_[SAR_MAX_RANKS][kMostAllocations] = {};
  bool opened_[SAR_MAX_RANKS][kMostAllocations] = {};
  uint32_t known_[SAR_MAX_RANKS] = {};  // how many of a rank's allocations are mapped
  uint32_t own_allocations_ = 0;        // mapped or not
  // Valid where mapped_ is not 0. Checked then, and out of anybody's reach since.
  Allocation allocations_[SAR_MAX_RANKS][kMostAllocations] = {};
  Description descriptions_[SAR_MAX_RANKS];

  // The capture in progress.
  bool capturing_ = false;
  uint32_t captures_ = 0;
  uint64_t replay_timeout_ = 0;
  uint64_t table_ = 0;
  Recorded *recorded_ = nullptr;
  uint32_t recorded_count_ = 0, launches_ = 0;
};

}  // namespace sar::gpu

// What the C header leaves opaque.
struct sar_graph {
  sar::gpu::GpuCommunicator *communicator;
  void *graph;
  void *executable;
  uint64_t table;
  uint32_t used_count;
  sar::gpu::Allocation used[sar::gpu::kMostAllocations];
};

#endif
