// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;
import javax.tools.ToolProvider;

/** What a user does in a shell. */
final class Submit {
  private static final int MINUTES = 10;

  private Submit() {}

  /** How a command ended, with what it wrote to both of its outputs. */
  record Ended(int exitCode, String output) {}

  /** Starts a script of bin/, both outputs of which go to a file in {@code folder}. */
  static Process start(Path folder, String script, String... arguments) throws IOException {
    var command = new ArrayList<String>();
    command.add(Cluster.root().resolve("bin").resolve(script).toString());
    command.addAll(List.of(arguments));
    var builder =
        new ProcessBuilder(command)
            .directory(folder.toFile())
            .redirectErrorStream(true)
            .redirectOutput(output(folder, script).toFile());
    builder.environment().put("JAVA_HOME", System.getProperty("java.home"));
    builder.environment().keySet().removeIf(name -> name.startsWith("SPARK_"));
    builder.environment().put("JDK_JAVA_OPTIONS", Cluster.shortJvmOptions());
    return builder.start();
  }

  private static Path output(Path folder, String script) {
    return folder.resolve(script + ".out");
  }

  static Ended run(Path folder, String script, String... arguments)
      throws IOException, InterruptedException {
    Process process = start(folder, script, arguments);
    Path output = output(folder, script);
    try {
      if (!process.waitFor(MINUTES, TimeUnit.MINUTES)) {
        return new Ended(-1, "still running: " + Files.readString(output));
      }
    } finally {
      process.descendants().forEach(ProcessHandle::destroyForcibly);
      process.destroyForcibly();
    }
    return new Ended(process.exitValue(), Files.readString(output));
  }

  /** Compiles one source file against what a user has, and packs it. */
  static Path compile(Path folder, String name, String source) throws IOException {
    Path file = Files.writeString(folder.resolve(name + ".java"), source);
    Path classes = Files.createDirectories(folder.resolve("classes"));
    String classPath = Cluster.pluginJar() + ":" + System.getProperty("java.class.path");
    int status =
        ToolProvider.getSystemJavaCompiler()
            .run(null, null, null, "-cp", classPath, "-d", classes.toString(), file.toString());
    if (status != 0) {
      throw new IllegalStateException(name + " does not compile; see standard error");
    }
    Path jar = folder.resolve(name + ".jar");
    try (var out = new JarOutputStream(Files.newOutputStream(jar));
        var files = Files.list(classes)) {
      for (Path compiled : files.toList()) {
        out.putNextEntry(new JarEntry(compiled.getFileName().toString()));
        Files.copy(compiled, out);
      }
    }
    return jar;
  }

  static String resource(String name) throws IOException {
    try (InputStream file = Submit.class.getResourceAsStream(name)) {
      if (file == null) {
        throw new IllegalStateException("no resource " + name);
      }
      return new String(file.readAllBytes(), StandardCharsets.UTF_8);
    }
  }
}
