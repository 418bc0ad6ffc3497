// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.communicator.Communicator;
import org.sparkallreduce.communicator.Graph;
import org.sparkallreduce.communicator.RegisteredBuffer;

/**
 * The buffers of one call in memory of a GPU: from the arena, or the program's own. The inherited
 * ones are where their contents come from and are checked.
 */
final class DeviceBuffers extends Buffers {
  private final GpuDriver.Context context;
  private final @Nullable RegisteredBuffer deviceIn;
  private final @Nullable RegisteredBuffer deviceOut;
  private long adopted;

  /**
   * What a call needs. On the GPU backend its memory is on the device only if it is registered.
   *
   * @param context null: on the host
   */
  static Buffers of(Call call, Communicator communicator, GpuDriver.@Nullable Context context) {
    if (context == null) {
      return new Buffers(call, communicator);
    }
    boolean onDevice =
        call.kind() == Call.Kind.REGISTRATION
            || (call.memory() == Call.Memory.ARENA && usesMemory(call));
    return onDevice
        ? new DeviceBuffers(call, communicator, context)
        : new Buffers(call, communicator, false);
  }

  private DeviceBuffers(Call call, Communicator communicator, GpuDriver.Context context) {
    super(call, communicator, false);
    this.context = context;
    if (call.kind() == Call.Kind.REGISTRATION) {
      deviceIn = null;
      deviceOut = null;
    } else {
      deviceIn = communicator.allocate(call.type(), slices(Call.Kind.REDUCE_SCATTER));
      deviceOut =
          in.address() == out.address() && in.byteSize() == out.byteSize()
              ? deviceIn
              : communicator.allocate(call.type(), slices(Call.Kind.ALL_GATHER));
    }
  }

  private RegisteredBuffer deviceIn() {
    return present(deviceIn);
  }

  private RegisteredBuffer deviceOut() {
    return present(deviceOut);
  }

  private static RegisteredBuffer present(@Nullable RegisteredBuffer buffer) {
    if (buffer == null) {
      throw new IllegalStateException("a registration has no buffers in the arena");
    }
    return buffer;
  }

  @Override
  void run(Hooks hooks) throws WrongResult {
    if (call.kind() == Call.Kind.REGISTRATION) {
      adopt();
      return;
    }
    upload();
    switch (call.mode()) {
      case EAGER -> issue(true);
      case ENQUEUED -> {
        issue(false);
        hooks.inside();
        communicator.waitFor();
      }
      case REPLAYED -> {
        hooks.before();
        try (Graph graph = capture(hooks)) {
          hooks.captured();
          graph.replay();
          hooks.launched();
          communicator.waitFor();
        }
      }
    }
    download();
  }

  void upload() {
    fill();
    deviceIn().copyFrom(in);
    if (deviceOut() != deviceIn()) {
      deviceOut().copyFrom(out);
    }
  }

  void download() throws WrongResult {
    deviceOut().copyTo(out);
    check(out);
  }

  Graph capture(Hooks hooks) {
    return communicator.capture(
        () -> {
          issue(true);
          hooks.inside();
        });
  }

  private void issue(boolean wait) {
    RegisteredBuffer from = deviceIn();
    RegisteredBuffer to = deviceOut();
    switch (call.kind()) {
      case ALL_REDUCE -> {
        if (wait) {
          communicator.allReduce(from, to, call.op(), call.schedule());
        } else {
          communicator.enqueueAllReduce(from, to, call.op(), call.schedule());
        }
      }
      case REDUCE_SCATTER -> {
        if (wait) {
          communicator.reduceScatter(from, to, call.op());
        } else {
          communicator.enqueueReduceScatter(from, to, call.op());
        }
      }
      case ALL_GATHER -> {
        if (wait) {
          communicator.allGather(from, to);
        } else {
          communicator.enqueueAllGather(from, to);
        }
      }
      case BROADCAST -> {
        if (wait) {
          communicator.broadcast(to, call.root());
        } else {
          communicator.enqueueBroadcast(to, call.root());
        }
      }
      case BARRIER, REGISTRATION -> throw new IllegalStateException(call.toString());
    }
  }

  /** Memory that the program has of its own, as another library on the GPU would. */
  private void adopt() throws WrongResult {
    int count = Math.max(1, call.count());
    if (adopted == 0) {
      adopted = context.allocate((long) count * call.type().bytes());
    }
    RegisteredBuffer buffer =
        communicator.adopt(adopted, (long) count * call.type().bytes(), call.type());
    try (var host =
        new Buffers(
            call.with(Call.Kind.ALL_REDUCE, Call.Memory.NATIVE).withCount(count),
            communicator,
            false)) {
      host.fill();
      buffer.copyFrom(host.in);
      communicator.allReduce(buffer, buffer, call.op(), call.schedule());
      buffer.copyTo(host.in);
      host.checkReduced(host.in, count, 0);
    }
  }

  /**
   * As the driver finds it, when all that was enqueued has ended: an aborted communicator copies
   * nothing any more.
   */
  @Override
  MemorySegment result() {
    context.await(communicator.stream());
    return out.byteSize() == 0 || call.kind() == Call.Kind.REGISTRATION
        ? out
        : MemorySegment.ofArray(context.read(deviceOut().address(), out.byteSize()));
  }

  /** When the communicator is closed: until then it may use what it has adopted. */
  @Override
  public void close() {
    if (adopted != 0) {
      context.free(adopted);
    }
    super.close();
  }
}
