// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.IntFunction;
import org.apache.spark.SparkConf;
import org.sparkallreduce.Settings;
import org.sparkallreduce.exchange.Exchange;
import org.sparkallreduce.ffm.NativeLibrary;

/** Ranks as threads of this process, with an exchange in memory. */
final class Ranks {
  static final NativeLibrary LIBRARY = NativeLibrary.load(Optional.empty());

  /** What one rank does with its communicator. */
  @FunctionalInterface
  interface Program<R> {
    R run(Communicator communicator) throws Exception;
  }

  /** What became of one rank: a result, or what it threw. */
  record Outcome<R>(R result, Throwable failure) {}

  private Ranks() {}

  static Settings settings(String... keysAndValues) {
    SparkConf conf =
        new SparkConf(false)
            .set("spark.allreduce.timeout", "60s")
            .set("spark.allreduce.arena.size", "1m")
            .set("spark.allreduce.staging.size", "64k");
    for (int i = 0; i < keysAndValues.length; i += 2) {
      conf.set(keysAndValues[i], keysAndValues[i + 1]);
    }
    return Settings.from(conf);
  }

  static RankIdentity identity(int rank, int worldSize, UUID session) {
    return new RankIdentity(
        rank, worldSize, session, Integer.toString(rank), "localhost", Optional.empty());
  }

  /** Runs {@code program} on each rank; throws what the lowest rank that failed threw. */
  static <R> List<R> run(int worldSize, Settings settings, Program<R> program) {
    var results = new ArrayList<R>();
    for (Outcome<R> outcome : outcomes(worldSize, settings, program)) {
      if (outcome.failure() != null) {
        throw new AssertionError("a rank failed", outcome.failure());
      }
      results.add(outcome.result());
    }
    return results;
  }

  /** Runs {@code program} on each rank and says what became of each. */
  static <R> List<Outcome<R>> outcomes(int worldSize, Settings settings, Program<R> program) {
    return outcomes(worldSize, settings, _ -> Optional.empty(), program);
  }

  /** As above, where Spark has assigned GPUs to ranks. */
  static <R> List<Outcome<R>> outcomes(
      int worldSize, Settings settings, IntFunction<Optional<String>> devices, Program<R> program) {
    UUID session = UUID.randomUUID();
    Exchange exchange = exchange(worldSize);
    try (ExecutorService threads = Executors.newFixedThreadPool(worldSize)) {
      var futures = new ArrayList<Future<R>>();
      for (int rank = 0; rank < worldSize; rank++) {
        var identity =
            new RankIdentity(
                rank, worldSize, session, Integer.toString(rank), "localhost", devices.apply(rank));
        futures.add(
            threads.submit(
                () -> {
                  try (var communicator =
                      Communicator.open(LIBRARY, settings, identity, exchange)) {
                    return program.run(communicator);
                  }
                }));
      }
      var outcomes = new ArrayList<Outcome<R>>();
      for (Future<R> future : futures) {
        outcomes.add(outcome(future));
      }
      return outcomes;
    }
  }

  private static <R> Outcome<R> outcome(Future<R> future) {
    try {
      return new Outcome<>(future.get(), null);
    } catch (ExecutionException e) {
      return new Outcome<>(null, e.getCause());
    } catch (InterruptedException e) {
      throw new AssertionError("the test was interrupted", e);
    }
  }

  /** Collects each message at the place of its rank, which it finds in the message itself. */
  static Exchange exchange(int worldSize) {
    var codec = ThreadLocal.withInitial(org.sparkallreduce.exchange.HelloCodec::new);
    String[] messages = new String[worldSize];
    var barrier = new CyclicBarrier(worldSize);
    return message -> {
      messages[codec.get().decode(-1, message).rank()] = message;
      await(barrier);
      String[] all = messages.clone();
      await(barrier); // before anyone comes to the next exchange
      return all;
    };
  }

  private static void await(CyclicBarrier barrier) {
    try {
      barrier.await(Duration.ofSeconds(60).toSeconds(), java.util.concurrent.TimeUnit.SECONDS);
    } catch (InterruptedException
        | BrokenBarrierException
        | java.util.concurrent.TimeoutException e) {
      throw new AssertionError("a rank did not come to the exchange", e);
    }
  }
}
