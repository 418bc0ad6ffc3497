// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import java.io.Serializable;
import java.util.Collection;
import java.util.Objects;
import java.util.function.Function;
import java.util.function.ToDoubleFunction;
import org.jspecify.annotations.Nullable;

/**
 * What came out of one case, on one rank or, joined, on all.
 *
 * @param index of the case in the job
 * @param outOfPlace null: not measured
 * @param inPlace null: not measured
 * @param memcpyNanos of copying as many bytes as the case has, on all ranks at once; 0: not
 *     measured
 */
record Measured(
    int index, @Nullable Timing outOfPlace, @Nullable Timing inPlace, double memcpyNanos)
    implements Serializable {

  /** The mean time of the ranks, and all their wrong elements. */
  static Measured join(Collection<Measured> ranks) {
    return new Measured(
        ranks.iterator().next().index(),
        join(ranks, Measured::outOfPlace),
        join(ranks, Measured::inPlace),
        mean(ranks, Measured::memcpyNanos));
  }

  private static @Nullable Timing join(
      Collection<Measured> ranks, Function<Measured, @Nullable Timing> placement) {
    var timings = ranks.stream().map(placement).filter(Objects::nonNull).toList();
    if (timings.isEmpty()) {
      return null;
    }
    boolean checked = timings.stream().noneMatch(t -> t.wrong() == Timing.NOT_CHECKED);
    return new Timing(
        mean(timings, Timing::nanos),
        checked ? timings.stream().mapToLong(Timing::wrong).sum() : Timing.NOT_CHECKED);
  }

  private static <T> double mean(Collection<T> values, ToDoubleFunction<T> value) {
    return values.stream().mapToDouble(value).average().orElse(0);
  }

  /** The one that tells more: out of place, if that was measured. */
  Timing main() {
    return outOfPlace != null ? outOfPlace : Objects.requireNonNull(inPlace);
  }

  /** Elements that were wrong in either placement. */
  long wrong() {
    return wrong(outOfPlace) + wrong(inPlace);
  }

  private static long wrong(@Nullable Timing timing) {
    return timing == null || timing.wrong() == Timing.NOT_CHECKED ? 0 : timing.wrong();
  }
}
