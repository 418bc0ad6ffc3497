// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import java.util.ArrayList;
import java.util.List;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.communicator.Communicator;
import org.sparkallreduce.communicator.Graph;
import org.sparkallreduce.communicator.RegisteredBuffer;

/**
 * One rank of a program that has its own device memory, stream and kernel, as code with CUDA or HIP
 * has, and lets the plugin reduce in the midst of its own work.
 */
final class GpuForeignWork {
  private static final int COUNT = 100_003;
  private static final long BYTES = COUNT * (long) Float.BYTES;

  /** Where the adopted memory begins in its allocation: peers get a handle and an offset. */
  private static final int OFFSET = 256;

  private final Communicator communicator;
  private final RegisteredBuffer in;
  private final RegisteredBuffer out;
  private final long result;
  private final long stream;

  private GpuForeignWork(Communicator communicator) {
    this.communicator = communicator;
    int device = communicator.device().orElseThrow().index();
    GpuDriver.use(device);
    long inMemory = GpuDriver.allocate(OFFSET + BYTES);
    long outMemory = GpuDriver.allocate(OFFSET + BYTES);
    result = GpuDriver.allocate(BYTES);
    stream = GpuDriver.createStream();
    communicator.whenClosed(
        () -> {
          GpuDriver.destroyStream(stream);
          List.of(inMemory, outMemory, result).forEach(GpuDriver::free);
          GpuDriver.leave(device);
        });
    in = communicator.adopt(inMemory + OFFSET, BYTES, DataType.FLOAT32);
    out = communicator.adopt(outMemory + OFFSET, BYTES, DataType.FLOAT32);
    communicator.useStream(stream);
  }

  /**
   * In each round the stream fills the input, the ranks add their inputs up, and the stream copies
   * the output to where {@link #value} finds it. Nobody waits in between.
   */
  static List<Float> enqueued(Communicator communicator, int rounds) {
    var work = new GpuForeignWork(communicator);
    var values = new ArrayList<Float>();
    for (int round = 0; round < rounds; round++) {
      GpuDriver.fill(work.in.address(), input(communicator.rank(), round), COUNT, work.stream);
      communicator.enqueueAllReduce(work.in, work.out, ReduceOp.SUM);
      GpuDriver.copy(work.out.address(), work.result, BYTES, work.stream);
      GpuDriver.fill(work.out.address(), -1, COUNT, work.stream);
      values.add(work.value());
    }
    communicator.waitFor();
    return values;
  }

  /** As {@link #enqueued}, with a kernel of the user's that doubles the input; all in one graph. */
  static List<Float> captured(Communicator communicator, int rounds) {
    var work = new GpuForeignWork(communicator);
    long kernel = GpuDriver.loadDoublingKernel();
    var values = new ArrayList<Float>();
    try (Graph step =
        communicator.capture(
            () -> {
              GpuDriver.launchDoubling(kernel, work.in.address(), COUNT, work.stream);
              communicator.allReduce(work.in, work.out, ReduceOp.SUM);
              GpuDriver.copy(work.out.address(), work.result, BYTES, work.stream);
            })) {
      for (int round = 0; round < rounds; round++) {
        GpuDriver.fill(work.in.address(), input(communicator.rank(), round), COUNT, work.stream);
        step.replay();
        values.add(work.value());
        step.replay(); // on what the first has doubled
        values.add(work.value());
      }
      communicator.waitFor();
    }
    return values;
  }

  /** The last rank brings memory that cannot be shared: what the ranks are told, and a sum then. */
  static List<String> refused(Communicator communicator) {
    int device = communicator.device().orElseThrow().index();
    GpuDriver.use(device);
    boolean culprit = communicator.rank() == communicator.size() - 1;
    long memory = culprit ? GpuDriver.allocateFromPool(4096) : GpuDriver.allocate(4096);
    communicator.whenClosed(
        () -> {
          GpuDriver.free(memory);
          GpuDriver.leave(device);
        });
    String told;
    try {
      communicator.adopt(memory, 4096, DataType.FLOAT32);
      told = "nothing";
    } catch (AllReduceException e) {
      told = String.valueOf(e.getMessage());
    }
    float[] one = {1};
    communicator.allReduce(one, ReduceOp.SUM);
    return List.of(told, Float.toString(one[0]));
  }

  /** Another one in each round of each rank; small whole numbers, whose sums are exact. */
  static float input(int rank, int round) {
    return (rank + 1) * (round + 1);
  }

  /** What all elements of the result are, when the stream has come so far. */
  private float value() {
    GpuDriver.synchronize(stream);
    float[] values = GpuDriver.read(result, COUNT);
    for (float value : values) {
      if (value != values[0]) {
        throw new IllegalStateException(
            "rank %d has %s beside %s".formatted(communicator.rank(), value, values[0]));
      }
    }
    return values[0];
  }
}
