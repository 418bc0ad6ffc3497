// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

/** What is done to a job on a cluster, and what must become of the job. */
enum SparkFault {
  /** Perhaps the job is over before the kill comes; then nothing was to be retried. */
  KILL_AT_START("executor killed when its task starts", Ending.WELL),
  KILL_BEFORE("executor killed before a call", Ending.RETRIED),
  KILL_INSIDE("executor killed inside of a call", Ending.RETRIED),
  KILL_AT_END("executor killed behind the last call", Ending.RETRIED),
  REPLACED("executor killed between two jobs", Ending.WELL),
  STOP_BRIEFLY("executor stopped for a while", Ending.WELL),
  DELAY("delayed rank", Ending.WELL),
  THROW_BEFORE("exception before a call", Ending.RETRIED),
  THROW_AFTER("exception behind a call", Ending.RETRIED),
  THROW_ALWAYS("exception in every attempt", Ending.RANK_FAILED),
  MISMATCH_ONCE("mismatch in the first attempt", Ending.RETRIED),
  MISMATCH_ALWAYS("mismatch in every attempt", Ending.MISMATCH),
  LEAVE_EARLY("rank that leaves early in the first attempt", Ending.RETRIED),
  CANCEL_INSIDE("job group cancelled inside of a call", Ending.CANCELLED),
  CANCEL_OUTSIDE("job group cancelled between calls", Ending.CANCELLED),
  CANCEL_AT_START("job group cancelled when its tasks start", Ending.CANCELLED);

  /** What becomes of the job. */
  enum Ending {
    /** Right, at whichever attempt. */
    WELL,
    /** Right after the stage was retried. */
    RETRIED,
    RANK_FAILED,
    MISMATCH,
    CANCELLED
  }

  private final String text;
  private final Ending ending;

  SparkFault(String text, Ending ending) {
    this.text = text;
    this.ending = ending;
  }

  Ending ending() {
    return ending;
  }

  boolean cancels() {
    return ending == Ending.CANCELLED;
  }

  @Override
  public String toString() {
    return text;
  }
}
