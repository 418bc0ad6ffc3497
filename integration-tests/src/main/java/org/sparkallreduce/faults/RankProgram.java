// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.SplittableRandom;
import java.util.UUID;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.communicator.Communicator;
import org.sparkallreduce.communicator.Graph;
import org.sparkallreduce.communicator.OpeningAbort;
import org.sparkallreduce.communicator.RankIdentity;
import org.sparkallreduce.exchange.Exchange;

/** One rank of an episode: its program, and what the fault makes it do to itself. */
final class RankProgram {
  /** What a user's function throws. */
  private static final class UserFailure extends RuntimeException {
    private static final long serialVersionUID = 1L;

    UserFailure() {
      super("the function of the rank failed, as it was told");
    }
  }

  /** How a rank leaves its program in the middle of a call. */
  private static final class Left extends RuntimeException {
    private static final long serialVersionUID = 1L;
  }

  static final RankProgram NONE = new RankProgram();

  private static final long WATCH_NANOS = 200_000;

  private final @Nullable Worker worker;
  private final Episode episode;
  private final int rank;
  private final boolean isVictim;
  private final boolean isOther;
  private final Thread[] thread = new Thread[1];
  private final OpeningAbort opening = new OpeningAbort();
  private volatile @Nullable Communicator communicator;
  private volatile boolean over;
  private GpuDriver.@Nullable Context context;
  private int call = Episode.OPENING;
  private long entered;

  RankProgram(Worker worker, Episode episode, int rank) {
    this.worker = worker;
    this.episode = episode;
    this.rank = rank;
    this.isVictim = rank == episode.victim();
    this.isOther = rank == episode.other();
  }

  private RankProgram() {
    this.worker = null;
    this.episode = Episode.of(Episode.Plan.SOAK, 0, 0);
    this.rank = 0;
    this.isVictim = false;
    this.isOther = false;
  }

  private Worker worker() {
    if (worker == null) {
      throw new IllegalStateException("no program runs");
    }
    return worker;
  }

  /** As a cancelled task does, on a thread of Spark's. */
  void abort() {
    opening.raise("rank %d was cancelled".formatted(rank));
    Communicator open = communicator;
    if (open != null) {
      open.abort("rank %d was cancelled".formatted(rank));
    }
    worker().say("done");
  }

  void interrupt() {
    thread[0].interrupt();
    worker().say("done");
  }

  /** Runs the program, on this thread; never throws. */
  String play() {
    thread[0] = Thread.currentThread();
    Outcome outcome;
    try {
      context = worker().gpu.isEmpty() ? null : worker().context(rank);
      outcome = run();
    } catch (Buffers.WrongResult e) {
      outcome = Outcome.wrong(e.getMessage());
    } catch (AllReduceException | UserFailure | Worker.Broken e) {
      outcome =
          new Outcome(
              e.getClass().getSimpleName(),
              call,
              entered,
              System.nanoTime(),
              String.valueOf(e.getMessage()));
    } catch (Throwable t) {
      t.printStackTrace();
      outcome = Outcome.wrong("unexpected: " + t);
    } finally {
      over = true;
      endFaults();
    }
    if (context != null) {
      outcome = usableAfter(outcome);
      context.close();
    }
    return outcome.line();
  }

  private void endFaults() {
    worker().shim.exhaustDescriptors(false);
    worker().shim.failMapping(0);
    worker().shim.shiftClock(0);
    if (context != null) {
      context.letGo();
    }
    if (episode.fault().failsDriver()) {
      worker().driver().letFail("", 0);
    }
  }

  /** The context has survived, and so a new communicator works in it. */
  private Outcome usableAfter(Outcome outcome) {
    if (outcome.kind().equals(Outcome.WRONG) || outcome.kind().equals(Outcome.ENDED)) {
      return outcome;
    }
    if (episode.fault().fillsDevice() && !isVictim) {
      return outcome; // the victim may still hold all its memory
    }
    if (episode.fault().exhaustsDescriptors() && !worker().driver().isSimulated()) {
      // CUDA's driver that wanted a descriptor and had none may refuse copies in that context from
      // then on (error 304); the next one works, which the episodes that follow show.
      return outcome;
    }
    try {
      gpu().checkUsable();
      var drawn = Call.random(new SplittableRandom(episode.detail()), 1);
      new LoneRank(worker(), rank).run(drawn.with(Call.Kind.ALL_REDUCE, Call.Memory.ARENA), gpu());
      return outcome;
    } catch (RuntimeException | Buffers.WrongResult e) {
      return Outcome.wrong("the device cannot be used any more after %s: %s".formatted(outcome, e));
    }
  }

  private GpuDriver.Context gpu() {
    return Objects.requireNonNull(context);
  }

