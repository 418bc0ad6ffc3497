// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.Backend;
import org.sparkallreduce.DataType;
import org.sparkallreduce.Device;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Schedule;
import org.sparkallreduce.Settings;
import org.sparkallreduce.exchange.Exchange;
import org.sparkallreduce.exchange.Hello;
import org.sparkallreduce.ffm.NativeCommunicator;
import org.sparkallreduce.ffm.NativeDevice;
import org.sparkallreduce.ffm.NativeLibrary;
import org.sparkallreduce.ffm.Statistics;
import org.sparkallreduce.ffm.Status;

/**
 * One rank's place among the ranks of a session, and the collectives that they call together.
 *
 * <p><b>Calling.</b> All ranks make the same calls in the same order, with equal counts, types,
 * operations, schedules and roots. If they do not, all get {@link AllReduceException.Mismatch}
 * before anything is written. The result has the same bits on every rank, in every run, under every
 * schedule ({@link ReduceOp}).
 *
 * <p><b>Buffers.</b> {@link RegisteredBuffer}s, from {@link #allocate}, are reached by the peers
 * directly. Arrays and other memory segments are copied in and out. Input and output are the same
 * memory or do not overlap.
 *
 * <p><b>Backends.</b> All of it works on the host and on GPUs alike ({@link #backend}); a program
 * that keeps to {@link RegisteredBuffer#copyFrom}, {@link RegisteredBuffer#copyTo} and these calls
 * runs on both. On GPUs, registered buffers are memory of each rank's own device, work is ordered
 * by a {@link #stream} and may be enqueued, and steps may be captured as a {@link Graph}.
 *
 * <p><b>Threads.</b> One thread at a time; {@link #abort} may be called by any thread at any time.
 *
 * <p><b>Failure.</b> Every wait ends by arrival, by abort, when a peer's process ends, or at the
 * deadline ({@code spark.allreduce.timeout}). After any failure but {@link
 * AllReduceException.Usage} the communicator is aborted on all ranks: every later call throws the
 * first cause.
 *
 * <p><b>Ownership.</b> It owns its shared memory until {@link #close}. The communicator of a stage
 * is closed with the stage.
 */
public final class Communicator extends ArrayCollectives implements AutoCloseable {
  /** Where buffers begin: a multiple of the cache line, and of what streaming stores like. */
  private static final long BUFFER_ALIGNMENT = 256;

  /** How long an aborted collective may take to end: it may be moving much data. */
  private static final long LONGEST_LEAVE_NANOS = TimeUnit.SECONDS.toNanos(30);

  private static final long LEAVE_POLL_NANOS = TimeUnit.MILLISECONDS.toNanos(1);

  private final Settings settings;
  private final Member member;
  private final NativeCommunicator comm;
  private final List<Hello> ranks;
  private final int rank;
  private final long timeoutNanos;
  private final Arena scope = Arena.ofShared();
  private final MemorySegment arena;
  private final @Nullable NativeDevice gpu;
  private final @Nullable DeviceCopies deviceCopies;
  private final Copies copies;
  private final Optional<String> fallback;
  private final Set<Graph> graphs = Collections.newSetFromMap(new IdentityHashMap<>());

  /** On the host backend, what a capture in progress has recorded. */
  private @Nullable List<Runnable> recording;

  private boolean capturing;
  private final Map<Long, Arena> registrations = new HashMap<>();
  private final AtomicBoolean busy = new AtomicBoolean();
  private final Object endLock = new Object();
  private long allocated;
  private volatile boolean closed;

  /**
   * Opens this rank's part and connects it with the others'. Collective: it makes one exchange.
   *
   * @throws AllReduceException.Setup if the ranks cannot work together
   * @throws AllReduceException.Resource if there is not enough shared memory
   */
  public static Communicator open(
      NativeLibrary library, Settings settings, RankIdentity identity, Exchange exchange) {
    try (var none = new Leases(settings)) {
      return open(library, settings, identity, exchange, Optional.empty(), none);
    }
  }

  /**
   * As {@link #open(NativeLibrary, Settings, RankIdentity, Exchange)}, or goes on with what {@code
   * leases} keeps under {@code lease}, if all ranks have it.
   */
  public static Communicator open(
      NativeLibrary library,
      Settings settings,
      RankIdentity identity,
      Exchange exchange,
      Optional<UUID> lease,
      Leases leases) {
    return open(library, settings, identity, exchange, lease, leases, new OpeningAbort());
  }

