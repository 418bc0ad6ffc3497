/*
 * Licensed under the Apache License, Version 2.0. See LICENSE.
 *
 * spark_allreduce.h: the only seam between Java and the native backends.
 *
 * Each backend is one shared library that exports exactly these functions. Java decides who takes
 * part, when, and what to do about a failure; the code behind this header moves bytes.
 *
 * Life of a communicator, per rank:
 *
 *   sar_comm_create   allocates what this rank owns (signal pad, staging buffers, arena)
 *   sar_comm_handle   says how a peer can reach it: SAR_HANDLE_BYTES opaque bytes
 *         ... Java exchanges the handles of all ranks, once ...
 *   sar_comm_connect  collective: maps what the peers own and waits until all have done so
 *   sar_all_reduce, sar_reduce_scatter, sar_all_gather, sar_broadcast, sar_barrier
 *   sar_comm_detach / sar_comm_attach   between two stages that use the same communicator
 *   sar_comm_destroy  releases everything of this rank
 *
 * Thread safety: a communicator is used by one thread at a time. The two exceptions are sar_abort
 * and sar_comm_state, which any thread may call at any time before sar_comm_destroy begins.
 *
 * Errors: every function that can fail returns a sar_status. The text and the details of the
 * calling thread's last failure are read with sar_last_error and sar_last_failure. No C++ exception
 * leaves.
 *
 * Every function that waits takes a time-out in nanoseconds (above zero) and ends by arrival, by
 * abort, by the loss of a peer, or at the deadline. A collective that fails for any reason other
 * than SAR_INVALID_ARGUMENT or SAR_UNSUPPORTED aborts the communicator on all ranks: each later
 * call returns the first cause.
 */
#ifndef SPARK_ALLREDUCE_H
#define SPARK_ALLREDUCE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SAR_API __attribute__((visibility("default")))

/* Raised whenever a declaration, a constant, or a byte of shared layout changes. */
#define SAR_ABI_VERSION 3u

#define SAR_MAX_RANKS 16u
#define SAR_HANDLE_BYTES 256u
#define SAR_MESSAGE_BYTES 512u
/* How many registrations outside of the arena a communicator can hold. */
#define SAR_MAX_REGIONS 64u
/* Most rows of a table for SAR_AUTO. */
#define SAR_MAX_AUTO_ROWS 64u
/* Smallest arena and staging area; both are rounded up to whole pages. */
#define SAR_MIN_STAGING_BYTES 65536u

typedef enum sar_status {
  SAR_OK = 0,
  SAR_INVALID_ARGUMENT = 1, /* this call was refused; the communicator is as it was */
  SAR_MISMATCH = 2,         /* ranks called different collectives; nothing was written */
  SAR_TIMEOUT = 3,          /* the deadline passed while peers were missing */
  SAR_ABORTED = 4,          /* somebody called sar_abort */
  SAR_PEER_LOST = 5,        /* a peer's process ended, or it left while it was needed */
  SAR_OUT_OF_MEMORY = 6,    /* shared, device or heap memory ran out */
  SAR_SYSTEM_ERROR = 7,     /* a system or driver call failed; the message has the details */
  SAR_UNSUPPORTED = 8       /* this backend or machine cannot do it */
} sar_status;

typedef enum sar_data_type {
  SAR_FLOAT64 = 0,
  SAR_FLOAT32 = 1,
  SAR_FLOAT16 = 2,
  SAR_BFLOAT16 = 3,
  SAR_INT32 = 4,
  SAR_INT64 = 5
} sar_data_type;

/*
 * Numerics, for every backend and schedule: ranks are combined in the order 0, 1, ..., N-1; in
 * float32 for float16 and bfloat16, otherwise in the type itself; rounded once, to nearest even.
 * Integer sums and products wrap; AVERAGE divides the sum by N (integers: towards zero). MIN and
 * MAX propagate NaN and order -0 before +0. A NaN result is always the type's canonical quiet NaN.
 */
typedef enum sar_reduce_op {
  SAR_SUM = 0,
  SAR_PRODUCT = 1,
  SAR_MIN = 2,
  SAR_MAX = 3,
  SAR_AVERAGE = 4
} sar_reduce_op;

