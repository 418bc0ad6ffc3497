// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.bench;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.communicator.Communicator;
import org.sparkallreduce.communicator.Graph;
import org.sparkallreduce.communicator.RegisteredBuffer;
import org.sparkallreduce.dataset.Collectives;
import org.sparkallreduce.tools.CompilerWatch;

/**
 * Measures what Java adds to a call of the GPU library: the same all-reduce in a loop of C++ and in
 * the tasks of a barrier stage, by turns, on the same device. The ranks of both are threads of one
 * process, since processes would take turns on the device. Prints a Markdown table.
 *
 * <p>Arguments: the native bench; how many calls.
 */
public final class CallBench {
  private static final int BYTES = 4096;
  private static final int[] RANKS = {1, 2};
  private static final int ROUNDS = 5;

  private CallBench() {}

  public static void main(String[] arguments) throws Exception {
    String bench = arguments[0];
    int calls = Integer.parseInt(arguments[1]);
    System.err.println("Starting one executor process of two ranks...");
    try (var spark = new JavaSparkContext(new SparkConf().setAppName("call bench"))) {
      System.out.printf(
          "%nOne process, all-reduce of %d bytes of float32 in device memory; C++ and Java by"
              + " turns, %d rounds%nof %d calls after as many that do not count; microseconds a"
              + " call, the median of the rounds' medians%n(the least and the most of them)%n%n",
          BYTES, ROUNDS, calls);
      System.out.println("| ranks | call | C++ | Java | Java adds |");
      System.out.println("|---|---|---|---|---|");
      for (int ranks : RANKS) {
        var inCpp = new LinkedHashMap<String, List<Long>>();
        var inJava = new LinkedHashMap<String, List<Long>>();
        for (int round = 0; round < ROUNDS; round++) {
          add(inCpp(bench, ranks, calls), inCpp);
          add(
              Collectives.run(
                      spark.parallelize(IntStream.range(0, ranks).boxed().toList(), ranks),
                      ranks,
                      (context, _) -> inJava(context.communicator(), calls))
                  .getFirst(),
              inJava);
        }
        inCpp.forEach((call, medians) -> print(ranks, call, medians, inJava.get(call)));
      }
    }
  }

  private static void add(Map<String, Long> round, Map<String, List<Long>> rounds) {
    round.forEach(
        (call, median) -> rounds.computeIfAbsent(call, _ -> new ArrayList<>()).add(median));
  }

  private static void print(int ranks, String call, List<Long> inCpp, List<Long> inJava) {
    inCpp.sort(null);
    inJava.sort(null);
    System.out.printf(
        "| %d | %s | %s | %s | %.2f |%n",
        ranks,
        call,
        text(inCpp),
        text(inJava),
        (inJava.get(ROUNDS / 2) - inCpp.get(ROUNDS / 2)) * 1e-3);
  }

  private static String text(List<Long> sorted) {
    return "%.2f (%.2f to %.2f)"
        .formatted(
            sorted.get(ROUNDS / 2) * 1e-3, sorted.getFirst() * 1e-3, sorted.getLast() * 1e-3);
  }

  private static Map<String, Long> inCpp(String bench, int ranks, int calls)
      throws IOException, InterruptedException {
    Process process =
        new ProcessBuilder(
                bench, Integer.toString(ranks), Integer.toString(BYTES), Integer.toString(calls))
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .start();
    String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    if (process.waitFor() != 0) {
      throw new IllegalStateException(bench + " failed");
    }
    var medians = new LinkedHashMap<String, Long>();
    for (String line : output.lines().toList()) { // NAME MEDIAN LOW HIGH
      List<String> words = Arrays.asList(line.split(" ", -1));
      medians.put(words.get(0), Long.valueOf(words.get(1)));
    }
    return medians;
  }

  private static Map<String, Long> inJava(Communicator communicator, int calls) {
    RegisteredBuffer in = communicator.allocate(DataType.FLOAT32, BYTES / Float.BYTES);
    RegisteredBuffer out = communicator.allocate(DataType.FLOAT32, BYTES / Float.BYTES);
    Runnable call = () -> communicator.allReduce(in, out, ReduceOp.SUM);
    var compilers = new CompilerWatch(communicator);
    var medians = new LinkedHashMap<String, Long>();
    medians.put("eager", median(compilers, calls, call));
    try (Graph graph = communicator.capture(call)) {
      medians.put(
          "replay",
          median(
              compilers,
              calls,
              () -> {
                graph.replay();
                communicator.waitFor();
              }));
    }
    return medians;
  }

  private static long median(CompilerWatch compilers, int calls, Runnable call) {
    compilers.untilQuiet(() -> GpuStepBench.time(GpuStepBench.COMPILING_BATCH, call));
    GpuStepBench.time(calls, call);
    return GpuStepBench.time(calls, call)[calls / 2];
  }
}
