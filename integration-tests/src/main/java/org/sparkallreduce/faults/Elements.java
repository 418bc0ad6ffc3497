// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;

/**
 * Elements of every data type as numbers, and what a reduction of them must give. Inputs are small
 * whole numbers, so that every intermediate result is exact in every type and only an average is
 * rounded, once.
 */
final class Elements {
  private Elements() {}

  /** What {@code rank} contributes at {@code index}; the same in every process. */
  static int input(long seed, int rank, long index, ReduceOp op) {
    long mixed = (seed + 31L * rank + index) * 0x9E3779B97F4A7C15L;
    mixed ^= mixed >>> 29;
    return op == ReduceOp.PRODUCT
        ? new int[] {-2, -1, 1, 2}[(int) (mixed & 3)]
        : Math.floorMod(mixed, 17) - 8;
  }

  static void set(MemorySegment memory, DataType type, long index, int value) {
    switch (type) {
      case FLOAT64 -> memory.setAtIndex(ValueLayout.JAVA_DOUBLE, index, value);
      case FLOAT32 -> memory.setAtIndex(ValueLayout.JAVA_FLOAT, index, value);
      case FLOAT16 -> memory.setAtIndex(ValueLayout.JAVA_SHORT, index, Float.floatToFloat16(value));
      case BFLOAT16 -> memory.setAtIndex(ValueLayout.JAVA_SHORT, index, bfloat16(value));
      case INT32 -> memory.setAtIndex(ValueLayout.JAVA_INT, index, value);
      case INT64 -> memory.setAtIndex(ValueLayout.JAVA_LONG, index, value);
    }
  }

  static double get(MemorySegment memory, DataType type, long index) {
    return switch (type) {
      case FLOAT64 -> memory.getAtIndex(ValueLayout.JAVA_DOUBLE, index);
      case FLOAT32 -> memory.getAtIndex(ValueLayout.JAVA_FLOAT, index);
      case FLOAT16 -> Float.float16ToFloat(memory.getAtIndex(ValueLayout.JAVA_SHORT, index));
      case BFLOAT16 -> Float.intBitsToFloat(memory.getAtIndex(ValueLayout.JAVA_SHORT, index) << 16);
      case INT32 -> memory.getAtIndex(ValueLayout.JAVA_INT, index);
      case INT64 -> memory.getAtIndex(ValueLayout.JAVA_LONG, index);
    };
  }

  /** What the ranks' inputs at {@code index} reduce to. */
  static double reduced(long seed, int ranks, long index, DataType type, ReduceOp op) {
    int result = input(seed, 0, index, op);
    for (int rank = 1; rank < ranks; rank++) {
      int next = input(seed, rank, index, op);
      result =
          switch (op) {
            case SUM, AVERAGE -> result + next;
            case PRODUCT -> result * next;
            case MIN -> Math.min(result, next);
            case MAX -> Math.max(result, next);
          };
    }
    return op == ReduceOp.AVERAGE ? average(result, ranks, type) : result;
  }

  private static double average(int sum, int ranks, DataType type) {
    return switch (type) {
      case FLOAT64 -> (double) sum / ranks;
      case FLOAT32 -> (float) sum / ranks;
      case FLOAT16 -> Float.float16ToFloat(Float.floatToFloat16((float) sum / ranks));
      case BFLOAT16 -> Float.intBitsToFloat(bfloat16((float) sum / ranks) << 16);
      case INT32, INT64 -> (int) ((double) sum / ranks); // towards zero
    };
  }

  /** Rounded to the nearest, ties to even. */
  private static short bfloat16(float value) {
    int bits = Float.floatToRawIntBits(value);
    return (short) ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16);
  }
}
