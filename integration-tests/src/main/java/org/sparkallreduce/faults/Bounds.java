// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/**
 * How soon the ranks noticed a fault. The promised bound is for ranks that get a core when they
 * need one; the campaign runs more processes than there are cores. So of each fault half of the
 * samples must be within the bound, and all of them within {@link #FACTOR} times the bound.
 */
final class Bounds {
  private static final int FACTOR = 10;

  /** Fewer samples are none: of one fault that is played alone, for instance. */
  private static final int LEAST_SAMPLES = 10;

  private static final long DEATH_MILLIS = 250;
  private static final long DEATH_ON_GPU_MILLIS = 1_000;
  private static final long ABORT_MILLIS = 1_000;

  private final Episode.Plan plan;
  private final Map<Fault, List<Long>> samples = new EnumMap<>(Fault.class);

  Bounds(Episode.Plan plan) {
    this.plan = plan;
  }

  /** In milliseconds; 0: none is promised. */
  private long promised(Fault fault) {
    if (fault.kills()) {
      return plan.onGpu() ? DEATH_ON_GPU_MILLIS : DEATH_MILLIS;
    }
    return fault == Fault.ABORT_INSIDE || fault == Fault.ABORT_LAUNCHED ? ABORT_MILLIS : 0;
  }

  /** Notes one rank's time; says what is wrong with it, if anything. */
  Optional<String> note(Fault fault, long nanos) {
    long promised = promised(fault);
    if (promised == 0 || nanos == 0) {
      return Optional.empty();
    }
    samples.computeIfAbsent(fault, _ -> new ArrayList<>()).add(nanos);
    return nanos <= FACTOR * TimeUnit.MILLISECONDS.toNanos(promised)
        ? Optional.empty()
        : Optional.of(
            "a rank noticed it after %.0f ms; promised are %d".formatted(nanos * 1e-6, promised));
  }

  /** The faults that half of the ranks or more noticed too late. */
  List<String> late() {
    var late = new ArrayList<String>();
    samples.forEach(
        (fault, nanos) -> {
          long median = median(nanos);
          if (nanos.size() >= LEAST_SAMPLES
              && median > TimeUnit.MILLISECONDS.toNanos(promised(fault))) {
            late.add(
                "%s: half of the ranks noticed it after %.0f ms or more; promised are %d"
                    .formatted(fault, median * 1e-6, promised(fault)));
          }
        });
    return late;
  }

  private static long median(List<Long> nanos) {
    return nanos.stream().sorted().toList().get(nanos.size() / 2);
  }

  /** A line for each fault that was played, with times where a bound is promised. */
  String report(Map<Fault, Integer> played) {
    var text = new StringBuilder();
    text.append(
        "%-48s %6s %10s %10s %10s %7s%n"
            .formatted("fault", "played", "median ms", "largest", "promised", "beyond"));
    played.forEach(
        (fault, count) -> {
          text.append("%-48s %6d".formatted(fault, count));
          List<Long> nanos = samples.get(fault);
          if (nanos != null) {
            long promised = promised(fault);
            text.append(
                " %10.1f %10.1f %10d %7d"
                    .formatted(
                        median(nanos) * 1e-6,
                        Collections.max(nanos) * 1e-6,
                        promised,
                        nanos.stream()
                            .filter(n -> n > TimeUnit.MILLISECONDS.toNanos(promised))
                            .count()));
          }
          text.append(System.lineSeparator());
        });
    return text.toString();
  }
}
