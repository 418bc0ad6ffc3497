// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;

/** The collectives of a {@link Communicator} on Java's arrays: as on other memory, by copying. */
abstract sealed class ArrayCollectives permits MemoryCollectives {
  /** On any memory of the host. */
  public abstract void allReduce(MemorySegment in, MemorySegment out, DataType type, ReduceOp op);

  /** On any memory of the host. */
  public abstract void reduceScatter(
      MemorySegment in, MemorySegment out, DataType type, ReduceOp op);

  /** On any memory of the host. */
  public abstract void allGather(MemorySegment in, MemorySegment out, DataType type);

  /** On any memory of the host. */
  public abstract void broadcast(MemorySegment values, DataType type, int root);

  /** On two arrays of numbers, with as many elements. */
  abstract void allReduceArray(
      Object in, Object out, int count, ValueLayout layout, DataType type, ReduceOp op);

  /** Reduces {@code values} over all ranks, in place. */
  public void allReduce(double[] values, ReduceOp op) {
    allReduce(values, values, op);
  }

  /** Reduces {@code in} over all ranks into {@code out}. */
  public void allReduce(double[] in, double[] out, ReduceOp op) {
    long count = Arguments.requireSameCount(in.length, out.length);
    allReduceArray(in, out, (int) count, ValueLayout.JAVA_DOUBLE_UNALIGNED, DataType.FLOAT64, op);
  }

  /** Reduces {@code values} over all ranks, in place. */
  public void allReduce(float[] values, ReduceOp op) {
    allReduce(values, values, op);
  }

  /** Reduces {@code in} over all ranks into {@code out}. */
  public void allReduce(float[] in, float[] out, ReduceOp op) {
    long count = Arguments.requireSameCount(in.length, out.length);
    allReduceArray(in, out, (int) count, ValueLayout.JAVA_FLOAT_UNALIGNED, DataType.FLOAT32, op);
  }

  /** Reduces {@code values} over all ranks, in place. */
  public void allReduce(int[] values, ReduceOp op) {
    allReduce(values, values, op);
  }

  /** Reduces {@code in} over all ranks into {@code out}. */
  public void allReduce(int[] in, int[] out, ReduceOp op) {
    long count = Arguments.requireSameCount(in.length, out.length);
    allReduceArray(in, out, (int) count, ValueLayout.JAVA_INT_UNALIGNED, DataType.INT32, op);
  }

  /** Reduces {@code values} over all ranks, in place. */
  public void allReduce(long[] values, ReduceOp op) {
    allReduce(values, values, op);
  }

  /** Reduces {@code in} over all ranks into {@code out}. */
  public void allReduce(long[] in, long[] out, ReduceOp op) {
    long count = Arguments.requireSameCount(in.length, out.length);
    allReduceArray(in, out, (int) count, ValueLayout.JAVA_LONG_UNALIGNED, DataType.INT64, op);
  }

  /** As {@link #reduceScatter(MemorySegment, MemorySegment, DataType, ReduceOp)}, by copying. */
  public void reduceScatter(double[] in, double[] out, ReduceOp op) {
    reduceScatter(MemorySegment.ofArray(in), MemorySegment.ofArray(out), DataType.FLOAT64, op);
  }

  /** As {@link #reduceScatter(MemorySegment, MemorySegment, DataType, ReduceOp)}, by copying. */
  public void reduceScatter(float[] in, float[] out, ReduceOp op) {
    reduceScatter(MemorySegment.ofArray(in), MemorySegment.ofArray(out), DataType.FLOAT32, op);
  }

  /** As {@link #reduceScatter(MemorySegment, MemorySegment, DataType, ReduceOp)}, by copying. */
  public void reduceScatter(int[] in, int[] out, ReduceOp op) {
    reduceScatter(MemorySegment.ofArray(in), MemorySegment.ofArray(out), DataType.INT32, op);
  }

  /** As {@link #reduceScatter(MemorySegment, MemorySegment, DataType, ReduceOp)}, by copying. */
  public void reduceScatter(long[] in, long[] out, ReduceOp op) {
    reduceScatter(MemorySegment.ofArray(in), MemorySegment.ofArray(out), DataType.INT64, op);
  }

  /** As {@link #allGather(MemorySegment, MemorySegment, DataType)}, by copying. */
  public void allGather(double[] in, double[] out) {
    allGather(MemorySegment.ofArray(in), MemorySegment.ofArray(out), DataType.FLOAT64);
  }

  /** As {@link #allGather(MemorySegment, MemorySegment, DataType)}, by copying. */
  public void allGather(float[] in, float[] out) {
    allGather(MemorySegment.ofArray(in), MemorySegment.ofArray(out), DataType.FLOAT32);
  }

  /** As {@link #allGather(MemorySegment, MemorySegment, DataType)}, by copying. */
  public void allGather(int[] in, int[] out) {
    allGather(MemorySegment.ofArray(in), MemorySegment.ofArray(out), DataType.INT32);
  }

  /** As {@link #allGather(MemorySegment, MemorySegment, DataType)}, by copying. */
  public void allGather(long[] in, long[] out) {
    allGather(MemorySegment.ofArray(in), MemorySegment.ofArray(out), DataType.INT64);
  }

  /** As {@link #broadcast(MemorySegment, DataType, int)}, by copying. */
  public void broadcast(double[] values, int root) {
    broadcast(MemorySegment.ofArray(values), DataType.FLOAT64, root);
  }

  /** As {@link #broadcast(MemorySegment, DataType, int)}, by copying. */
  public void broadcast(float[] values, int root) {
    broadcast(MemorySegment.ofArray(values), DataType.FLOAT32, root);
  }

  /** As {@link #broadcast(MemorySegment, DataType, int)}, by copying. */
  public void broadcast(int[] values, int root) {
    broadcast(MemorySegment.ofArray(values), DataType.INT32, root);
  }

  /** As {@link #broadcast(MemorySegment, DataType, int)}, by copying. */
  public void broadcast(long[] values, int root) {
    broadcast(MemorySegment.ofArray(values), DataType.INT64, root);
  }
}