  /**
   * As above.
   *
   * @param abort by which another thread may end it early
   */
  public static Communicator open(
      NativeLibrary library,
      Settings settings,
      RankIdentity identity,
      Exchange exchange,
      Optional<UUID> lease,
      Leases leases,
      OpeningAbort abort) {
    Opening.Opened opened =
        new Opening(library, settings, identity, exchange, abort).open(lease, leases);
    return new Communicator(settings, identity.rank(), opened);
  }

  private Communicator(Settings settings, int rank, Opening.Opened opened) {
    this.settings = settings;
    this.rank = rank;
    this.member = opened.member();
    this.comm = member.comm();
    this.ranks = opened.ranks();
    this.fallback = opened.fallback();
    this.timeoutNanos = settings.timeout().toNanos();
    MemorySegment all = comm.arena(scope);
    this.arena = all.asSlice(0, settings.arenaBytes());
    MemorySegment forCopies = all.asSlice(settings.arenaBytes(), settings.stagingBytes());
    this.gpu = member.gpu().map(Member.Gpu::calls).orElse(null);
    this.deviceCopies =
        gpu == null ? null : new DeviceCopies(gpu, forCopies, scope, timeoutNanos, this::check);
    this.copies = deviceCopies != null ? deviceCopies : new HeapCopies(forCopies);
  }

  /** This rank's number, from 0. */
  public int rank() {
    return rank;
  }

  /** How many ranks there are. */
  public int size() {
    return ranks.size();
  }

  /** GPU or HOST: where registered buffers are. */
  public Backend backend() {
    return gpu == null ? Backend.HOST : Backend.GPU;
  }

  /** This rank's GPU, on the GPU backend. */
  public Optional<Device> device() {
    return member.gpu().map(Member.Gpu::device);
  }

  /** Why the ranks are on the host backend although one of them had a GPU; empty if none had. */
  public Optional<String> fallback() {
    return fallback;
  }

  /**
   * Cuts a buffer from the arena, zeroed. It lives as long as the communicator. Not collective:
   * ranks need not allocate alike.
   *
   * @throws AllReduceException.Usage if the arena has no room for it
   */
  public RegisteredBuffer allocate(DataType type, long count) {
    requireOpen();
    Arguments.requireCount(count, type);
    long bytes = count * type.bytes();
    long offset = (allocated + BUFFER_ALIGNMENT - 1) / BUFFER_ALIGNMENT * BUFFER_ALIGNMENT;
    if (offset > arena.byteSize() - bytes) {
      throw new AllReduceException.Usage(
          "A buffer of %d bytes does not fit: %d of the arena's %d bytes are in use on rank %d. Allocate"
                  .formatted(bytes, allocated, arena.byteSize(), rank)
              + " once, before the loop, or raise spark.allreduce.arena.size.");
    }
    MemorySegment segment = arena.asSlice(offset, bytes);
    if (gpu == null) { // a device's arena is not used a second time
      segment.fill((byte) 0);
    }
    allocated = offset + bytes;
    return new RegisteredBuffer(this, segment, type);
  }

  /**
   * Registers memory that this library did not allocate: {@code count} elements from byte {@code
   * offset} on, a multiple of the page size, of a regular file of this user, such as another
   * program's segment in /dev/shm. Collective: each rank names its own file, and all the same count
   * and type. It takes microseconds: the ranks tell each other through shared memory.
   *
   * @return the file's memory, mapped; valid until {@link #deregister} or {@link #close}
   * @throws AllReduceException.Resource on all ranks, if one cannot map its own or another's file
   */
  public RegisteredBuffer register(Path file, long offset, long count, DataType type) {
    if (gpu != null) {
      throw new AllReduceException.Usage(
          "Files are registered on the host backend only. On GPUs, adopt memory of the device.");
    }
    requireNotCapturing("register");
    Arguments.requireCount(count, type);
    long bytes = count * type.bytes();
    begin();
    try (Arena call = Arena.ofConfined()) {
      MemorySegment address = call.allocate(ValueLayout.ADDRESS);
      check(comm.register(file.toString(), offset, bytes, timeoutNanos, address));
      MemorySegment mapped = address.get(ValueLayout.ADDRESS, 0);
      Arena registration = Arena.ofShared();
      registrations.put(mapped.address(), registration);
      return new RegisteredBuffer(this, mapped.reinterpret(bytes, registration, null), type);
    } finally {
      leave();
    }
  }

