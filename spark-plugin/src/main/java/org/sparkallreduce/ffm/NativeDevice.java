// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.ffm;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * What a communicator of the GPU library can do besides: its stream, pinned memory, captures. It
 * owns nothing, and is not used after the communicator is closed. Used by one thread at a time.
 */
public final class NativeDevice {
  /** How many buffers of pinned memory there are. */
  public static final int PINNED_BUFFERS = 2;

  private final GpuFunctions functions;
  private final NativeCommunicator comm;

  NativeDevice(GpuFunctions functions, NativeCommunicator comm) {
    this.functions = functions;
    this.comm = comm;
  }

  /** {@code sar_gpu_stream}: a CUstream or hipStream_t. */
  public long stream() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment result = arena.allocate(ADDRESS);
      int status = (int) functions.stream().invokeExact(comm.address(), result);
      if (Status.of(status) != Status.OK) {
        throw new IllegalStateException("sar_gpu_stream refused a valid communicator");
      }
      return result.get(ADDRESS, 0).address();
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /** {@code sar_gpu_use_stream}; 0: its own one again. */
  public Status useStream(long stream) {
    try {
      MemorySegment handle = MemorySegment.ofAddress(stream);
      return Status.of((int) functions.useStream().invokeExact(comm.address(), handle));
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /** {@code sar_gpu_enqueue_next}: the next collective does not wait for its result. */
  public void enqueueNext() {
    try {
      int ignored =
          (int) GpuFunctions.ENQUEUE_NEXT.invokeExact(functions.enqueueNext(), comm.address());
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /** {@code sar_gpu_wait}: until all that was enqueued has ended. */
  public Status await(long timeoutNanos) {
    try {
      return Status.of(
          (int) GpuFunctions.AWAIT.invokeExact(functions.await(), comm.address(), timeoutNanos));
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /** {@code sar_gpu_pinned}, accessible until {@code scope} is closed. */
  public MemorySegment pinned(int buffer, Arena scope) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment base = arena.allocate(ADDRESS);
      MemorySegment bytes = arena.allocate(JAVA_LONG);
      int status = (int) functions.pinned().invokeExact(comm.address(), buffer, base, bytes);
      if (Status.of(status) != Status.OK) {
        throw new IllegalStateException("sar_gpu_pinned refused a valid communicator");
      }
      return base.get(ADDRESS, 0).reinterpret(bytes.get(JAVA_LONG, 0), scope, null);
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /** {@code sar_gpu_pinned_to_device}: enqueues a copy of all of {@code device}. */
  public Status pinnedToDevice(int buffer, MemorySegment device) {
    try {
      long bytes = device.byteSize();
      return Status.of(
          (int)
              GpuFunctions.PINNED_COPY.invokeExact(
                  functions.pinnedToDevice(), comm.address(), buffer, device, bytes));
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /** {@code sar_gpu_device_to_pinned}: enqueues a copy of all of {@code device}. */
  public Status deviceToPinned(int buffer, MemorySegment device) {
    try {
      long bytes = device.byteSize();
      return Status.of(
          (int)
              GpuFunctions.PINNED_COPY.invokeExact(
                  functions.deviceToPinned(), comm.address(), buffer, device, bytes));
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /** {@code sar_gpu_pinned_wait}: until the buffer's last copy has ended. */
  public Status pinnedWait(int buffer, long timeoutNanos) {
    try {
      return Status.of(
          (int)
              GpuFunctions.PINNED_WAIT.invokeExact(
                  functions.pinnedWait(), comm.address(), buffer, timeoutNanos));
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /** {@code sar_gpu_register}: collective. */
  public Status register(long address, long bytes, long timeoutNanos) {
    try {
      MemorySegment buffer = MemorySegment.ofAddress(address);
      return Status.of(
          (int) functions.register().invokeExact(comm.address(), buffer, bytes, timeoutNanos));
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /** {@code sar_gpu_capture_begin}. */
  public Status captureBegin(long replayTimeoutNanos) {
    try {
      return Status.of(
          (int) functions.captureBegin().invokeExact(comm.address(), replayTimeoutNanos));
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /**
   * {@code sar_gpu_capture_end}: collective.
   *
   * @param result receives the graph, to be given to {@link #destroyGraph}
   */
  public Status captureEnd(long timeoutNanos, MemorySegment result) {
    try {
      return Status.of(
          (int) functions.captureEnd().invokeExact(comm.address(), timeoutNanos, result));
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /** {@code sar_gpu_capture_cancel}. */
  public Status captureCancel() {
    try {
      return Status.of((int) functions.captureCancel().invokeExact(comm.address()));
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /** {@code sar_gpu_replay}: enqueues one. */
  public Status replay(MemorySegment graph) {
    try {
      return Status.of((int) GpuFunctions.REPLAY.invokeExact(functions.replay(), graph));
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /** {@code sar_gpu_graph_destroy}. */
  public void destroyGraph(MemorySegment graph) {
    try {
      functions.graphDestroy().invokeExact(graph);
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }
}
