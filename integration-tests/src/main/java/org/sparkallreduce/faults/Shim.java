// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;

/** The preloaded library that makes this process's system calls fail: fault_shim.c. */
final class Shim {
  private final MethodHandle failMapping;
  private final MethodHandle watchThisThread;
  private final MethodHandle sleeps;
  private final MethodHandle shiftClock;
  private final MethodHandle exhaustDescriptors;

  /** Binds the library that LD_PRELOAD has loaded into this process already. */
  Shim(Path library) {
    SymbolLookup lookup = SymbolLookup.libraryLookup(library, Arena.global());
    failMapping = action(lookup, "shim_fail_mapping", JAVA_INT);
    watchThisThread = action(lookup, "shim_watch_this_thread");
    sleeps = bind(lookup, "shim_sleeps", FunctionDescriptor.of(JAVA_INT));
    shiftClock = action(lookup, "shim_shift_clock", JAVA_LONG);
    exhaustDescriptors = action(lookup, "shim_exhaust_descriptors", JAVA_INT);
  }

  private static MethodHandle action(SymbolLookup lookup, String name, MemoryLayout... parameters) {
    return bind(lookup, name, FunctionDescriptor.ofVoid(parameters));
  }

  private static MethodHandle bind(SymbolLookup lookup, String name, FunctionDescriptor function) {
    return Linker.nativeLinker().downcallHandle(lookup.findOrThrow(name), function);
  }

  /** The mapping of shared memory with this number, counted from 1, fails; 0: none does. */
  void failMapping(int number) {
    try {
      failMapping.invokeExact(number);
    } catch (Throwable t) {
      throw new IllegalStateException(t);
    }
  }

  /** From now on, {@link #sleeps} tells whether this thread has slept in a collective. */
  void watchThisThread() {
    try {
      watchThisThread.invokeExact();
    } catch (Throwable t) {
      throw new IllegalStateException(t);
    }
  }

  boolean sleeps() {
    try {
      return (int) sleeps.invokeExact() != 0;
    } catch (Throwable t) {
      throw new IllegalStateException(t);
    }
  }

  /** Moves the time of day, from its true value. */
  void shiftClock(long seconds) {
    try {
      shiftClock.invokeExact(seconds);
    } catch (Throwable t) {
      throw new IllegalStateException(t);
    }
  }

  /** No file can be opened, or it can again. */
  void exhaustDescriptors(boolean exhaust) {
    try {
      exhaustDescriptors.invokeExact(exhaust ? 1 : 0);
    } catch (Throwable t) {
      throw new IllegalStateException(t);
    }
  }
}
