// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.lang.foreign.MemorySegment;
import org.sparkallreduce.DataType;

/**
 * Copies between registered memory and other memory of the host; and collectives on the latter,
 * which peers cannot reach: piece by piece, through memory that they can.
 */
interface Copies {
  /** Fills {@code to}, a registered buffer; what follows finds it. */
  void upload(MemorySegment from, MemorySegment to);

  /** Copies {@code from}, a registered buffer, as all that is enqueued leaves it. */
  void download(MemorySegment from, MemorySegment to);

  /**
   * One collective on a piece: {@code count} elements in each slice of {@code in} and {@code out}.
   */
  @FunctionalInterface
  interface Piece {
    void call(MemorySegment in, MemorySegment out, long count);
  }

  /**
   * Calls {@code piece} as often as needed, and returns when {@code out} has all of the result.
   *
   * @param inSlices how many slices of {@code count} elements {@code in} has: 1, the world size, or
   *     0 where this rank's input is not read
   * @param outSlices how many {@code out} has
   */
  void run(
      MemorySegment in,
      int inSlices,
      MemorySegment out,
      int outSlices,
      long count,
      DataType type,
      Piece piece);
}
