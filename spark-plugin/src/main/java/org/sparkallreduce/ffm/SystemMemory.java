// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.ffm;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;

/** The C library's memcpy, which a machine's copying speed is measured with. */
public final class SystemMemory {
  private static final MethodHandle MEMCPY =
      Linker.nativeLinker()
          .downcallHandle(
              Linker.nativeLinker().defaultLookup().findOrThrow("memcpy"),
              FunctionDescriptor.of(
                  ValueLayout.ADDRESS,
                  ValueLayout.ADDRESS,
                  ValueLayout.ADDRESS,
                  ValueLayout.JAVA_LONG));

  private SystemMemory() {}

  /** Copies the first {@code bytes} bytes of two native segments that do not overlap. */
  public static void copy(MemorySegment from, MemorySegment to, long bytes) {
    if (bytes > from.byteSize() || bytes > to.byteSize() || to.isReadOnly()) {
      throw new IndexOutOfBoundsException("%d bytes are not in both segments".formatted(bytes));
    }
    try {
      var unused = (MemorySegment) MEMCPY.invokeExact(to, from, bytes);
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }
}
