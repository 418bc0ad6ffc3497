// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;

/**
 * The simulated driver, as another program would call it: NOT A GPU. surefire names it in
 * SPARK_ALLREDUCE_GPU_DRIVER; its memory is memory of this process.
 */
final class SimulatedDriver {
  static final String VARIABLE = "SPARK_ALLREDUCE_GPU_DRIVER";

  private static final boolean HIP = System.getenv(VARIABLE).contains("hip");
  private static final SymbolLookup LIBRARY =
      SymbolLookup.libraryLookup(Path.of(System.getenv(VARIABLE)), Arena.global());

  private SimulatedDriver() {}

  /** The vendor's name of a call. */
  static String call(String cuda, String hip) {
    return HIP ? hip : cuda;
  }

  /** What SIMULATED_FAIL says; empty: nothing fails. */
  static void fail(String told) {
    try (Arena arena = Arena.ofConfined()) {
      function("simulated_fail", null, ADDRESS).invoke(arena.allocateFrom(told));
    } catch (Throwable t) {
      throw new AssertionError(t);
    }
  }

  /** How often this process has launched a kernel. */
  static int launches(String kernel) {
    try (Arena arena = Arena.ofConfined()) {
      return (int)
          function("simulated_launches", JAVA_INT, ADDRESS).invoke(arena.allocateFrom(kernel));
    } catch (Throwable t) {
      throw new AssertionError(t);
    }
  }

  static long allocate(long bytes) {
    return produce(call("cuMemAlloc_v2", "hipMalloc"), bytes);
  }

  static void free(long address) {
    require(call("cuMemFree_v2", "hipFree"), address);
  }

  /** Memory that has no handle for other processes. */
  static long allocateFromPool(long bytes) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment result = arena.allocate(JAVA_LONG);
      int error =
          (int)
              function(
                      call("cuMemAllocAsync", "hipMallocAsync"),
                      JAVA_INT,
                      ADDRESS,
                      JAVA_LONG,
                      ADDRESS)
                  .invoke(result, bytes, MemorySegment.NULL);
      return checked(error, result);
    } catch (Throwable t) {
      throw new AssertionError(t);
    }
  }

  /** A stream of the device that is current in this thread. */
  static long createStream() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment result = arena.allocate(JAVA_LONG);
      int error =
          (int)
              function(
                      call("cuStreamCreate", "hipStreamCreateWithFlags"),
                      JAVA_INT,
                      ADDRESS,
                      JAVA_INT)
                  .invoke(result, 1);
      return checked(error, result);
    } catch (Throwable t) {
      throw new AssertionError(t);
    }
  }

  static void destroyStream(long stream) {
    require(call("cuStreamDestroy_v2", "hipStreamDestroy"), stream);
  }

  /** Makes a device current in this thread, as the runtime API does. */
  static void use(int device) {
    try (Arena arena = Arena.ofConfined()) {
      int error;
      if (HIP) {
        error = (int) function("hipSetDevice", JAVA_INT, JAVA_INT).invoke(device);
      } else {
        MemorySegment context = arena.allocate(ADDRESS);
        error =
            (int)
                function("cuDevicePrimaryCtxRetain", JAVA_INT, ADDRESS, JAVA_INT)
                    .invoke(context, device);
        error +=
            (int) function("cuCtxSetCurrent", JAVA_INT, ADDRESS).invoke(context.get(ADDRESS, 0));
      }
      checked(error, arena.allocate(JAVA_LONG));
    } catch (Throwable t) {
      throw new AssertionError(t);
    }
  }

  private static long produce(String name, long bytes) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment result = arena.allocate(JAVA_LONG);
      int error = (int) function(name, JAVA_INT, ADDRESS, JAVA_LONG).invoke(result, bytes);
      return checked(error, result);
    } catch (Throwable t) {
      throw new AssertionError(t);
    }
  }

  private static void require(String name, long argument) {
    try (Arena arena = Arena.ofConfined()) {
      checked(
          (int) function(name, JAVA_INT, JAVA_LONG).invoke(argument), arena.allocate(JAVA_LONG));
    } catch (Throwable t) {
      throw new AssertionError(t);
    }
  }

  private static long checked(int error, MemorySegment result) {
    if (error != 0) {
      throw new AssertionError("the simulated driver says " + error);
    }
    return result.get(JAVA_LONG, 0);
  }

  private static MethodHandle function(
      String name, MemoryLayout result, MemoryLayout... arguments) {
    FunctionDescriptor descriptor =
        result == null
            ? FunctionDescriptor.ofVoid(arguments)
            : FunctionDescriptor.of(result, arguments);
    return Linker.nativeLinker().downcallHandle(LIBRARY.findOrThrow(name), descriptor);
  }
}
