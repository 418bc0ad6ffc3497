// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.DataType;

/**
 * Memory that all ranks of a communicator can reach: collectives on it copy nothing. It is shared
 * memory of the host, or memory of the rank's GPU, where the communicator is. It is cut from the
 * communicator's arena, or was brought by the caller, and is usable until the communicator is
 * closed. Peers write to it only during collectives that name it as their output.
 *
 * <p>{@link #copyFrom} and {@link #copyTo} work on both backends.
 */
public final class RegisteredBuffer {
  private final Communicator owner;
  private final MemorySegment memory;
  private final DataType type;

  RegisteredBuffer(Communicator owner, MemorySegment memory, DataType type) {
    this.owner = owner;
    this.memory = memory;
    this.type = type;
  }

  /**
   * The memory itself, on the host backend: {@code count() * type().bytes()} bytes, off heap. Once
   * the communicator is closed, each access throws an IllegalStateException.
   *
   * @throws AllReduceException.Usage if it is memory of a GPU, which Java cannot touch
   */
  public MemorySegment segment() {
    owner
        .device()
        .ifPresent(
            device -> {
              throw new AllReduceException.Usage(
                  "The buffer is memory of the GPU %s, which Java cannot touch. Use copyFrom and copyTo,"
                          .formatted(device.describe())
                      + " which work on both backends, or give its address() to code of the GPU.");
            });
    return memory;
  }

  /** Where the memory is, as native code of this process and kernels of its device see it. */
  public long address() {
    return memory.address();
  }

  public DataType type() {
    return type;
  }

  /** How many elements it has. */
  public long count() {
    return memory.byteSize() / type.bytes();
  }

  /**
   * Fills the buffer. When it returns, {@code source} may be changed; what this thread lets the
   * communicator do afterwards finds the new elements.
   *
   * @param source as many bytes as the buffer has, of any memory
   */
  public void copyFrom(MemorySegment source) {
    requireBytes(source.byteSize());
    owner.copyIn(source, memory);
  }

  /** As {@link #copyFrom(MemorySegment)}, into a buffer of type FLOAT64. */
  public void copyFrom(double[] source) {
    requireType(DataType.FLOAT64);
    copyFrom(MemorySegment.ofArray(source));
  }

  /** As {@link #copyFrom(MemorySegment)}, into a buffer of type FLOAT32. */
  public void copyFrom(float[] source) {
    requireType(DataType.FLOAT32);
    copyFrom(MemorySegment.ofArray(source));
  }

  /** As {@link #copyFrom(MemorySegment)}, into a buffer of type FLOAT16 or BFLOAT16. */
  public void copyFrom(short[] source) {
    requireType(DataType.FLOAT16, DataType.BFLOAT16);
    copyFrom(MemorySegment.ofArray(source));
  }

  /** As {@link #copyFrom(MemorySegment)}, into a buffer of type INT32. */
  public void copyFrom(int[] source) {
    requireType(DataType.INT32);
    copyFrom(MemorySegment.ofArray(source));
  }

  /** As {@link #copyFrom(MemorySegment)}, into a buffer of type INT64. */
  public void copyFrom(long[] source) {
    requireType(DataType.INT64);
    copyFrom(MemorySegment.ofArray(source));
  }

  /**
   * Copies the buffer's elements, as all that has been enqueued leaves them, to {@code target}.
   *
   * @param target as many bytes as the buffer has, of any memory
   */
  public void copyTo(MemorySegment target) {
    requireBytes(target.byteSize());
    if (target.isReadOnly()) {
      throw new AllReduceException.Usage("The target is a read-only memory segment.");
    }
    owner.copyOut(memory, target);
  }

  /** As {@link #copyTo(MemorySegment)}, from a buffer of type FLOAT64. */
  public void copyTo(double[] target) {
    requireType(DataType.FLOAT64);
    copyTo(MemorySegment.ofArray(target));
  }

  /** As {@link #copyTo(MemorySegment)}, from a buffer of type FLOAT32. */
  public void copyTo(float[] target) {
    requireType(DataType.FLOAT32);
    copyTo(MemorySegment.ofArray(target));
  }

  /** As {@link #copyTo(MemorySegment)}, from a buffer of type FLOAT16 or BFLOAT16. */
  public void copyTo(short[] target) {
    requireType(DataType.FLOAT16, DataType.BFLOAT16);
    copyTo(MemorySegment.ofArray(target));
  }

  /** As {@link #copyTo(MemorySegment)}, from a buffer of type INT32. */
  public void copyTo(int[] target) {
    requireType(DataType.INT32);
    copyTo(MemorySegment.ofArray(target));
  }

  /** As {@link #copyTo(MemorySegment)}, from a buffer of type INT64. */
  public void copyTo(long[] target) {
    requireType(DataType.INT64);
    copyTo(MemorySegment.ofArray(target));
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
        owner, memory.asSlice(offset * type.bytes(), count * type.bytes()), type);
  }

  Communicator owner() {
    return owner;
  }

  /** The memory, which only native code may touch if it is a GPU's. */
  MemorySegment memory() {
    return memory;
  }

  private void requireBytes(long bytes) {
    if (bytes != memory.byteSize()) {
      throw new AllReduceException.Usage(
          "%d bytes cannot be copied from or to a buffer of %d bytes. Copy whole buffers, or slices of them."
              .formatted(bytes, memory.byteSize()));
    }
  }

  private void requireType(DataType... fitting) {
    if (!Arrays.asList(fitting).contains(type)) {
      throw new AllReduceException.Usage(
          "An array of this type does not hold elements of type %s. Use the array type of the buffer, or a"
                  .formatted(type)
              + " MemorySegment.");
    }
  }
}