  /** Ends what {@link #register} began, on all ranks. Collective. */
  public void deregister(RegisteredBuffer buffer) {
    requireOwn(buffer);
    begin();
    try {
      Arena registration = registrations.get(buffer.address());
      if (registration == null) {
        throw new AllReduceException.Usage(
            "Only a buffer that register returned can be deregistered, and only once.");
      }
      check(comm.deregister(buffer.memory(), timeoutNanos));
      registrations.remove(buffer.address());
      registration.close();
    } finally {
      leave();
    }
  }

  /** Reduces {@code buffer} over all ranks, in place. */
  public void allReduce(RegisteredBuffer buffer, ReduceOp op) {
    allReduce(buffer, buffer, op);
  }

  /** Reduces {@code in} over all ranks into {@code out}. */
  public void allReduce(RegisteredBuffer in, RegisteredBuffer out, ReduceOp op) {
    allReduce(in, out, op, settings.schedule());
  }

  /**
   * As {@link #allReduce(RegisteredBuffer, RegisteredBuffer, ReduceOp)}, under a given schedule.
   */
  public void allReduce(RegisteredBuffer in, RegisteredBuffer out, ReduceOp op, Schedule schedule) {
    allReduce(in, out, op, schedule, true);
  }

  /** As {@link #allReduce(RegisteredBuffer, ReduceOp)}, but {@linkplain #waitFor enqueued}. */
  public void enqueueAllReduce(RegisteredBuffer buffer, ReduceOp op) {
    enqueueAllReduce(buffer, buffer, op);
  }

  /**
   * As {@link #allReduce(RegisteredBuffer, RegisteredBuffer, ReduceOp)}, but {@linkplain #waitFor
   * enqueued}.
   */
  public void enqueueAllReduce(RegisteredBuffer in, RegisteredBuffer out, ReduceOp op) {
    allReduce(in, out, op, settings.schedule(), false);
  }

  /**
   * As {@link #allReduce(RegisteredBuffer, RegisteredBuffer, ReduceOp, Schedule)}, but {@linkplain
   * #waitFor enqueued}.
   */
  public void enqueueAllReduce(
      RegisteredBuffer in, RegisteredBuffer out, ReduceOp op, Schedule schedule) {
    allReduce(in, out, op, schedule, false);
  }

  private void allReduce(
      RegisteredBuffer in, RegisteredBuffer out, ReduceOp op, Schedule schedule, boolean wait) {
    requireOwn(in, out);
    long count = Arguments.requireSameCount(in.count(), out.count());
    if (recording != null) {
      recording.add(() -> allReduce(in, out, op, schedule, wait));
      return;
    }
    begin(wait);
    try {
      check(
          comm.allReduce(
              in.memory(), out.memory(), count, count, in.type(), op, schedule, timeoutNanos));
    } finally {
      leave();
    }
  }

  /** Reduces elements of {@code type} in {@code in} over all ranks into {@code out}. */
  @Override
  public void allReduce(MemorySegment in, MemorySegment out, DataType type, ReduceOp op) {
    allReduce(in, out, type, op, settings.schedule());
  }

  /** The call of a training loop on the heap: without an object for each call or each piece. */
  @Override
  void allReduceArray(
      Object in, Object out, int count, ValueLayout layout, DataType type, ReduceOp op) {
    if (!(copies instanceof HeapCopies heap)) {
      allReduce(Arguments.segment(in), Arguments.segment(out), type, op);
      return;
    }
    requireNotCapturing("all-reduce");
    begin();
    try {
      MemorySegment piece = heap.memory();
      int room = (int) heap.largestPiece(1, type);
      int done = 0;
      do {
        int n = Math.min(room, count - done);
        MemorySegment.copy(in, done, piece, layout, 0, n);
        check(comm.allReduce(piece, piece, n, count, type, op, settings.schedule(), timeoutNanos));
        MemorySegment.copy(piece, layout, 0, out, done, n);
        done += n;
      } while (done < count);
    } finally {
      leave();
    }
  }

