// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.io.IOException;
import java.io.Serializable;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.SplittableRandom;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.communicator.Communicator;
import org.sparkallreduce.dataset.RankContext;

/**
 * A fault and the job that it strikes, drawn from seed and index.
 *
 * @param victim the rank that it strikes
 * @param call before or in which call
 * @param calls how many the job makes
 * @param interrupts whether a cancelled job's threads are interrupted too
 * @param delayMillis how long a rank is held back
 * @param signs a folder in which executors leave signs for the driver, which run on the same host
 */
record SparkEpisode(
    long seed,
    int index,
    SparkFault fault,
    int victim,
    int call,
    int calls,
    boolean interrupts,
    long delayMillis,
    String signs)
    implements Serializable {
  static final int RANKS = 2;

  /**
   * What a rank found.
   *
   * @param started when its function began, by the monotonic clock of the host
   * @param firsts the first element of each result
   */
  record Result(int attempt, long started, List<Double> firsts) implements Serializable {}

  static SparkEpisode of(long seed, int index, Path signs) {
    SparkFault[] all = SparkFault.values();
    var deck = new ArrayList<>(List.of(all));
    Collections.shuffle(deck, new Random(seed * 1_000_003 + index / all.length));
    var random = new SplittableRandom(seed * 0x9E3779B97F4A7C15L + index).split();
    int calls = 2 + random.nextInt(6);
    return new SparkEpisode(
        seed,
        index,
        deck.get(index % all.length),
        random.nextInt(RANKS),
        random.nextInt(calls),
        calls,
        random.nextBoolean(),
        10L + random.nextInt(190),
        signs.toString());
  }

  /** What a call must give at {@code i}. */
  double expected(int number, int i) {
    double sum = 0;
    for (int rank = 0; rank < RANKS; rank++) {
      sum += input(rank, number, i);
    }
    return sum;
  }

  private double input(int rank, int number, int i) {
    return Elements.input(seed + number, rank, i, ReduceOp.SUM);
  }

  private int count(int number) {
    return new int[] {1, 100, 5_003, 20_000}[Math.floorMod(seed + number, 4)];
  }

  /** The function of a rank. */
  Result run(RankContext context) throws IOException {
    long started = System.nanoTime();
    Communicator communicator = context.communicator();
    boolean struck =
        context.rank() == victim
            && (context.attempt() == 0
                || fault == SparkFault.THROW_ALWAYS
                || fault == SparkFault.MISMATCH_ALWAYS);
    var firsts = new ArrayList<Double>();
    for (int number = 0; number < calls; number++) {
      if (struck && number == call && leavesBefore(context)) {
        return new Result(context.attempt(), started, firsts);
      }
      int extra = struck && number == call && mismatches() ? 1 : 0;
      double[] values = new double[count(number) + extra];
      for (int i = 0; i < values.length; i++) {
        values[i] = input(context.rank(), number, i);
      }
      if (number == call && fault == SparkFault.KILL_INSIDE && context.attempt() == 0) {
        if (struck) {
          killSoon();
        }
        repeat(communicator);
      }
      communicator.allReduce(values, ReduceOp.SUM);
      check(number, values);
      firsts.add(values[0]);
      if (struck && number == call && fault == SparkFault.THROW_AFTER) {
        throw new IllegalStateException("told to fail behind call " + number);
      }
    }
    if (fault == SparkFault.CANCEL_INSIDE || fault == SparkFault.CANCEL_AT_START) {
      sign(context, "reached");
      repeat(communicator);
    }
    if (struck && fault == SparkFault.KILL_AT_END) {
      Signals.kill(pid());
    }
    return new Result(context.attempt(), started, firsts);
  }

  private boolean mismatches() {
    return fault == SparkFault.MISMATCH_ONCE || fault == SparkFault.MISMATCH_ALWAYS;
  }

  /** True if the rank returns here. */
  private boolean leavesBefore(RankContext context) throws IOException {
    switch (fault) {
      case KILL_BEFORE -> Signals.kill(pid());
      case THROW_BEFORE, THROW_ALWAYS ->
          throw new IllegalStateException("told to fail before call " + call);
      case LEAVE_EARLY -> {
        return true;
      }
      case DELAY -> {
        long end = System.nanoTime() + delayMillis * 1_000_000;
        while (System.nanoTime() < end) {
          Thread.onSpinWait();
        }
      }
      case STOP_BRIEFLY -> sign(context, "reached");
      case CANCEL_OUTSIDE -> {
        sign(context, "reached");
        while (true) {
          context.checkInterrupted();
          Thread.onSpinWait();
        }
      }
      default -> {}
    }
    return false;
  }

  private void check(int number, double[] values) {
    for (int i = 0; i < values.length; i++) {
      if (values[i] != expected(number, i)) {
        throw new AssertionError(
            "call %d, element %d: %s instead of %s"
                .formatted(number, i, values[i], expected(number, i)));
      }
    }
  }

  /** Until it fails, which it does: both ranks are told to by the fault. */
  private static void repeat(Communicator communicator) {
    while (true) {
      communicator.barrier();
    }
  }

  private static void killSoon() {
    Thread.ofPlatform().daemon().start(() -> Signals.kill(pid()));
  }

  private static long pid() {
    return ProcessHandle.current().pid();
  }

  /** Tells the driver something: a file with the number of this process. */
  private void sign(RankContext context, String what) throws IOException {
    Path file = Path.of(signs, "%d-%s-%d".formatted(index, what, context.rank()));
    Path draft = Files.writeString(Path.of(file + ".draft"), Long.toString(pid()));
    Files.move(draft, file);
  }
}
