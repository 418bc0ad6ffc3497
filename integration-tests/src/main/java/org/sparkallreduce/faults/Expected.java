// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.util.List;
import java.util.regex.Pattern;

/**
 * What may become of a rank, whatever the timing.
 *
 * @param kinds {@link Outcome#ENDED}, or classes of exceptions
 * @param first the first call during which the exception may come
 * @param last the last one
 * @param parts what its message must contain, as patterns
 * @param mayBeGone whether a rank that connects late may find that the others are gone already
 */
record Expected(List<String> kinds, int first, int last, List<String> parts, boolean mayBeGone) {
  /** How a message about a lost rank says in what it was needed and how long it was waited for. */
  private static final String IN_A_WAIT =
      " in (connect|(barrier|all-reduce|reduce-scatter|all-gather|broadcast|(de)?register) number"
          + " \\d+), after rank \\d+ had waited \\d+\\.\\d{3} s for it"
          + " \\(wait \\d+ of the collective\\)";

  static final Expected WELL =
      new Expected(List.of(Outcome.ENDED), 0, Integer.MAX_VALUE, List.of(), false);

  /** What {@code episode} does to {@code rank}; {@code lost} describes the victim's process. */
  static Expected of(Episode episode, int rank, String lost) {
    return episode.plan().onGpu()
        ? ExpectedOnGpu.of(episode, rank, lost)
        : onAnyBackend(episode, rank, lost);
  }

  static Expected onAnyBackend(Episode episode, int rank, String lost) {
    boolean victim = rank == episode.victim();
    int call = episode.call();
    // Behind the opening: a rank that is still in it may hear of it there.
    int earliest = call == 0 ? Episode.OPENING : call;
    return switch (episode.fault()) {
      case NONE,
          REPLACED,
          STOP_BRIEFLY,
          DELAY,
          INTERRUPT_INSIDE,
          DESCRIPTORS_REGISTER,
          MAPPING_REGISTER,
          CLOCK_JUMP ->
          WELL;
      case KILL_BEFORE, KILL_STARVED -> lost(earliest, call, lost);
      // The victim may have arrived before it died, and not have been needed any more.
      case KILL_INSIDE ->
          lost(earliest, call == Episode.OPENING ? Episode.OPENING : call + 1, lost);
      case KILL_LOOSE -> lost(0, Integer.MAX_VALUE, lost);
      case KILL_IN_EXCHANGE -> lost(Episode.OPENING, Episode.OPENING, lost);
      case LEAVE_EARLY ->
          victim
              ? WELL
              : new Expected(
                  List.of("PeerLost"),
                  earliest,
                  call,
                  List.of(
                      "rank %d has left the communicator behind call number \\d+, and is needed"
                              .formatted(episode.victim())
                          + IN_A_WAIT),
                  false);
      // On a machine that is busy enough, the deadline may pass before the fault strikes.
      case STOP_LONG, LATE ->
          orGone(
              episode,
              new Expected(
                  List.of("TimedOut"),
                  Episode.OPENING,
                  Integer.MAX_VALUE,
                  List.of("time-out after 0.500 s in .*still waits for .*wait \\d+ of .*alive"),
                  false));
      case THROW_BEFORE -> victim ? exactly("UserFailure", call) : aborted(episode, earliest, call);
      case THROW_AFTER -> victim ? exactly("UserFailure", call) : aborted(episode, call, call + 1);
      case ABORT_INSIDE ->
          orGone(
              episode,
              new Expected(
                  List.of("Aborted"),
                  earliest,
                  call,
                  List.of("rank %d was cancelled".formatted(episode.victim())),
                  false));
      case MISMATCH_COUNT,
          MISMATCH_TOTAL,
          MISMATCH_TYPE,
          MISMATCH_OP,
          MISMATCH_SCHEDULE,
          MISMATCH_ROOT,
          MISMATCH_COLLECTIVE,
          MISMATCH_ORDER ->
          new Expected(List.of("Mismatch"), call, call, episode.bothSides(), false);
      case MEMORY_FULL ->
          new Expected(
              List.of("Resource", "Broken"), Episode.OPENING, Episode.OPENING, List.of(), false);
      case DESCRIPTORS_OPEN -> victim ? atOpening("Resource", "ulimit -n") : atOpening("Broken");
      case MAPPING_OPEN -> victim ? atOpening("Resource", "could not map") : atOpening("Broken");
      case DESCRIPTORS_CONNECT, MAPPING_CONNECT ->
          victim
              ? atOpening("Resource")
              : new Expected(
                  List.of("Resource", "PeerLost"),
                  Episode.OPENING,
                  Episode.OPENING,
                  List.of(),
                  false);
      case MESSAGE_CUT, MESSAGE_FLIPPED -> damaged(episode, rank);
      case KILL_LAUNCHED,
          STOP_LAUNCHED,
          ABORT_LAUNCHED,
          LATE_REPLAY,
          LEAVE_CAPTURED,
          THROW_INSIDE,
          MISMATCH_REPLAYS,
          DEVICE_FULL_OPEN,
          DEVICE_FULL_CAPTURE,
          DRIVER_IPC,
          DRIVER_COPY,
          DRIVER_LAUNCH,
          DRIVER_REPLAY,
          DRIVER_LOST ->
          throw new IllegalArgumentException(episode.toString());
    };
  }

  private static Expected orGone(Episode episode, Expected usual) {
    boolean opens = episode.call() == Episode.OPENING || episode.fault().passesDeadline();
    return new Expected(usual.kinds, usual.first, usual.last, usual.parts, opens);
  }

  /** Whoever got the damaged message refuses it, and whoever did not loses that rank. */
  private static Expected damaged(Episode episode, int rank) {
    if (episode.damagedForAll() || rank == episode.other()) {
      return atOpening("Setup", "rank %d".formatted(episode.victim()));
    }
    return new Expected(List.of("PeerLost", "Broken"), Episode.OPENING, 0, List.of(), false);
  }

  private static Expected lost(int first, int last, String lost) {
    return new Expected(
        List.of("PeerLost"),
        first,
        last,
        List.of(Pattern.quote(lost), "the process of rank \\d+ has ended" + IN_A_WAIT),
        false);
  }

  static Expected aborted(Episode episode, int first, int last) {
    String cause = "rank %d failed".formatted(episode.victim());
    return new Expected(List.of("Aborted"), first, last, List.of(cause, "as it was told"), false);
  }

  static Expected exactly(String kind, int call, String... parts) {
    return new Expected(List.of(kind), call, call, List.of(parts), false);
  }

  static Expected atOpening(String kind, String... parts) {
    return exactly(kind, Episode.OPENING, parts);
  }

  /** Empty if {@code outcome} is as expected, or what is wrong with it. */
  String fault(Outcome outcome) {
    if (mayBeGone && outcome.kind().equals("PeerLost") && outcome.call() == Episode.OPENING) {
      return "";
    }
    if (!kinds.contains(outcome.kind())) {
      return "expected %s".formatted(kinds);
    }
    if (outcome.kind().equals(Outcome.ENDED)) {
      return "";
    }
    if (outcome.call() < first || outcome.call() > last) {
      return "expected it in calls %d to %d".formatted(first, last);
    }
    for (String part : parts) {
      if (!Pattern.compile(part, Pattern.DOTALL).matcher(outcome.message()).find()) {
        return "expected \"%s\" in its message".formatted(part);
      }
    }
    return "";
  }
}