  private Outcome run() throws Buffers.WrongResult {
    strikeBeforeOpening();
    entered = System.nanoTime();
    boolean well = false;
    Communicator open = open();
    communicator = open;
    var buffers = new ArrayList<Buffers>();
    try {
      if (isVictim && episode.call() == Episode.OPENING) {
        strikeAfter();
      }
      for (Call each : episode.program(rank)) {
        buffers.add(DeviceBuffers.of(each, open, context));
      }
      do {
        well = calls(buffers);
      } while (episode.fault().point() == Fault.Point.LOOSE);
    } catch (RuntimeException e) {
      long thrown = System.nanoTime();
      if (e instanceof UserFailure) { // as the context of a task does
        open.abort("rank %d failed: %s".formatted(rank, e));
      }
      if (e instanceof AllReduceException.Mismatch) {
        buffers.get(call).checkUntouched();
        if (episode.fault() == Fault.MISMATCH_REPLAYS) {
          buffers.get(call + 1).checkUntouched();
        }
      }
      if (e instanceof AllReduceException) {
        checkRefusesFurtherUse(open, e);
        return failed(e, thrown);
      }
      throw e;
    } finally {
      if (well && episode.kept()) {
        open.closeInto(worker().leases(), Episode.lease());
      } else {
        open.close();
      }
      buffers.forEach(Buffers::close);
    }
    return Outcome.ended();
  }

  private Outcome failed(RuntimeException e, long thrown) {
    return new Outcome(
        e.getClass().getSimpleName(), call, entered, thrown, String.valueOf(e.getMessage()));
  }

  /** With the first cause, whatever is called. */
  static void checkRefusesFurtherUse(Communicator open, RuntimeException first)
      throws Buffers.WrongResult {
    try {
      open.barrier();
    } catch (AllReduceException later) {
      if (later.getClass() == first.getClass()
          && String.valueOf(later.getMessage()).equals(first.getMessage())) {
        return;
      }
      throw new Buffers.WrongResult(
          "first \"%s\", then \"%s\"".formatted(first.getMessage(), later.getMessage()));
    }
    throw new Buffers.WrongResult("a barrier went well after: " + first.getMessage());
  }

  private Communicator open() {
    var identity =
        new RankIdentity(
            rank,
            episode.ranks(),
            episode.session(),
            worker().executor,
            "host-of-" + worker().executor,
            worker().device(rank));
    Optional<UUID> lease = episode.kept() ? Optional.of(Episode.lease()) : Optional.empty();
    return Communicator.open(
        worker().library,
        worker().settings(episode),
        identity,
        struckExchange(),
        lease,
        worker().leases(),
        opening);
  }

  /** The exchange, with what the fault does between it and connecting. */
  private Exchange struckExchange() {
    Exchange exchange = worker().exchange();
    return message -> {
      String[] all = exchange.allGather(message);
      if (isVictim && episode.fault() == Fault.DESCRIPTORS_CONNECT) {
        worker().shim.exhaustDescriptors(true);
      }
      if (isVictim && episode.fault() == Fault.MAPPING_CONNECT) {
        worker().shim.failMapping(1 + episode.room() % (episode.ranks() - 1));
      }
      holdInside(Episode.OPENING);
      return all;
    };
  }

  private void strikeBeforeOpening() {
    if (isVictim && episode.fault() == Fault.DEVICE_FULL_OPEN) {
      gpu().fill(worker().deviceRoom());
    }
    if (isVictim && episode.fault() == Fault.DRIVER_IPC) {
      worker().driver().letFail("cuIpcOpenMemHandle_v2", 201);
    }
    if (isVictim && episode.fault() == Fault.DESCRIPTORS_OPEN) {
      worker().shim.exhaustDescriptors(true);
    }
    if (isVictim && episode.fault() == Fault.MAPPING_OPEN) {
      worker().shim.failMapping(1);
    }
  }

  /** Makes all calls; false if it left before the end. */
  private boolean calls(List<Buffers> buffers) throws Buffers.WrongResult {
    for (int i = 0; i < buffers.size(); i++) {
      if (isVictim && i == episode.call() && strikeBefore()) {
        return false;
      }
      if (!isVictim && i == episode.call() && episode.fault() == Fault.KILL_STARVED) {
        worker().shim.exhaustDescriptors(true);
      }
      holdInside(i);
      call = i;
      entered = System.nanoTime();
      try {
        make(i, buffers);
      } catch (Left e) {
        return false;
      }
      if (isVictim && i == episode.call()) {
        strikeAfter();
      }
    }
    if (isVictim && episode.fault().point() == Fault.Point.LOOSE) {
      worker().say("reached");
    }
    return true;
  }

  private void make(int i, List<Buffers> buffers) throws Buffers.WrongResult {
    if (i != episode.call()) {
      buffers.get(i).run(Buffers.NO_HOOKS);
    } else if (refusesRegistration()) {
      expectRefusedRegistration(buffers.get(i));
    } else if (episode.fault() == Fault.MISMATCH_REPLAYS) {
      replayInOtherOrder((DeviceBuffers) buffers.get(i), (DeviceBuffers) buffers.get(i + 1));
    } else {
      buffers.get(i).run(new Strikes());
    }
  }

