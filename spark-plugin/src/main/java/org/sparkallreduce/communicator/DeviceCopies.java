// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.function.Consumer;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ffm.NativeDevice;
import org.sparkallreduce.ffm.Status;

/**
 * Copies between memory of the host and of the device, through two buffers of pinned memory: while
 * one travels on the stream, this thread fills or empties the other.
 */
final class DeviceCopies implements Copies {
  private static final int BUFFERS = NativeDevice.PINNED_BUFFERS;

  private final NativeDevice device;
  private final MemorySegment[] pinned = new MemorySegment[BUFFERS];
  private final MemorySegment[] slots = new MemorySegment[BUFFERS];
  private final long timeoutNanos;
  private final Consumer<Status> check;

  /**
   * @param registered memory of the device that nobody else uses, for pieces of collectives
   * @param check throws what a status stands for
   */
  DeviceCopies(
      NativeDevice device,
      MemorySegment registered,
      Arena scope,
      long timeoutNanos,
      Consumer<Status> check) {
    this.device = device;
    this.timeoutNanos = timeoutNanos;
    this.check = check;
    long slot = registered.byteSize() / BUFFERS / 256 * 256;
    for (int turn = 0; turn < BUFFERS; turn++) {
      pinned[turn] = device.pinned(turn, scope);
      slots[turn] = registered.asSlice(turn * slot, slot);
    }
  }

  @Override
  public void upload(MemorySegment from, MemorySegment to) {
    long piece = pinned[0].byteSize();
    int turn = 0;
    for (long done = 0; done < from.byteSize(); done += piece) {
      long bytes = Math.min(piece, from.byteSize() - done);
      awaitCopy(turn);
      MemorySegment.copy(from, done, pinned[turn], 0, bytes);
      check.accept(device.pinnedToDevice(turn, to.asSlice(done, bytes)));
      turn = (turn + 1) % BUFFERS;
    }
  }

  @Override
  public void download(MemorySegment from, MemorySegment to) {
    long piece = pinned[0].byteSize();
    long pieces = Math.ceilDiv(from.byteSize(), piece);
    for (long next = 0; next < pieces + BUFFERS; next++) {
      int turn = (int) (next % BUFFERS);
      if (next >= BUFFERS) {
        long done = (next - BUFFERS) * piece;
        awaitCopy(turn);
        if (done < from.byteSize()) {
          long bytes = Math.min(piece, from.byteSize() - done);
          MemorySegment.copy(pinned[turn], 0, to, done, bytes);
        }
      }
      if (next < pieces) {
        long bytes = Math.min(piece, from.byteSize() - next * piece);
        check.accept(device.deviceToPinned(turn, from.asSlice(next * piece, bytes)));
      }
    }
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
    boolean inPlace = inSlices <= 1 && outSlices == 1;
    long room =
        largestPiece(inPlace ? 1 : inSlices + outSlices, Math.max(inSlices, outSlices), type);
    long pieces = Math.max(1, Math.ceilDiv(count, room)); // ranks meet even for no elements
    for (long next = 0; next < pieces + BUFFERS; next++) {
      int turn = (int) (next % BUFFERS);
      awaitCopy(turn);
      if (next >= BUFFERS && next - BUFFERS < pieces) {
        long done = (next - BUFFERS) * room;
        long bytes = Math.min(room, count - done) * type.bytes();
        for (int slice = 0; slice < outSlices; slice++) {
          long offset = (slice * count + done) * type.bytes();
          MemorySegment.copy(pinned[turn], slice * bytes, out, offset, bytes);
        }
      }
      if (next < pieces) {
        long done = next * room;
        long n = Math.min(room, count - done);
        long bytes = n * type.bytes();
        for (int slice = 0; slice < inSlices; slice++) {
          long offset = (slice * count + done) * type.bytes();
          MemorySegment.copy(in, offset, pinned[turn], slice * bytes, bytes);
        }
        MemorySegment from = slots[turn].asSlice(0, (inPlace ? 1 : inSlices) * bytes);
        MemorySegment to =
            inPlace ? from : slots[turn].asSlice(inSlices * bytes, outSlices * bytes);
        check.accept(device.pinnedToDevice(turn, from.asSlice(0, inSlices * bytes)));
        device.enqueueNext();
        piece.call(from, to, n);
        check.accept(device.deviceToPinned(turn, to));
      }
    }
  }

  /** Until the last copy of that pinned buffer has ended, with what had gone wrong before it. */
  private void awaitCopy(int turn) {
    check.accept(device.pinnedWait(turn, timeoutNanos));
  }

  /** How many elements per slice fit at once. */
  private long largestPiece(int onDevice, int inPinned, DataType type) {
    return Math.min(slots[0].byteSize() / onDevice, pinned[0].byteSize() / inPinned) / type.bytes();
  }
}
