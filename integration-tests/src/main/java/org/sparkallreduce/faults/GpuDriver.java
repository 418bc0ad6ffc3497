// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;

/**
 * The CUDA driver, or the simulated one, as a program besides ours would use it: holds a context,
 * takes memory, reads what is on the device. So the campaign need not ask the library that it
 * tests.
 */
final class GpuDriver {
  private static final Linker LINKER = Linker.nativeLinker();

  private final SymbolLookup library;
  private final Optional<MethodHandle> fail;

  GpuDriver() {
    String simulated = System.getenv("SPARK_ALLREDUCE_GPU_DRIVER");
    library =
        simulated == null
            ? SymbolLookup.libraryLookup("libcuda.so.1", Arena.global())
            : SymbolLookup.libraryLookup(Path.of(simulated), Arena.global());
    fail =
        library
            .find("simulated_fail")
            .map(at -> LINKER.downcallHandle(at, FunctionDescriptor.ofVoid(ADDRESS)));
    call("cuInit", 0);
  }

  /** The n-th call of that name and all later ones fail from now on; empty: none does any more. */
  void letFail(String call, int error) {
    try (Arena arena = Arena.ofConfined()) {
      String told = call.isEmpty() ? "" : "%s:%d:1".formatted(call, error);
      fail.orElseThrow().invokeExact(arena.allocateFrom(told));
    } catch (Throwable t) {
      throw new IllegalStateException(t);
    }
  }

  boolean isSimulated() {
    return fail.isPresent();
  }

  private int status(String name, Object... arguments) {
    MemoryLayout[] layouts =
        Arrays.stream(arguments).map(GpuDriver::layout).toArray(MemoryLayout[]::new);
    try {
      return (int)
          LINKER
              .downcallHandle(library.findOrThrow(name), FunctionDescriptor.of(JAVA_INT, layouts))
              .invokeWithArguments(arguments);
    } catch (Throwable t) {
      throw new IllegalStateException(t);
    }
  }

  private static ValueLayout layout(Object argument) {
    return switch (argument) {
      case Integer _ -> JAVA_INT;
      case Long _ -> JAVA_LONG;
      default -> ADDRESS;
    };
  }

  private void call(String name, Object... arguments) {
    int error = status(name, arguments);
    if (error != 0) {
      throw new IllegalStateException("%s fails with error %d".formatted(name, error));
    }
  }

  /** The primary context of the device with that number, current on this thread until closed. */
  final class Context implements AutoCloseable {
    private static final long LEAST_HOG = 1 << 16;

    private final Arena arena = Arena.ofShared();
    private final MemorySegment result = arena.allocate(JAVA_LONG, 2);
    private final int device;
    private final List<Long> hog = new ArrayList<>();

    Context(int number) {
      call("cuDeviceGet", result, number);
      device = result.get(JAVA_INT, 0);
      call("cuDevicePrimaryCtxRetain", result, device);
      call("cuCtxSetCurrent", result.get(ADDRESS, 0));
    }

    long allocate(long bytes) {
      call("cuMemAlloc_v2", result, bytes);
      return result.get(JAVA_LONG, 0);
    }

    void free(long address) {
      call("cuMemFree_v2", address);
    }

    void await(long stream) {
      call("cuStreamSynchronize", MemorySegment.ofAddress(stream));
    }

    byte[] read(long address, long bytes) {
      try (Arena call = Arena.ofConfined()) {
        MemorySegment to = call.allocate(bytes);
        call("cuMemcpyDtoH_v2", to, address, bytes);
        return to.toArray(ValueLayout.JAVA_BYTE);
      }
    }

    /** Leaves that many bytes of the device free, or as few as there can be. */
    void fill(long room) {
      call("cuMemGetInfo_v2", result, result.asSlice(JAVA_LONG.byteSize()));
      long next = Math.max(LEAST_HOG, result.get(JAVA_LONG, 0) - room);
      while (next >= LEAST_HOG) {
        if (status("cuMemAlloc_v2", result, next) == 0) {
          hog.add(result.get(JAVA_LONG, 0));
          if (room > 0) {
            return;
          }
        } else {
          next /= 2;
        }
      }
    }

    void letGo() {
      hog.forEach(this::free);
      hog.clear();
    }

    /** Whether the device still does what it is told: a broken context does nothing any more. */
    void checkUsable() {
      long address = allocate(Long.BYTES);
      try (Arena call = Arena.ofConfined()) {
        call("cuMemcpyHtoD_v2", address, call.allocateFrom(JAVA_LONG, device + 17L), 8L);
      }
      long found =
          MemorySegment.ofArray(read(address, Long.BYTES)).get(ValueLayout.JAVA_LONG_UNALIGNED, 0);
      free(address);
      if (found != device + 17L) {
        throw new IllegalStateException("the device returns %d".formatted(found));
      }
    }

    @Override
    public void close() {
      letGo();
      call("cuCtxSetCurrent", MemorySegment.NULL);
      call("cuDevicePrimaryCtxRelease_v2", device);
      arena.close();
    }
  }
}
