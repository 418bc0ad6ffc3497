// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import java.util.stream.IntStream;

/**
 * Runs program after program on the same processes, two of three of them without a fault, each
 * result checked; and measures all the while what the processes hold: it must not grow.
 *
 * <p>Arguments: shim, folder for logs, seed, minutes, the share of time to work in percent. Ends
 * with 1 if a result was wrong or something grew.
 */
public final class Soak {
  /** What one process holds when it is idle and keeps nothing. */
  private record Holding(long nativeKib, long heapKib, int descriptors, int threads) {
    static Holding of(long pid, long heapKib) {
      int descriptors = Traces.descriptors(pid).values().stream().mapToInt(n -> n).sum();
      return new Holding(
          Traces.status(pid, "RssAnon"), heapKib, descriptors, Traces.allThreads(pid));
    }

    /** What is more than in {@code first}; empty: nothing is. */
    String growth(Holding first) {
      var growth = new ArrayList<String>();
      if (nativeKib - first.nativeKib > NATIVE_ROOM_KIB) {
        growth.add("private memory: %d KiB, then %d".formatted(first.nativeKib, nativeKib));
      }
      if (heapKib - first.heapKib > HEAP_ROOM_KIB) {
        growth.add("heap in use: %d KiB, then %d".formatted(first.heapKib, heapKib));
      }
      if (descriptors > first.descriptors) {
        growth.add("descriptors: %d, then %d".formatted(first.descriptors, descriptors));
      }
      if (threads > first.threads) {
        growth.add("threads: %d, then %d".formatted(first.threads, threads));
      }
      return String.join("; ", growth);
    }

    @Override
    public String toString() {
      return "%d + %d KiB, %d descriptors, %d threads"
          .formatted(nativeKib, heapKib, descriptors, threads);
    }
  }

  /**
   * Above what it was after the warm-up: the JVM's own memory (compiled code, classes, the lists of
   * its collector) settles slowly. The heap is part of the private memory too, and is all there
   * from the start, so that it cannot grow into it.
   */
  private static final long NATIVE_ROOM_KIB = 6 << 10;

  /** Classes that are used for the first time have some objects of their own. */
  private static final long HEAP_ROOM_KIB = 512;

  /** A fifth of the time, and as many rounds as the JVM needs to compile what is used often. */
  private static final int WARM_UP_PART = 5;

  private static final int WARM_UP_ROUNDS = 400;

  /** On a machine that is busy itself, rounds take long without any work. */
  private static final long LONGEST_PAUSE_NANOS = 250_000_000;

  private static final int REPORTS = 10;
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
    var place =
        new WorkerProcess.Place(Path.of(arguments[0]), Path.of(arguments[1]), Optional.empty());
    Files.createDirectories(place.temporary());
    boolean well;
    try (var crew = new Crew(place)) {
      var soak = new Soak(crew, Long.parseLong(arguments[2]), Integer.parseInt(arguments[4]));
      well = soak.run(Duration.ofMinutes(Long.parseLong(arguments[3])));
    }
    System.exit(well ? 0 : 1);
  }

  private boolean run(Duration length) {
    long start = System.nanoTime();
    do {
      roundsUntil(start + length.toNanos() / WARM_UP_PART);
    } while (rounds < WARM_UP_ROUNDS && failures.isEmpty());
    List<Holding> first = holdings();
    report("warm", first);
    for (int part = 1; part <= REPORTS && failures.isEmpty(); part++) {
      long rest = length.toNanos() * (WARM_UP_PART - 1) / WARM_UP_PART;
      roundsUntil(start + length.toNanos() / WARM_UP_PART + rest * part / REPORTS);
      report("%d of %d".formatted(part, REPORTS), holdings());
    }
    for (int slot = 0; slot < first.size(); slot++) {
      checkGrowth(slot, first.get(slot));
    }
    failures.addAll(crew.end());
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

  /** Rounds, until it is {@code end} or something is wrong; then nothing is kept. */
  private void roundsUntil(long end) {
    do {
      int last = rounds + ROUNDS_PER_SAMPLE;
      do {
        long start = System.nanoTime();
        round();
        long pause = (System.nanoTime() - start) * (100 - share) / share;
        LockSupport.parkNanos(Math.min(pause, LONGEST_PAUSE_NANOS));
      } while (rounds < last && System.nanoTime() < end && failures.isEmpty());
      failures.addAll(crew.forget());
    } while (System.nanoTime() < end && failures.isEmpty());
  }

  private void round() {
    Episode episode = Episode.of(Episode.Plan.SOAK, seed, rounds);
    rounds++;
    faults += episode.fault() == Fault.NONE ? 0 : 1;
    List<String> wrong = crew.play(episode, new Bounds(Episode.Plan.SOAK));
    wrong.forEach(line -> failures.add(episode + ": " + line));
  }

  private Holding holding(int slot) {
    return Holding.of(crew.pids().get(slot), crew.heapKib(slot));
  }

  private List<Holding> holdings() {
    return IntStream.range(0, crew.pids().size()).mapToObj(this::holding).toList();
  }

  private void checkGrowth(int slot, Holding first) {
    Supplier<String> growth = () -> holding(slot).growth(first);
    Crew.settle("executor %d: ".formatted(slot), growth, failures);
  }

  private void report(String when, List<Holding> holdings) {
    System.out.printf("%-8s after %7d rounds:%n", when, rounds);
    holdings.forEach(holding -> System.out.println("    " + holding));
  }
}
