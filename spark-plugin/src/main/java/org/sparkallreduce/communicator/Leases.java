// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.Settings;
import org.sparkallreduce.ffm.NativeCommunicator;
import org.sparkallreduce.ffm.Status;

/**
 * The communicators that this process keeps between stages. The driver names the lease under which
 * a stage may use one, and gives no lease to two stages at once; what is kept here is out of the
 * store while a stage has it. It is closed when it has been idle for too long, when a peer has
 * aborted it, when there is too much of it, and with the store. Thread safe.
 */
public final class Leases implements AutoCloseable {
  private record Idle(UUID lease, Member member, long sinceNanos) {}

  private final Duration idleTime;
  private final long memory;
  private final ArrayDeque<Idle> idle = new ArrayDeque<>();
  private @Nullable ScheduledThreadPoolExecutor reaper;
  private boolean closed;

  public Leases(Settings settings) {
    this.idleTime = settings.leaseIdle();
    this.memory = settings.leaseMemory();
  }

  /**
   * The newest member of that lease that fits, which now belongs to the caller. All ranks look for
   * the newest, so they find the same communicator where older ones are left.
   */
  synchronized Optional<Member> take(UUID lease, int ranks, Settings settings) {
    for (Iterator<Idle> all = idle.descendingIterator(); all.hasNext(); ) {
      Idle next = all.next();
      if (next.lease().equals(lease) && next.member().fits(ranks, settings)) {
        all.remove();
        return Optional.of(next.member());
      }
    }
    return Optional.empty();
  }

  /** Keeps a member whose stage has ended well, or closes it if it cannot be kept. */
  void put(UUID lease, Member member) {
    List<Member> superfluous;
    synchronized (this) {
      if (closed || idleTime.isZero() || member.comm().isAborted()) {
        superfluous = List.of(member);
      } else {
        idle.addLast(new Idle(lease, member, System.nanoTime()));
        startReaper();
        superfluous = removeBeyondMemory();
      }
    }
    superfluous.forEach(Member::close);
  }

  /** How many members wait for a stage. */
  public synchronized int size() {
    return idle.size();
  }

  private List<Member> removeBeyondMemory() {
    long bytes = idle.stream().mapToLong(kept -> kept.member().bytes()).sum();
    var removed = new ArrayList<Member>();
    while (bytes > memory) {
      Member oldest = idle.removeFirst().member();
      bytes -= oldest.bytes();
      removed.add(oldest);
    }
    return removed;
  }

  private void startReaper() {
    if (reaper == null) {
      reaper =
          new ScheduledThreadPoolExecutor(
              1, Thread.ofPlatform().daemon().name("spark-allreduce leases").factory());
      long period = Math.clamp(idleTime.toMillis() / 4, 10, 5_000);
      var unused = reaper.scheduleWithFixedDelay(this::reap, period, period, TimeUnit.MILLISECONDS);
    }
  }

  private void reap() {
    long now = System.nanoTime();
    removeIf(
            kept -> now - kept.sinceNanos() >= idleTime.toNanos() || !isWhole(kept.member().comm()))
        .forEach(Member::close);
  }

  /**
   * Whether it could go on: no peer has aborted or closed it, and no peer's process has ended.
   * Attaching looks for that, and tells the other peers what it finds.
   */
  private static boolean isWhole(NativeCommunicator comm) {
    return comm.attach() == Status.OK && comm.detach() == Status.OK;
  }

  private synchronized List<Member> removeIf(Predicate<Idle> condition) {
    var removed = new ArrayList<Member>();
    for (Iterator<Idle> all = idle.iterator(); all.hasNext(); ) {
      Idle next = all.next();
      if (condition.test(next)) {
        all.remove();
        removed.add(next.member());
      }
    }
    return removed;
  }

  /** Closes all that is kept, and whatever is put afterwards. */
  @Override
  public void close() {
    List<Member> all;
    synchronized (this) {
      closed = true;
      all = removeIf(kept -> true);
      if (reaper != null) {
        reaper.shutdownNow();
      }
    }
    all.forEach(Member::close);
  }
}
