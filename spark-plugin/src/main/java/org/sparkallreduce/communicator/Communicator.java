// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.Backend;
import org.sparkallreduce.DataType;
import org.sparkallreduce.Device;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Settings;
import org.sparkallreduce.exchange.Exchange;
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
public final class Communicator extends BufferCollectives implements AutoCloseable {
  /** Where buffers begin: a multiple of the cache line, and of what streaming stores like. */
  private static final long BUFFER_ALIGNMENT = 256;

  private final Map<Long, Arena> registrations = new HashMap<>();
  private final List<Runnable> whenClosed = new ArrayList<>();
  private final Statistics atOpening;
  private long allocated;

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
    return new Communicator(new LocalRank(settings, identity.rank(), opened));
  }

  private Communicator(LocalRank local) {
    super(local);
    this.atOpening = local.comm.statistics();
  }

  /** This rank's number, from 0. */
  public int rank() {
    return local.rank;
  }

  /** How many ranks there are. */
  public int size() {
    return local.size;
  }

  /** GPU or HOST: where registered buffers are. */
  public Backend backend() {
    return local.gpu == null ? Backend.HOST : Backend.GPU;
  }

  /** This rank's GPU, on the GPU backend. */
  public Optional<Device> device() {
    return local.member.gpu().map(Member.Gpu::device);
  }

  /** Why the ranks are on the host backend although one of them had a GPU; empty if none had. */
  public Optional<String> fallback() {
    return local.fallback;
  }

  /**
   * Cuts a buffer from the arena, zeroed. It lives as long as the communicator. Not collective:
   * ranks need not allocate alike.
   *
   * @throws AllReduceException.Usage if the arena has no room for it
   */
  public RegisteredBuffer allocate(DataType type, long count) {
    local.requireOpen();
    Arguments.requireCount(count, type);
    long bytes = count * type.bytes();
    long offset = (allocated + BUFFER_ALIGNMENT - 1) / BUFFER_ALIGNMENT * BUFFER_ALIGNMENT;
    if (offset > local.arena.byteSize() - bytes) {
      throw new AllReduceException.Usage(
          "A buffer of %d bytes does not fit: %d of the arena's %d bytes are in use on rank %d. Allocate"
                  .formatted(bytes, allocated, local.arena.byteSize(), local.rank)
              + " once, before the loop, or raise spark.allreduce.arena.size.");
    }
    MemorySegment segment = local.arena.asSlice(offset, bytes);
    if (local.gpu == null) { // a device's arena is not used a second time
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
    if (local.gpu != null) {
      throw new AllReduceException.Usage(
          "Files are registered on the host backend only. On GPUs, adopt memory of the device.");
    }
    captures.requireNone("register");
    Arguments.requireCount(count, type);
    long bytes = count * type.bytes();
    local.begin();
    try (Arena call = Arena.ofConfined()) {
      MemorySegment address = call.allocate(ValueLayout.ADDRESS);
      local.check(local.comm.register(file.toString(), offset, bytes, local.timeoutNanos, address));
      MemorySegment mapped = address.get(ValueLayout.ADDRESS, 0);
      Arena registration = Arena.ofShared();
      registrations.put(mapped.address(), registration);
      return new RegisteredBuffer(this, mapped.reinterpret(bytes, registration, null), type);
    } finally {
      local.leave();
    }
  }

  /** Ends what {@link #register} began, on all ranks. Collective. */
  public void deregister(RegisteredBuffer buffer) {
    requireOwn(buffer);
    local.begin();
    try {
      Arena registration = registrations.get(buffer.address());
      if (registration == null) {
        throw new AllReduceException.Usage(
            "Only a buffer that register returned can be deregistered, and only once.");
      }
      local.check(local.comm.deregister(buffer.memory(), local.timeoutNanos));
      registrations.remove(buffer.address());
      registration.close();
    } finally {
      local.leave();
    }
  }

  /**
   * The stream that this rank's work goes to, for code that enqueues its own: a CUstream or
   * hipStream_t. It belongs to the communicator, unless {@link #useStream} has named another.
   */
  public long stream() {
    local.begin();
    try {
      return local.requireGpu("A stream").stream();
    } finally {
      local.leave();
    }
  }

  /**
   * Lets this rank's work go to a stream of the caller's from here on, behind all that was enqueued
   * before. The stream must be one of this rank's device, and live until another one is named or
   * the communicator is closed ({@link #whenClosed}), which waits for what is on it. Not
   * collective.
   *
   * @param stream a CUstream or hipStream_t; 0: the communicator's own one again
   */
  public void useStream(long stream) {
    captures.requireNone("useStream");
    local.begin();
    try {
      local.check(local.requireGpu("A stream").useStream(stream));
    } finally {
      local.leave();
    }
  }

  /**
   * Makes memory of this rank's device that this library did not allocate a registered buffer. It
   * must come from an allocation of its own kind (cudaMalloc, hipMalloc), not from a pool, and must
   * not be freed before the communicator is closed ({@link #whenClosed}). Collective: each rank
   * brings its own memory, and all the same number of bytes. If it fails for one rank it fails for
   * all, with that rank's reason, and the communicator lives on.
   *
   * @param address on the device, aligned to the type
   * @param bytes how many, whole elements
   */
  public RegisteredBuffer adopt(long address, long bytes, DataType type) {
    captures.requireNone("adopt");
    Arguments.requireCount(Arguments.count(bytes, type), type);
    local.begin();
    try {
      local.check(
          local.requireGpu("Memory of a device").register(address, bytes, local.timeoutNanos));
      MemorySegment memory = MemorySegment.ofAddress(address).reinterpret(bytes, local.scope, null);
      return new RegisteredBuffer(this, memory, type);
    } finally {
      local.leave();
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
    return captures.capture(step);
  }

  void copyIn(MemorySegment source, MemorySegment memory) {
    captures.requireNone("copyFrom");
    local.begin();
    try {
      local.copies.upload(source, memory);
    } finally {
      local.leave();
    }
  }

  void copyOut(MemorySegment memory, MemorySegment target) {
    captures.requireNone("copyTo");
    local.begin();
    try {
      local.copies.download(memory, target);
    } finally {
      local.leave();
    }
  }

  /** What this rank has done since it opened this communicator; nothing of earlier stages. */
  public Statistics statistics() {
    local.requireOpen();
    return local.comm.statistics().since(atOpening);
  }

  /**
   * Aborts the communicator on all ranks: whoever waits in a collective, or calls one, gets {@link
   * AllReduceException.Aborted} with {@code cause}. The first cause wins. Never blocks; any thread;
   * does nothing once it is closed.
   */
  public void abort(String cause) {
    local.abort(cause);
  }

  /**
   * Calls {@code action} once this communicator is closed, by whomever, with its stage at the
   * latest. Then {@linkplain #adopt adopted} memory and streams may be given back.
   */
  public void whenClosed(Runnable action) {
    local.begin();
    try {
      whenClosed.add(action);
    } finally {
      local.leave();
    }
  }

  /**
   * Gives all memory back; a peer that still waits for this rank gets {@link
   * AllReduceException.PeerLost}. Idempotent. Does not wait for the peers.
   */
  @Override
  public void close() {
    if (local.end(this::letGo)) {
      local.member.close();
      whenClosed.forEach(Runnable::run);
    }
  }

  /**
   * Closes this communicator, but keeps its native part for the next stage under this lease. Not if
   * foreign memory is still registered: all ranks would have to meet once more to let go of it, so
   * they let go of all. Nor on GPUs, whose kernels know their peers by rank.
   */
  public void closeInto(Leases leases, UUID lease) {
    if (!registrations.isEmpty() || local.gpu != null) {
      close();
    } else if (local.end(this::letGo)) {
      if (local.comm.detach() == Status.OK) {
        leases.put(lease, local.member);
      } else {
        local.member.close();
      }
      whenClosed.forEach(Runnable::run);
    }
  }

  private void letGo() {
    captures.closeAll();
    registrations.values().forEach(Arena::close);
  }
}
