// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

/** What is done to a program, to which moment of it, and what it is called in the report. */
enum Fault {
  KILL_BEFORE(Point.BEFORE, "SIGKILL before a call"),
  KILL_INSIDE(Point.INSIDE, "SIGKILL inside of a call"),
  KILL_LOOSE(Point.LOOSE, "SIGKILL at any moment"),
  KILL_IN_EXCHANGE(Point.OUTSIDE, "SIGKILL in the exchange"),
  KILL_STARVED(Point.BEFORE, "SIGKILL, and the survivors have no descriptors left"),
  REPLACED(Point.OUTSIDE, "executor replaced between two jobs"),
  STOP_BRIEFLY(Point.INSIDE, "SIGSTOP inside of a call, then SIGCONT"),
  STOP_LONG(Point.BEFORE, "SIGSTOP beyond the deadline"),
  DELAY(Point.BEFORE, "delayed rank"),
  LATE(Point.BEFORE, "rank that is busy beyond the deadline"),
  THROW_BEFORE(Point.BEFORE, "exception before a call"),
  THROW_AFTER(Point.BEFORE, "exception after a call"),
  ABORT_INSIDE(Point.INSIDE, "cancelled inside of a call"),
  INTERRUPT_INSIDE(Point.INSIDE, "interrupted inside of a call"),
  MISMATCH_COUNT(Point.BEFORE, "mismatch: count"),
  MISMATCH_TOTAL(Point.BEFORE, "mismatch: count, behind equal first pieces"),
  MISMATCH_TYPE(Point.BEFORE, "mismatch: data type"),
  MISMATCH_OP(Point.BEFORE, "mismatch: reduce op"),
  MISMATCH_SCHEDULE(Point.BEFORE, "mismatch: schedule"),
  MISMATCH_ROOT(Point.BEFORE, "mismatch: root"),
  MISMATCH_COLLECTIVE(Point.BEFORE, "mismatch: collective"),
  MISMATCH_ORDER(Point.BEFORE, "mismatch: order of calls"),
  LEAVE_EARLY(Point.BEFORE, "rank that leaves early"),
  MEMORY_FULL(Point.OUTSIDE, "full /dev/shm"),
  DESCRIPTORS_OPEN(Point.OUTSIDE, "no descriptors left: creating"),
  DESCRIPTORS_CONNECT(Point.OUTSIDE, "no descriptors left: connecting"),
  DESCRIPTORS_REGISTER(Point.BEFORE, "no descriptors left: registering"),
  MAPPING_OPEN(Point.OUTSIDE, "failing mmap: creating"),
  MAPPING_CONNECT(Point.OUTSIDE, "failing mmap: connecting"),
  MAPPING_REGISTER(Point.BEFORE, "failing mmap: registering"),
  MESSAGE_CUT(Point.OUTSIDE, "truncated exchange message"),
  MESSAGE_FLIPPED(Point.OUTSIDE, "bit-flipped exchange message"),
  CLOCK_JUMP(Point.BEFORE, "clock jump"),
  KILL_LAUNCHED(Point.LAUNCHED, "SIGKILL while kernels wait"),
  STOP_LAUNCHED(Point.LAUNCHED, "SIGSTOP while kernels wait, then SIGCONT"),
  ABORT_LAUNCHED(Point.LAUNCHED, "cancelled while kernels wait"),
  LATE_REPLAY(Point.CAPTURED, "rank that replays too late"),
  LEAVE_CAPTURED(Point.CAPTURED, "rank that leaves without a replay"),
  THROW_INSIDE(Point.BEFORE, "exception in a captured step, or before waiting"),
  MISMATCH_REPLAYS(Point.BEFORE, "mismatch: order of replays"),
  DEVICE_FULL_OPEN(Point.OUTSIDE, "full device: creating"),
  DEVICE_FULL_CAPTURE(Point.BEFORE, "full device: capturing"),
  DRIVER_IPC(Point.OUTSIDE, "failing driver call: open a handle"),
  DRIVER_COPY(Point.BEFORE, "failing driver call: copy"),
  DRIVER_LAUNCH(Point.BEFORE, "failing driver call: launch"),
  DRIVER_REPLAY(Point.BEFORE, "failing driver call: launch a graph"),
  DRIVER_LOST(Point.BEFORE, "failing driver call: query a stream"),
  NONE(Point.OUTSIDE, "no fault");

  /** Where in the victim's program it strikes. */
  enum Point {
    /** Before or around the program, from outside of it. */
    OUTSIDE,
    /** When the victim is about to make a certain call. */
    BEFORE,
    /** When the victim sleeps in a certain call, for which another rank is missing still. */
    INSIDE,
    /** When the victim has captured a call, before its replay. */
    CAPTURED,
    /** When the victim's kernels run, and wait for those of another rank, which is held back. */
    LAUNCHED,
    /** At no certain moment, while the ranks repeat their program until they fail. */
    LOOSE
  }

  private final Point point;
  private final String text;

  Fault(Point point, String text) {
    this.point = point;
    this.text = text;
  }

  Point point() {
    return point;
  }

  @Override
  public String toString() {
    return text;
  }

  boolean isMismatch() {
    return name().startsWith("MISMATCH_");
  }

  /** The victim's process ends. */
  boolean kills() {
    return name().startsWith("KILL_");
  }

  /** The ranks' deadline passes. */
  boolean passesDeadline() {
    return this == STOP_LONG || this == LATE || this == LATE_REPLAY;
  }

  /** The call that is struck is replayed. */
  boolean needsReplay() {
    return point == Point.CAPTURED
        || point == Point.LAUNCHED
        || this == MISMATCH_REPLAYS
        || this == DEVICE_FULL_CAPTURE
        || this == DRIVER_REPLAY;
  }

  /** Only the simulated driver fails on demand. */
  boolean failsDriver() {
    return name().startsWith("DRIVER_");
  }

  boolean fillsDevice() {
    return this == DEVICE_FULL_OPEN || this == DEVICE_FULL_CAPTURE;
  }

  boolean exhaustsDescriptors() {
    return this == KILL_STARVED || this == DESCRIPTORS_OPEN || this == DESCRIPTORS_CONNECT;
  }

  /** It needs a GPU, or what stands for one. */
  boolean needsGpu() {
    return needsReplay() || failsDriver() || fillsDevice() || this == THROW_INSIDE;
  }

  /** It strikes what only the host backend has, or what is not done to a GPU's control segments. */
  boolean needsHost() {
    return this == MEMORY_FULL || this == DESCRIPTORS_REGISTER || this == MAPPING_REGISTER;
  }

  /** The victim waits there until it is told to go on, or until it is killed. */
  boolean holdsVictim() {
    return this == KILL_BEFORE || this == KILL_STARVED || this == STOP_LONG || this == LATE;
  }

  /** It strikes while memory is created or connected, which must happen then. */
  boolean needsFreshMemory() {
    return switch (this) {
      case KILL_IN_EXCHANGE,
          MEMORY_FULL,
          DESCRIPTORS_OPEN,
          DESCRIPTORS_CONNECT,
          MAPPING_OPEN,
          MAPPING_CONNECT ->
          true;
      default -> false;
    };
  }
}
