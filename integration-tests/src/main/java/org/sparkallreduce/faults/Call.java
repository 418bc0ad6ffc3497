// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.util.Arrays;
import java.util.List;
import java.util.SplittableRandom;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Schedule;

/**
 * One collective of a program, as drawn from the seed.
 *
 * @param memory where its buffers are; arrays and native memory know no schedule but the default
 * @param count elements in one slice
 * @param root of a broadcast
 * @param inPlace whether input and output are the same memory, where there is a choice
 * @param seed of its inputs
 * @param mode how it is called, where it has registered buffers on a GPU
 */
record Call(
    Kind kind,
    Memory memory,
    DataType type,
    ReduceOp op,
    Schedule schedule,
    int count,
    int root,
    boolean inPlace,
    long seed,
    Mode mode) {

  enum Kind {
    ALL_REDUCE,
    REDUCE_SCATTER,
    ALL_GATHER,
    BROADCAST,
    BARRIER,
    /** Registers a file, or on a GPU adopts memory, and all-reduces in it. */
    REGISTRATION
  }

  enum Mode {
    EAGER,
    /** Enqueued, and waited for. */
    ENQUEUED,
    /** Captured, replayed, and waited for. */
    REPLAYED
  }

  enum Memory {
    HEAP,
    NATIVE,
    ARENA
  }

  /** From nothing to several times the staging buffers. */
  private static final int[] COUNTS = {0, 1, 2, 3, 7, 64, 500, 1_025, 4_096, 10_007, 30_001};

  private static final int SHORT_COUNTS = 9;

  /** Those that carry any count; auto takes low-latency for the small ones. */
  static final Schedule[] SCHEDULES =
      Arrays.stream(Schedule.values())
          .filter(schedule -> schedule != Schedule.LOW_LATENCY)
          .toArray(Schedule[]::new);

  static Call random(SplittableRandom random, int ranks) {
    return new Call(
        one(random, Kind.values()),
        one(random, Memory.values()),
        one(random, DataType.values()),
        one(random, ReduceOp.values()),
        one(random, SCHEDULES),
        COUNTS[random.nextInt(COUNTS.length)],
        random.nextInt(ranks),
        random.nextBoolean(),
        random.nextLong(),
        Mode.EAGER);
  }

  /** In any mode that it can be called in; shorter, since the simulated driver is slow. */
  Call onGpu(SplittableRandom random) {
    Call shorter = withCount(COUNTS[random.nextInt(SHORT_COUNTS)]);
    Mode drawn = one(random, Mode.values());
    return shorter.canBe(drawn) ? shorter.with(drawn) : shorter;
  }

  private boolean canBe(Mode wanted) {
    return wanted == Mode.EAGER
        || (memory == Memory.ARENA && kind != Kind.REGISTRATION && kind != Kind.BARRIER);
  }

  static <E> E one(SplittableRandom random, E[] values) {
    return values[random.nextInt(values.length)];
  }

  /** As this one, but another one than {@code value}. */
  static <E> E other(E[] values, E value, int distance) {
    int at = List.of(values).indexOf(value);
    return values[(at + 1 + distance % (values.length - 1)) % values.length];
  }

  Call with(Kind newKind, Memory newMemory) {
    Call changed =
        new Call(newKind, newMemory, type, op, schedule, count, root, inPlace, seed, mode);
    return changed.canBe(mode) ? changed : changed.with(Mode.EAGER);
  }

  Call with(Mode newMode) {
    return new Call(kind, memory, type, op, schedule, count, root, inPlace, seed, newMode);
  }

  Call withCount(int newCount) {
    return new Call(kind, memory, type, op, schedule, newCount, root, inPlace, seed, mode);
  }

  Call withType(DataType newType) {
    return new Call(kind, memory, newType, op, schedule, count, root, inPlace, seed, mode);
  }

  Call withOp(ReduceOp newOp) {
    return new Call(kind, memory, type, newOp, schedule, count, root, inPlace, seed, mode);
  }

  Call withSchedule(Schedule newSchedule) {
    return new Call(kind, memory, type, op, newSchedule, count, root, inPlace, seed, mode);
  }

  Call withRoot(int newRoot) {
    return new Call(kind, memory, type, op, schedule, count, newRoot, inPlace, seed, mode);
  }
}
