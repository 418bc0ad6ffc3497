// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.ffm;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.UUID;
import java.util.stream.IntStream;
import org.sparkallreduce.AutoTable;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Schedule;

/**
 * One rank's {@code sar_comm}. It owns the native object: {@link #close} destroys it, and unmaps
 * all memory that it has handed out. Calls return a status; what failed is in {@link #lastFailure}.
 * Used by one thread at a time, except {@link #abort} and {@link #close}, which any thread may
 * call.
 */
public final class NativeCommunicator implements AutoCloseable {
  /** How many bytes {@link #handle} has. */
  public static final int HANDLE_BYTES = Abi.HANDLE_BYTES;

  /** The largest world size. */
  public static final int MAX_RANKS = Abi.MAX_RANKS;

  /** What {@code sar_options} says. All but the rank must agree between the ranks. */
  public record Options(
      int rank, int worldSize, UUID session, long arenaBytes, long stagingBytes, long spinNanos) {}

  /** How many rows {@link #setAutoTable} takes. */
  public static final int MAX_AUTO_ROWS = Abi.MAX_AUTO_ROWS;

  private final NativeLibrary library;
  private final NativeFunctions functions;
  private final Object lifeLock = new Object();
  private MemorySegment comm;

  /**
   * Creates this rank's part. {@code OK} or the reason is in {@code status()} of the result's
   * failure.
   *
   * @throws NativeFailure if it cannot be created
   */
  public static NativeCommunicator create(NativeLibrary library, Options options)
      throws NativeFailure {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment struct = arena.allocate(Abi.OPTIONS);
      Abi.field(Abi.OPTIONS, "struct_bytes").set(struct, 0L, (int) Abi.OPTIONS.byteSize());
      Abi.field(Abi.OPTIONS, "rank").set(struct, 0L, options.rank());
      Abi.field(Abi.OPTIONS, "world_size").set(struct, 0L, options.worldSize());
      Abi.field(Abi.OPTIONS, "session_high")
          .set(struct, 0L, options.session().getMostSignificantBits());
      Abi.field(Abi.OPTIONS, "session_low")
          .set(struct, 0L, options.session().getLeastSignificantBits());
      Abi.field(Abi.OPTIONS, "arena_bytes").set(struct, 0L, options.arenaBytes());
      Abi.field(Abi.OPTIONS, "staging_bytes").set(struct, 0L, options.stagingBytes());
      Abi.field(Abi.OPTIONS, "spin_ns").set(struct, 0L, options.spinNanos());
      MemorySegment result = arena.allocate(ADDRESS);
      int status = (int) library.functions().commCreate().invokeExact(struct, result);
      if (Status.of(status) != Status.OK) {
        throw new NativeFailure(library.lastFailure());
      }
      return new NativeCommunicator(library, result.get(ADDRESS, 0));
    } catch (NativeFailure e) {
      throw e;
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  private NativeCommunicator(NativeLibrary library, MemorySegment comm) {
    this.library = library;
    this.functions = library.functions();
    this.comm = comm;
  }

  /** What the last failed call of the calling thread has to say. */
  public Failure lastFailure() {
    return library.lastFailure();
  }

  MemorySegment address() {
    return comm;
  }

  /** What a peer needs to reach this rank: {@link #HANDLE_BYTES} bytes. */
  public ByteBuffer handle() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment handle = arena.allocate(HANDLE_BYTES);
      int status = (int) functions.commHandle().invokeExact(comm, handle);
      if (Status.of(status) != Status.OK) {
        throw new IllegalStateException("sar_comm_handle refused a valid communicator");
      }
      return ByteBuffer.wrap(handle.toArray(JAVA_BYTE)).asReadOnlyBuffer();
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /** Collective: maps what the peers own. {@code handles} are in rank order. */
  public Status connect(List<ByteBuffer> handles, long timeoutNanos) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment all = arena.allocate((long) handles.size() * HANDLE_BYTES);
      for (int rank = 0; rank < handles.size(); rank++) {
        all.asSlice((long) rank * HANDLE_BYTES, HANDLE_BYTES)
            .copyFrom(MemorySegment.ofBuffer(handles.get(rank)));
      }
      return Status.of((int) functions.commConnect().invokeExact(comm, all, timeoutNanos));
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /** The arena, accessible until {@code scope} is closed, which must be before {@link #close}. */
  public MemorySegment arena(Arena scope) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment base = arena.allocate(ADDRESS);
      MemorySegment bytes = arena.allocate(JAVA_LONG);
      int status = (int) functions.commArena().invokeExact(comm, base, bytes);
      if (Status.of(status) != Status.OK) {
        throw new IllegalStateException("sar_comm_arena refused a valid communicator");
      }
      return base.get(ADDRESS, 0).reinterpret(bytes.get(JAVA_LONG, 0), scope, null);
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /** Says that this rank's stage is over. */
  public Status detach() {
    try {
      return Status.of((int) functions.commDetach().invokeExact(comm));
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /** Takes part again, in another stage. */
  public Status attach() {
    try {
      return Status.of((int) functions.commAttach().invokeExact(comm));
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /** Makes rank r whoever was rank {@code members[r]} when the communicator was connected. */
  public Status renumber(int[] members) {
    try (Arena arena = Arena.ofConfined()) {
      return Status.of(
          (int) functions.commRenumber().invokeExact(comm, arena.allocateFrom(JAVA_INT, members)));
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /**
   * {@code sar_comm_set_auto_table}: {@code AUTO} takes the schedule of the first row whose world
   * size and bytes are not exceeded. All ranks set the same; no rows bring the built-in table back.
   */
  public Status setAutoTable(List<AutoTable.Row> rows) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment table = arena.allocate(Abi.AUTO_ROW, rows.size());
      long size = Abi.AUTO_ROW.byteSize();
      for (int i = 0; i < rows.size(); i++) {
        MemorySegment row = table.asSlice(i * size, size);
        Abi.field(Abi.AUTO_ROW, "world_size").set(row, 0L, rows.get(i).worldSize());
        Abi.field(Abi.AUTO_ROW, "schedule").set(row, 0L, rows.get(i).schedule().code());
        Abi.field(Abi.AUTO_ROW, "bytes").set(row, 0L, rows.get(i).bytes());
      }
      return Status.of(
          (int) functions.commSetAutoTable().invokeExact(comm, table, (long) rows.size()));
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /** How many collectives have begun. */
  public long sequence() {
    try {
      return (long) functions.commSequence().invokeExact(comm);
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /** True once the abort flag is raised: only {@link #close} is left. */
  public boolean isAborted() {
    try {
      return (int) functions.commState().invokeExact(comm) == Abi.STATE_ABORTED;
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /** True once it is connected, until it is detached or aborted. */
  public boolean isOpen() {
    try {
      return (int) functions.commState().invokeExact(comm) == Abi.STATE_OPEN;
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /**
   * {@code sar_register}: collective.
   *
   * @param result receives the address
   */
  public Status register(
      String path, long offset, long bytes, long timeoutNanos, MemorySegment result) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment name = arena.allocateFrom(path);
      return Status.of(
          (int) functions.register().invokeExact(comm, name, offset, bytes, timeoutNanos, result));
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /** {@code sar_deregister}: collective. */
  public Status deregister(MemorySegment address, long timeoutNanos) {
    try {
      return Status.of((int) functions.deregister().invokeExact(comm, address, timeoutNanos));
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  public Statistics statistics() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment struct = arena.allocate(Abi.STATISTICS);
      int status = (int) functions.commStatistics().invokeExact(comm, struct);
      if (Status.of(status) != Status.OK) {
        throw new IllegalStateException("sar_comm_statistics refused a valid communicator");
      }
      return new Statistics(
          struct.getAtIndex(JAVA_LONG, 0),
          struct.getAtIndex(JAVA_LONG, 1),
          struct.getAtIndex(JAVA_LONG, 2),
          struct.getAtIndex(JAVA_LONG, 3),
          struct.getAtIndex(JAVA_LONG, 4),
          IntStream.range(0, MAX_RANKS)
              .mapToObj(rank -> struct.getAtIndex(JAVA_LONG, 5L + rank))
              .toList());
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /**
   * {@code sar_all_reduce}.
   *
   * @param total the count of the whole call of which this one is a piece; {@code count} if it is
   *     whole
   */
  public Status allReduce(
      MemorySegment in,
      MemorySegment out,
      long count,
      long total,
      DataType type,
      ReduceOp op,
      Schedule schedule,
      long timeoutNanos) {
    try {
      expectTotal(count, total);
      return Status.of(
          (int)
              NativeFunctions.ALL_REDUCE.invokeExact(
                  functions.allReduce(),
                  comm,
                  in,
                  out,
                  count,
                  type.code(),
                  op.code(),
                  schedule.code(),
                  timeoutNanos));
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  public Status reduceScatter(
      MemorySegment in,
      MemorySegment out,
      long count,
      long total,
      DataType type,
      ReduceOp op,
      long timeoutNanos) {
    try {
      expectTotal(count, total);
      return Status.of(
          (int)
              NativeFunctions.REDUCE_SCATTER.invokeExact(
                  functions.reduceScatter(),
                  comm,
                  in,
                  out,
                  count,
                  type.code(),
                  op.code(),
                  timeoutNanos));
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  public Status allGather(
      MemorySegment in,
      MemorySegment out,
      long count,
      long total,
      DataType type,
      long timeoutNanos) {
    try {
      expectTotal(count, total);
      return Status.of(
          (int)
              NativeFunctions.ALL_GATHER.invokeExact(
                  functions.allGather(), comm, in, out, count, type.code(), timeoutNanos));
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  public Status broadcast(
      MemorySegment in,
      MemorySegment out,
      long count,
      long total,
      DataType type,
      int root,
      long timeoutNanos) {
    try {
      expectTotal(count, total);
      return Status.of(
          (int)
              NativeFunctions.BROADCAST.invokeExact(
                  functions.broadcast(), comm, in, out, count, type.code(), root, timeoutNanos));
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /** Pieces of different calls can be alike: the ranks compare the whole calls' counts too. */
  private void expectTotal(long count, long total) throws Throwable {
    if (total != count) {
      int ignored =
          (int) NativeFunctions.EXPECT_TOTAL.invokeExact(functions.commExpectTotal(), comm, total);
    }
  }

  public Status barrier(long timeoutNanos) {
    try {
      return Status.of(
          (int) NativeFunctions.BARRIER.invokeExact(functions.barrier(), comm, timeoutNanos));
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /** Raises the abort flag on all ranks; never blocks. Nothing happens once it is closed. */
  public void abort(int culpritRank, String message) {
    synchronized (lifeLock) {
      if (comm.equals(MemorySegment.NULL)) {
        return;
      }
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment text = arena.allocateFrom(message);
        int ignored = (int) functions.abort().invokeExact(comm, culpritRank, text);
      } catch (Throwable t) {
        throw NativeLibrary.unexpected(t);
      }
    }
  }

  /** Destroys the native object. The thread that uses the communicator calls it; idempotent. */
  @Override
  public void close() {
    synchronized (lifeLock) {
      if (comm.equals(MemorySegment.NULL)) {
        return;
      }
      try {
        functions.commDestroy().invokeExact(comm);
      } catch (Throwable t) {
        throw NativeLibrary.unexpected(t);
      }
      comm = MemorySegment.NULL;
    }
  }
}
