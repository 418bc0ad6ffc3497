// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.ffm;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.VarHandle;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import org.sparkallreduce.AllReduceException;

/**
 * A native library of this process, bound: one backend. It is loaded once and never unloaded.
 * Thread safe; what {@link #lastFailure} says belongs to the calling thread.
 */
public final class NativeLibrary {
  private static final VarHandle STATUS = Abi.field(Abi.FAILURE, "status");
  private static final VarHandle SEQUENCE = Abi.field(Abi.FAILURE, "sequence");
  private static final VarHandle ORIGIN = Abi.field(Abi.FAILURE, "origin_rank");
  private static final VarHandle CULPRIT = Abi.field(Abi.FAILURE, "culprit_rank");
  private static final VarHandle MISSING = Abi.field(Abi.FAILURE, "missing_ranks");
  private static final VarHandle DEAD = Abi.field(Abi.FAILURE, "dead_ranks");
  private static final VarHandle WAITED = Abi.field(Abi.FAILURE, "waited_ns");

  private final NativeFunctions functions;

  private NativeLibrary(NativeFunctions functions) {
    this.functions = functions;
  }

  /**
   * Unpacks the library from the jar, loads and binds it.
   *
   * @param directory where to unpack it; empty: the JVM's temporary folder
   * @throws AllReduceException.Setup if it cannot be loaded here; the message says why and what to
   *     do
   */
  public static NativeLibrary load(Optional<String> directory) {
    return bind(NativeLoader.load(NativeLoader.HOST, directory));
  }

  /** Binds a loaded library of the version of this jar. */
  static NativeLibrary bind(SymbolLookup symbols) {
    NativeFunctions functions;
    try {
      functions = NativeFunctions.bind(symbols);
    } catch (IllegalArgumentException e) {
      throw new AllReduceException.Setup(
          "The native library does not fit this jar: "
              + e.getMessage()
              + ". Use one build of spark-allreduce on the driver and on all executors.",
          e);
    }
    var library = new NativeLibrary(functions);
    int version = library.abiVersion();
    if (version != Abi.ABI_VERSION) {
      throw new AllReduceException.Setup(
          "The native library has ABI version %d, but this jar needs %d. Use one build of"
                  .formatted(version, Abi.ABI_VERSION)
              + " spark-allreduce on the driver and on all executors.");
    }
    return library;
  }

  private int abiVersion() {
    try {
      return (int) functions.abiVersion().invokeExact();
    } catch (Throwable t) {
      throw unexpected(t);
    }
  }

  /** Version, backend, compiler and architecture of the library, on one line. */
  public String buildInfo() {
    try {
      return text((MemorySegment) functions.buildInfo().invokeExact());
    } catch (Throwable t) {
      throw unexpected(t);
    }
  }

  /**
   * Removes shared memory that dead processes of this user left behind on this host.
   *
   * @return how many segments were removed
   */
  public int sweep() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment removed = arena.allocate(JAVA_INT);
      int status = (int) functions.sweep().invokeExact(removed);
      if (Status.of(status) != Status.OK) {
        throw new AllReduceException.Resource(lastFailure().message());
      }
      return removed.get(JAVA_INT, 0);
    } catch (AllReduceException e) {
      throw e;
    } catch (Throwable t) {
      throw unexpected(t);
    }
  }

  /** What the calling thread's last failed call has to say. */
  public Failure lastFailure() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment failure = arena.allocate(Abi.FAILURE);
      functions.lastFailure().invokeExact(failure);
      return new Failure(
          Status.of((int) STATUS.get(failure, 0L)),
          text((MemorySegment) functions.lastError().invokeExact()),
          (long) SEQUENCE.get(failure, 0L),
          (int) ORIGIN.get(failure, 0L),
          (int) CULPRIT.get(failure, 0L),
          (int) MISSING.get(failure, 0L),
          (int) DEAD.get(failure, 0L),
          (long) WAITED.get(failure, 0L));
    } catch (Throwable t) {
      throw unexpected(t);
    }
  }

  /** Names and values of all constants that the library and another language must agree on. */
  Map<String, Long> constants() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment count = arena.allocate(JAVA_LONG);
      var table = (MemorySegment) functions.constants().invokeExact(count);
      long rows = count.get(JAVA_LONG, 0);
      MemorySegment entries = table.reinterpret(rows * 2 * JAVA_LONG.byteSize());
      var constants = new LinkedHashMap<String, Long>();
      for (long row = 0; row < rows; row++) {
        constants.put(
            text(entries.getAtIndex(ADDRESS, 2 * row)), entries.getAtIndex(JAVA_LONG, 2 * row + 1));
      }
      return constants;
    } catch (Throwable t) {
      throw unexpected(t);
    }
  }

  NativeFunctions functions() {
    return functions;
  }

  private static String text(MemorySegment address) {
    return address.reinterpret(Long.MAX_VALUE).getString(0);
  }

  /** A method handle may throw anything; the functions behind ours throw nothing. */
  static RuntimeException unexpected(Throwable t) {
    return switch (t) {
      case Error error -> throw error;
      case RuntimeException runtime -> runtime;
      default -> new IllegalStateException("A native call failed in an unexpected way", t);
    };
  }
}