typedef enum sar_schedule {
  SAR_AUTO = 0,
  SAR_ONE_SHOT = 1,
  SAR_TWO_SHOT_READ = 2,
  SAR_STAGED_WRITE = 3,
  SAR_DIRECT_WRITE = 4,
  SAR_LOAD_REDUCE_STORE = 5,
  SAR_LOW_LATENCY = 6 /* small messages; how large they may be depends on the backend */
} sar_schedule;

typedef enum sar_collective {
  SAR_COLLECTIVE_NONE = 0,
  SAR_COLLECTIVE_CONNECT = 1,
  SAR_COLLECTIVE_BARRIER = 2,
  SAR_COLLECTIVE_ALL_REDUCE = 3,
  SAR_COLLECTIVE_REDUCE_SCATTER = 4,
  SAR_COLLECTIVE_ALL_GATHER = 5,
  SAR_COLLECTIVE_BROADCAST = 6,
  SAR_COLLECTIVE_REGISTER = 7,
  SAR_COLLECTIVE_DEREGISTER = 8
} sar_collective;

typedef enum sar_comm_state_code {
  SAR_STATE_OPENING = 0,  /* created, not connected yet */
  SAR_STATE_OPEN = 1,     /* connected and attached: collectives may be called */
  SAR_STATE_DETACHED = 2, /* connected, but its stage has ended */
  SAR_STATE_ABORTED = 3   /* refuses everything but sar_comm_destroy */
} sar_comm_state_code;

typedef struct sar_comm sar_comm;

typedef struct sar_options {
  uint32_t struct_bytes;  /* sizeof(sar_options) */
  uint32_t rank;          /* 0 <= rank < world_size */
  uint32_t world_size;    /* 1 <= world_size <= SAR_MAX_RANKS */
  uint32_t first_epoch;   /* where epochs begin; 0 but in tests of the wrap */
  uint64_t session_high;  /* the session's 128-bit identity, the same on all ranks; */
  uint64_t session_low;   /*   a segment of another session is never mapped */
  uint64_t arena_bytes;   /* this rank's symmetric arena; the same on all ranks */
  uint64_t staging_bytes; /* this rank's staging buffers, at least SAR_MIN_STAGING_BYTES; ditto */
  uint64_t spin_ns;       /* how long a wait spins before it sleeps in the kernel */
} sar_options;

/* What is known about the calling thread's last failure, so that Java can name executors. */
typedef struct sar_failure {
  uint32_t status;        /* sar_status */
  uint32_t collective;    /* sar_collective during which it happened */
  uint64_t sequence;      /* number of that collective in the communicator, from 1 */
  int32_t origin_rank;    /* the rank that noticed the failure first, -1: unknown */
  int32_t culprit_rank;   /* the rank that caused it, -1: unknown */
  uint32_t missing_ranks; /* bit r: rank r had not arrived */
  uint32_t dead_ranks;    /* bit r: rank r's process has ended */
  uint32_t step;          /* which of the collective's waits, from 1 */
  uint32_t reserved;
  uint64_t waited_ns; /* how long the failing wait had lasted */
} sar_failure;

/* Counters since sar_comm_create; they only grow. */
typedef struct sar_statistics {
  uint64_t collectives;  /* collectives that succeeded */
  uint64_t bytes;        /* sum of their buffer sizes: count x element size, as passed */
  uint64_t wait_ns;      /* time spent waiting for peers */
  uint64_t total_ns;     /* time spent in collectives, waits included; a call of up to 16 KiB of the
                            host backend counts from where it begins to wait */
  uint64_t unregistered; /* collectives that fell back to staging, since a buffer of some rank
                            was not registered */
  /* By rank: the part of wait_ns that ended when that rank came, as the last one. Whom the
     collectives waited for. */
  uint64_t peer_wait_ns[SAR_MAX_RANKS];
} sar_statistics;

/* One row of the table that SAR_AUTO looks into. */
typedef struct sar_auto_row {
  uint32_t world_size; /* for communicators of at most so many ranks */
  uint32_t schedule;   /* sar_schedule, but SAR_AUTO */
  uint64_t bytes;      /* for buffers of at most so many bytes: count x element size */
} sar_auto_row;

typedef enum sar_vendor { SAR_NVIDIA = 0, SAR_AMD = 1 } sar_vendor;

/* A device that the driver shows to this process. Texts end with a zero byte. */
typedef struct sar_gpu_facts {
  uint32_t vendor;        /* sar_vendor */
  int32_t driver_version; /* as the vendor's driver counts */
  uint64_t memory_bytes;  /* all of its memory */
  char name[96];
  char uuid[48];   /* GPU-..., as the vendor's tools print it */
  char bus_id[32]; /* of the PCI bus */
} sar_gpu_facts;

