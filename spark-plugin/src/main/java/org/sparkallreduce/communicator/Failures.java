// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.exchange.Hello;
import org.sparkallreduce.ffm.Failure;

/** Turns what native code says of a failure into the exception that a Spark user sees. */
final class Failures {
  private Failures() {}

  /**
   * Native code knows ranks and processes; this adds executors and hosts.
   *
   * @param rank on which it happened
   * @param ranks what each rank said of itself; empty before the exchange
   */
  static AllReduceException translate(Failure failure, int rank, List<Hello> ranks) {
    String message = "Rank %d: %s%s".formatted(rank, failure.message(), named(failure, ranks));
    return switch (failure.status()) {
      case INVALID_ARGUMENT -> new AllReduceException.Usage(message);
      case MISMATCH -> new AllReduceException.Mismatch(message);
      case TIMEOUT ->
          new AllReduceException.TimedOut(
              message + " How late a rank may come is set with spark.allreduce.timeout.");
      case PEER_LOST -> new AllReduceException.PeerLost(message);
      case ABORTED -> new AllReduceException.Aborted(message);
      case OUT_OF_MEMORY, SYSTEM_ERROR -> new AllReduceException.Resource(message);
      case UNSUPPORTED -> new AllReduceException.Setup(message);
      case OK -> throw new IllegalArgumentException("OK is not a failure");
    };
  }

  private static String named(Failure failure, List<Hello> ranks) {
    int bits = failure.missingRanks() | failure.deadRanks();
    if (bits == 0 && failure.culpritRank() >= 0) {
      bits = 1 << failure.culpritRank();
    }
    int concerned = bits;
    String names =
        IntStream.range(0, ranks.size())
            .filter(rank -> (concerned & (1 << rank)) != 0)
            .mapToObj(rank -> ranks.get(rank).describe())
            .collect(Collectors.joining(", "));
    return names.isEmpty() ? "." : ". That is " + names + ".";
  }
}
