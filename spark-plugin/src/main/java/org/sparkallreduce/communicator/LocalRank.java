// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.Settings;
import org.sparkallreduce.exchange.Hello;
import org.sparkallreduce.ffm.NativeCommunicator;
import org.sparkallreduce.ffm.NativeDevice;
import org.sparkallreduce.ffm.Status;

/**
 * This process's connected part of a communicator, as the calls on it see it: its memory, and who
 * may use it. One thread at a time is inside, from {@link #begin} to {@link #leave}, until {@link
 * #end} refuses all further use.
 */
final class LocalRank {
  /** How long an aborted collective may take to end: it may be moving much data. */
  private static final long LONGEST_LEAVE_NANOS = TimeUnit.SECONDS.toNanos(30);

  private static final long LEAVE_POLL_NANOS = TimeUnit.MILLISECONDS.toNanos(1);

  final int rank;
  final int size;
  final Settings settings;
  final long timeoutNanos;
  final Member member;
  final NativeCommunicator comm;
  final Optional<String> fallback;

  /** On the GPU backend. */
  final @Nullable NativeDevice gpu;

  /** Bounds the lifetime of all memory that is handed out. */
  final Arena scope = Arena.ofShared();

  /** From which registered buffers are cut. */
  final MemorySegment arena;

  /** Through which other memory of the host passes. */
  final Copies copies;

  private final List<Hello> ranks;
  private final AtomicBoolean busy = new AtomicBoolean();
  private final Object endLock = new Object();
  private volatile boolean closed;

  LocalRank(Settings settings, int rank, Opening.Opened opened) {
    this.rank = rank;
    this.size = opened.ranks().size();
    this.settings = settings;
    this.timeoutNanos = settings.timeout().toNanos();
    this.member = opened.member();
    this.comm = member.comm();
    this.fallback = opened.fallback();
    this.gpu = member.gpu().map(Member.Gpu::calls).orElse(null);
    this.ranks = opened.ranks();
    MemorySegment all = comm.arena(scope);
    this.arena = all.asSlice(0, settings.arenaBytes());
    MemorySegment forCopies = all.asSlice(settings.arenaBytes(), settings.stagingBytes());
    this.copies =
        gpu == null
            ? new HeapCopies(forCopies)
            : new DeviceCopies(gpu, forCopies, scope, timeoutNanos, this::check);
  }

  void begin() {
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
  void begin(boolean wait) {
    begin();
    if (!wait && gpu != null) {
      gpu.enqueueNext();
    }
  }

  /** As {@link #begin()}; false where another thread is inside, or it has ended. */
  boolean tryBegin() {
    if (!busy.compareAndSet(false, true)) {
      return false;
    }
    if (closed) {
      leave();
      return false;
    }
    return true;
  }

  void leave() {
    busy.set(false);
  }

  boolean isOpen() {
    return !closed;
  }

  void requireOpen() {
    if (closed) {
      throw new AllReduceException.Usage(
          "The communicator of rank %d is closed: it lives as long as its stage. Use it, and its"
                  .formatted(rank)
              + " buffers, only inside of the function that got it.");
    }
  }

  void check(Status status) {
    if (status != Status.OK) {
      throw Failures.translate(comm.lastFailure(), rank, ranks);
    }
  }

  NativeDevice requireGpu(String what) {
    if (gpu == null) {
      throw new AllReduceException.Usage(
          "%s belongs to the GPU backend, and this communicator is on the host: look at backend() before."
              .formatted(what));
    }
    return gpu;
  }

  /** Whether native code may be given it as it is. */
  boolean isReached(MemorySegment segment) {
    return gpu == null && segment.isNative();
  }

  /** Any thread, at any time; what was kept for another stage is not aborted by this one. */
  void abort(String cause) {
    synchronized (endLock) {
      if (!closed) {
        comm.abort(rank, cause);
      }
    }
  }

  /**
   * From here on every use is refused. False if that was so before.
   *
   * @param last what is to be given back while the native part still lives
   */
  boolean end(Runnable last) {
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
      last.run();
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
}