typedef struct sar_constant {
  const char *name;
  uint64_t value;
} sar_constant;

/* SAR_ABI_VERSION of the library. Call it first: nothing else is safe if it differs. */
SAR_API uint32_t sar_abi_version(void);

/* Version, backend, compiler and architecture on one line. Static storage. */
SAR_API const char *sar_build_info(void);

/* Every constant and structure offset that another language repeats. Static storage. */
SAR_API const sar_constant *sar_constants(size_t *count);

/* The calling thread's last failure as text; empty if there was none. Valid until its next call. */
SAR_API const char *sar_last_error(void);

/* The calling thread's last failure as numbers. */
SAR_API void sar_last_failure(sar_failure *failure);

/*
 * Removes what dead processes of this user left behind on this host (segments whose process was
 * killed before all peers had mapped them). Only what provably belongs to a dead process of the
 * same user and the same PID namespace is touched. `removed` may be NULL.
 */
SAR_API sar_status sar_sweep(uint32_t *removed);

/* Allocates this rank's part. On success *comm is owned by the caller: sar_comm_destroy. */
SAR_API sar_status sar_comm_create(const sar_options *options, sar_comm **comm);

/* Writes SAR_HANDLE_BYTES bytes to `handle`. */
SAR_API sar_status sar_comm_handle(const sar_comm *comm, void *handle);

/*
 * Collective. `handles` holds world_size x SAR_HANDLE_BYTES bytes, in rank order. Handles come from
 * other processes: everything read from them and from what they name is checked before use. When
 * this returns SAR_OK, all ranks have mapped all others and no name is left in the file system.
 */
SAR_API sar_status sar_comm_connect(sar_comm *comm, const void *handles, int64_t timeout_ns);

/*
 * This rank's arena: page aligned, zeroed at creation, valid until sar_comm_destroy. Buffers inside
 * of it count as registered: peers reach them without a further exchange. How it is cut into
 * buffers is the caller's business; ranks need not use the same offsets.
 */
SAR_API sar_status sar_comm_arena(const sar_comm *comm, void **base, uint64_t *bytes);

SAR_API sar_comm_state_code sar_comm_state(const sar_comm *comm);

SAR_API sar_status sar_comm_statistics(const sar_comm *comm, sar_statistics *statistics);

/*
 * Marks that this rank has left (its stage is over): peers that still wait for it fail with
 * SAR_PEER_LOST at once instead of at their deadline. All memory stays mapped.
 */
SAR_API sar_status sar_comm_detach(sar_comm *comm);

/*
 * Takes part again. All ranks must have attached, and know it by means outside of this library,
 * before the next collective. Fails with the first cause if the communicator was aborted, and with
 * SAR_PEER_LOST if a peer's process has ended.
 */
SAR_API sar_status sar_comm_attach(sar_comm *comm);

/*
 * Renumbers the ranks: rank r is from now on whoever was rank members[r] at sar_comm_connect. Data
 * decides which rank a process is, and it may find itself in another process in the next stage. All
 * ranks pass the same world_size entries, a permutation, between sar_comm_attach and their first
 * collective after it.
 */
SAR_API sar_status sar_comm_renumber(sar_comm *comm, const uint32_t *members);

/*
 * Replaces the table from which SAR_AUTO takes the schedule of an all-reduce: the first row whose
 * world_size and bytes are not exceeded, and whose schedule can carry that many bytes; without such
 * a row SAR_LOAD_REDUCE_STORE. At most SAR_MAX_AUTO_ROWS rows, which are copied; with none, the
 * built-in table is back. Between collectives only, and the same on all ranks: where the schedules
 * differ, the next SAR_AUTO ends with SAR_MISMATCH.
 */
SAR_API sar_status sar_comm_set_auto_table(sar_comm *comm, const sar_auto_row *rows, size_t count);

/* How many collectives have begun; equal on all ranks between two collectives. */
SAR_API uint64_t sar_comm_sequence(const sar_comm *comm);

/*
 * Raises the abort flag on all ranks with `message` as the cause (cut to SAR_MESSAGE_BYTES - 1).
 * The first cause wins. Never blocks; any thread; also from a rank that is inside of a collective.
 */
