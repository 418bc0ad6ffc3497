// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.stream.IntStream;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;

/**
 * What the ranks put into their inputs, and what must come out of it, computed here with the rules
 * of {@link ReduceOp}: in rank order, 16-bit floats in float32, rounded once. Values repeat after a
 * prime number of elements, so that shifted or exchanged parts are found.
 */
final class Pattern {
  static final int PERIOD = 1021;

  private final DataType type;
  private final byte[] period;

  private Pattern(DataType type, byte[] period) {
    this.type = type;
    this.period = period;
  }

  /** The input of {@code rank}. */
  static Pattern input(DataType type, int rank) {
    var period = new byte[PERIOD * type.bytes()];
    for (int i = 0; i < PERIOD; i++) {
      set(period, type, i, Element.input(type, rank, i));
    }
    return new Pattern(type, period);
  }

  /** What the inputs of {@code ranks} ranks are reduced to. */
  static Pattern reduced(DataType type, ReduceOp op, int ranks) {
    var period = new byte[PERIOD * type.bytes()];
    for (int i = 0; i < PERIOD; i++) {
      int at = i;
      long[] inputs =
          IntStream.range(0, ranks).mapToLong(rank -> Element.input(type, rank, at)).toArray();
      set(period, type, i, Element.reduce(type, op, inputs));
    }
    return new Pattern(type, period);
  }

  private static void set(byte[] period, DataType type, int index, long bits) {
    MemorySegment all = MemorySegment.ofArray(period);
    long offset = (long) index * type.bytes();
    switch (type.bytes()) {
      case Short.BYTES -> all.set(ValueLayout.JAVA_SHORT_UNALIGNED, offset, (short) bits);
      case Integer.BYTES -> all.set(ValueLayout.JAVA_INT_UNALIGNED, offset, (int) bits);
      default -> all.set(ValueLayout.JAVA_LONG_UNALIGNED, offset, bits);
    }
  }

  /** Writes it over all of {@code memory}. */
  void fill(MemorySegment memory) {
    long filled = Math.min(period.length, memory.byteSize());
    MemorySegment.copy(MemorySegment.ofArray(period), 0, memory, 0, filled);
    while (filled < memory.byteSize()) {
      long more = Math.min(filled, memory.byteSize() - filled);
      MemorySegment.copy(memory, 0, memory, filled, more);
      filled += more;
    }
  }

  /**
   * How many elements of {@code memory} differ.
   *
   * @param first which element of the pattern the first one of {@code memory} must be
   */
  long wrong(MemorySegment memory, long first) {
    MemorySegment expected = MemorySegment.ofArray(period);
    long at = first % PERIOD * type.bytes();
    long wrong = 0;
    for (long done = 0; done < memory.byteSize(); ) {
      long length = Math.min(period.length - at, memory.byteSize() - done);
      MemorySegment actual = memory.asSlice(done, length);
      if (actual.mismatch(expected.asSlice(at, length)) >= 0) {
        wrong += wrongElements(actual, expected.asSlice(at, length));
      }
      done += length;
      at = 0;
    }
    return wrong;
  }

  private long wrongElements(MemorySegment actual, MemorySegment expected) {
    long wrong = 0;
    int bytes = type.bytes();
    for (long offset = 0; offset < actual.byteSize(); offset += bytes) {
      if (actual.asSlice(offset, bytes).mismatch(expected.asSlice(offset, bytes)) >= 0) {
        wrong++;
      }
    }
    return wrong;
  }
}
