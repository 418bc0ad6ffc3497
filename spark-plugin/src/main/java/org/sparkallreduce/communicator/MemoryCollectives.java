// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Schedule;

/**
 * The collectives of a {@link Communicator} on any memory of the host. What peers cannot reach is
 * copied, piece by piece.
 */
abstract sealed class MemoryCollectives extends ArrayCollectives permits BufferCollectives {
  final LocalRank local;
  final Captures captures;

  MemoryCollectives(LocalRank local) {
    this.local = local;
    this.captures = new Captures(local);
  }

  /** Reduces elements of {@code type} in {@code in} over all ranks into {@code out}. */
  @Override
  public void allReduce(MemorySegment in, MemorySegment out, DataType type, ReduceOp op) {
    allReduce(in, out, type, op, local.settings.schedule());
  }

  /** The call of a training loop on the heap: without an object for each call or each piece. */
  @Override
  void allReduceArray(
      Object in, Object out, int count, ValueLayout layout, DataType type, ReduceOp op) {
    if (!(local.copies instanceof HeapCopies heap)) {
      allReduce(Arguments.segment(in), Arguments.segment(out), type, op);
      return;
    }
    captures.requireNone("all-reduce");
    local.begin();
    try {
      MemorySegment piece = heap.memory();
      int room = (int) heap.largestPiece(1, type);
      int done = 0;
      do {
        int n = Math.min(room, count - done);
        MemorySegment.copy(in, done, piece, layout, 0, n);
        local.check(
            local.comm.allReduce(
                piece, piece, n, count, type, op, local.settings.schedule(), local.timeoutNanos));
        MemorySegment.copy(piece, layout, 0, out, done, n);
        done += n;
      } while (done < count);
    } finally {
      local.leave();
    }
  }

  /** As {@link #allReduce(MemorySegment, MemorySegment, DataType, ReduceOp)}, under a schedule. */
  public void allReduce(
      MemorySegment in, MemorySegment out, DataType type, ReduceOp op, Schedule schedule) {
    Arguments.requireWritable(out);
    captures.requireNone("all-reduce");
    long count = Arguments.requireSameCount(Arguments.count(in, type), Arguments.count(out, type));
    local.begin();
    try {
      if (local.isReached(in) && local.isReached(out)) {
        local.check(
            local.comm.allReduce(in, out, count, count, type, op, schedule, local.timeoutNanos));
      } else {
        Arguments.requireInPlaceOrApart(in, out, 0);
        local.copies.run(
            in,
            1,
            out,
            1,
            count,
            type,
            (from, to, n) ->
                local.check(
                    local.comm.allReduce(
                        from, to, n, count, type, op, schedule, local.timeoutNanos)));
      }
    } finally {
      local.leave();
    }
  }

  /**
   * As {@link Communicator#reduceScatter(RegisteredBuffer, RegisteredBuffer, ReduceOp)}, on any
   * memory.
   */
  @Override
  public void reduceScatter(MemorySegment in, MemorySegment out, DataType type, ReduceOp op) {
    Arguments.requireWritable(out);
    captures.requireNone("reduce-scatter");
    long count =
        Arguments.requireSlices(
            "input", Arguments.count(in, type), "output", Arguments.count(out, type), local.size);
    local.begin();
    try {
      if (local.isReached(in) && local.isReached(out)) {
        local.check(local.comm.reduceScatter(in, out, count, count, type, op, local.timeoutNanos));
      } else {
        Arguments.requireInPlaceOrApart(out, in, local.rank * out.byteSize());
        local.copies.run(
            in,
            local.size,
            out,
            1,
            count,
            type,
            (from, to, n) ->
                local.check(
                    local.comm.reduceScatter(from, to, n, count, type, op, local.timeoutNanos)));
      }
    } finally {
      local.leave();
    }
  }

  /** As {@link Communicator#allGather(RegisteredBuffer, RegisteredBuffer)}, on any memory. */
  @Override
  public void allGather(MemorySegment in, MemorySegment out, DataType type) {
    Arguments.requireWritable(out);
    captures.requireNone("all-gather");
    long count =
        Arguments.requireSlices(
            "output", Arguments.count(out, type), "input", Arguments.count(in, type), local.size);
    local.begin();
    try {
      if (local.isReached(in) && local.isReached(out)) {
        local.check(local.comm.allGather(in, out, count, count, type, local.timeoutNanos));
      } else {
        Arguments.requireInPlaceOrApart(in, out, local.rank * in.byteSize());
        local.copies.run(
            in,
            1,
            out,
            local.size,
            count,
            type,
            (from, to, n) ->
                local.check(local.comm.allGather(from, to, n, count, type, local.timeoutNanos)));
      }
    } finally {
      local.leave();
    }
  }

  /** As {@link Communicator#broadcast(RegisteredBuffer, int)}, on any memory. */
  @Override
  public void broadcast(MemorySegment values, DataType type, int root) {
    Arguments.requireWritable(values);
    Arguments.requireRoot(root, local.size);
    captures.requireNone("broadcast");
    long count = Arguments.count(values, type);
    local.begin();
    try {
      if (local.isReached(values)) {
        local.check(
            local.comm.broadcast(values, values, count, count, type, root, local.timeoutNanos));
      } else {
        local.copies.run(
            values,
            local.rank == root ? 1 : 0,
            values,
            1,
            count,
            type,
            (from, to, n) ->
                local.check(
                    local.comm.broadcast(from, to, n, count, type, root, local.timeoutNanos)));
      }
    } finally {
      local.leave();
    }
  }
}
