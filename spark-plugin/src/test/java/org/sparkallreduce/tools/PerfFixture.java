// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import java.util.List;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Schedule;
import org.sparkallreduce.tools.Job.Placement;

/** A run that was never made, with round numbers. */
final class PerfFixture {
  static final RunInfo INFO = new RunInfo("processes", "1.2", 2, "Some <CPU>", "somewhere");
  static final List<RankInfo> RANKS =
      List.of(
          new RankInfo(0, 4711, "somewhere", "build"), new RankInfo(1, 4712, "somewhere", "build"));
  static final Job JOB =
      new Job(
          List.of(
              allReduce(8, 10_000),
              allReduce(1 << 20, 64),
              new Case(
                  Collective.BROADCAST, Schedule.AUTO, DataType.INT64, ReduceOp.SUM, 1, 1, 5, 10)),
          Placement.BOTH,
          true,
          1,
          true,
          true);
  static final List<Measured> ALL =
      List.of(
          new Measured(0, new Timing(500, 0), new Timing(480, 0), 10),
          new Measured(1, new Timing(100_000, 0), new Timing(123_456, 3), 50_000),
          new Measured(2, null, new Timing(1_000, Timing.NOT_CHECKED), 12));

  private PerfFixture() {}

  static Case allReduce(long bytes, int iterations) {
    return new Case(
        Collective.ALL_REDUCE,
        Schedule.ONE_SHOT,
        DataType.FLOAT32,
        ReduceOp.SUM,
        0,
        bytes / 4,
        5,
        iterations);
  }
}
