// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.ffm;

import java.io.Serializable;
import java.util.Collections;
import java.util.List;
import java.util.OptionalInt;
import java.util.stream.IntStream;

/**
 * What one rank has done: in all of its native communicator's life, or between two looks at it.
 *
 * @param collectives collectives that succeeded
 * @param bytes the sum of their buffer sizes
 * @param waitNanos time spent waiting for peers
 * @param totalNanos time spent in collectives, waits included; on the host backend a call of up to
 *     16 KiB counts only from where it begins to wait
 * @param unregistered collectives that fell back to staging because a buffer was not registered
 * @param peerWaitNanos by rank: the part of {@code waitNanos} that ended when that rank came, as
 *     the last one
 */
public record Statistics(
    long collectives,
    long bytes,
    long waitNanos,
    long totalNanos,
    long unregistered,
    List<Long> peerWaitNanos)
    implements Serializable {

  /** Nothing done yet. */
  public static final Statistics NONE =
      new Statistics(0, 0, 0, 0, 0, Collections.nCopies(Abi.MAX_RANKS, 0L));

  /** Time spent reducing and moving data; see {@code totalNanos} for what is not counted. */
  public long reduceNanos() {
    return totalNanos - waitNanos;
  }

  /** The rank for which this one waited longest; empty if it waited for none. */
  public OptionalInt slowestPeer() {
    return IntStream.range(0, peerWaitNanos.size())
        .filter(rank -> peerWaitNanos.get(rank) > 0)
        .reduce((a, b) -> peerWaitNanos.get(b) > peerWaitNanos.get(a) ? b : a);
  }

  /** What was done since {@code before}, an earlier look at the same communicator. */
  public Statistics since(Statistics before) {
    return new Statistics(
        collectives - before.collectives,
        bytes - before.bytes,
        waitNanos - before.waitNanos,
        totalNanos - before.totalNanos,
        unregistered - before.unregistered,
        IntStream.range(0, peerWaitNanos.size())
            .mapToObj(rank -> peerWaitNanos.get(rank) - before.peerWaitNanos.get(rank))
            .toList());
  }
}
