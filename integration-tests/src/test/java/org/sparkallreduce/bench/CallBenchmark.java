// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.bench;

import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkConf;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Settings;
import org.sparkallreduce.communicator.Communicator;
import org.sparkallreduce.communicator.RankIdentity;
import org.sparkallreduce.communicator.RegisteredBuffer;
import org.sparkallreduce.ffm.NativeLibrary;

/**
 * What Java adds to a call: a communicator of one rank waits for nobody. Beside it stand the same
 * calls from C++, {@code AllReduce/...threads:1} of native/bench-host.
 */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 3, time = 1)
@Measurement(iterations = 5, time = 1)
@Fork(2)
public class CallBenchmark {
  /** 8 bytes and 4 KB. */
  @Param({"2", "1024"})
  public int count;

  private Communicator communicator;
  private RegisteredBuffer in;
  private RegisteredBuffer out;
  private float[] array;

  @Setup
  public void open() {
    var settings = Settings.from(new SparkConf(false));
    var identity = new RankIdentity(0, 1, UUID.randomUUID(), "0", "localhost", Optional.empty());
    communicator =
        Communicator.open(
            NativeLibrary.load(Optional.empty()),
            settings,
            identity,
            message -> new String[] {message});
    in = communicator.allocate(DataType.FLOAT32, count);
    out = communicator.allocate(DataType.FLOAT32, count);
    array = new float[count];
  }

  @TearDown
  public void close() {
    communicator.close();
  }

  @Benchmark
  public void registered() {
    communicator.allReduce(in, out, ReduceOp.SUM);
  }

  @Benchmark
  public void array() {
    communicator.allReduce(array, ReduceOp.SUM);
  }

  @Benchmark
  public void barrier() {
    communicator.barrier();
  }
}