  /** As {@link #allReduce(MemorySegment, MemorySegment, DataType, ReduceOp)}, under a schedule. */
  public void allReduce(
      MemorySegment in, MemorySegment out, DataType type, ReduceOp op, Schedule schedule) {
    Arguments.requireWritable(out);
    requireNotCapturing("all-reduce");
    long count = Arguments.requireSameCount(Arguments.count(in, type), Arguments.count(out, type));
    begin();
    try {
      if (isReached(in) && isReached(out)) {
        check(comm.allReduce(in, out, count, count, type, op, schedule, timeoutNanos));
      } else {
        copies.run(
            in,
            1,
            out,
            1,
            count,
            type,
            (from, to, n) ->
                check(comm.allReduce(from, to, n, count, type, op, schedule, timeoutNanos)));
      }
    } finally {
      leave();
    }
  }

  /**
   * Reduces {@code in}, one slice for each rank, and leaves this rank's slice of the result in
   * {@code out}. In place means that {@code out} is this rank's slice of {@code in}.
   */
  public void reduceScatter(RegisteredBuffer in, RegisteredBuffer out, ReduceOp op) {
    reduceScatter(in, out, op, true);
  }

  /**
   * As {@link #reduceScatter(RegisteredBuffer, RegisteredBuffer, ReduceOp)}, but {@linkplain
   * #waitFor enqueued}.
   */
  public void enqueueReduceScatter(RegisteredBuffer in, RegisteredBuffer out, ReduceOp op) {
    reduceScatter(in, out, op, false);
  }

  private void reduceScatter(RegisteredBuffer in, RegisteredBuffer out, ReduceOp op, boolean wait) {
    requireOwn(in, out);
    long count = Arguments.requireSlices("input", in.count(), "output", out.count(), size());
    if (recording != null) {
      recording.add(() -> reduceScatter(in, out, op, wait));
      return;
    }
    begin(wait);
    try {
      check(
          comm.reduceScatter(in.memory(), out.memory(), count, count, in.type(), op, timeoutNanos));
    } finally {
      leave();
    }
  }

  /** As {@link #reduceScatter(RegisteredBuffer, RegisteredBuffer, ReduceOp)}, on any memory. */
  @Override
  public void reduceScatter(MemorySegment in, MemorySegment out, DataType type, ReduceOp op) {
    Arguments.requireWritable(out);
    requireNotCapturing("reduce-scatter");
    long count =
        Arguments.requireSlices(
            "input", Arguments.count(in, type), "output", Arguments.count(out, type), size());
    begin();
    try {
      if (isReached(in) && isReached(out)) {
        check(comm.reduceScatter(in, out, count, count, type, op, timeoutNanos));
      } else {
        copies.run(
            in,
            size(),
            out,
            1,
            count,
            type,
            (from, to, n) -> check(comm.reduceScatter(from, to, n, count, type, op, timeoutNanos)));
      }
    } finally {
      leave();
    }
  }

  /**
   * Brings the inputs of all ranks, in rank order, to {@code out} on all ranks. In place means that
   * {@code in} is this rank's slice of {@code out}.
   */
  public void allGather(RegisteredBuffer in, RegisteredBuffer out) {
    allGather(in, out, true);
  }

  /**
   * As {@link #allGather(RegisteredBuffer, RegisteredBuffer)}, but {@linkplain #waitFor enqueued}.
   */
  public void enqueueAllGather(RegisteredBuffer in, RegisteredBuffer out) {
    allGather(in, out, false);
  }

  private void allGather(RegisteredBuffer in, RegisteredBuffer out, boolean wait) {
    requireOwn(in, out);
    long count = Arguments.requireSlices("output", out.count(), "input", in.count(), size());
    if (recording != null) {
      recording.add(() -> allGather(in, out, wait));
      return;
    }
    begin(wait);
    try {
      check(comm.allGather(in.memory(), out.memory(), count, count, in.type(), timeoutNanos));
    } finally {
      leave();
    }
  }

