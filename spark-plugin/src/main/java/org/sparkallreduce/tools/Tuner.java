// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import java.io.PrintStream;
import java.time.LocalDate;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.EnumMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.AutoTable;
import org.sparkallreduce.Backend;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Schedule;
import org.sparkallreduce.tools.Job.Placement;

/** Measures which schedule is the fastest for each world size and size: the table for auto. */
final class Tuner {
  /** Each size and schedule is measured so often, in turn; the median counts. */
  private static final int ROUNDS = 5;

  /** A schedule replaces that of the next smaller size only if it is so much faster. */
  private static final double ADVANTAGE = 1.05;

  private static final int LARGEST_WORLD = 16;

  /** How many calls are timed for a size and a number of ranks. */
  @FunctionalInterface
  interface Iterations {
    int of(long bytes, int ranks);
  }

  /** Gives the ranks for a job. */
  @FunctionalInterface
  interface Runs {
    Run of(Job job, int ranks);
  }

  private final List<Long> sizes;
  private final DataType type;
  private final Iterations iterations;
  private final PrintStream out;

  /** Measures sums of {@code type}, out of place, in registered buffers. */
  Tuner(List<Long> sizes, DataType type, Iterations iterations, PrintStream out) {
    this.sizes = sizes;
    this.type = type;
    this.iterations = iterations;
    this.out = out;
  }

  /** Measures, prints what came out, and returns the table as text with comments. */
  String tune(List<Integer> worlds, Runs runs) {
    var rows = new ArrayList<AutoTable.Row>();
    String build = "";
    for (int world : worlds) {
      Job job = job(world);
      var collected = new Collected(job, world);
      runs.of(job, world).measure(job, world, collected);
      build = collected.build;
      var times = collected.medians();
      print(world, times);
      // Nobody has measured what is larger than the last: it takes the last's.
      int covered = world == worlds.getLast() ? LARGEST_WORLD : world;
      rows.addAll(rows(covered, times));
    }
    RunInfo info = RunInfo.of("processes");
    return """
    # Which schedule the all-reduce takes where none is named: the first row whose world size and
    # bytes are not exceeded. Columns: backend, world size, bytes (*: any), schedule.
    #
    # Measured on %s by allreduce-perf --tune: %d processors (%s),
    # world sizes %s, %s; %s.
    """
            .formatted(
                LocalDate.now(ZoneOffset.UTC),
                info.processors(),
                info.processor(),
                worlds,
                Names.of(type),
                build)
        + new AutoTable(rows).text();
  }

  private Job job(int world) {
    var cases = new ArrayList<Case>();
    for (int round = 0; round < ROUNDS; round++) {
      for (long bytes : sizes) {
        for (Schedule schedule : Schedule.values()) {
          if (schedule != Schedule.AUTO && Case.carries(schedule, bytes)) {
            int n = Math.ceilDiv(iterations.of(bytes, world), ROUNDS);
            cases.add(
                new Case(
                    Collective.ALL_REDUCE,
                    schedule,
                    type,
                    ReduceOp.SUM,
                    0,
                    bytes / type.bytes(),
                    Case.defaultWarmup(n),
                    n));
          }
        }
      }
    }
    return new Job(cases, Placement.OUT_OF_PLACE, true, 1, false, true);
  }

  private static final class Collected implements Run.Listener {
    private final Job job;
    private final int world;
    private final Progress progress;
    private final Map<Long, Map<Schedule, List<Double>>> samples = new TreeMap<>();
    private String build = "";
    private int done;

    Collected(Job job, int world) {
      this.job = job;
      this.world = world;
      this.progress = new Progress(job.cases().size());
    }

    @Override
    public void started(List<RankInfo> ranks) {
      build = ranks.getFirst().build();
    }

    @Override
    public void measured(Measured measured) {
      Case row = job.cases().get(measured.index());
      if (measured.wrong() > 0) {
        throw new ToolException(
            "%s is wrong in %d elements at %d bytes and %d ranks: nothing is tuned by that."
                .formatted(row.schedule(), measured.wrong(), row.bytes(world), world));
      }
      samples
          .computeIfAbsent(row.bytes(world), _ -> new EnumMap<>(Schedule.class))
          .computeIfAbsent(row.schedule(), _ -> new ArrayList<>())
          .add(measured.main().nanos());
      progress.show(++done);
    }

    @Override
    public void waiting() {
      progress.show(done);
    }

    Map<Long, Map<Schedule, Double>> medians() {
      var medians = new TreeMap<Long, Map<Schedule, Double>>();
      samples.forEach(
          (bytes, schedules) -> {
            var times = new EnumMap<Schedule, Double>(Schedule.class);
            schedules.forEach((schedule, nanos) -> times.put(schedule, median(nanos)));
            medians.put(bytes, times);
          });
      return medians;
    }
  }

  private static double median(List<Double> values) {
    double[] sorted = values.stream().mapToDouble(Double::doubleValue).sorted().toArray();
    return sorted[sorted.length / 2];
  }

  /**
   * One row for each run of sizes with the same best schedule, the last one for any bytes.
   *
   * @param times nanoseconds by bytes and schedule
   */
  static List<AutoTable.Row> rows(int world, Map<Long, Map<Schedule, Double>> times) {
    var rows = new ArrayList<AutoTable.Row>();
    Schedule last = null;
    long lastBytes = 0;
    for (var size : new TreeMap<>(times).entrySet()) {
      Schedule best = best(size.getValue(), last);
      if (last != null && best != last) {
        rows.add(new AutoTable.Row(Backend.HOST, world, lastBytes, last));
      }
      last = best;
      lastBytes = size.getKey();
    }
    if (last != null) {
      rows.add(new AutoTable.Row(Backend.HOST, world, Long.MAX_VALUE, last));
    }
    return rows;
  }

  private static Schedule best(Map<Schedule, Double> times, @Nullable Schedule last) {
    var fastest = times.entrySet().stream().min(Comparator.comparingDouble(Map.Entry::getValue));
    Map.Entry<Schedule, Double> best = fastest.orElseThrow();
    boolean stay =
        last != null && times.containsKey(last) && times.get(last) < best.getValue() * ADVANTAGE;
    return stay ? last : best.getKey();
  }

  private void print(int world, Map<Long, Map<Schedule, Double>> times) {
    var schedules = Arrays.stream(Schedule.values()).filter(s -> s != Schedule.AUTO).toList();
    out.printf("# %d ranks, microseconds (median of %d)%n#%11s", world, ROUNDS, "bytes");
    schedules.forEach(schedule -> out.printf(" %18s", schedule.text()));
    out.println();
    times.forEach(
        (bytes, row) -> {
          out.printf("%12d", bytes);
          double best = row.values().stream().mapToDouble(Double::doubleValue).min().orElseThrow();
          for (Schedule schedule : schedules) {
            double nanos = row.getOrDefault(schedule, Double.NaN);
            out.printf(Locale.ROOT, " %17.2f%s", nanos / 1_000, nanos == best ? "*" : " ");
          }
          out.println();
        });
    out.flush();
  }
}
