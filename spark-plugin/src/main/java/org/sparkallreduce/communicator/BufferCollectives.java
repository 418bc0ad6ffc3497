// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.lang.foreign.MemorySegment;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Schedule;

/**
 * The collectives of a {@link Communicator} on registered buffers, which copy nothing, may be
 * enqueued, and may be captured.
 */
abstract sealed class BufferCollectives extends MemoryCollectives permits Communicator {
  BufferCollectives(LocalRank local) {
    super(local);
  }

  /** Reduces {@code buffer} over all ranks, in place. */
  public void allReduce(RegisteredBuffer buffer, ReduceOp op) {
    allReduce(buffer, buffer, op);
  }

  /** Reduces {@code in} over all ranks into {@code out}. */
  public void allReduce(RegisteredBuffer in, RegisteredBuffer out, ReduceOp op) {
    allReduce(in, out, op, local.settings.schedule());
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
    allReduce(in, out, op, local.settings.schedule(), false);
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
    if (captures.isRecording()) {
      captures.record(() -> allReduce(in, out, op, schedule, wait));
      return;
    }
    local.begin(wait);
    try {
      local.check(
          local.comm.allReduce(
              in.memory(),
              out.memory(),
              count,
              count,
              in.type(),
              op,
              schedule,
              local.timeoutNanos));
    } finally {
      local.leave();
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
    long count = Arguments.requireSlices("input", in.count(), "output", out.count(), local.size);
    if (captures.isRecording()) {
      captures.record(() -> reduceScatter(in, out, op, wait));
      return;
    }
    local.begin(wait);
    try {
      local.check(
          local.comm.reduceScatter(
              in.memory(), out.memory(), count, count, in.type(), op, local.timeoutNanos));
    } finally {
      local.leave();
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
    long count = Arguments.requireSlices("output", out.count(), "input", in.count(), local.size);
    if (captures.isRecording()) {
      captures.record(() -> allGather(in, out, wait));
      return;
    }
    local.begin(wait);
    try {
      local.check(
          local.comm.allGather(
              in.memory(), out.memory(), count, count, in.type(), local.timeoutNanos));
    } finally {
      local.leave();
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
    Arguments.requireRoot(root, local.size);
    if (captures.isRecording()) {
      captures.record(() -> broadcast(buffer, root, wait));
      return;
    }
    long count = buffer.count();
    MemorySegment memory = buffer.memory();
    local.begin(wait);
    try {
      local.check(
          local.comm.broadcast(
              memory, memory, count, count, buffer.type(), root, local.timeoutNanos));
    } finally {
      local.leave();
    }
  }

  /** Returns when all ranks have called it. Microseconds, unlike the barrier of Spark's context. */
  public void barrier() {
    if (captures.isRecording()) {
      captures.record(this::barrier);
      return;
    }
    local.begin();
    try {
      local.check(local.comm.barrier(local.timeoutNanos));
    } finally {
      local.leave();
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
    captures.requireNone("waitFor");
    local.begin();
    try {
      if (local.gpu != null) {
        local.check(local.gpu.await(local.timeoutNanos));
      }
    } finally {
      local.leave();
    }
  }

  private void requireOwn(RegisteredBuffer in, RegisteredBuffer out) {
    requireOwn(in);
    requireOwn(out);
    Arguments.requireSameType(in, out);
  }

  final void requireOwn(RegisteredBuffer buffer) {
    if (buffer.owner() != this) {
      throw new AllReduceException.Usage(
          "The buffer was allocated from another communicator. Allocate it from the one that rank %d"
                  .formatted(local.rank)
              + " calls the collective on.");
    }
  }
}