SAR_API sar_status sar_abort(sar_comm *comm, int32_t culprit_rank, const char *message);

/* Marks this rank as gone, unmaps, releases. NULL is allowed. Never waits for peers. */
SAR_API void sar_comm_destroy(sar_comm *comm);

/*
 * Collectives. Buffers may be any memory of this process that is aligned to its element type; those
 * inside of the arena are faster. `count` is in elements and must be equal on all ranks, as must
 * type, operation, schedule and root: a difference is found before anything is written
 * (SAR_MISMATCH on all ranks). count 0 is allowed, and then buffers may be NULL. Input and output
 * must be equal or disjoint, except where a collective says otherwise.
 */

/* out[i] = op over ranks of in[i], for count elements; in == out is allowed. */
SAR_API sar_status sar_all_reduce(sar_comm *comm, const void *in, void *out, uint64_t count,
                                  sar_data_type type, sar_reduce_op op, sar_schedule schedule,
                                  int64_t timeout_ns);

/*
 * `in` has world_size x count elements; out[i] = op over ranks of in[rank x count + i]. In place
 * means out == in + rank x count.
 */
SAR_API sar_status sar_reduce_scatter(sar_comm *comm, const void *in, void *out, uint64_t count,
                                      sar_data_type type, sar_reduce_op op, int64_t timeout_ns);

/*
 * `in` has count elements, `out` world_size x count: out[r x count + i] = in[i] of rank r, bit for
 * bit. In place means in == out + rank x count.
 */
SAR_API sar_status sar_all_gather(sar_comm *comm, const void *in, void *out, uint64_t count,
                                  sar_data_type type, int64_t timeout_ns);

/* out[i] = in[i] of rank root, bit for bit; `in` is read on the root only. */
SAR_API sar_status sar_broadcast(sar_comm *comm, const void *in, void *out, uint64_t count,
                                 sar_data_type type, uint32_t root, int64_t timeout_ns);

/*
 * Says that the next collective is one piece of a call for `total` elements. Ranks compare it as
 * they compare counts: two different calls that were cut into equal pieces are found at their first
 * piece. It holds for one collective; without it, a collective's total is its count.
 */
SAR_API sar_status sar_comm_expect_total(sar_comm *comm, uint64_t total);

/*
 * Collective. Registers memory outside of the arena: `bytes` bytes, from `offset` on (a multiple of
 * the page size), of the regular file `path`, which this user owns and which can be mapped for
 * reading and writing, such as a segment of another program in /dev/shm. Each rank names its own
 * file; `bytes` must be equal on all ranks. *address is where this rank has it mapped; buffers
 * inside of it count as registered until sar_deregister or sar_comm_destroy. At most
 * SAR_MAX_REGIONS at a time. If one rank cannot map its own or another's file, all ranks get
 * SAR_SYSTEM_ERROR with its reason, nothing is registered, and the communicator lives on.
 */
SAR_API sar_status sar_register(sar_comm *comm, const char *path, uint64_t offset, uint64_t bytes,
                                int64_t timeout_ns, void **address);

/* Collective. Unmaps what the ranks registered together at `address` (each passes its own). */
SAR_API sar_status sar_deregister(sar_comm *comm, void *address, int64_t timeout_ns);

/* Returns when all ranks have called it. */
SAR_API sar_status sar_barrier(sar_comm *comm, int64_t timeout_ns);

/*
 * GPU backend only; the host backend does not export these.
 *
 * Buffers are device memory, and so is the arena. A collective returns when its result is there,
 * unless sar_gpu_enqueue_next came before it. Work of the caller that produces an input must be on
 * the communicator's stream, or have ended.
 *
 * Differences to the functions above: sar_comm_connect, if the devices of two ranks cannot work
 * together, gives all ranks the same status and message and does not abort: they can go on with
 * another backend. sar_comm_renumber, sar_register and sar_deregister are SAR_UNSUPPORTED.
 *
 * Graph mode: between sar_gpu_capture_begin and sar_gpu_capture_end collectives are recorded,
 * together with whatever else the caller enqueues on the stream, on any buffers of the device. The
 * end of the capture is collective: ranks exchange their buffers and check that all recorded the
 * same sequence. Replays then run without the host; sar_gpu_wait tells how they went. During a
 * capture, nothing else may be called but sar_gpu_stream and sar_gpu_capture_cancel.
 */
