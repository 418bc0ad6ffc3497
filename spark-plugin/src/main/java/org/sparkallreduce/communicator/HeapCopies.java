// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.lang.foreign.MemorySegment;
import org.sparkallreduce.DataType;

/**
 * Collectives on memory that native code cannot see, Java's arrays above all: piece by piece, each
 * piece is copied into registered memory, used there, and copied out. A collective must never pin
 * the heap: it waits for peers, which may wait for the garbage collector of this very process.
 */
final class HeapCopies implements Copies {
  /**
   * Larger pieces would fall out of a core's own cache between the copy in, the collective and the
   * copy out; smaller ones would pay for more barriers.
   */
  private static final long LONGEST_PIECE = 512L << 10;

  private final MemorySegment registered;

  /** Uses {@code registered}, registered memory that nobody else uses, for the copies. */
  HeapCopies(MemorySegment registered) {
    this.registered = registered;
  }

  @Override
  public void upload(MemorySegment from, MemorySegment to) {
    to.copyFrom(from);
  }

  @Override
  public void download(MemorySegment from, MemorySegment to) {
    to.copyFrom(from);
  }

  @Override
  public void run(
      MemorySegment in,
      int inSlices,
      MemorySegment out,
      int outSlices,
      long count,
      DataType type,
      Piece piece) {
    // One slice each way: in place, which is half the memory and half the cache.
    boolean inPlace = inSlices <= 1 && outSlices == 1;
    long room = largestPiece(inPlace ? 1 : inSlices + outSlices, type);
    long done = 0;
    do {
      long n = Math.min(room, count - done);
      long bytes = n * type.bytes();
      MemorySegment from = registered.asSlice(0, (inPlace ? 1 : inSlices) * bytes);
      MemorySegment to = inPlace ? from : registered.asSlice(inSlices * bytes, outSlices * bytes);
      for (int slice = 0; slice < inSlices; slice++) {
        long offset = (slice * count + done) * type.bytes();
        MemorySegment.copy(in, offset, from, slice * bytes, bytes);
      }
      piece.call(from, to, n);
      for (int slice = 0; slice < outSlices; slice++) {
        long offset = (slice * count + done) * type.bytes();
        MemorySegment.copy(to, slice * bytes, out, offset, bytes);
      }
      done += n;
    } while (done < count);
  }

  /** The registered memory for the copies. */
  MemorySegment memory() {
    return registered;
  }

  /** How many elements per slice fit at once. */
  long largestPiece(int slices, DataType type) {
    return Math.min(registered.byteSize(), LONGEST_PIECE) / slices / type.bytes();
  }
}
