// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.UUID;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.Backend;
import org.sparkallreduce.ProcessIdentity;
import org.sparkallreduce.Settings;
import org.sparkallreduce.exchange.Agreement;
import org.sparkallreduce.exchange.BackendChoice;
import org.sparkallreduce.exchange.Exchange;
import org.sparkallreduce.exchange.GpuOffer;
import org.sparkallreduce.exchange.Held;
import org.sparkallreduce.exchange.Hello;
import org.sparkallreduce.exchange.HelloCodec;
import org.sparkallreduce.exchange.HostIdentity;
import org.sparkallreduce.ffm.Failure;
import org.sparkallreduce.ffm.NativeCommunicator;
import org.sparkallreduce.ffm.NativeFailure;
import org.sparkallreduce.ffm.NativeLibrary;
import org.sparkallreduce.ffm.Status;

/**
 * How a rank comes to its communicator. It says in one exchange where its memory is, on its GPU or
 * on the host, or what it holds from an earlier stage. From what all ranks said, all choose the
 * same backend. If only some can use a GPU, those let go of their parts on it, and another exchange
 * brings all to the host. There, if all ranks hold the members of one communicator, they go on with
 * it, in the order of today's ranks. If none holds anything, they connect. If only some do, those
 * let go of it, and another exchange brings all to the same point.
 */
final class Opening {
  private static final Logger LOG = LoggerFactory.getLogger(Opening.class);

