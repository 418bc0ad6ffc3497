// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.ffm;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;

/**
 * The functions that only the GPU library has: a method handle for each, but for those of a
 * program's steps the address only, as in {@link NativeFunctions}.
 */
record GpuFunctions(
    MethodHandle deviceCount,
    MethodHandle deviceFacts,
    MethodHandle freeMemory,
    MethodHandle selectDevice,
    MethodHandle stream,
    MethodHandle useStream,
    MemorySegment enqueueNext,
    MethodHandle pinned,
    MemorySegment pinnedToDevice,
    MemorySegment deviceToPinned,
    MemorySegment pinnedWait,
    MethodHandle register,
    MethodHandle captureBegin,
    MethodHandle captureEnd,
    MethodHandle captureCancel,
    MemorySegment replay,
    MemorySegment await,
    MethodHandle graphDestroy) {

  static final MethodHandle ENQUEUE_NEXT = NativeFunctions.constant(ADDRESS);
  static final MethodHandle PINNED_COPY =
      NativeFunctions.constant(ADDRESS, JAVA_INT, ADDRESS, JAVA_LONG);
  static final MethodHandle PINNED_WAIT = NativeFunctions.constant(ADDRESS, JAVA_INT, JAVA_LONG);
  static final MethodHandle REPLAY = NativeFunctions.constant(ADDRESS);
  static final MethodHandle AWAIT = NativeFunctions.constant(ADDRESS, JAVA_LONG);

  /**
   * Looks all functions up.
   *
   * @throws IllegalArgumentException if the library lacks a function; the message names it
   */
  static GpuFunctions bind(SymbolLookup library) {
    var binder = new NativeFunctions.Binder(library, Linker.nativeLinker());
    return new GpuFunctions(
        binder.function("sar_gpu_device_count", JAVA_INT, ADDRESS),
        binder.function("sar_gpu_device_facts", JAVA_INT, JAVA_INT, ADDRESS),
        binder.function("sar_gpu_free_memory", JAVA_INT, JAVA_INT, ADDRESS),
        binder.function("sar_gpu_select_device", JAVA_INT, JAVA_INT),
        binder.function("sar_gpu_stream", JAVA_INT, ADDRESS, ADDRESS),
        binder.function("sar_gpu_use_stream", JAVA_INT, ADDRESS, ADDRESS),
        binder.address("sar_gpu_enqueue_next"),
        binder.function("sar_gpu_pinned", JAVA_INT, ADDRESS, JAVA_INT, ADDRESS, ADDRESS),
        binder.address("sar_gpu_pinned_to_device"),
        binder.address("sar_gpu_device_to_pinned"),
        binder.address("sar_gpu_pinned_wait"),
        binder.function("sar_gpu_register", JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG, JAVA_LONG),
        binder.function("sar_gpu_capture_begin", JAVA_INT, ADDRESS, JAVA_LONG),
        binder.function("sar_gpu_capture_end", JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS),
        binder.function("sar_gpu_capture_cancel", JAVA_INT, ADDRESS),
        binder.address("sar_gpu_replay"),
        binder.address("sar_gpu_wait"),
        binder.function("sar_gpu_graph_destroy", null, ADDRESS));
  }
}
