// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;

/** A {@link Worker}, seen from the campaign. */
final class WorkerProcess {
  /** A line that a worker said, or {@link #ENDED}. */
  record Said(WorkerProcess worker, String line) {
    String[] words() {
      return line.split(" ", -1);
    }
  }

  static final String ENDED = "its process has ended";

  /**
   * What a worker needs of this machine.
   *
   * @param gpu where its ranks are on GPUs
   */
  record Place(Path shim, Path folder, Optional<GpuMachine> gpu) {
    Path temporary() {
      return folder.resolve("tmp");
    }
  }

  final int executor;
  private final Process process;
  private final PrintStream in;
  private Map<String, Integer> descriptors = Map.of();
  private int threads;

  WorkerProcess(int executor, Place place, BlockingQueue<Said> said) {
    this.executor = executor;
    try {
      process = builder(executor, place).start();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    in = new PrintStream(process.getOutputStream(), true, StandardCharsets.US_ASCII);
    Thread.ofPlatform().daemon().name("worker " + executor).start(() -> listen(said));
  }

  private static ProcessBuilder builder(int executor, Place place) {
    var command = new ArrayList<String>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(
        List.of(
            "-Xms48m",
            "-Xmx48m",
            "-XX:+AlwaysPreTouch", // so that resident memory says something about leaks
            "-XX:-UseDynamicNumberOfCompilerThreads",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
            "-XX:+AutoCreateSharedArchive", // by the first that ends well: the others start faster
            "-XX:SharedArchiveFile=" + place.folder().resolve("classes.jsa"),
            "-Xlog:disable",
            "-Xlog:all=error:stderr",
            "--enable-native-access=ALL-UNNAMED",
            "--sun-misc-unsafe-memory-access=allow",
            "-Djava.io.tmpdir=" + place.temporary(),
            "-cp",
            System.getProperty("java.class.path"),
            Worker.class.getName(),
            place.shim().toString(),
            Integer.toString(executor)));
    place.gpu().ifPresent(gpu -> command.add(String.join(",", gpu.addresses())));
    var builder = new ProcessBuilder(command);
    builder.environment().put("LD_PRELOAD", place.shim().toString());
    builder.environment().put("MALLOC_ARENA_MAX", "1");
    place.gpu().ifPresent(gpu -> builder.environment().putAll(gpu.environment()));
    builder.redirectError(
        ProcessBuilder.Redirect.appendTo(
            place.folder().resolve("worker-%d.log".formatted(executor)).toFile()));
    return builder;
  }

  private void listen(BlockingQueue<Said> said) {
    try (BufferedReader lines = process.inputReader(StandardCharsets.US_ASCII)) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        said.add(new Said(this, line));
      }
    } catch (IOException e) {
      // It was killed in the middle of a line.
    }
    said.add(new Said(this, ENDED));
  }

  long pid() {
    return process.pid();
  }

  boolean isAlive() {
    return process.isAlive();
  }

  void tell(String line) {
    in.println(line);
  }

  /** Remembers which descriptors and how many threads it has without any work. */
  void noteIdle() {
    descriptors = Traces.descriptors(pid());
    threads = Traces.allThreads(pid());
  }

  /** How many threads it has more than when it was ready. */
  int newThreads() {
    return Traces.allThreads(pid()) - threads;
  }

  /** Descriptors that it has now and had not when it was ready. */
  List<String> newDescriptors() {
    return Traces.more(descriptors, Traces.descriptors(pid()));
  }

  void kill() {
    Signals.kill(pid());
  }

  void stop() {
    Signals.stop(pid());
  }

  void resume() {
    Signals.resume(pid());
  }

  /** Lets it end by itself: its input ends. */
  boolean close() {
    in.close();
    try {
      if (process.waitFor(20, TimeUnit.SECONDS)) {
        return true;
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    process.destroyForcibly();
    return false;
  }
}