  /** As {@link #allGather(RegisteredBuffer, RegisteredBuffer)}, on any memory. */
  @Override
  public void allGather(MemorySegment in, MemorySegment out, DataType type) {
    Arguments.requireWritable(out);
    requireNotCapturing("all-gather");
    long count =
        Arguments.requireSlices(
            "output", Arguments.count(out, type), "input", Arguments.count(in, type), size());
    begin();
    try {
      if (isReached(in) && isReached(out)) {
        check(comm.allGather(in, out, count, count, type, timeoutNanos));
      } else {
        copies.run(
            in,
            1,
            out,
            size(),
            count,
            type,
            (from, to, n) -> check(comm.allGather(from, to, n, count, type, timeoutNanos)));
      }
    } finally {
      leave();
    }
  }

  /** Brings {@code buffer} of rank {@code root} to all ranks. */
  public void broadcast(RegisteredBuffer buffer, int root) {
    broadcast(buffer, root, true);
  }

  /** As {@link #broadcast(RegisteredBuffer, int)}, but {@linkplain #waitFor enqueued}. */
  public void enqueueBroadcast(RegisteredBuffer buffer, int root) {
    broadcast(buffer, root, false);
  }

  private void broadcast(RegisteredBuffer buffer, int root, boolean wait) {
    requireOwn(buffer, buffer);
    Arguments.requireRoot(root, size());
    if (recording != null) {
      recording.add(() -> broadcast(buffer, root, wait));
      return;
    }
    long count = buffer.count();
    MemorySegment memory = buffer.memory();
    begin(wait);
    try {
      check(comm.broadcast(memory, memory, count, count, buffer.type(), root, timeoutNanos));
    } finally {
      leave();
    }
  }

  /** As {@link #broadcast(RegisteredBuffer, int)}, on any memory. */
  @Override
  public void broadcast(MemorySegment values, DataType type, int root) {
    Arguments.requireWritable(values);
    Arguments.requireRoot(root, size());
    requireNotCapturing("broadcast");
    long count = Arguments.count(values, type);
    begin();
    try {
      if (isReached(values)) {
        check(comm.broadcast(values, values, count, count, type, root, timeoutNanos));
      } else {
        copies.run(
            values,
            rank == root ? 1 : 0,
            values,
            1,
            count,
            type,
            (from, to, n) -> check(comm.broadcast(from, to, n, count, type, root, timeoutNanos)));
      }
    } finally {
      leave();
    }
  }

  /** Returns when all ranks have called it. Microseconds, unlike the barrier of Spark's context. */
  public void barrier() {
    if (recording != null) {
      recording.add(this::barrier);
      return;
    }
    begin();
    try {
      check(comm.barrier(timeoutNanos));
    } finally {
      leave();
    }
  }

  /**
   * Returns when all that was enqueued has ended, and throws what went wrong in it. Until then the
   * buffers of enqueued collectives belong to them. The methods whose names begin with enqueue
   * return as soon as the ranks have compared their calls and the device has its orders; they keep
   * the order in which they were called, also with what other code puts on the same stream. On the
   * host backend they do their work at once, so this has nothing to wait for.
   */
  public void waitFor() {
    requireNotCapturing("waitFor");
    begin();
    try {
      if (gpu != null) {
        check(gpu.await(timeoutNanos));
      }
    } finally {
      leave();
    }
  }

  /**
   * The stream that this rank's work goes to, for code that enqueues its own: a CUstream or
   * hipStream_t. It belongs to the communicator, unless {@link #useStream} has named another.
   */
  public long stream() {
    begin();
    try {
      return requireGpu("A stream").stream();
    } finally {
      leave();
    }
  }

  /**
   * Lets this rank's work go to a stream of the caller's from here on, behind all that was enqueued
   * before. The stream must be one of this rank's device, and live until another one is named or
   * the communicator is closed, which waits for what is on it. Not collective.
   *
   * @param stream a CUstream or hipStream_t; 0: the communicator's own one again
   */
  public void useStream(long stream) {
    requireNotCapturing("useStream");
    begin();
    try {
      check(requireGpu("A stream").useStream(stream));
    } finally {
      leave();
    }
  }

