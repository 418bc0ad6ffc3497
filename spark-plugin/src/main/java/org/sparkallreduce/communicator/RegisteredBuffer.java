// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.lang.foreign.MemorySegment;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.DataType;

/**
 * Memory that all ranks of a communicator can reach: collectives on it copy nothing. It is cut from
 * the communicator's arena and belongs to it; once that is closed, each access to {@link #segment}
 * throws an IllegalStateException. Peers write to it only during collectives that name it as their
 * output.
 */
public final class RegisteredBuffer {
  private final Communicator owner;
  private final MemorySegment segment;
  private final DataType type;

  RegisteredBuffer(Communicator owner, MemorySegment segment, DataType type) {
    this.owner = owner;
    this.segment = segment;
    this.type = type;
  }

  /** The memory: {@code count() * type().bytes()} bytes, off heap. */
  public MemorySegment segment() {
    return segment;
  }

  public DataType type() {
    return type;
  }

  /** How many elements it has. */
  public long count() {
    return segment.byteSize() / type.bytes();
  }

  /**
   * A part of this buffer, which shares its memory.
   *
   * @param offset the part's first element
   * @param count how many elements it has
   */
  public RegisteredBuffer slice(long offset, long count) {
    if (offset < 0 || count < 0 || offset > count() - count) {
      throw new AllReduceException.Usage(
          "A slice of %d elements at %d does not lie in a buffer of %d elements."
              .formatted(count, offset, count()));
    }
    return new RegisteredBuffer(
        owner, segment.asSlice(offset * type.bytes(), count * type.bytes()), type);
  }

  Communicator owner() {
    return owner;
  }
}