typedef struct sar_graph sar_graph;

SAR_API sar_status sar_gpu_device_count(uint32_t *count);

/* Takes no device memory: no context is opened. Devices are numbered as the driver does. */
SAR_API sar_status sar_gpu_device_facts(uint32_t device, sar_gpu_facts *facts);

/*
 * Memory of the device that nobody uses, as the driver says: whether an arena of some size fits,
 * and after a close, that all of it has come back. Opens a context for the call, if there is none.
 */
SAR_API sar_status sar_gpu_free_memory(uint32_t device, uint64_t *bytes);

/* The device of the calling thread's next sar_comm_create; 0 if never called. */
SAR_API sar_status sar_gpu_select_device(uint32_t device);

/* The stream that the communicator's work goes to (CUstream or hipStream_t). */
SAR_API sar_status sar_gpu_stream(const sar_comm *comm, void **stream);

/*
 * From here on the communicator's work goes to `stream`, which the caller owns and which lives
 * until another one is named or the communicator is destroyed; NULL: its own one again. It starts
 * when all that was enqueued on the stream before has ended. sar_comm_destroy waits for what is on
 * the stream then, the caller's own work too.
 */
SAR_API sar_status sar_gpu_use_stream(sar_comm *comm, void *stream);

/*
 * The next collective returns when it has been enqueued: the ranks have compared their calls, and
 * the kernels follow on the stream. What fails later is told by sar_gpu_wait or by any later call
 * that waits. The buffers belong to the collective until then. The time-out holds for each wait of
 * the kernels. It holds for one collective.
 */
SAR_API sar_status sar_gpu_enqueue_next(sar_comm *comm);

/* Copies that have ended when they return. They do not wait for what is enqueued. */
SAR_API sar_status sar_gpu_copy_to_device(sar_comm *comm, void *device, const void *host,
                                          uint64_t bytes);
SAR_API sar_status sar_gpu_copy_to_host(sar_comm *comm, void *host, const void *device,
                                        uint64_t bytes);

/*
 * Copies that are enqueued on the stream. They go through one of two buffers of pinned memory that
 * the communicator owns, so that the caller fills or reads one while the other travels.
 * sar_gpu_pinned_wait returns when the buffer's last copy has ended, with what had gone wrong on
 * the stream before it. The caller must not touch a buffer between a copy and its wait.
 */
SAR_API sar_status sar_gpu_pinned(sar_comm *comm, uint32_t buffer, void **base, uint64_t *bytes);
SAR_API sar_status sar_gpu_pinned_to_device(sar_comm *comm, uint32_t buffer, void *device,
                                            uint64_t bytes);
SAR_API sar_status sar_gpu_device_to_pinned(sar_comm *comm, uint32_t buffer, const void *device,
                                            uint64_t bytes);
SAR_API sar_status sar_gpu_pinned_wait(sar_comm *comm, uint32_t buffer, int64_t timeout_ns);

/*
 * Collective: makes the allocation that the buffer lies in reachable for all peers, like the arena.
 * It must not be freed before the communicator is destroyed. If one rank cannot share its own
 * buffer or reach another's, all ranks get the same status and message, nothing is registered, and
 * the communicator lives on.
 */
SAR_API sar_status sar_gpu_register(sar_comm *comm, const void *device, uint64_t bytes,
                                    int64_t timeout_ns);

/* `replay_timeout_ns` bounds every wait of every replay. */
SAR_API sar_status sar_gpu_capture_begin(sar_comm *comm, int64_t replay_timeout_ns);

/* Collective. On success *graph is owned by the caller: destroy it before the communicator. */
SAR_API sar_status sar_gpu_capture_end(sar_comm *comm, int64_t timeout_ns, sar_graph **graph);

/* Gives up the capture in progress: instead of its end, on all ranks. */
SAR_API sar_status sar_gpu_capture_cancel(sar_comm *comm);

/* Enqueues one replay on the communicator's stream. Refused if a captured buffer has been freed. */
SAR_API sar_status sar_gpu_replay(sar_graph *graph);

/* Returns when all that was enqueued has ended, with what went wrong in it. */
SAR_API sar_status sar_gpu_wait(sar_comm *comm, int64_t timeout_ns);

SAR_API void sar_gpu_graph_destroy(sar_graph *graph);

#ifdef __cplusplus
}
#endif

#endif /* SPARK_ALLREDUCE_H */
