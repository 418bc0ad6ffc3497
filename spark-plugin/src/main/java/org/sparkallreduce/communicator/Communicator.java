// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ProcessIdentity;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Schedule;
import org.sparkallreduce.Settings;
import org.sparkallreduce.exchange.Agreement;
import org.sparkallreduce.exchange.Exchange;
import org.sparkallreduce.exchange.Hello;
import org.sparkallreduce.exchange.HelloCodec;
import org.sparkallreduce.exchange.HostIdentity;
import org.sparkallreduce.ffm.NativeCommunicator;
import org.sparkallreduce.ffm.NativeFailure;
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
public final class Communicator implements AutoCloseable {
  /** Where buffers begin: a multiple of the cache line, and of what streaming stores like. */
  private static final long BUFFER_ALIGNMENT = 256;

  private final NativeLibrary library;
  private final NativeCommunicator comm;
  private final Settings settings;
  private final List<Hello> ranks;
  private final int rank;
  private final long timeoutNanos;
  private final MemorySegment arena;
  private final HeapCopies copies;
  private final AtomicBoolean busy = new AtomicBoolean();
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
    requireWorldSize(identity);
    NativeCommunicator comm;
    try {
      comm =
          NativeCommunicator.create(
              library,
              new NativeCommunicator.Options(
                  identity.rank(),
                  identity.worldSize(),
                  identity.session(),
                  settings.arenaBytes() + settings.stagingBytes(),
                  settings.stagingBytes(),
                  settings.spin().toNanos()));
    } catch (NativeFailure e) {
      throw Failures.translate(e.failure(), List.of());
    }
    try {
      List<Hello> ranks = exchangeHellos(library, settings, identity, comm, exchange);
      List<ByteBuffer> handles = ranks.stream().map(Hello::handle).toList();
      if (comm.connect(handles, settings.timeout().toNanos()) != Status.OK) {
        throw Failures.translate(library.lastFailure(), ranks);
      }
      return new Communicator(library, comm, settings, identity.rank(), ranks);
    } catch (Throwable t) {
      comm.close();
      throw t;
    }
  }

  private static void requireWorldSize(RankIdentity identity) {
    int size = identity.worldSize();
    if (size < 1 || size > NativeCommunicator.MAX_RANKS) {
      throw new AllReduceException.Usage(
          "A communicator has 1 to %d ranks, not %d. Repartition to fewer ranks."
              .formatted(NativeCommunicator.MAX_RANKS, size));
    }
  }

  private static List<Hello> exchangeHellos(
      NativeLibrary library,
      Settings settings,
      RankIdentity identity,
      NativeCommunicator comm,
      Exchange exchange) {
    var codec = new HelloCodec();
    var hello =
        new Hello(
            Hello.PROTOCOL,
            identity.rank(),
            identity.worldSize(),
            identity.session(),
            identity.executorId(),
            identity.host(),
            HostIdentity.current(),
            ProcessIdentity.current(),
            identity.device(),
            library.buildInfo(),
            settings.arenaBytes(),
            settings.stagingBytes(),
            settings.schedule(),
            comm.handle());
    String[] messages = exchange.allGather(codec.encode(hello));
    var ranks = new ArrayList<Hello>(messages.length);
    for (int rank = 0; rank < messages.length; rank++) {
      Hello other = codec.decode(rank, messages[rank]);
      if (other.handle().remaining() != NativeCommunicator.HANDLE_BYTES) {
        throw new AllReduceException.Setup(
            "The exchange message of rank %d has a handle of %d bytes instead of %d. Use one build of"
                    .formatted(rank, other.handle().remaining(), NativeCommunicator.HANDLE_BYTES)
                + " spark-allreduce on all executors.");
      }
      ranks.add(other);
    }
    Agreement.check(ranks, identity.worldSize());
    return List.copyOf(ranks);
  }

  private Communicator(
      NativeLibrary library,
      NativeCommunicator comm,
      Settings settings,
      int rank,
      List<Hello> ranks) {
    this.library = library;
    this.comm = comm;
    this.settings = settings;
    this.rank = rank;
    this.ranks = ranks;
    this.timeoutNanos = settings.timeout().toNanos();
    MemorySegment all = comm.arena();
    this.arena = all.asSlice(0, settings.arenaBytes());
    this.copies = new HeapCopies(all.asSlice(settings.arenaBytes(), settings.stagingBytes()));
  }

  /** This rank's number, from 0. */
  public int rank() {
    return rank;
  }

  /** How many ranks there are. */
  public int size() {
    return ranks.size();
  }

  /**
   * Cuts a buffer from the arena, zeroed. It lives as long as the communicator. Not collective:
   * ranks need not allocate alike.
   *
   * @throws AllReduceException.Usage if the arena has no room for it
   */
  public RegisteredBuffer allocate(DataType type, long count) {
    requireOpen();
    requireCount(count, type);
    long bytes = count * type.bytes();
    long offset = (allocated + BUFFER_ALIGNMENT - 1) / BUFFER_ALIGNMENT * BUFFER_ALIGNMENT;
    if (offset > arena.byteSize() - bytes) {
      throw new AllReduceException.Usage(
          "A buffer of %d bytes does not fit: %d of the arena's %d bytes are in use on rank %d. Allocate"
                  .formatted(bytes, allocated, arena.byteSize(), rank)
              + " once, before the loop, or raise spark.allreduce.arena.size.");
    }
    MemorySegment segment = arena.asSlice(offset, bytes);
    segment.fill((byte) 0);
    allocated = offset + bytes;
    return new RegisteredBuffer(this, segment, type);
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
    requireOwn(in);
    requireOwn(out);
    requireSameType(in, out);
    allReduce(in.segment(), out.segment(), in.type(), op, schedule);
  }

  /** Reduces {@code values} over all ranks, in place. */
  public void allReduce(double[] values, ReduceOp op) {
    allReduce(values, values, op);
  }

  /** Reduces {@code in} over all ranks into {@code out}. */
  public void allReduce(double[] in, double[] out, ReduceOp op) {
    allReduce(MemorySegment.ofArray(in), MemorySegment.ofArray(out), DataType.FLOAT64, op);
  }

  /** Reduces {@code values} over all ranks, in place. */
  public void allReduce(float[] values, ReduceOp op) {
    allReduce(values, values, op);
  }

  /** Reduces {@code in} over all ranks into {@code out}. */
  public void allReduce(float[] in, float[] out, ReduceOp op) {
    allReduce(MemorySegment.ofArray(in), MemorySegment.ofArray(out), DataType.FLOAT32, op);
  }

  /** Reduces {@code values} over all ranks, in place. */
  public void allReduce(int[] values, ReduceOp op) {
    allReduce(values, values, op);
  }

  /** Reduces {@code in} over all ranks into {@code out}. */
  public void allReduce(int[] in, int[] out, ReduceOp op) {
    allReduce(MemorySegment.ofArray(in), MemorySegment.ofArray(out), DataType.INT32, op);
  }

  /** Reduces {@code values} over all ranks, in place. */
  public void allReduce(long[] values, ReduceOp op) {
    allReduce(values, values, op);
  }

  /** Reduces {@code in} over all ranks into {@code out}. */
  public void allReduce(long[] in, long[] out, ReduceOp op) {
    allReduce(MemorySegment.ofArray(in), MemorySegment.ofArray(out), DataType.INT64, op);
  }

  /** Reduces elements of {@code type} in {@code in} over all ranks into {@code out}. */
  public void allReduce(MemorySegment in, MemorySegment out, DataType type, ReduceOp op) {
    allReduce(in, out, type, op, settings.schedule());
  }

  private void allReduce(
      MemorySegment in, MemorySegment out, DataType type, ReduceOp op, Schedule schedule) {
    long count = requireSameCount(count(in, type), count(out, type));
    begin();
    try {
      if (in.isNative() && out.isNative()) {
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
      end();
    }
  }

  /**
   * Reduces {@code in}, one slice for each rank, and leaves this rank's slice of the result in
   * {@code out}. In place means that {@code out} is this rank's slice of {@code in}.
   */
  public void reduceScatter(RegisteredBuffer in, RegisteredBuffer out, ReduceOp op) {
    requireOwn(in);
    requireOwn(out);
    requireSameType(in, out);
    reduceScatter(in.segment(), out.segment(), in.type(), op);
  }

  /** As {@link #reduceScatter(RegisteredBuffer, RegisteredBuffer, ReduceOp)}, by copying. */
  public void reduceScatter(double[] in, double[] out, ReduceOp op) {
    reduceScatter(MemorySegment.ofArray(in), MemorySegment.ofArray(out), DataType.FLOAT64, op);
  }

  /** As {@link #reduceScatter(RegisteredBuffer, RegisteredBuffer, ReduceOp)}, by copying. */
  public void reduceScatter(float[] in, float[] out, ReduceOp op) {
    reduceScatter(MemorySegment.ofArray(in), MemorySegment.ofArray(out), DataType.FLOAT32, op);
  }

  /** As {@link #reduceScatter(RegisteredBuffer, RegisteredBuffer, ReduceOp)}, by copying. */
  public void reduceScatter(int[] in, int[] out, ReduceOp op) {
    reduceScatter(MemorySegment.ofArray(in), MemorySegment.ofArray(out), DataType.INT32, op);
  }

  /** As {@link #reduceScatter(RegisteredBuffer, RegisteredBuffer, ReduceOp)}, by copying. */
  public void reduceScatter(long[] in, long[] out, ReduceOp op) {
    reduceScatter(MemorySegment.ofArray(in), MemorySegment.ofArray(out), DataType.INT64, op);
  }

  /** As {@link #reduceScatter(RegisteredBuffer, RegisteredBuffer, ReduceOp)}, on any memory. */
  public void reduceScatter(MemorySegment in, MemorySegment out, DataType type, ReduceOp op) {
    long count = requireSlices("input", count(in, type), "output", count(out, type));
    begin();
    try {
      if (in.isNative() && out.isNative()) {
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
      end();
    }
  }

  /**
   * Brings the inputs of all ranks, in rank order, to {@code out} on all ranks. In place means that
   * {@code in} is this rank's slice of {@code out}.
   */
  public void allGather(RegisteredBuffer in, RegisteredBuffer out) {
    requireOwn(in);
    requireOwn(out);
    requireSameType(in, out);
    allGather(in.segment(), out.segment(), in.type());
  }

  /** As {@link #allGather(RegisteredBuffer, RegisteredBuffer)}, by copying. */
  public void allGather(double[] in, double[] out) {
    allGather(MemorySegment.ofArray(in), MemorySegment.ofArray(out), DataType.FLOAT64);
  }

  /** As {@link #allGather(RegisteredBuffer, RegisteredBuffer)}, by copying. */
  public void allGather(float[] in, float[] out) {
    allGather(MemorySegment.ofArray(in), MemorySegment.ofArray(out), DataType.FLOAT32);
  }

  /** As {@link #allGather(RegisteredBuffer, RegisteredBuffer)}, by copying. */
  public void allGather(int[] in, int[] out) {
    allGather(MemorySegment.ofArray(in), MemorySegment.ofArray(out), DataType.INT32);
  }

  /** As {@link #allGather(RegisteredBuffer, RegisteredBuffer)}, by copying. */
  public void allGather(long[] in, long[] out) {
    allGather(MemorySegment.ofArray(in), MemorySegment.ofArray(out), DataType.INT64);
  }

  /** As {@link #allGather(RegisteredBuffer, RegisteredBuffer)}, on any memory. */
  public void allGather(MemorySegment in, MemorySegment out, DataType type) {
    long count = requireSlices("output", count(out, type), "input", count(in, type));
    begin();
    try {
      if (in.isNative() && out.isNative()) {
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
      end();
    }
  }

  /** Brings {@code buffer} of rank {@code root} to all ranks. */
  public void broadcast(RegisteredBuffer buffer, int root) {
    requireOwn(buffer);
    broadcast(buffer.segment(), buffer.type(), root);
  }

  /** As {@link #broadcast(RegisteredBuffer, int)}, by copying. */
  public void broadcast(double[] values, int root) {
    broadcast(MemorySegment.ofArray(values), DataType.FLOAT64, root);
  }

  /** As {@link #broadcast(RegisteredBuffer, int)}, by copying. */
  public void broadcast(float[] values, int root) {
    broadcast(MemorySegment.ofArray(values), DataType.FLOAT32, root);
  }

  /** As {@link #broadcast(RegisteredBuffer, int)}, by copying. */
  public void broadcast(int[] values, int root) {
    broadcast(MemorySegment.ofArray(values), DataType.INT32, root);
  }

  /** As {@link #broadcast(RegisteredBuffer, int)}, by copying. */
  public void broadcast(long[] values, int root) {
    broadcast(MemorySegment.ofArray(values), DataType.INT64, root);
  }

  /** As {@link #broadcast(RegisteredBuffer, int)}, on any memory. */
  public void broadcast(MemorySegment values, DataType type, int root) {
    if (root < 0 || root >= size()) {
      throw new AllReduceException.Usage(
          "Root %d is none of the ranks 0 to %d.".formatted(root, size() - 1));
    }
    long count = count(values, type);
    begin();
    try {
      if (values.isNative()) {
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
      end();
    }
  }

  /** Returns when all ranks have called it. Microseconds, unlike the barrier of Spark's context. */
  public void barrier() {
    begin();
    try {
      check(comm.barrier(timeoutNanos));
    } finally {
      end();
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
    comm.abort(rank, cause);
  }

  /**
   * Gives all memory back; a peer that still waits for this rank gets {@link
   * AllReduceException.PeerLost}. Idempotent. Does not wait for the peers.
   */
  @Override
  public void close() {
    closed = true;
    if (!busy.compareAndSet(false, true)) {
      throw new AllReduceException.Usage(
          "The communicator of rank %d is in use by another thread: end its collective first, with"
                  .formatted(rank)
              + " abort if need be, and close it then.");
    }
    try {
      comm.close();
    } finally {
      end();
    }
  }

  private void begin() {
    if (!busy.compareAndSet(false, true)) {
      throw new AllReduceException.Usage(
          "Two threads use the communicator of rank %d at once. Let one thread call its collectives."
              .formatted(rank));
    }
    if (closed) {
      end();
      requireOpen();
    }
  }

  private void end() {
    busy.set(false);
  }

  private void check(Status status) {
    if (status != Status.OK) {
      throw Failures.translate(library.lastFailure(), ranks);
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

  private void requireOwn(RegisteredBuffer buffer) {
    if (buffer.owner() != this) {
      throw new AllReduceException.Usage(
          "The buffer was allocated from another communicator. Allocate it from the one that rank %d"
                  .formatted(rank)
              + " calls the collective on.");
    }
  }

  private static void requireSameType(RegisteredBuffer in, RegisteredBuffer out) {
    if (in.type() != out.type()) {
      throw new AllReduceException.Usage(
          "The input has elements of type %s, the output of type %s. Use one type."
              .formatted(in.type(), out.type()));
    }
  }

  private static long count(MemorySegment segment, DataType type) {
    if (segment.byteSize() % type.bytes() != 0) {
      throw new AllReduceException.Usage(
          "A segment of %d bytes does not hold whole elements of type %s (%d bytes each)."
              .formatted(segment.byteSize(), type, type.bytes()));
    }
    return segment.byteSize() / type.bytes();
  }

  private static void requireCount(long count, DataType type) {
    if (count < 0 || count > Long.MAX_VALUE / 2 / type.bytes()) {
      throw new AllReduceException.Usage(
          "A buffer cannot have %d elements of type %s.".formatted(count, type));
    }
  }

  private static long requireSameCount(long in, long out) {
    if (in != out) {
      throw new AllReduceException.Usage(
          "The input has %d elements, the output %d. They must be equal.".formatted(in, out));
    }
    return in;
  }

  /** The count of one slice, where one side has a slice for each rank and the other has one. */
  private long requireSlices(String wholeName, long whole, String sliceName, long slice) {
    if (slice > Long.MAX_VALUE / size() || whole != slice * size()) {
      throw new AllReduceException.Usage(
          "The %s has %d elements and the %s %d; with %d ranks, the %s needs %d times as many."
              .formatted(wholeName, whole, sliceName, slice, size(), wholeName, size()));
    }
    return slice;
  }
}