  /**
   * Makes memory of this rank's device that this library did not allocate a registered buffer. It
   * must come from an allocation of its own kind (cudaMalloc, hipMalloc), not from a pool, and must
   * not be freed before the communicator is closed. Collective: each rank brings its own memory,
   * and all the same number of bytes. If it fails for one rank it fails for all, with that rank's
   * reason, and the communicator lives on.
   *
   * @param address on the device, aligned to the type
   * @param bytes how many, whole elements
   */
  public RegisteredBuffer adopt(long address, long bytes, DataType type) {
    requireNotCapturing("adopt");
    Arguments.requireCount(Arguments.count(bytes, type), type);
    begin();
    try {
      check(requireGpu("Memory of a device").register(address, bytes, timeoutNanos));
      MemorySegment memory = MemorySegment.ofAddress(address).reinterpret(bytes, scope, null);
      return new RegisteredBuffer(this, memory, type);
    } finally {
      leave();
    }
  }

  /**
   * Calls {@code step} once and records the collectives on registered buffers that it calls,
   * without running them; on the GPU backend also whatever other code enqueues on the {@link
   * #stream} meanwhile. Collective: all ranks capture the same sequence. The ranks exchange their
   * buffers when it ends, so that a replay needs none of it. The step must not use arrays, wait, or
   * call anything else that needs the host. If it throws, the capture is given up, on this rank.
   *
   * @return the step, to be replayed; closed with the communicator at the latest
   */
  public Graph capture(Runnable step) {
    requireNotCapturing("capture");
    beginCapture();
    boolean captured = false;
    try {
      step.run();
      captured = true;
    } finally {
      if (!captured) {
        cancelCapture();
      }
    }
    return endCapture();
  }

  private void beginCapture() {
    begin();
    try {
      if (gpu == null) {
        recording = new ArrayList<>();
      } else {
        check(gpu.captureBegin(timeoutNanos));
      }
      capturing = true;
    } finally {
      leave();
    }
  }

  private void cancelCapture() {
    if (!busy.compareAndSet(false, true)) {
      return; // another thread closes the communicator, which gives the capture up
    }
    try {
      capturing = false;
      recording = null;
      if (gpu != null && !closed) {
        var unused = gpu.captureCancel(); // what the step threw says more
      }
    } finally {
      leave();
    }
  }

  private Graph endCapture() {
    begin();
    try (Arena call = Arena.ofConfined()) {
      List<Runnable> calls = recording == null ? List.of() : List.copyOf(recording);
      capturing = false;
      recording = null;
      MemorySegment executable = MemorySegment.NULL;
      if (gpu != null) {
        MemorySegment result = call.allocate(ValueLayout.ADDRESS);
        check(gpu.captureEnd(timeoutNanos, result));
        executable = result.get(ValueLayout.ADDRESS, 0);
      }
      var graph = new Graph(this, executable, calls);
      graphs.add(graph);
      return graph;
    } finally {
      leave();
    }
  }

  void replay(Graph graph) {
    requireNotCapturing("replay");
    begin();
    try {
      if (!graphs.contains(graph)) {
        throw new AllReduceException.Usage("The graph is closed: capture the step again.");
      }
      if (gpu != null) {
        check(gpu.replay(graph.executable));
        return;
      }
    } finally {
      leave();
    }
    graph.calls.forEach(Runnable::run);
  }

  void close(Graph graph) {
    if (closed) {
      return; // the graph was closed with it
    }
    begin();
    try {
      if (graphs.remove(graph)) {
        destroy(graph);
      }
    } finally {
      leave();
    }
  }

  private void destroy(Graph graph) {
    if (gpu != null) {
      gpu.destroyGraph(graph.executable);
    }
  }

  void copyIn(MemorySegment source, MemorySegment memory) {
    requireNotCapturing("copyFrom");
    begin();
    try {
      if (deviceCopies == null) {
        memory.copyFrom(source);
      } else {
        deviceCopies.upload(source, memory);
      }
    } finally {
      leave();
    }
  }

  void copyOut(MemorySegment memory, MemorySegment target) {
    requireNotCapturing("copyTo");
    begin();
    try {
      if (deviceCopies == null) {
        target.copyFrom(memory);
      } else {
        deviceCopies.download(memory, target);
      }
    } finally {
      leave();
    }
  }

  /** What this rank has done so far. */
  public Statistics statistics() {
    requireOpen();
    return comm.statistics();
  }

