// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.DataType;
import org.sparkallreduce.communicator.Communicator;
import org.sparkallreduce.communicator.RegisteredBuffer;

/**
 * The buffers of one call on one rank, in memory of the host: filled, used by the call, checked.
 */
class Buffers implements AutoCloseable {
  private static final byte POISON = 0x5a;

  /** A result that differs from what it must be. */
  static final class WrongResult extends Exception {
    private static final long serialVersionUID = 1L;

    WrongResult(String message) {
      super(message);
    }
  }

  /** What happens in the middle of a call. */
  interface Hooks {
    /** All is there for a registration, or a capture, but that itself. */
    default void before() {}

    /** In the step that is captured, or when the call is enqueued. */
    default void inside() {}

    /** The call is captured, but not replayed yet. */
    default void captured() {}

    /** Its kernels run. */
    default void launched() {}
  }

  static final Hooks NO_HOOKS = new Hooks() {};

  final Call call;
  final Communicator communicator;
  private final int ranks;
  private final int rank;
  private final Arena nativeMemory = Arena.ofShared();
  final MemorySegment in;
  final MemorySegment out;
  private final @Nullable RegisteredBuffer registeredIn;
  private final @Nullable RegisteredBuffer registeredOut;
  MemorySegment before = MemorySegment.NULL;

  Buffers(Call call, Communicator communicator) {
    this(call, communicator, call.memory() == Call.Memory.ARENA && usesMemory(call));
  }

  /**
   * As above.
   *
   * @param registered whether they are cut from the host's arena
   */
  Buffers(Call call, Communicator communicator, boolean registered) {
    this.call = call;
    this.communicator = communicator;
    this.ranks = communicator.size();
    this.rank = communicator.rank();
    long inCount = slices(Call.Kind.REDUCE_SCATTER);
    long outCount = slices(Call.Kind.ALL_GATHER);
    boolean one = call.kind() == Call.Kind.BROADCAST || (call.inPlace() && inCount == outCount);
    if (registered) {
      registeredIn = communicator.allocate(call.type(), inCount);
      registeredOut = one ? registeredIn : communicator.allocate(call.type(), outCount);
      in = registeredIn.segment();
      out = registeredOut.segment();
    } else {
      registeredIn = null;
      registeredOut = null;
      in = allocate(inCount);
      out = one ? in : allocate(outCount);
    }
  }

  static boolean usesMemory(Call call) {
    return call.kind() != Call.Kind.BARRIER && call.kind() != Call.Kind.REGISTRATION;
  }

  final long slices(Call.Kind wide) {
    return (long) call.count() * (call.kind() == wide ? ranks : 1);
  }

  private MemorySegment allocate(long count) {
    long bytes = count * call.type().bytes();
    return call.memory() == Call.Memory.HEAP
        ? MemorySegment.ofArray(new long[(int) (bytes + 7) / 8]).asSlice(0, bytes)
        : nativeMemory.allocate(bytes, 8);
  }

  /** Makes the call and checks its result. */
  void run(Hooks hooks) throws WrongResult {
    fill();
    switch (call.kind()) {
      case ALL_REDUCE -> {
        if (registeredIn != null && registeredOut != null) {
          communicator.allReduce(registeredIn, registeredOut, call.op(), call.schedule());
        } else {
          communicator.allReduce(in, out, call.type(), call.op());
        }
      }
      case REDUCE_SCATTER -> communicator.reduceScatter(in, out, call.type(), call.op());
      case ALL_GATHER -> communicator.allGather(in, out, call.type());
      case BROADCAST -> communicator.broadcast(out, call.type(), call.root());
      case BARRIER -> communicator.barrier();
      case REGISTRATION -> {
        register(hooks);
        return;
      }
    }
    check(out);
  }

  final void fill() {
    out.fill(POISON);
    for (long i = 0; i < in.byteSize() / call.type().bytes(); i++) {
      int value = Elements.input(call.seed(), rank, i, call.op());
      Elements.set(in, call.type(), i, value);
    }
    before = MemorySegment.ofArray(out.toArray(ValueLayout.JAVA_BYTE));
  }

  private void register(Hooks hooks) throws WrongResult {
    int count = Math.max(1, call.count());
    long bytes = (long) count * call.type().bytes();
    Path file = registered(ProcessHandle.current().pid());
    boolean written = false;
    try {
      Files.write(file, new byte[(int) bytes]);
      written = true;
      hooks.before();
      RegisteredBuffer buffer = communicator.register(file, 0, count, call.type());
      for (int i = 0; i < count; i++) {
        int value = Elements.input(call.seed(), rank, i, call.op());
        Elements.set(buffer.segment(), call.type(), i, value);
      }
      communicator.allReduce(buffer, buffer, call.op(), call.schedule());
      checkReduced(buffer.segment(), count, 0);
      communicator.deregister(buffer);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    } finally {
      if (written) {
        delete(file);
      }
    }
  }

  /** The file that a process registers. */
  private static Path registered(long pid) {
    return Path.of("/dev/shm/registered-%d".formatted(pid));
  }

  /** What a process has left that was killed while it had its file registered. */
  static void deleteRegistered(long pid) {
    delete(registered(pid));
  }

  private static void delete(Path file) {
    try {
      Files.deleteIfExists(file);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  final void check(MemorySegment result) throws WrongResult {
    switch (call.kind()) {
      case ALL_REDUCE -> checkReduced(result, call.count(), 0);
      case REDUCE_SCATTER -> checkReduced(result, call.count(), (long) rank * call.count());
      case ALL_GATHER -> {
        for (int source = 0; source < ranks; source++) {
          checkInput(result, (long) source * call.count(), source);
        }
      }
      case BROADCAST -> checkInput(result, 0, call.root());
      default -> {}
    }
  }

  final void checkReduced(MemorySegment result, long count, long offset) throws WrongResult {
    for (long i = 0; i < count; i++) {
      double expected = Elements.reduced(call.seed(), ranks, offset + i, call.type(), call.op());
      check(result, i, expected);
    }
  }

  private void checkInput(MemorySegment result, long at, int source) throws WrongResult {
    for (long i = 0; i < call.count(); i++) {
      check(result, at + i, Elements.input(call.seed(), source, i, call.op()));
    }
  }

  private void check(MemorySegment result, long index, double expected) throws WrongResult {
    DataType type = call.type();
    double actual = Elements.get(result, type, index);
    if (actual != expected) {
      throw new WrongResult(
          "%s: element %d is %s and should be %s".formatted(call, index, actual, expected));
    }
  }

  /** What is in the output now. */
  MemorySegment result() {
    return out;
  }

  /** After a mismatch: the output is as it was. */
  void checkUntouched() throws WrongResult {
    if (result().mismatch(before) != -1) {
      throw new WrongResult("%s: the output was written in spite of a mismatch".formatted(call));
    }
  }

  @Override
  public void close() {
    nativeMemory.close();
  }
}
