// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Schedule;
import org.sparkallreduce.communicator.Communicator;

/** One of every call, on elements of random bits: NaN, infinities and zeros of both signs too. */
final class GpuCalls {
  /** Odd ones: tails of every kind. The smallest also fits the low-latency schedule of the host. */
  private static final int[] COUNTS = {1, 13, 5_003};

  private static final List<DataType> FLOATS = List.of(DataType.FLOAT32, DataType.BFLOAT16);

  private GpuCalls() {}

  /**
   * What comes out of each call, by its name.
   *
   * @param schedules under which each all-reduce is called; the results must not depend on them
   */
  static Map<String, byte[]> run(Communicator communicator, List<Schedule> schedules) {
    var results = new LinkedHashMap<String, byte[]>();
    for (DataType type : DataType.values()) {
      for (ReduceOp op : ReduceOp.values()) {
        reduce(communicator, type, op, 1_003, Schedule.AUTO, results);
      }
    }
    for (DataType type : FLOATS) {
      for (int count : COUNTS) {
        for (Schedule schedule : schedules) {
          if (schedule != Schedule.LOW_LATENCY || count < 100) {
            reduce(communicator, type, ReduceOp.SUM, count, schedule, results);
          }
        }
      }
    }
    move(communicator, results);
    return results;
  }

  private static void reduce(
      Communicator communicator,
      DataType type,
      ReduceOp op,
      int count,
      Schedule schedule,
      Map<String, byte[]> results) {
    byte[] in = random(count * type.bytes(), communicator.rank());
    byte[] out = new byte[in.length];
    communicator.allReduce(
        MemorySegment.ofArray(in), MemorySegment.ofArray(out), type, op, schedule);
    String name = "all-reduce %s of %d %s".formatted(op, count, type);
    byte[] before = results.putIfAbsent(name, out);
    if (before != null && !Arrays.equals(before, out)) {
      results.put("%s, under %s".formatted(name, schedule), out);
    }
  }

  private static void move(Communicator communicator, Map<String, byte[]> results) {
    int ranks = communicator.size();
    byte[] one = random(1_003 * Integer.BYTES, communicator.rank());
    byte[] each = new byte[ranks * one.length];
    MemorySegment slice = MemorySegment.ofArray(one);
    MemorySegment slices = MemorySegment.ofArray(each);
    communicator.allGather(slice, slices, DataType.INT32);
    results.put("all-gather", each.clone());
    communicator.reduceScatter(slices, slice, DataType.FLOAT32, ReduceOp.MAX);
    results.put("reduce-scatter", one.clone());
    communicator.broadcast(slice, DataType.INT32, ranks - 1);
    results.put("broadcast", one);
    communicator.barrier();
  }

  private static byte[] random(int bytes, int rank) {
    byte[] random = new byte[bytes];
    new SplittableRandom(31L * bytes + rank).nextBytes(random);
    return random;
  }
}
