// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import java.util.List;
import java.util.Locale;
import java.util.Objects;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * The table of rccl-tests: users and their scripts know its columns. What we have besides, the
 * collective and the schedule, stands in a comment line above each part.
 */
final class PerfTable {
  /** Of the columns of one placement. */
  private static final int WIDTH = 31;

  private final Job job;
  private final int ranks;
  private final StringBuilder text = new StringBuilder();
  private @Nullable Case before;

  PerfTable(Job job, int ranks) {
    this.job = job;
    this.ranks = ranks;
  }

  /** What stands above the table. */
  static String head(RunInfo info, Job job, List<RankInfo> ranks, String options) {
    var head = new StringBuilder();
    head.append(
        "# nRanks %d %s backend: host buffers: %s validation: %d%n"
            .formatted(
                ranks.size(),
                options,
                job.registered() ? "registered" : "unregistered (heap arrays)",
                job.checks()));
    head.append("#%n# Using ranks%n".formatted());
    for (RankInfo rank : ranks) {
      head.append("#  Rank %2d  Pid %7d on %s%n".formatted(rank.rank(), rank.pid(), rank.host()));
    }
    head.append(
        "# %s, %d processors (%s), Java %s%n"
            .formatted(
                info.mode().equals("spark") ? "Tasks of a barrier stage" : "Processes",
                info.processors(),
                info.processor(),
                Runtime.version()));
    head.append(
        "# spark-allreduce %s, native build: %s%n#%n"
            .formatted(info.version(), ranks.getFirst().build()));
    return head.toString();
  }

  /** The lines of one case: with the part's head, if it begins one. */
  String row(Measured measured) {
    text.setLength(0);
    Case row = job.cases().get(measured.index());
    if (before == null
        || before.collective() != row.collective()
        || before.schedule() != row.schedule()) {
      part(row);
    }
    before = row;
    line(
        " ",
        Long.toString(row.bytes(ranks)),
        Long.toString(row.count()),
        Names.of(row.type()),
        row.collective().reduces() ? Names.of(row.op()) : "none",
        row.collective() == Collective.BROADCAST ? Integer.toString(row.root()) : "-1",
        columns(row, measured.outOfPlace()),
        columns(row, measured.inPlace()));
    return text.toString();
  }

  private void part(Case row) {
    if (before != null) {
      text.append("#%n".formatted());
    }
    text.append("# %s".formatted(row.collective().text()));
    if (row.collective() == Collective.ALL_REDUCE) {
      text.append(", schedule %s".formatted(row.schedule().text()));
    }
    text.append("%n#%n".formatted());
    line("#", "", "", "", "", "", centre("out-of-place"), centre("in-place"));
    String units = columns("time", "algbw", "busbw", "#wrong");
    line("#", "size", "count", "type", "redop", "root", units, units);
    units = columns("(us)", "(GB/s)", "(GB/s)", "");
    line("#", "(B)", "(elements)", "", "", "", units, units);
  }

  private void line(Object... columns) {
    text.append(
        "%s%12s  %12s  %8s  %6s  %6s %s %s%n".formatted(columns).replaceAll(" +(\\R)", "$1"));
  }

  private String columns(Case row, @Nullable Timing timing) {
    return timing == null
        ? columns("N/A", "N/A", "N/A", "N/A")
        : columns(
            micros(timing.nanos()),
            bandwidth(timing.algorithmBandwidth(row.bytes(ranks))),
            bandwidth(timing.busBandwidth(row, ranks)),
            timing.wrong() == Timing.NOT_CHECKED ? "N/A" : Long.toString(timing.wrong()));
  }

  private static String columns(String time, String algorithm, String bus, String wrong) {
    return "%8s %7s %7s %6s".formatted(time, algorithm, bus, wrong);
  }

  private static String centre(String title) {
    int before = (WIDTH - title.length()) / 2;
    return " ".repeat(before) + title + " ".repeat(WIDTH - title.length() - before);
  }

  /** Four digits that count, as far as there is room. */
  private static String micros(double nanos) {
    double micros = nanos / 1_000;
    String format = micros < 99.995 ? "%.2f" : micros < 9_999.95 ? "%.1f" : "%.0f";
    return String.format(Locale.ROOT, format, micros);
  }

  private static String bandwidth(double gigabytes) {
    return String.format(Locale.ROOT, "%.2f", gigabytes);
  }

  /** What stands below the table. */
  String foot(List<Measured> all) {
    long wrong = all.stream().mapToLong(Measured::wrong).sum();
    String verdict = wrong > 0 ? "FAILED" : job.checks() == 0 ? "not checked" : "OK";
    return "# Out of bounds values : %d %s%n# Avg bus bandwidth    : %s%n#%n"
        .formatted(
            wrong,
            verdict,
            String.format(Locale.ROOT, "%.4f", averageBusBandwidth(job, ranks, all)));
  }

  /** Over all cases and placements, as rccl-tests has it. */
  static double averageBusBandwidth(Job job, int ranks, List<Measured> all) {
    return all.stream()
        .flatMap(
            measured ->
                Stream.of(measured.outOfPlace(), measured.inPlace())
                    .filter(Objects::nonNull)
                    .map(t -> t.busBandwidth(job.cases().get(measured.index()), ranks)))
        .mapToDouble(Double::doubleValue)
        .average()
        .orElse(0);
  }
}
