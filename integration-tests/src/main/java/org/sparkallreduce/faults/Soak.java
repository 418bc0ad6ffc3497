// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;

/**
 * Runs program after program on the same processes, most of them without a fault, each result
 * checked; and measures all the while what the processes hold: it must not grow.
 *
 * <p>Arguments: shim, folder for logs, seed, minutes, the share of time to work in percent. Ends
 * with 1 if a result was wrong or something grew.
 */
public final class Soak {
  /** What one process holds when it is idle and keeps nothing. */
  private record Holding(long privateKib, int descriptors, int threads, int mappings) {
    static Holding of(long pid) {
      return new Holding(
          Traces.status(pid, "RssAnon"),
          Traces.descriptors(pid).values().stream().mapToInt(n -> n).sum(),
          Traces.allThreads(pid),
          Traces.mappings(pid).size());
    }

    /**
     * What is more than in {@code first}: memory of the JVM itself (code, classes, its collector's
     * lists) settles slowly, so that it is given some room.
     */
    List<String> growth(Holding first) {
      var growth = new ArrayList<String>();
      if (privateKib - first.privateKib > ROOM_KIB) {
        growth.add("private memory: %d KiB, then %d".formatted(first.privateKib, privateKib));
      }
      if (descriptors > first.descriptors) {
        growth.add("descriptors: %d, then %d".formatted(first.descriptors, descriptors));
      }
      if (threads > first.threads) {
        growth.add("threads: %d, then %d".formatted(first.threads, threads));
      }
      if (mappings > 0) {
        growth.add("shared memory mapped with nothing kept: " + mappings);
      }
      return growth;
    }
  }

  /** Above what it was after the warm-up. A leak of a page in each round is ten times as much. */
  private static final long ROOM_KIB = 16 << 10;

  private static final int ROUNDS_PER_SAMPLE = 50;

  private final Crew crew;
  private final long seed;
  private final int share;
  private final List<String> failures = new ArrayList<>();
  private int rounds;
  private int faults;

  private Soak(Crew crew, long seed, int share) {
    this.crew = crew;
    this.seed = seed;
    this.share = share;
  }

  public static void main(String[] arguments) throws IOException {
    var place = new WorkerProcess.Place(Path.of(arguments[0]), Path.of(arguments[1]));
    Files.createDirectories(place.temporary());
    boolean well;
    try (var crew = new Crew(place)) {
      well =
          new Soak(crew, Long.parseLong(arguments[2]), Integer.parseInt(arguments[4]))
              .run(Duration.ofMinutes(Long.parseLong(arguments[3])));
    }
    System.exit(well ? 0 : 1);
  }

  private boolean run(Duration length) {
    long start = System.nanoTime();
    long warm = start + length.toNanos() / 5;
    long end = start + length.toNanos();
    while (System.nanoTime() < warm) {
      sample();
    }
    List<Holding> first = sample();
    System.out.printf("warm after %d rounds: %s%n", rounds, first);
    List<Holding> last = first;
    while (System.nanoTime() < end && failures.isEmpty()) {
      last = sample();
    }
    for (int slot = 0; slot < first.size(); slot++) {
      String who = "executor %d: ".formatted(slot);
      last.get(slot).growth(first.get(slot)).forEach(line -> failures.add(who + line));
    }
    System.out.printf("at the end, after %d rounds: %s%n", rounds, last);
    System.out.printf(
        "soak: %d rounds in %d s, %d of them with a fault, seed %d: %s%n",
        rounds,
        Duration.ofNanos(System.nanoTime() - start).toSeconds(),
        faults,
        seed,
        failures.isEmpty() ? "nothing grew, every result was right" : "FAILED");
    failures.forEach(failure -> System.out.println("FAILED: " + failure));
    return failures.isEmpty();
  }

  /** Some rounds; then what each process holds, with nothing kept. */
  private List<Holding> sample() {
    for (int i = 0; i < ROUNDS_PER_SAMPLE && failures.isEmpty(); i++) {
      long start = System.nanoTime();
      round();
      long busy = System.nanoTime() - start;
      LockSupport.parkNanos(busy * (100 - share) / share);
    }
    failures.addAll(crew.forget());
    return crew.pids().stream().map(Holding::of).toList();
  }

  private void round() {
    Episode episode = Episode.of(Episode.Plan.SOAK, seed, rounds);
    rounds++;
    faults += episode.fault() == Fault.NONE ? 0 : 1;
    List<String> wrong = crew.play(episode, new Bounds());
    wrong.forEach(line -> failures.add(episode + ": " + line));
  }
}
