// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;

/** kill(2): at once, without a process of its own. */
final class Signals {
  private static final int SIGKILL = 9;
  private static final int SIGCONT = 18;
  private static final int SIGSTOP = 19;
  private static final MethodHandle KILL =
      Linker.nativeLinker()
          .downcallHandle(
              Linker.nativeLinker().defaultLookup().findOrThrow("kill"),
              FunctionDescriptor.of(
                  ValueLayout.JAVA_INT, ValueLayout.JAVA_INT, ValueLayout.JAVA_INT));

  private Signals() {}

  static void kill(long pid) {
    send(pid, SIGKILL);
  }

  static void stop(long pid) {
    send(pid, SIGSTOP);
  }

  static void resume(long pid) {
    send(pid, SIGCONT);
  }

  private static void send(long pid, int number) {
    try {
      int ignored = (int) KILL.invokeExact((int) pid, number);
    } catch (Throwable t) {
      throw new IllegalStateException(t);
    }
  }
}
