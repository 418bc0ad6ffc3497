// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import java.util.Arrays;
import java.util.function.DoubleBinaryOperator;
import java.util.function.LongBinaryOperator;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;

/** Single elements as their bits, in the low bytes of a long. */
final class Element {
  private Element() {}

  /** Some value for element {@code index} of the input of {@code rank}; no NaN, no infinity. */
  static long input(DataType type, int rank, int index) {
    long hash = mix(rank * 1_000_003L + index);
    return switch (type) {
      case INT64 -> hash;
      case INT32 -> (int) hash;
      default -> {
        // 1 to 2 and -1 to -2: products neither vanish nor, but in float16, overflow.
        double magnitude = 1 + (hash >>> 40) * 0x1p-24;
        yield bits(type, (hash & 1) == 0 ? magnitude : -magnitude);
      }
    };
  }

  private static long mix(long value) {
    long z = value + 0x9e3779b97f4a7c15L;
    z = (z ^ (z >>> 30)) * 0xbf58476d1ce4e5b9L;
    z = (z ^ (z >>> 27)) * 0x94d049bb133111ebL;
    return z ^ (z >>> 31);
  }

  /** Combines the ranks' elements in their order. */
  static long reduce(DataType type, ReduceOp op, long[] inputs) {
    return switch (type) {
      case INT32 -> (int) average(op, inputs, Arrays.stream(inputs).reduce(ints(op)).orElseThrow());
      case INT64 -> average(op, inputs, Arrays.stream(inputs).reduce(longs(op)).orElseThrow());
      case FLOAT64 ->
          bits(type, average(op, inputs, floats(type, inputs).reduce(doubles(op)).orElseThrow()));
      default -> {
        float combined = (float) floats(type, inputs).reduce(singles(op)).orElseThrow();
        yield bits(type, op == ReduceOp.AVERAGE ? combined / inputs.length : combined);
      }
    };
  }

  private static java.util.stream.DoubleStream floats(DataType type, long[] inputs) {
    return Arrays.stream(inputs).mapToDouble(bits -> value(type, bits));
  }

  private static long average(ReduceOp op, long[] inputs, long sum) {
    return op == ReduceOp.AVERAGE ? sum / inputs.length : sum;
  }

  private static double average(ReduceOp op, long[] inputs, double sum) {
    return op == ReduceOp.AVERAGE ? sum / inputs.length : sum;
  }

  private static LongBinaryOperator longs(ReduceOp op) {
    return switch (op) {
      case SUM, AVERAGE -> (a, b) -> a + b;
      case PRODUCT -> (a, b) -> a * b;
      case MIN -> Math::min;
      case MAX -> Math::max;
    };
  }

  private static LongBinaryOperator ints(ReduceOp op) {
    LongBinaryOperator wide = longs(op);
    return (a, b) -> (int) wide.applyAsLong(a, b);
  }

  private static DoubleBinaryOperator doubles(ReduceOp op) {
    return switch (op) {
      case SUM, AVERAGE -> Double::sum;
      case PRODUCT -> (a, b) -> a * b;
      case MIN -> Math::min;
      case MAX -> Math::max;
    };
  }

  /** In float32: each step is rounded to it. */
  private static DoubleBinaryOperator singles(ReduceOp op) {
    DoubleBinaryOperator wide = doubles(op);
    return (a, b) -> (float) wide.applyAsDouble(a, b);
  }

  static double value(DataType type, long bits) {
    return switch (type) {
      case FLOAT64 -> Double.longBitsToDouble(bits);
      case FLOAT32 -> Float.intBitsToFloat((int) bits);
      case FLOAT16 -> Float.float16ToFloat((short) bits);
      case BFLOAT16 -> Float.intBitsToFloat((int) bits << 16);
      case INT32, INT64 -> bits;
    };
  }

  /** Rounded to {@code type}, to nearest even. */
  static long bits(DataType type, double value) {
    return switch (type) {
      case FLOAT64 -> Double.doubleToRawLongBits(value);
      case FLOAT32 -> Float.floatToRawIntBits((float) value);
      case FLOAT16 -> Float.floatToFloat16((float) value);
      case BFLOAT16 -> {
        int single = Float.floatToRawIntBits((float) value);
        yield (single + 0x7fff + (single >>> 16 & 1)) >>> 16;
      }
      case INT32, INT64 -> (long) value;
    };
  }
}
