// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.DataType;
import org.sparkallreduce.communicator.Communicator;
import org.sparkallreduce.ffm.SystemMemory;
import org.sparkallreduce.tools.Job.Placement;

/**
 * One rank's part of a run: what a caller of the Java API gets. All ranks run it with the same job.
 */
final class RankMeasurement {
  /** Room beside the two buffers: each begins at an aligned address. */
  static final long ARENA_SLACK = 4096;

  private static final byte POISON = (byte) 0xa5;

  private static final int COMPILING_BATCH = 20;

  private final Communicator communicator;
  private final int rank;
  private final int ranks;
  private final Job job;
  private final @Nullable MemorySegment registeredInput;
  private final @Nullable MemorySegment registeredOutput;
  private final CompilerWatch compilers;

  /** Takes its buffers from the arena, which must have two of the job's largest. */
  RankMeasurement(Communicator communicator, Job job) {
    this.communicator = communicator;
    this.rank = communicator.rank();
    this.ranks = communicator.size();
    this.job = job;
    this.compilers = new CompilerWatch(communicator);
    this.registeredInput = job.registered() ? allocate() : null;
    this.registeredOutput = job.registered() ? allocate() : null;
  }

  private MemorySegment allocate() {
    long count = Math.ceilDiv(job.largestBuffer(ranks), Long.BYTES);
    return communicator.allocate(DataType.INT64, count).segment();
  }

  /** Collective. Tells {@code sink} of each case when it has ended. */
  void run(Consumer<Measured> sink) {
    try (Arena plain = Arena.ofConfined()) {
      long bytes = job.memcpy() ? job.largestBuffer(ranks) : 0;
      MemorySegment from = plain.allocate(bytes, 4096);
      MemorySegment to = plain.allocate(bytes, 4096);
      Pattern.input(DataType.FLOAT32, rank).fill(from); // zeros would be copied faster
      for (int index = 0; index < job.cases().size(); index++) {
        Case measured = job.cases().get(index);
        sink.accept(
            new Measured(
                index,
                outOfPlace(measured),
                inPlace(measured),
                job.memcpy() ? memcpy(measured, from, to) : 0));
      }
    }
  }

  private @Nullable Timing outOfPlace(Case measured) {
    // The API's broadcast has one buffer.
    if (!job.placement().includes(Placement.OUT_OF_PLACE)
        || measured.collective() == Collective.BROADCAST) {
      return null;
    }
    MemorySegment in = memory(measured, registeredInput, inputCount(measured));
    return time(measured, in, memory(measured, registeredOutput, outputCount(measured)));
  }

  private @Nullable Timing inPlace(Case measured) {
    if (!job.placement().includes(Placement.IN_PLACE)) {
      return null;
    }
    long count = Math.max(inputCount(measured), outputCount(measured));
    MemorySegment all = memory(measured, registeredInput, count);
    return switch (measured.collective()) {
      case ALL_REDUCE, BROADCAST -> time(measured, all, all);
      case REDUCE_SCATTER -> time(measured, all, ownSlice(measured, all));
      case ALL_GATHER -> time(measured, ownSlice(measured, all), all);
    };
  }

  private long inputCount(Case measured) {
    return measured.count() * measured.collective().inputSlices(ranks);
  }

  private long outputCount(Case measured) {
    return measured.count() * measured.collective().outputSlices(ranks);
  }

  private MemorySegment ownSlice(Case measured, MemorySegment all) {
    return slice(measured, all, rank);
  }

  private static MemorySegment slice(Case measured, MemorySegment all, int number) {
    long bytes = measured.count() * measured.type().bytes();
    return all.asSlice(number * bytes, bytes);
  }

  private static MemorySegment memory(
      Case measured, @Nullable MemorySegment registered, long count) {
    if (registered != null) {
      return registered.asSlice(0, count * measured.type().bytes());
    }
    int length = Math.toIntExact(count);
    return switch (measured.type()) {
      case FLOAT64 -> MemorySegment.ofArray(new double[length]);
      case FLOAT32 -> MemorySegment.ofArray(new float[length]);
      case FLOAT16, BFLOAT16 -> MemorySegment.ofArray(new short[length]);
      case INT32 -> MemorySegment.ofArray(new int[length]);
      case INT64 -> MemorySegment.ofArray(new long[length]);
    };
  }

  private Timing time(Case measured, MemorySegment in, MemorySegment out) {
    Pattern.input(measured.type(), rank).fill(in);
    if (job.compiled()) {
      compilers.untilQuiet(
          () -> {
            repeat(measured, in, out, COMPILING_BATCH);
            check(measured, in, out);
          });
    }
    repeat(measured, in, out, measured.warmup());
    communicator.barrier();
    long start = System.nanoTime();
    repeat(measured, in, out, measured.iterations());
    long nanos = System.nanoTime() - start;
    return new Timing((double) nanos / measured.iterations(), check(measured, in, out));
  }

  /** A method of its own, so that it is compiled before a time is taken and not in its midst. */
  private void repeat(Case measured, MemorySegment in, MemorySegment out, int times) {
    for (int i = 0; i < times; i++) {
      call(measured, in, out);
    }
  }

  private void call(Case measured, MemorySegment in, MemorySegment out) {
    switch (measured.collective()) {
      case ALL_REDUCE ->
          communicator.allReduce(in, out, measured.type(), measured.op(), measured.schedule());
      case REDUCE_SCATTER -> communicator.reduceScatter(in, out, measured.type(), measured.op());
      case ALL_GATHER -> communicator.allGather(in, out, measured.type());
      case BROADCAST -> communicator.broadcast(out, measured.type(), measured.root());
    }
  }

  private long check(Case measured, MemorySegment in, MemorySegment out) {
    if (job.checks() == 0) {
      return Timing.NOT_CHECKED;
    }
    Pattern input = Pattern.input(measured.type(), rank);
    long wrong = 0;
    for (int i = 0; i < job.checks(); i++) {
      out.fill(POISON);
      input.fill(in); // last: in place it is the output
      if (measured.collective() == Collective.BROADCAST && rank != measured.root()) {
        out.fill(POISON);
      }
      communicator.barrier(); // peers may write to the output from here on
      call(measured, in, out);
      wrong += wrong(measured, out);
    }
    return wrong;
  }

  private long wrong(Case measured, MemorySegment out) {
    DataType type = measured.type();
    return switch (measured.collective()) {
      case ALL_REDUCE -> Pattern.reduced(type, measured.op(), ranks).wrong(out, 0);
      case REDUCE_SCATTER ->
          Pattern.reduced(type, measured.op(), ranks).wrong(out, rank * measured.count());
      case BROADCAST -> Pattern.input(type, measured.root()).wrong(out, 0);
      case ALL_GATHER -> {
        long wrong = 0;
        for (int peer = 0; peer < ranks; peer++) {
          // In place, a rank's input is a slice, which is filled as any other input.
          wrong += Pattern.input(type, peer).wrong(slice(measured, out, peer), 0);
        }
        yield wrong;
      }
    };
  }

  /** The limit: all ranks copy as many bytes of their own memory, at the same time. */
  private double memcpy(Case measured, MemorySegment from, MemorySegment to) {
    long bytes = measured.bytes(ranks);
    for (int i = 0; i < measured.warmup(); i++) {
      SystemMemory.copy(from, to, bytes);
    }
    communicator.barrier();
    long start = System.nanoTime();
    for (int i = 0; i < measured.iterations(); i++) {
      SystemMemory.copy(from, to, bytes);
    }
    return (double) (System.nanoTime() - start) / measured.iterations();
  }
}
