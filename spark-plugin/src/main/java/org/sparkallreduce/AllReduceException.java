// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce;

import org.jspecify.annotations.Nullable;

/**
 * Everything that this library reports. Each message says what happened, to which rank, and what to
 * do about it; docs/operations.md lists them.
 */
public abstract sealed class AllReduceException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  private AllReduceException(String message, @Nullable Throwable cause) {
    super(message, cause);
  }

  /**
   * The caller asked for something that cannot be; nothing has happened, the communicator lives on.
   */
  public static final class Usage extends AllReduceException {
    private static final long serialVersionUID = 1L;

    public Usage(String message) {
      super(message, null);
    }
  }

  /** The application, cluster or machine is not set up for it; found before a collective starts. */
  public static final class Setup extends AllReduceException {
    private static final long serialVersionUID = 1L;

    public Setup(String message) {
      super(message, null);
    }

    public Setup(String message, @Nullable Throwable cause) {
      super(message, cause);
    }
  }

  /** The ranks called different collectives. All ranks get it; nothing was written. */
  public static final class Mismatch extends AllReduceException {
    private static final long serialVersionUID = 1L;

    public Mismatch(String message) {
      super(message, null);
    }
  }

  /** The deadline passed while ranks that are alive had not come. */
  public static final class TimedOut extends AllReduceException {
    private static final long serialVersionUID = 1L;

    public TimedOut(String message) {
      super(message, null);
    }
  }

  /** A peer's process ended, or the peer left its stage, while it was needed. */
  public static final class PeerLost extends AllReduceException {
    private static final long serialVersionUID = 1L;

    public PeerLost(String message) {
      super(message, null);
    }
  }

  /** The communicator was aborted: a rank failed, or the job was cancelled. */
  public static final class Aborted extends AllReduceException {
    private static final long serialVersionUID = 1L;

    public Aborted(String message) {
      super(message, null);
    }

    public Aborted(String message, @Nullable Throwable cause) {
      super(message, cause);
    }
  }

  /** Shared memory, device memory or another resource of the system ran out or failed. */
  public static final class Resource extends AllReduceException {
    private static final long serialVersionUID = 1L;

    public Resource(String message) {
      super(message, null);
    }
  }

  /**
   * On the driver: the function of a rank threw. The message has the class, message and stack trace
   * of what it threw, as text; Spark's own account of the job's failure is suppressed in it.
   */
  public static final class RankFailed extends AllReduceException {
    private static final long serialVersionUID = 1L;

    private final int rank;

    public RankFailed(int rank, String message, @Nullable Throwable cause) {
      super(message, cause);
      this.rank = rank;
    }

    /** The rank whose function threw first. */
    public int rank() {
      return rank;
    }
  }
}
