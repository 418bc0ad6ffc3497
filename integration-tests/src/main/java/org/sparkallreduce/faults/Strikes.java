// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.util.Objects;
import java.util.SplittableRandom;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.exchange.Exchange;

/** What the fault of an episode makes one rank do to itself, at each point of its program. */
final class Strikes {
  /** What a user's function throws. */
  static final class UserFailure extends RuntimeException {
    private static final long serialVersionUID = 1L;

    UserFailure() {
      super("the function of the rank failed, as it was told");
    }
  }

  /** How a rank leaves its program in the middle of a call. */
  static final class Left extends RuntimeException {
    private static final long serialVersionUID = 1L;
  }

  private static final long WATCH_NANOS = 200_000;

  private final Worker worker;
  private final Episode episode;
  private final Fault fault;
  private final boolean isVictim;
  private final boolean isOther;
  private volatile boolean over;

  Strikes(Worker worker, Episode episode, int rank) {
    this.worker = worker;
    this.episode = episode;
    this.fault = episode.fault();
    this.isVictim = rank == episode.victim();
    this.isOther = rank == episode.other();
  }

  /** {@code context}: of the rank's GPU, if it uses one. */
  void beforeOpening(GpuDriver.@Nullable Context context) {
    if (!isVictim) {
      return;
    }
    switch (fault) {
      case DEVICE_FULL_OPEN -> Objects.requireNonNull(context).fill(worker.deviceRoom());
      case DRIVER_IPC -> worker.driver().letFail("cuIpcOpenMemHandle_v2", 201);
      case DESCRIPTORS_OPEN -> worker.shim.exhaustDescriptors(true);
      case MAPPING_OPEN -> worker.shim.failMapping(1);
      default -> {}
    }
  }

  /** The exchange, with what the fault does between it and connecting. */
  Exchange exchange() {
    Exchange exchange = worker.exchange();
    return message -> {
      String[] all = exchange.allGather(message);
      if (isVictim && fault == Fault.DESCRIPTORS_CONNECT) {
        worker.shim.exhaustDescriptors(true);
      }
      if (isVictim && fault == Fault.MAPPING_CONNECT) {
        worker.shim.failMapping(1 + episode.room() % (episode.ranks() - 1));
      }
      holdInside(Episode.OPENING);
      return all;
    };
  }

  /** Before call {@code at}; true if the rank leaves here. */
  boolean before(int at) {
    if (at != episode.call()) {
      return false;
    }
    if (isVictim && strikeBefore()) {
      return true;
    }
    if (!isVictim && fault == Fault.KILL_STARVED) {
      worker.shim.exhaustDescriptors(true);
    }
    holdInside(at);
    return false;
  }

  /** True if the rank leaves here. */
  private boolean strikeBefore() {
    switch (fault) {
      case DELAY -> LockSupport.parkNanos(episode.delayMillis() * 1_000_000);
      case THROW_BEFORE -> throw new UserFailure();
      case LEAVE_EARLY -> {
        return true;
      }
      case CLOCK_JUMP ->
          worker.shim.shiftClock(
              new SplittableRandom(episode.detail()).nextLong(-300_000_000, 300_000_000));
      case DRIVER_COPY -> worker.driver().letFail("cuMemcpyHtoDAsync_v2", 719);
      case DRIVER_LAUNCH -> worker.driver().letFail("cuLaunchKernel", 719);
      case DRIVER_REPLAY -> worker.driver().letFail("cuGraphLaunch", 719);
      case DRIVER_LOST -> worker.driver().letFail("cuStreamQuery", 719);
      default -> {
        if (fault.holdsVictim()) {
          worker.say("reached");
          worker.go.acquireUninterruptibly();
        }
      }
    }
    return false;
  }

  /** The other rank stays away from the call until the victim, asleep in it, has been struck. */
  private void holdInside(int at) {
    if (fault.point() != Fault.Point.INSIDE || at != episode.call()) {
      return;
    }
    if (isOther) {
      worker.go.acquireUninterruptibly();
    }
    if (isVictim) {
      worker.shim.watchThisThread();
      Thread.ofPlatform().daemon().name("watch").start(this::watch);
    }
  }

  private void watch() {
    while (!worker.shim.sleeps()) {
      if (over) {
        return; // the opening failed for another reason
      }
      LockSupport.parkNanos(WATCH_NANOS);
    }
    worker.say("reached");
  }

  /** What the fault does in the middle of the call that it strikes. */
  Buffers.Hooks inside(GpuDriver.@Nullable Context context) {
    return new Buffers.Hooks() {
      @Override
      public void before() {
        if (isVictim && fault == Fault.DEVICE_FULL_CAPTURE) {
          Objects.requireNonNull(context).fill(0);
        }
      }

      @Override
      public void inside() {
        if (isVictim && fault == Fault.THROW_INSIDE) {
          throw new UserFailure();
        }
      }

      @Override
      public void captured() {
        strikeCaptured();
      }

      @Override
      public void launched() {
        if (isVictim && fault.point() == Fault.Point.LAUNCHED) {
          worker.say("reached");
        }
      }
    };
  }

  private void strikeCaptured() {
    Fault.Point point = fault.point();
    if (isVictim && fault == Fault.LEAVE_CAPTURED) {
      throw new Left();
    }
    if (isVictim && point == Fault.Point.CAPTURED) {
      worker.say("reached");
    }
    if ((isVictim && point == Fault.Point.CAPTURED) || (isOther && point == Fault.Point.LAUNCHED)) {
      worker.go.acquireUninterruptibly();
    }
  }

  boolean refusesRegistration() {
    return fault == Fault.DESCRIPTORS_REGISTER || fault == Fault.MAPPING_REGISTER;
  }

  /** All ranks are told, and the communicator lives on. */
  void expectRefusedRegistration(Buffers buffers) throws Buffers.WrongResult {
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
      worker.shim.exhaustDescriptors(false);
      worker.shim.failMapping(0);
    }
    throw new Buffers.WrongResult("a registration went well without descriptors or mappings");
  }

  private void strikeRegistration() {
    if (!isVictim) {
      return;
    }
    if (fault == Fault.DESCRIPTORS_REGISTER) {
      worker.shim.exhaustDescriptors(true);
    } else {
      worker.shim.failMapping(1 + episode.room());
    }
  }

  /** Behind call {@code at}, or the opening. */
  void after(int at) throws Buffers.WrongResult {
    if (!isVictim || at != episode.call()) {
      return;
    }
    if (fault == Fault.THROW_AFTER) {
      throw new UserFailure();
    }
    if (fault == Fault.INTERRUPT_INSIDE && !Thread.interrupted()) {
      throw new Buffers.WrongResult("the interrupt was swallowed");
    }
  }

  /** Behind the last call. */
  void afterAll() {
    if (isVictim && fault.point() == Fault.Point.LOOSE) {
      worker.say("reached");
    }
  }

  /** Undoes what the fault did to this process. */
  void end(GpuDriver.@Nullable Context context) {
    over = true;
    worker.shim.exhaustDescriptors(false);
    worker.shim.failMapping(0);
    worker.shim.shiftClock(0);
    if (context != null) {
      context.letGo();
    }
    if (fault.failsDriver()) {
      worker.driver().letFail("", 0);
    }
  }
}
