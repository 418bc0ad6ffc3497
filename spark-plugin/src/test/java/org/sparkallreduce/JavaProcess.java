// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Starts a main class of the tests in a JVM of its own, with this one's class path. */
public final class JavaProcess {
  private JavaProcess() {}

  /** Standard error goes where standard output goes. */
  public static Process start(Class<?> main, String... arguments) throws IOException {
    return new ProcessBuilder(command(main, arguments)).redirectErrorStream(true).start();
  }

  /** The words of the command line that starts it. */
  public static List<String> command(Class<?> main, String... arguments) {
    var command = new ArrayList<String>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(
        List.of(
            "--enable-native-access=ALL-UNNAMED",
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            System.getProperty("java.class.path"),
            main.getName()));
    command.addAll(List.of(arguments));
    return command;
  }
}
