// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import java.lang.reflect.Method;
import java.util.List;
import org.junit.jupiter.api.DisplayNameGenerator;
import org.sparkallreduce.faults.GpuMachine;

/** Names that say on what a test ran, so that no report mixes up a simulation and a GPU. */
final class GpuDisplayNames extends DisplayNameGenerator.Standard {
  private static final String ON = " on " + GpuMachine.HERE.name();

  @Override
  public String generateDisplayNameForClass(Class<?> testClass) {
    return super.generateDisplayNameForClass(testClass) + ON;
  }

  @Override
  public String generateDisplayNameForMethod(
      List<Class<?>> enclosing, Class<?> testClass, Method method) {
    return method.getName() + ON;
  }
}
