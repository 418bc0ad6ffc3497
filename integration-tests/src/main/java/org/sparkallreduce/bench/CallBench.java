// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.bench;

import java.io.IOException;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
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

/**
 * Measures what Java adds to a call of the GPU library: the same all-reduce in a loop of C++ and in
 * the tasks of a barrier stage, one after the other, on the same device. The ranks of both are
 * threads of one process, since processes would take turns on the device. Prints a Markdown table.
 *
 * <p>Arguments: the native bench; how many calls.
 */
public final class CallBench {
  private static final int BYTES = 4096;
  private static final int[] RANKS = {1, 2};

  /** Nanoseconds of a call: the median, the 10th and the 90th percentile. */
  private record Cost(long median, long low, long high) implements Serializable {
    static Cost of(long[] nanos) { // in ascending order
      int last = nanos.length - 1;
      return new Cost(nanos[last / 2], nanos[last / 10], nanos[last * 9 / 10]);
    }

    @Override
    public String toString() {
      return "%.2f (%.2f to %.2f)".formatted(median * 1e-3, low * 1e-3, high * 1e-3);
    }
  }

  private CallBench() {}

  public static void main(String[] arguments) throws Exception {
    String bench = arguments[0];
    int calls = Integer.parseInt(arguments[1]);
    System.err.println("Starting one executor process of two ranks...");
    try (var spark = new JavaSparkContext(new SparkConf().setAppName("call bench"))) {
      System.out.printf(
          "%nOne process, all-reduce of %d bytes of float32 in device memory, %d calls;%n"
              + "microseconds a call, median (10th to 90th percentile)%n%n",
          BYTES, calls);
      System.out.println("| ranks | call | C++ | Java | Java adds, median |");
      System.out.println("|---|---|---|---|---|");
      for (int ranks : RANKS) {
        Map<String, Cost> inCpp = inCpp(bench, ranks, calls);
        Map<String, Cost> inJava =
            Collectives.run(
                    spark.parallelize(IntStream.range(0, ranks).boxed().toList(), ranks),
                    ranks,
                    (context, _) -> inJava(context.communicator(), calls))
                .getFirst();
        inCpp.forEach(
            (call, cost) ->
                System.out.printf(
                    "| %d | %s | %s | %s | %.2f |%n",
                    ranks,
                    call,
                    cost,
                    inJava.get(call),
                    (inJava.get(call).median() - cost.median()) * 1e-3));
      }
    }
  }

  private static Map<String, Cost> inCpp(String bench, int ranks, int calls)
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
    var costs = new LinkedHashMap<String, Cost>();
    for (String line : output.lines().toList()) { // NAME MEDIAN LOW HIGH
      List<String> words = Arrays.asList(line.split(" ", -1));
      List<Long> nanos = words.subList(1, 4).stream().map(Long::valueOf).toList();
      costs.put(words.getFirst(), new Cost(nanos.get(0), nanos.get(1), nanos.get(2)));
    }
    return costs;
  }

  private static Map<String, Cost> inJava(Communicator communicator, int calls) {
    RegisteredBuffer in = communicator.allocate(DataType.FLOAT32, BYTES / Float.BYTES);
    RegisteredBuffer out = communicator.allocate(DataType.FLOAT32, BYTES / Float.BYTES);
    Runnable call = () -> communicator.allReduce(in, out, ReduceOp.SUM);
    var costs = new LinkedHashMap<String, Cost>();
    costs.put("eager", Cost.of(GpuStepBench.time(calls, call)));
    try (Graph graph = communicator.capture(call)) {
      costs.put(
          "replay",
          Cost.of(
              GpuStepBench.time(
                  calls,
                  () -> {
                    graph.replay();
                    communicator.waitFor();
                  })));
    }
    return costs;
  }
}
