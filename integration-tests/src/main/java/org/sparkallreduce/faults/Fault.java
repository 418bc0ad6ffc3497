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
  NONE(Point.OUTSIDE, "no fault");

  /** Where in the victim's program it strikes. */
  enum Point {
    /** Before or around the program, from outside of it. */
    OUTSIDE,
    /** When the victim is about to make a certain call. */
    BEFORE,
    /** When the victim sleeps in a certain call, for which another rank is missing still. */
    INSIDE,
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
    return this == STOP_LONG || this == LATE;
  }

  /** The victim waits there until it is told to go on, or until it is killed. */
  boolean holdsVictim() {
    return this == KILL_BEFORE || this == KILL_STARVED || passesDeadline();
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
