// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.bench;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.sparkallreduce.bench.ExchangeRank.Counts;
import org.sparkallreduce.bench.ExchangeRank.Measured;
import org.sparkallreduce.bench.ExchangeRank.Series;
import org.sparkallreduce.dataset.Collectives;

/**
 * Measures what a stage pays for its communicator: the exchange, beside Spark's own, and opening,
 * attaching, registering and closing, with 2 and with 4 executor processes. Each sample is that of
 * the slowest rank. Prints tables; it judges nothing.
 *
 * <p>Arguments: {@code --quick} for few samples.
 */
public final class ExchangeBench {
  private static final int[] RANKS = {2, 4};

  private ExchangeBench() {}

  public static void main(String[] arguments) {
    Counts counts = Arrays.asList(arguments).contains("--quick") ? Counts.QUICK : Counts.FULL;
    System.out.println("Starting 4 executor processes...");
    try (var spark = new JavaSparkContext(new SparkConf().setAppName("exchange bench"))) {
      for (int ranks : RANKS) {
        System.out.printf(
            "Measuring %d ranks (Spark's %d exchanges alone take %d s)...%n",
            ranks, counts.plain(), counts.plain());
        JavaRDD<Integer> rows =
            spark.parallelize(IntStream.range(0, ranks).boxed().toList(), ranks);
        print(
            ranks,
            Collectives.run(rows, ranks, (context, _) -> ExchangeRank.measure(context, counts)));
      }
    }
  }

  private static void print(int ranks, List<Measured> measured) {
    Map<String, long[]> samples = slowest(measured);
    System.out.printf(
        "%n%d executor processes; the message of a rank has %d characters%n",
        ranks, measured.getFirst().messageBytes());
    System.out.printf(
        "%-22s %7s %12s %12s %12s %12s%n",
        "[milliseconds]", "count", "median", "p99", "min", "max");
    samples.forEach(
        (name, nanos) ->
            System.out.printf(
                "%-22s %7d %12.3f %12.3f %12.3f %12.3f%n",
                name,
                nanos.length,
                millis(nanos, 0.5),
                millis(nanos, 0.99),
                millis(nanos, 0),
                millis(nanos, 1)));
    double exchange = millis(samples.get("nudged allGather"), 0.5);
    System.out.printf(
        "medians: nudged is %.1f times faster than Spark's; attach takes %.2f nudged exchanges%n%n",
        millis(samples.get("Spark's allGather"), 0.5) / exchange,
        millis(samples.get("attach to a lease"), 0.5) / exchange);
  }

  /** By kind: the slowest rank of each round, sorted. */
  private static Map<String, long[]> slowest(List<Measured> ranks) {
    var samples = new LinkedHashMap<String, long[]>();
    List<Series> first = ranks.getFirst().series();
    for (int kind = 0; kind < first.size(); kind++) {
      var nanos = new ArrayList<>(first.get(kind).nanos());
      for (Measured rank : ranks) {
        List<Long> others = rank.series().get(kind).nanos();
        for (int round = 0; round < nanos.size(); round++) {
          nanos.set(round, Math.max(nanos.get(round), others.get(round)));
        }
      }
      samples.put(first.get(kind).name(), nanos.stream().mapToLong(n -> n).sorted().toArray());
    }
    return samples;
  }

  private static double millis(long[] sorted, double quantile) {
    return sorted[(int) Math.round(quantile * (sorted.length - 1))] * 1e-6;
  }
}
