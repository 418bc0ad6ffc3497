// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.spark.SparkConf;
import org.sparkallreduce.Settings;
import org.sparkallreduce.communicator.Communicator;
import org.sparkallreduce.communicator.RankIdentity;
import org.sparkallreduce.exchange.Exchange;
import org.sparkallreduce.exchange.HelloCodec;
import org.sparkallreduce.ffm.NativeLibrary;

/**
 * The host backend, which is the measure for the GPU's results: ranks as threads of this process.
 */
final class HostRanks {
  private static final NativeLibrary LIBRARY = NativeLibrary.load(Optional.empty());

  /** What one rank does, on either backend. */
  @FunctionalInterface
  interface Program<R> {
    R run(Communicator communicator) throws Exception;
  }

  private HostRanks() {}

  /** The results of all ranks. */
  static <R> List<R> run(int ranks, Program<R> program) throws InterruptedException {
    Settings settings =
        Settings.from(
            new SparkConf(false)
                .set("spark.allreduce.backend", "host")
                .set("spark.allreduce.arena.size", "8m"));

    UUID session = UUID.randomUUID();
    Exchange exchange = exchange(ranks);
    try (var threads = Executors.newFixedThreadPool(ranks)) {
      var futures = new ArrayList<Future<R>>();
      for (int rank = 0; rank < ranks; rank++) {
        var identity =
            new RankIdentity(
                rank, ranks, session, Integer.toString(rank), "localhost", Optional.empty());
        futures.add(
            threads.submit(
                () -> {
                  try (var communicator =
                      Communicator.open(LIBRARY, settings, identity, exchange)) {
                    return program.run(communicator);
                  }
                }));
      }
      var results = new ArrayList<R>();
      for (Future<R> future : futures) {
        results.add(future.get());
      }
      return results;
    } catch (ExecutionException e) {
      throw new AssertionError("a rank of the host backend failed", e.getCause());
    }
  }

  /** Finds the place of each message in the message itself. */
  private static Exchange exchange(int ranks) {
    var codec = ThreadLocal.withInitial(HelloCodec::new);
    String[] messages = new String[ranks];
    var barrier = new CyclicBarrier(ranks);
    return message -> {
      messages[codec.get().decode(-1, message).rank()] = message;
      try {
        barrier.await();
        String[] all = messages.clone();
        barrier.await(); // before anyone comes to the next exchange
        return all;
      } catch (InterruptedException | BrokenBarrierException e) {
        throw new AssertionError("a rank did not come to the exchange", e);
      }
    };
  }
}