  /** What the fault does in the middle of the call that it strikes. */
  private final class Strikes implements Buffers.Hooks {
    @Override
    public void before() {
      if (isVictim && episode.fault() == Fault.DEVICE_FULL_CAPTURE) {
        gpu().fill(0);
      }
    }

    @Override
    public void inside() {
      if (isVictim && episode.fault() == Fault.THROW_INSIDE) {
        throw new UserFailure();
      }
    }

    @Override
    public void captured() {
      Fault.Point point = episode.fault().point();
      if (isVictim && episode.fault() == Fault.LEAVE_CAPTURED) {
        throw new Left();
      }
      if (isVictim && point == Fault.Point.CAPTURED) {
        worker().say("reached");
      }
      if ((isVictim && point == Fault.Point.CAPTURED)
          || (isOther && point == Fault.Point.LAUNCHED)) {
        worker().go.acquireUninterruptibly();
      }
    }

    @Override
    public void launched() {
      if (isVictim && episode.fault().point() == Fault.Point.LAUNCHED) {
        worker().say("reached");
      }
    }
  }

  /** The kernels must find it: no host is in a replay. */
  private void replayInOtherOrder(DeviceBuffers first, DeviceBuffers second)
      throws Buffers.WrongResult {
    first.upload();
    second.upload();
    try (Graph one = first.capture(Buffers.NO_HOOKS);
        Graph two = second.capture(Buffers.NO_HOOKS)) {
      (isVictim ? two : one).replay();
      requireOpenCommunicator().waitFor();
    }
    throw new Buffers.WrongResult("replays in different order went well");
  }

  private Communicator requireOpenCommunicator() {
    return Objects.requireNonNull(communicator);
  }

  /** True if the rank leaves here. */
  private boolean strikeBefore() {
    call = episode.call();
    switch (episode.fault()) {
      case DELAY -> LockSupport.parkNanos(episode.delayMillis() * 1_000_000);
      case THROW_BEFORE -> throw new UserFailure();
      case LEAVE_EARLY -> {
        return true;
      }
      case CLOCK_JUMP ->
          worker()
              .shim
              .shiftClock(
                  new SplittableRandom(episode.detail()).nextLong(-300_000_000, 300_000_000));
      case DRIVER_COPY -> worker().driver().letFail("cuMemcpyHtoDAsync_v2", 719);
      case DRIVER_LAUNCH -> worker().driver().letFail("cuLaunchKernel", 719);
      case DRIVER_REPLAY -> worker().driver().letFail("cuGraphLaunch", 719);
      case DRIVER_LOST -> worker().driver().letFail("cuStreamQuery", 719);
      default -> {
        if (episode.fault().holdsVictim()) {
          worker().say("reached");
          worker().go.acquireUninterruptibly();
        }
      }
    }
    return false;
  }

  private void strikeAfter() throws Buffers.WrongResult {
    if (episode.fault() == Fault.THROW_AFTER) {
      throw new UserFailure();
    }
    if (episode.fault() == Fault.INTERRUPT_INSIDE && !Thread.interrupted()) {
      throw new Buffers.WrongResult("the interrupt was swallowed");
    }
  }

  /** The other rank stays away from the call until the victim, asleep in it, has been struck. */
  private void holdInside(int at) {
    if (episode.fault().point() != Fault.Point.INSIDE || at != episode.call()) {
      return;
    }
    if (isOther) {
      worker().go.acquireUninterruptibly();
    }
    if (isVictim) {
      worker().shim.watchThisThread();
      Thread.ofPlatform().daemon().name("watch").start(this::watch);
    }
  }

  private void watch() {
    while (!worker().shim.sleeps()) {
      if (over) {
        return; // the opening failed for another reason
      }
      LockSupport.parkNanos(WATCH_NANOS);
    }
    worker().say("reached");
  }

  private boolean refusesRegistration() {
    return episode.fault() == Fault.DESCRIPTORS_REGISTER
        || episode.fault() == Fault.MAPPING_REGISTER;
  }

  /** All ranks are told, and the communicator lives on. */
  private void expectRefusedRegistration(Buffers buffers) throws Buffers.WrongResult {
    try {
      buffers.run(
          new Buffers.Hooks() {
            @Override
            public void before() {
              strikeRegistration();
            }
          });
    } catch (AllReduceException.Resource e) {
      if (String.valueOf(e.getMessage()).contains("rank " + episode.victim())) {
        return;
      }
      throw new Buffers.WrongResult("it does not name the victim: " + e.getMessage());
    } finally {
      worker().shim.exhaustDescriptors(false);
      worker().shim.failMapping(0);
    }
    throw new Buffers.WrongResult("a registration went well without descriptors or mappings");
  }

  private void strikeRegistration() {
    if (!isVictim) {
      return;
    }
    if (episode.fault() == Fault.DESCRIPTORS_REGISTER) {
      worker().shim.exhaustDescriptors(true);
    } else {
      worker().shim.failMapping(1 + episode.room());
    }
  }
}