  /**
   * Aborts the communicator on all ranks: whoever waits in a collective, or calls one, gets {@link
   * AllReduceException.Aborted} with {@code cause}. The first cause wins. Never blocks; any thread;
   * does nothing once it is closed.
   */
  public void abort(String cause) {
    synchronized (endLock) {
      // What was kept for another stage must not be aborted by this one.
      if (!closed) {
        comm.abort(rank, cause);
      }
    }
  }

  /**
   * Gives all memory back; a peer that still waits for this rank gets {@link
   * AllReduceException.PeerLost}. Idempotent. Does not wait for the peers.
   */
  @Override
  public void close() {
    if (end()) {
      member.close();
    }
  }

  /**
   * Closes this communicator, but keeps its native part for the next stage under this lease. Not if
   * foreign memory is still registered: all ranks would have to meet once more to let go of it, so
   * they let go of all. Nor on GPUs, whose kernels know their peers by rank.
   */
  public void closeInto(Leases leases, UUID lease) {
    boolean kept = registrations.isEmpty() && gpu == null;
    if (end()) {
      if (kept && comm.detach() == Status.OK) {
        leases.put(lease, member);
      } else {
        member.close();
      }
    }
  }

  /** From here on every use is refused. False if that was so before. */
  private boolean end() {
    if (!enterLast()) {
      throw new AllReduceException.Usage(
          "The communicator of rank %d is in use by another thread, which does not leave its collective."
                  .formatted(rank)
              + " Its memory stays mapped until the process ends.");
    }
    try {
      synchronized (endLock) {
        if (closed) {
          return false;
        }
        closed = true;
      }
      graphs.forEach(this::destroy);
      graphs.clear();
      registrations.values().forEach(Arena::close);
      scope.close();
      return true;
    } finally {
      leave();
    }
  }

  /** A thread that is still in a collective is made to leave it, which an abort does at once. */
  private boolean enterLast() {
    long start = System.nanoTime();
    while (!busy.compareAndSet(false, true)) {
      abort("rank %d ended while another of its threads was in a collective".formatted(rank));
      if (System.nanoTime() - start > LONGEST_LEAVE_NANOS) {
        return false;
      }
      LockSupport.parkNanos(LEAVE_POLL_NANOS);
    }
    return true;
  }

  private void begin() {
    if (!busy.compareAndSet(false, true)) {
      throw new AllReduceException.Usage(
          "Two threads use the communicator of rank %d at once. Let one thread call its collectives."
              .formatted(rank));
    }
    if (closed) {
      leave();
      requireOpen();
    }
  }

  /** As {@link #begin()}, for one collective that may only be enqueued. */
  private void begin(boolean wait) {
    begin();
    if (!wait && gpu != null) {
      gpu.enqueueNext();
    }
  }

  private void leave() {
    busy.set(false);
  }

  private void check(Status status) {
    if (status != Status.OK) {
      throw Failures.translate(comm.lastFailure(), rank, ranks);
    }
  }

  /** Whether native code may be given it as it is. */
  private boolean isReached(MemorySegment segment) {
    return gpu == null && segment.isNative();
  }

  private NativeDevice requireGpu(String what) {
    if (gpu == null) {
      throw new AllReduceException.Usage(
          "%s belongs to the GPU backend, and this communicator is on the host: look at backend() before."
              .formatted(what));
    }
    return gpu;
  }

  private void requireNotCapturing(String what) {
    if (capturing) {
      throw new AllReduceException.Usage(
          "%s is called during a capture on rank %d. A captured step calls collectives on registered buffers"
                  .formatted(what, rank)
              + " only, and has its buffers before.");
    }
  }

  private void requireOpen() {
    if (closed) {
      throw new AllReduceException.Usage(
          "The communicator of rank %d is closed: it lives as long as its stage. Use it, and its"
                  .formatted(rank)
              + " buffers, only inside of the function that got it.");
    }
  }

  private void requireOwn(RegisteredBuffer in, RegisteredBuffer out) {
    requireOwn(in);
    requireOwn(out);
    Arguments.requireSameType(in, out);
  }

  private void requireOwn(RegisteredBuffer buffer) {
    if (buffer.owner() != this) {
      throw new AllReduceException.Usage(
          "The buffer was allocated from another communicator. Allocate it from the one that rank %d"
                  .formatted(rank)
              + " calls the collective on.");
    }
  }
}
