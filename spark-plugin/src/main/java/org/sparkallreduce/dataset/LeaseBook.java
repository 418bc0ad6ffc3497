// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.dataset;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;

/**
 * The leases under which executors keep communicators between stages, on the driver. A lease is
 * lent to one stage at a time; after a failure it is not lent again, and what is kept under it ends
 * with its idle time. Thread safe.
 */
final class LeaseBook {
  private final Map<Integer, Deque<UUID>> returned = new HashMap<>();

  /** A lease that no other stage has: the one that was returned last, or a new one. */
  synchronized UUID lend(int ranks) {
    Deque<UUID> leases = returned.get(ranks);
    return leases == null || leases.isEmpty() ? UUID.randomUUID() : leases.removeLast();
  }

  /** The stage has ended well. */
  synchronized void giveBack(int ranks, UUID lease) {
    returned.computeIfAbsent(ranks, _ -> new ArrayDeque<>()).addLast(lease);
  }
}
