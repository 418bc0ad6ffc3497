// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.lang.foreign.MemorySegment;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.DataType;

/** The checks of what a collective is called with, before native code sees it. */
final class Arguments {
  private Arguments() {}

  static void requireSameType(RegisteredBuffer in, RegisteredBuffer out) {
    if (in.type() != out.type()) {
      throw new AllReduceException.Usage(
          "The input has elements of type %s, the output of type %s. Use one type."
              .formatted(in.type(), out.type()));
    }
  }

  /** Native code would write to it all the same. */
  static void requireWritable(MemorySegment out) {
    if (out.isReadOnly()) {
      throw new AllReduceException.Usage("The output is a read-only memory segment.");
    }
  }

  static long count(MemorySegment segment, DataType type) {
    return count(segment.byteSize(), type);
  }

  static long count(long bytes, DataType type) {
    if (bytes < 0 || bytes % type.bytes() != 0) {
      throw new AllReduceException.Usage(
          "A segment of %d bytes does not hold whole elements of type %s (%d bytes each)."
              .formatted(bytes, type, type.bytes()));
    }
    return bytes / type.bytes();
  }

  static void requireRoot(int root, int ranks) {
    if (root < 0 || root >= ranks) {
      throw new AllReduceException.Usage(
          "Root %d is none of the ranks 0 to %d.".formatted(root, ranks - 1));
    }
  }

  static void requireCount(long count, DataType type) {
    if (count < 0 || count > Long.MAX_VALUE / 2 / type.bytes()) {
      throw new AllReduceException.Usage(
          "A buffer cannot have %d elements of type %s.".formatted(count, type));
    }
  }

  static long requireSameCount(long in, long out) {
    if (in != out) {
      throw new AllReduceException.Usage(
          "The input has %d elements, the output %d. They must be equal.".formatted(in, out));
    }
    return in;
  }

  /** The count of one slice, where one side has a slice for each rank and the other has one. */
  static long requireSlices(String wholeName, long whole, String sliceName, long slice, int ranks) {
    if (slice > Long.MAX_VALUE / ranks || whole != slice * ranks) {
      throw new AllReduceException.Usage(
          "The %s has %d elements and the %s %d; with %d ranks, the %s needs %d times as many."
              .formatted(wholeName, whole, sliceName, slice, ranks, wholeName, ranks));
    }
    return slice;
  }

  /**
   * A copied call passes in pieces, and would read what its pieces have written.
   *
   * @param part the smaller one of input and output; in place means that it is {@code whole}, from
   *     {@code offset} on
   */
  static void requireInPlaceOrApart(MemorySegment part, MemorySegment whole, long offset) {
    if (part.asOverlappingSlice(whole).isPresent() && part.address() - whole.address() != offset) {
      throw new AllReduceException.Usage(
          "Input and output overlap, but are not in place. Use the same memory, or memory that is"
              + " apart.");
    }
  }

  static MemorySegment segment(Object array) {
    return switch (array) {
      case double[] values -> MemorySegment.ofArray(values);
      case float[] values -> MemorySegment.ofArray(values);
      case int[] values -> MemorySegment.ofArray(values);
      case long[] values -> MemorySegment.ofArray(values);
      default -> throw new IllegalArgumentException("no array of numbers: " + array.getClass());
    };
  }
}
