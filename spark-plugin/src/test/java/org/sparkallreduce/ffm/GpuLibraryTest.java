// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.ffm;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.DisabledIfSystemProperty;

/** The GPU library in the jar, on a machine that need not have a GPU. */
@DisabledIfSystemProperty(named = "native.gpu", matches = "OFF")
class GpuLibraryTest {
  private final SymbolLookup library = NativeLoader.load(NativeLoader.GPU, Optional.empty());

  @Test
  void hasTheFunctionsOfTheCHeaderInTheVersionOfThisJar() throws Throwable {
    assertThat(NativeFunctions.bind(library)).isNotNull();
    assertThat((int) function("sar_abi_version", JAVA_INT).invokeExact())
        .isEqualTo(Abi.ABI_VERSION);
  }

  @Test
  void saysWhatDriverItLookedForWhereThereIsNone() throws Throwable {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment count = arena.allocate(JAVA_INT);
      int status = (int) function("sar_gpu_device_count", JAVA_INT, ADDRESS).invokeExact(count);
      assumeFalse(Status.of(status) == Status.OK, "this machine has a GPU driver");
      assertThat(Status.of(status)).isEqualTo(Status.UNSUPPORTED);
      var message = (MemorySegment) function("sar_last_error", ADDRESS).invokeExact();
      assertThat(message.reinterpret(Long.MAX_VALUE).getString(0))
          // Or, where a driver is installed but has no device, that it does not start.
          .containsAnyOf("libcuda.so.1", "libamdhip64.so");
    }
  }

  private MethodHandle function(String name, MemoryLayout result, MemoryLayout... arguments) {
    return Linker.nativeLinker()
        .downcallHandle(library.find(name).orElseThrow(), FunctionDescriptor.of(result, arguments));
  }
}
