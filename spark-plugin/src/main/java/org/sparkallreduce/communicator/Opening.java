// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.UUID;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.ProcessIdentity;
import org.sparkallreduce.Settings;
import org.sparkallreduce.exchange.Agreement;
import org.sparkallreduce.exchange.Exchange;
import org.sparkallreduce.exchange.Held;
import org.sparkallreduce.exchange.Hello;
import org.sparkallreduce.exchange.HelloCodec;
import org.sparkallreduce.exchange.HostIdentity;
import org.sparkallreduce.ffm.NativeCommunicator;
import org.sparkallreduce.ffm.NativeFailure;
import org.sparkallreduce.ffm.NativeLibrary;
import org.sparkallreduce.ffm.Status;

/**
 * How a rank comes to its communicator. It says in one exchange either where its memory is or what
 * it holds from an earlier stage. If all ranks hold the members of one communicator, they go on
 * with it, in the order of today's ranks. If none holds anything, they connect. If only some do,
 * those let go of it, and a second exchange brings all to the same point.
 */
final class Opening {
  /** A member, and what each rank of today's stage says of itself. */
  record Opened(Member member, List<Hello> ranks) {}

  /** Making a Kryo takes longer than using it. */
  private static final HelloCodec CODEC = new HelloCodec();

  private final NativeLibrary library;
  private final Settings settings;
  private final RankIdentity identity;
  private final Exchange exchange;
  private final OpeningAbort abort;

  Opening(
      NativeLibrary library,
      Settings settings,
      RankIdentity identity,
      Exchange exchange,
      OpeningAbort abort) {
    this.library = library;
    this.settings = settings;
    this.identity = identity;
    this.exchange = exchange;
    this.abort = abort;
  }

  /**
   * Collective.
   *
   * @param lease under which a communicator may be kept by {@code leases}; empty: open a new one
   */
  Opened open(Optional<UUID> lease, Leases leases) {
    requireWorldSize();
    Member held = lease.map(id -> attach(id, leases)).orElse(null);
    NativeCommunicator fresh = null;
    try {
      fresh = held == null ? create() : null;
      List<Hello> ranks = exchange(held, fresh);
      if (held != null && allHoldIt(ranks)) {
        renumber(held, ranks);
        return new Opened(held, ranks);
      }
      if (ranks.stream().anyMatch(rank -> rank.held().isPresent())) {
        if (held != null) {
          held.close();
          held = null;
          fresh = create();
        }
        ranks = exchange(null, fresh);
      }
      return new Opened(connect(fresh, ranks), ranks);
    } catch (Throwable t) {
      if (held != null) {
        held.close();
      }
      if (fresh != null) {
        fresh.close();
      }
      throw t;
    }
  }

  private void requireWorldSize() {
    int size = identity.worldSize();
    if (size < 1 || size > NativeCommunicator.MAX_RANKS) {
      throw new AllReduceException.Usage(
          "A communicator has 1 to %d ranks, not %d. Repartition to fewer ranks."
              .formatted(NativeCommunicator.MAX_RANKS, size));
    }
  }

  /**
   * Takes part again before it is said, so that nobody meets a rank that has not come back yet.
   * Null if nothing is left under the lease: what cannot go on any more, since a peer has aborted
   * it, closed it or ended, is closed here, lest it be found again in each stage.
   */
  private @Nullable Member attach(UUID lease, Leases leases) {
    while (true) {
      Member member = leases.take(lease, identity.worldSize(), settings).orElse(null);
      if (member == null || member.comm().attach() == Status.OK) {
        return member;
      }
      member.close();
    }
  }

  private NativeCommunicator create() {
    try {
      return NativeCommunicator.create(
          library,
          new NativeCommunicator.Options(
              identity.rank(),
              identity.worldSize(),
              identity.session(),
              settings.arenaBytes() + settings.stagingBytes(),
              settings.stagingBytes(),
              settings.spin().toNanos()));
    } catch (NativeFailure e) {
      throw Failures.translate(e.failure(), identity.rank(), List.of());
    }
  }

  private List<Hello> exchange(@Nullable Member held, @Nullable NativeCommunicator fresh) {
    Optional<Held> word =
        held == null
            ? Optional.empty()
            : Optional.of(new Held(held.opened(), held.number(), held.comm().sequence()));
    ByteBuffer handle = fresh == null ? ByteBuffer.allocate(0) : fresh.handle();
    String[] messages = exchange.allGather(CODEC.encode(hello(word, handle)));
    var ranks = new ArrayList<Hello>(messages.length);
    for (int rank = 0; rank < messages.length; rank++) {
      ranks.add(checkHandle(CODEC.decode(rank, messages[rank])));
    }
    Agreement.check(ranks, identity.worldSize());
    return List.copyOf(ranks);
  }

  private Hello hello(Optional<Held> held, ByteBuffer handle) {
    return new Hello(
        Hello.PROTOCOL,
        identity.rank(),
        identity.worldSize(),
        identity.session(),
        identity.executorId(),
        identity.host(),
        HostIdentity.current(),
        ProcessIdentity.current(),
        identity.device(),
        library.buildInfo(),
        settings.arenaBytes(),
        settings.stagingBytes(),
        settings.schedule(),
        settings.autoTable().fingerprint(),
        held,
        handle);
  }

  private static Hello checkHandle(Hello hello) {
    int expected = hello.held().isPresent() ? 0 : NativeCommunicator.HANDLE_BYTES;
    if (hello.handle().remaining() != expected) {
      throw new AllReduceException.Setup(
          "The exchange message of %s has a handle of %d bytes instead of %d. Use one build of"
                  .formatted(hello.describe(), hello.handle().remaining(), expected)
              + " spark-allreduce on all executors.");
    }
    return hello;
  }

  /** All ranks see the same messages, so they come to the same answer. */
  private static boolean allHoldIt(List<Hello> ranks) {
    Optional<Held> first = ranks.getFirst().held();
    var seen = new boolean[ranks.size()];
    for (Hello rank : ranks) {
      Held held = rank.held().orElse(null);
      if (held == null
          || first.isEmpty()
          || !held.opened().equals(first.get().opened())
          || held.sequence() != first.get().sequence()
          || held.member() < 0
          || held.member() >= seen.length
          || seen[held.member()]) {
        return false;
      }
      seen[held.member()] = true;
    }
    return true;
  }

  private void renumber(Member member, List<Hello> ranks) {
    int[] members = new int[ranks.size()];
    Arrays.setAll(members, rank -> ranks.get(rank).held().orElseThrow().member());
    requireOk(member.comm().renumber(members), ranks);
  }

  private Member connect(NativeCommunicator fresh, List<Hello> ranks) {
    List<ByteBuffer> handles = ranks.stream().map(Hello::handle).toList();
    abort.begin(fresh, identity.rank());
    try {
      requireOk(fresh.connect(handles, settings.timeout().toNanos()), ranks);
    } finally {
      abort.end();
    }
    requireOk(fresh.setAutoTable(settings.autoTable().rows()), ranks); // an executor has one table
    return new Member(
        fresh,
        identity.session(),
        identity.rank(),
        identity.worldSize(),
        settings.arenaBytes(),
        settings.stagingBytes());
  }

  private void requireOk(Status status, List<Hello> ranks) {
    if (status != Status.OK) {
      throw Failures.translate(library.lastFailure(), identity.rank(), ranks);
    }
  }
}
