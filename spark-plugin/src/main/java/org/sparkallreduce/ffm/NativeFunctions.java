// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.ffm;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import org.jspecify.annotations.Nullable;

/**
 * The functions of {@code spark_allreduce.h}: a method handle for each, but for the collectives the
 * address only. Those are called in every step of a program, so their method handles are constants,
 * which the JIT compiler sees through, and take the address as their first argument.
 */
record NativeFunctions(
    MethodHandle abiVersion,
    MethodHandle buildInfo,
    MethodHandle constants,
    MethodHandle lastError,
    MethodHandle lastFailure,
    MethodHandle sweep,
    MethodHandle commCreate,
    MethodHandle commHandle,
    MethodHandle commConnect,
    MethodHandle commArena,
    MethodHandle commState,
    MethodHandle commStatistics,
    MethodHandle commDetach,
    MethodHandle commAttach,
    MethodHandle commRenumber,
    MethodHandle commSequence,
    MemorySegment commExpectTotal,
    MethodHandle commSetAutoTable,
    MethodHandle commDestroy,
    MethodHandle abort,
    MemorySegment allReduce,
    MemorySegment reduceScatter,
    MemorySegment allGather,
    MemorySegment broadcast,
    MethodHandle register,
    MethodHandle deregister,
    MemorySegment barrier) {

  static final MethodHandle ALL_REDUCE =
      constant(ADDRESS, ADDRESS, ADDRESS, JAVA_LONG, JAVA_INT, JAVA_INT, JAVA_INT, JAVA_LONG);
  static final MethodHandle REDUCE_SCATTER =
      constant(ADDRESS, ADDRESS, ADDRESS, JAVA_LONG, JAVA_INT, JAVA_INT, JAVA_LONG);
  static final MethodHandle ALL_GATHER =
      constant(ADDRESS, ADDRESS, ADDRESS, JAVA_LONG, JAVA_INT, JAVA_LONG);
  static final MethodHandle BROADCAST =
      constant(ADDRESS, ADDRESS, ADDRESS, JAVA_LONG, JAVA_INT, JAVA_INT, JAVA_LONG);
  static final MethodHandle BARRIER = constant(ADDRESS, JAVA_LONG);
  static final MethodHandle EXPECT_TOTAL = constant(ADDRESS, JAVA_LONG);

  /** A function that returns a status; its address is the handle's first argument. */
  static MethodHandle constant(MemoryLayout... arguments) {
    return Linker.nativeLinker().downcallHandle(FunctionDescriptor.of(JAVA_INT, arguments));
  }

  /**
   * Looks all functions up.
   *
   * @throws IllegalArgumentException if the library lacks a function; the message names it
   */
  static NativeFunctions bind(SymbolLookup library) {
    var binder = new Binder(library, Linker.nativeLinker());
    return new NativeFunctions(
        binder.function("sar_abi_version", JAVA_INT),
        binder.function("sar_build_info", ADDRESS),
        binder.function("sar_constants", ADDRESS, ADDRESS),
        binder.function("sar_last_error", ADDRESS),
        binder.function("sar_last_failure", null, ADDRESS),
        binder.function("sar_sweep", JAVA_INT, ADDRESS),
        binder.function("sar_comm_create", JAVA_INT, ADDRESS, ADDRESS),
        binder.function("sar_comm_handle", JAVA_INT, ADDRESS, ADDRESS),
        binder.function("sar_comm_connect", JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG),
        binder.function("sar_comm_arena", JAVA_INT, ADDRESS, ADDRESS, ADDRESS),
        binder.function("sar_comm_state", JAVA_INT, ADDRESS),
        binder.function("sar_comm_statistics", JAVA_INT, ADDRESS, ADDRESS),
        binder.function("sar_comm_detach", JAVA_INT, ADDRESS),
        binder.function("sar_comm_attach", JAVA_INT, ADDRESS),
        binder.function("sar_comm_renumber", JAVA_INT, ADDRESS, ADDRESS),
        binder.function("sar_comm_sequence", JAVA_LONG, ADDRESS),
        binder.address("sar_comm_expect_total"),
        binder.function("sar_comm_set_auto_table", JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG),
        binder.function("sar_comm_destroy", null, ADDRESS),
        binder.function("sar_abort", JAVA_INT, ADDRESS, JAVA_INT, ADDRESS),
        binder.address("sar_all_reduce"),
        binder.address("sar_reduce_scatter"),
        binder.address("sar_all_gather"),
        binder.address("sar_broadcast"),
        binder.function(
            "sar_register", JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG, JAVA_LONG, JAVA_LONG, ADDRESS),
        binder.function("sar_deregister", JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG),
        binder.address("sar_barrier"));
  }

  /** Finds functions of a library, for this record and others. */
  record Binder(SymbolLookup library, Linker linker) {
    MemorySegment address(String name) {
      return library
          .find(name)
          .orElseThrow(() -> new IllegalArgumentException("it has no function " + name));
    }

    MethodHandle function(String name, @Nullable MemoryLayout result, MemoryLayout... arguments) {
      var descriptor =
          result == null
              ? FunctionDescriptor.ofVoid(arguments)
              : FunctionDescriptor.of(result, arguments);
      return linker.downcallHandle(address(name), descriptor);
    }
  }
}
