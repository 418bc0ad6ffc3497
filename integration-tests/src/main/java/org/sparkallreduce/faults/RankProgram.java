// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.SplittableRandom;
import java.util.UUID;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.communicator.Communicator;
import org.sparkallreduce.communicator.Graph;
import org.sparkallreduce.communicator.OpeningAbort;
import org.sparkallreduce.communicator.RankIdentity;

/** One rank of an episode: plays its program, and says what became of it. */
final class RankProgram {
  private final Worker worker;
  private final Episode episode;
  private final int rank;
  private final boolean isVictim;
  private final Strikes strikes;
  private final Thread[] thread = new Thread[1];
  private final OpeningAbort opening = new OpeningAbort();
  private volatile @Nullable Communicator communicator;
  private GpuDriver.@Nullable Context context;
  private int call = Episode.OPENING;
  private long entered;

  RankProgram(Worker worker, Episode episode, int rank) {
    this.worker = worker;
    this.episode = episode;
    this.rank = rank;
    this.isVictim = rank == episode.victim();
    this.strikes = new Strikes(worker, episode, rank);
  }

  /** As a cancelled task does, on a thread of Spark's. */
  void abort() {
    opening.raise("rank %d was cancelled".formatted(rank));
    Communicator open = communicator;
    if (open != null) {
      open.abort("rank %d was cancelled".formatted(rank));
    }
    worker.say("done");
  }

  void interrupt() {
    thread[0].interrupt();
    worker.say("done");
  }

  /** Runs the program, on this thread; never throws. */
  String play() {
    thread[0] = Thread.currentThread();
    Outcome outcome;
    try {
      context = worker.gpu.isEmpty() ? null : worker.context(rank);
      outcome = run();
    } catch (Buffers.WrongResult e) {
      outcome = Outcome.wrong(e.getMessage());
    } catch (AllReduceException | Strikes.UserFailure | Worker.Broken e) {
      outcome = failed(e, System.nanoTime());
    } catch (Throwable t) {
      t.printStackTrace();
      outcome = Outcome.wrong("unexpected: " + t);
    } finally {
      strikes.end(context);
    }
    if (context != null) {
      outcome = usableAfter(outcome);
      context.close();
    }
    return outcome.line();
  }

  /** The context has survived, and so a new communicator works in it. */
  private Outcome usableAfter(Outcome outcome) {
    if (outcome.kind().equals(Outcome.WRONG) || outcome.kind().equals(Outcome.ENDED)) {
      return outcome;
    }
    if (episode.fault().fillsDevice() && !isVictim) {
      return outcome; // the victim may still hold all its memory
    }
    if (episode.fault().exhaustsDescriptors() && !worker.driver().isSimulated()) {
      // CUDA's driver that wanted a descriptor and had none may refuse copies in that context from
      // then on (error 304); the next one works, which the episodes that follow show.
      return outcome;
    }
    try {
      gpu().checkUsable();
      var drawn = Call.random(new SplittableRandom(episode.detail()), 1);
      new LoneRank(worker, rank).run(drawn.with(Call.Kind.ALL_REDUCE, Call.Memory.ARENA), gpu());
      return outcome;
    } catch (RuntimeException | Buffers.WrongResult e) {
      return Outcome.wrong("the device cannot be used any more after %s: %s".formatted(outcome, e));
    }
  }

  private GpuDriver.Context gpu() {
    return Objects.requireNonNull(context);
  }

  private Outcome run() throws Buffers.WrongResult {
    strikes.beforeOpening(context);
    entered = System.nanoTime();
    boolean well = false;
    Communicator open = open();
    communicator = open;
    var buffers = new ArrayList<Buffers>();
    try {
      strikes.after(Episode.OPENING);
      for (Call each : episode.program(rank)) {
        buffers.add(DeviceBuffers.of(each, open, context));
      }
      do {
        well = calls(buffers);
      } while (episode.fault().point() == Fault.Point.LOOSE);
    } catch (RuntimeException e) {
      long thrown = System.nanoTime();
      if (e instanceof Strikes.UserFailure) { // as the context of a task does
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
        open.closeInto(worker.leases(), Episode.lease());
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
            worker.executor,
            "host-of-" + worker.executor,
            worker.device(rank));
    Optional<UUID> lease = episode.kept() ? Optional.of(Episode.lease()) : Optional.empty();
    return Communicator.open(
        worker.library,
        worker.settings(episode),
        identity,
        strikes.exchange(),
        lease,
        worker.leases(),
        opening);
  }

  /** Makes all calls; false if it left before the end. */
  private boolean calls(List<Buffers> buffers) throws Buffers.WrongResult {
    for (int i = 0; i < buffers.size(); i++) {
      call = i;
      if (strikes.before(i)) {
        return false;
      }
      entered = System.nanoTime();
      try {
        make(i, buffers);
      } catch (Strikes.Left e) {
        return false;
      }
      strikes.after(i);
    }
    strikes.afterAll();
    return true;
  }

  private void make(int i, List<Buffers> buffers) throws Buffers.WrongResult {
    if (i != episode.call()) {
      buffers.get(i).run(Buffers.NO_HOOKS);
    } else if (strikes.refusesRegistration()) {
      strikes.expectRefusedRegistration(buffers.get(i));
    } else if (episode.fault() == Fault.MISMATCH_REPLAYS) {
      replayInOtherOrder((DeviceBuffers) buffers.get(i), (DeviceBuffers) buffers.get(i + 1));
    } else {
      buffers.get(i).run(strikes.inside(context));
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
}