  /**
   * A member, and what each rank of today's stage says of itself.
   *
   * @param fallback why the host was chosen although a rank had a GPU
   */
  record Opened(Member member, List<Hello> ranks, Optional<String> fallback) {}

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
    GpuPart gpu = GpuPart.prepare(settings, identity, options());
    Opened opened =
        gpu.ready().isPresent()
            ? openFromGpu(gpu.offer(), gpu.ready().get(), lease, leases)
            : openFromHost(gpu.offer(), lease, leases);
    if (identity.rank() == 0 && opened.fallback().isPresent()) {
      LOG.warn("The host backend is used instead of GPUs, since {}", opened.fallback().get());
    }
    return opened;
  }

  private Opened openFromGpu(
      GpuOffer offer, GpuPart.Ready ready, Optional<UUID> lease, Leases leases) {
    BackendChoice choice;
    try {
      List<Hello> ranks = exchange(offer, Optional.empty(), ready.comm().handle());
      choice = BackendChoice.of(ranks);
      if (choice.backend() == Backend.GPU) {
        Optional<Failure> failure = connect(Backend.GPU, ready.comm(), ranks);
        if (failure.isEmpty()) {
          return new Opened(member(ready), ranks, Optional.empty());
        }
        choice = BackendChoice.without(ranks, failure.get().message());
      }
    } catch (Throwable t) {
      ready.comm().close();
      throw t;
    }
    ready.comm().close();
    try (var part = new HostPart(lease, leases)) {
      return openOnHost(offer, part, part.exchange(offer), choice.reason());
    }
  }

  private Opened openFromHost(GpuOffer offer, Optional<UUID> lease, Leases leases) {
    if (settings.backend() == Backend.GPU) {
      // All ranks get the reason: a part on the host is not needed for that, and may fail as well.
      ByteBuffer none = ByteBuffer.allocate(NativeCommunicator.HANDLE_BYTES);
      BackendChoice.of(exchange(offer, Optional.empty(), none));
      throw new IllegalStateException("A rank without its GPU was taken for one that has it");
    }
    try (var part = new HostPart(lease, leases)) {
      List<Hello> ranks = part.exchange(offer);
      BackendChoice choice = BackendChoice.of(ranks);
      if (ranks.stream().anyMatch(rank -> rank.gpu().isReady())) {
        ranks = part.exchange(offer); // those had no part on the host before
      }
      return openOnHost(offer, part, ranks, choice.reason());
    }
  }

  private Opened openOnHost(
      GpuOffer offer, HostPart part, List<Hello> first, Optional<String> fallback) {
    List<Hello> ranks = first;
    if (part.isHeld() && allHoldIt(ranks)) {
      renumber(part.held(), ranks);
      return new Opened(part.takeHeld(), ranks, fallback);
    }
    if (ranks.stream().anyMatch(rank -> rank.held().isPresent())) {
      part.letGo();
      ranks = part.exchange(offer);
    }
    List<Hello> connected = ranks;
    connect(Backend.HOST, part.fresh(), ranks)
        .ifPresent(
            failure -> {
              throw Failures.translate(failure, identity.rank(), connected);
            });
    return new Opened(part.takeFresh(), ranks, fallback);
  }

  /** What a rank brings for the host: a member of an earlier stage, or a new part. */
  private final class HostPart implements AutoCloseable {
    private @Nullable Member held;
    private @Nullable NativeCommunicator fresh;

    HostPart(Optional<UUID> lease, Leases leases) {
      held = lease.map(id -> attach(id, leases)).orElse(null);
      fresh = held == null ? create() : null;
    }

    boolean isHeld() {
      return held != null;
    }

    Member held() {
      return Objects.requireNonNull(held);
    }

    NativeCommunicator fresh() {
      return Objects.requireNonNull(fresh);
    }

    List<Hello> exchange(GpuOffer offer) {
      if (held == null) {
        return Opening.this.exchange(offer, Optional.empty(), fresh().handle());
      }
      var word = new Held(held.opened(), held.number(), held.comm().sequence());
      return Opening.this.exchange(offer, Optional.of(word), ByteBuffer.allocate(0));
    }

    /** Others do not hold what this rank holds: a new part instead. */
    void letGo() {
      if (held != null) {
        held.close();
        held = null;
        fresh = create();
      }
    }

    Member takeHeld() {
      Member taken = held();
      held = null;
      return taken;
    }

    Member takeFresh() {
      Member taken = member(fresh(), Optional.empty());
      fresh = null;
      return taken;
    }

    @Override
    public void close() {
      if (held != null) {
        held.close();
      }
      if (fresh != null) {
        fresh.close();
      }
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
      return NativeCommunicator.create(library, options());
    } catch (NativeFailure e) {
      throw Failures.translate(e.failure(), identity.rank(), List.of());
    }
  }

  private NativeCommunicator.Options options() {
    return new NativeCommunicator.Options(
        identity.rank(),
        identity.worldSize(),
        identity.session(),
        settings.arenaBytes() + settings.stagingBytes(),
        settings.stagingBytes(),
        settings.spin().toNanos());
  }

  private List<Hello> exchange(GpuOffer offer, Optional<Held> held, ByteBuffer handle) {
    String[] messages = exchange.allGather(CODEC.encode(hello(offer, held, handle)));
    var ranks = new ArrayList<Hello>(messages.length);
    for (int rank = 0; rank < messages.length; rank++) {
      ranks.add(checkHandle(CODEC.decode(rank, messages[rank])));
    }
    Agreement.check(ranks, identity.worldSize());
    return List.copyOf(ranks);
  }

  private Hello hello(GpuOffer offer, Optional<Held> held, ByteBuffer handle) {
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
        offer,
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
    requireOk(member.comm(), member.comm().renumber(members), ranks);
  }

  /**
   * Connects.
   *
   * @return why devices cannot work together: then all ranks get this, and go on without them
   * @throws AllReduceException if it fails for any other reason
   */
  private Optional<Failure> connect(Backend backend, NativeCommunicator fresh, List<Hello> ranks) {
    List<ByteBuffer> handles = ranks.stream().map(Hello::handle).toList();
    abort.begin(fresh, identity.rank());
    try {
      if (fresh.connect(handles, settings.timeout().toNanos()) != Status.OK) {
        Failure failure = fresh.lastFailure();
        if (fresh.isOpen()) { // all ranks were there and agreed
          return Optional.of(failure);
        }
        throw Failures.translate(failure, identity.rank(), ranks);
      }
    } finally {
      abort.end();
    }
    // An executor has one table.
    requireOk(fresh, fresh.setAutoTable(settings.autoTable().rows(backend)), ranks);
    return Optional.empty();
  }

  private Member member(GpuPart.Ready ready) {
    return member(
        ready.comm(),
        Optional.of(new Member.Gpu(ready.device(), ready.library().device(ready.comm()))));
  }

  private Member member(NativeCommunicator comm, Optional<Member.Gpu> gpu) {
    return new Member(
        comm,
        identity.session(),
        identity.rank(),
        identity.worldSize(),
        settings.arenaBytes(),
        settings.stagingBytes(),
        gpu);
  }

  private void requireOk(NativeCommunicator comm, Status status, List<Hello> ranks) {
    if (status != Status.OK) {
      throw Failures.translate(comm.lastFailure(), identity.rank(), ranks);
    }
  }
}
