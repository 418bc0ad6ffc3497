// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_FLOAT;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.util.List;

/**
 * The vendor's driver library, called as a user's own CUDA or HIP code calls it beside the plugin.
 * Handles and addresses are numbers. A call that fails is an IllegalStateException.
 */
final class GpuDriver {
  private static final SymbolLookup LIBRARY = open();
  private static final boolean CUDA = LIBRARY.find("cuInit").isPresent();
  private static final int NON_BLOCKING = 1;

  /** Doubles each of {@code count} floats; the simulated driver knows it by its name. */
  private static final String DOUBLING_KERNEL =
      """
      .version 7.0
      .target sm_70
      .address_size 64
      .visible .entry users_doubling(.param .u64 values, .param .u32 count) {
        .reg .pred %beyond;
        .reg .b32 %n, %i, %width, %thread;
        .reg .b64 %at, %offset;
        .reg .f32 %value;
        ld.param.u64 %at, [values];
        ld.param.u32 %n, [count];
        mov.u32 %i, %ctaid.x;
        mov.u32 %width, %ntid.x;
        mov.u32 %thread, %tid.x;
        mad.lo.u32 %i, %i, %width, %thread;
        setp.ge.u32 %beyond, %i, %n;
        @%beyond ret;
        cvta.to.global.u64 %at, %at;
        mul.wide.u32 %offset, %i, 4;
        add.u64 %at, %at, %offset;
        ld.global.f32 %value, [%at];
        add.f32 %value, %value, %value;
        st.global.f32 [%at], %value;
        ret;
      }
      """;

  private GpuDriver() {}

  private static SymbolLookup open() {
    String chosen = System.getenv("SPARK_ALLREDUCE_GPU_DRIVER");
    for (String name :
        chosen != null ? List.of(chosen) : List.of("libcuda.so.1", "libamdhip64.so")) {
      try {
        return SymbolLookup.libraryLookup(name, Arena.global());
      } catch (IllegalArgumentException e) { // there is no such library
      }
    }
    throw new IllegalStateException("no GPU driver library");
  }

  /** Whether kernels can be launched: the one above is PTX. */
  static boolean takesKernels() {
    return CUDA;
  }

  /** Makes a device current in this thread, as the runtime API does, until {@link #leave}. */
  static void use(int device) {
    if (!CUDA) {
      call("hipSetDevice", List.of(JAVA_INT), device);
      return;
    }
    long context = produce("cuDevicePrimaryCtxRetain", List.of(ADDRESS, JAVA_INT), device);
    call("cuCtxSetCurrent", List.of(JAVA_LONG), context);
  }

  static void leave(int device) {
    if (CUDA) {
      call("cuDevicePrimaryCtxRelease_v2", List.of(JAVA_INT), device);
    }
  }

  static long allocate(long bytes) {
    return produce(name("cuMemAlloc_v2", "hipMalloc"), List.of(ADDRESS, JAVA_LONG), bytes);
  }

  /** Memory that has no handle for other processes. */
  static long allocateFromPool(long bytes) {
    return produce(
        name("cuMemAllocAsync", "hipMallocAsync"),
        List.of(ADDRESS, JAVA_LONG, JAVA_LONG),
        bytes,
        0L);
  }

  static void free(long address) {
    call(name("cuMemFree_v2", "hipFree"), List.of(JAVA_LONG), address);
  }

  static long createStream() {
    return produce(
        name("cuStreamCreate", "hipStreamCreateWithFlags"),
        List.of(ADDRESS, JAVA_INT),
        NON_BLOCKING);
  }

  static void destroyStream(long stream) {
    call(name("cuStreamDestroy_v2", "hipStreamDestroy"), List.of(JAVA_LONG), stream);
  }

  static void synchronize(long stream) {
    call(name("cuStreamSynchronize", "hipStreamSynchronize"), List.of(JAVA_LONG), stream);
  }

  /** Enqueues: {@code count} floats from {@code address} on become {@code value}. */
  static void fill(long address, float value, long count, long stream) {
    call(
        name("cuMemsetD32Async", "hipMemsetD32Async"),
        List.of(JAVA_LONG, JAVA_INT, JAVA_LONG, JAVA_LONG),
        address,
        Float.floatToRawIntBits(value),
        count,
        stream);
  }

  /** Enqueues a copy on the device. */
  static void copy(long from, long to, long bytes, long stream) {
    call(
        name("cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync"),
        List.of(JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG),
        to,
        from,
        bytes,
        stream);
  }

  static float[] read(long address, int count) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment host = arena.allocate(JAVA_FLOAT, count);
      call(
          name("cuMemcpyDtoH_v2", "hipMemcpyDtoH"),
          List.of(ADDRESS, JAVA_LONG, JAVA_LONG),
          host,
          address,
          host.byteSize());
      return host.toArray(JAVA_FLOAT);
    }
  }

  /** A kernel of the user's own, loaded on the current device. */
  static long loadDoublingKernel() {
    try (Arena arena = Arena.ofConfined()) {
      long module =
          produce(
              "cuModuleLoadData", List.of(ADDRESS, ADDRESS), arena.allocateFrom(DOUBLING_KERNEL));
      return produce(
          "cuModuleGetFunction",
          List.of(ADDRESS, JAVA_LONG, ADDRESS),
          module,
          arena.allocateFrom("users_doubling"));
    }
  }

  /** Enqueues the kernel on {@code count} floats. */
  static void launchDoubling(long kernel, long address, int count, long stream) {
    int threads = 256;
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment arguments = arena.allocate(ADDRESS, 2);
      arguments.setAtIndex(ADDRESS, 0, arena.allocateFrom(JAVA_LONG, address));
      arguments.setAtIndex(ADDRESS, 1, arena.allocateFrom(JAVA_INT, count));
      call(
          "cuLaunchKernel",
          List.of(
              JAVA_LONG, JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT,
              JAVA_LONG, ADDRESS, ADDRESS),
          kernel,
          Math.ceilDiv(count, threads),
          1,
          1,
          threads,
          1,
          1,
          0,
          stream,
          arguments,
          MemorySegment.NULL);
    }
  }

  private static String name(String cuda, String hip) {
    return CUDA ? cuda : hip;
  }

  /** What a call writes to its first argument. */
  private static long produce(String name, List<MemoryLayout> arguments, Object... others) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment result = arena.allocate(JAVA_LONG);
      Object[] all = new Object[others.length + 1];
      all[0] = result;
      System.arraycopy(others, 0, all, 1, others.length);
      call(name, arguments, all);
      return result.get(JAVA_LONG, 0);
    }
  }

  private static void call(String name, List<MemoryLayout> layouts, Object... arguments) {
    FunctionDescriptor descriptor =
        FunctionDescriptor.of(JAVA_INT, layouts.toArray(MemoryLayout[]::new));
    Object error;
    try {
      error =
          Linker.nativeLinker()
              .downcallHandle(LIBRARY.findOrThrow(name), descriptor)
              .invokeWithArguments(arguments);
    } catch (Throwable t) {
      throw new IllegalStateException(name + " cannot be called", t);
    }
    if (!error.equals(0)) {
      throw new IllegalStateException("%s returned %s".formatted(name, error));
    }
  }
}
