// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.dataset;

import java.io.PrintWriter;
import java.io.Serializable;
import java.io.StringWriter;
import java.util.UUID;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.AllReduceException;

/**
 * Told to the driver by a rank that fails, before it raises the abort on its peers: so the first
 * report of a stage attempt is the first failure. Only text travels, since what a user throws need
 * not be serializable, nor known to the driver.
 *
 * @param run the call of {@code Collectives.run} that it belongs to
 * @param attempt the stage attempt
 * @param where executor and host
 * @param description class and message of what was thrown
 * @param stack its stack trace with causes
 */
public record RankFailure(
    UUID run, int attempt, int rank, String where, Kind kind, String description, String stack)
    implements Serializable {

  /** What the driver makes of it: the exception that the user gets. */
  public enum Kind {
    /** The user's function threw. */
    FUNCTION,
    SETUP,
    MISMATCH,
    TIMED_OUT,
    PEER_LOST,
    RESOURCE,
    /** A peer had failed before. */
    FOLLOW_UP;

    private static Kind of(Throwable thrown) {
      return switch (thrown) {
        case AllReduceException.Setup _ -> SETUP;
        case AllReduceException.Mismatch _ -> MISMATCH;
        case AllReduceException.TimedOut _ -> TIMED_OUT;
        case AllReduceException.PeerLost _ -> PEER_LOST;
        case AllReduceException.Resource _ -> RESOURCE;
        case AllReduceException.Aborted _ -> FOLLOW_UP;
        default -> FUNCTION;
      };
    }
  }

  static RankFailure of(UUID run, int attempt, int rank, String where, Throwable thrown) {
    Kind kind = Kind.of(thrown);
    String description = kind == Kind.FUNCTION ? thrown.toString() : message(rank, thrown);
    var stack = new StringWriter();
    thrown.printStackTrace(new PrintWriter(stack));
    return new RankFailure(run, attempt, rank, where, kind, description, stack.toString());
  }

  /** The rank is named once, by {@link #toException}. */
  private static String message(int rank, Throwable thrown) {
    String message = String.valueOf(thrown.getMessage());
    String named = "Rank %d: ".formatted(rank);
    return message.startsWith(named) ? message.substring(named.length()) : message;
  }

  /** As what {@code run} throws on the driver; {@code cause} is Spark's own account of it. */
  AllReduceException toException(@Nullable Throwable cause) {
    String text = "Rank %d (%s): %s".formatted(rank, where, description);
    AllReduceException exception =
        switch (kind) {
          case FUNCTION ->
              new AllReduceException.RankFailed(
                  rank,
                  "Rank %d (%s) failed first: %s%nThrown on that rank:%n%s"
                      .formatted(rank, where, description, stack),
                  null);
          case SETUP -> new AllReduceException.Setup(text);
          case MISMATCH -> new AllReduceException.Mismatch(text);
          case TIMED_OUT -> new AllReduceException.TimedOut(text);
          case PEER_LOST -> new AllReduceException.PeerLost(text);
          case RESOURCE -> new AllReduceException.Resource(text);
          case FOLLOW_UP -> new AllReduceException.Aborted(text);
        };
    if (cause != null) {
      exception.addSuppressed(cause);
    }
    return exception;
  }
}
