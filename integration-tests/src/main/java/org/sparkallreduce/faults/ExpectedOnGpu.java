// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.util.List;
import java.util.regex.Pattern;

/**
 * What may become of a rank on the GPU backend. Calls end there with a copy from the device, in
 * which a rank may still be when the next call of another one fails.
 */
final class ExpectedOnGpu {
  private static final String IN_A_WAIT =
      " in (connect|(barrier|all-reduce|reduce-scatter|all-gather|broadcast)( number \\d+)?"
          + "( \\(enqueued or replayed; the last call was number \\d+\\))?), after rank \\d+ had"
          + " waited \\d+\\.\\d{3} s for it( \\(wait \\d+ of the collective\\))?";

  private ExpectedOnGpu() {}

  /** As {@link Expected#of}. */
  static Expected of(Episode episode, int rank, String lost) {
    boolean victim = rank == episode.victim();
    int call = episode.call();
    int earliest = Math.max(Episode.OPENING, call - 1);
    int behind = call == Episode.OPENING ? Episode.OPENING : call + 1;
    return switch (episode.fault()) {
      case KILL_BEFORE, KILL_STARVED -> lost(earliest, call, lost);
      // What was launched before may still end well.
      case KILL_INSIDE, KILL_LAUNCHED -> lost(earliest, behind, lost);
      case KILL_LOOSE -> lost(0, Integer.MAX_VALUE, lost);
      case KILL_IN_EXCHANGE -> lost(Episode.OPENING, Episode.OPENING, lost);
      case STOP_LAUNCHED -> Expected.WELL;
      case LEAVE_EARLY, LEAVE_CAPTURED ->
          victim
              ? Expected.WELL
              : new Expected(
                  List.of("PeerLost"),
                  earliest,
                  call,
                  List.of(
                      "rank %d has left the communicator behind call number \\d+"
                          .formatted(episode.victim())),
                  false);
      case STOP_LONG, LATE, LATE_REPLAY ->
          new Expected(
              List.of("TimedOut"),
              Episode.OPENING,
              Integer.MAX_VALUE,
              List.of(
                  "time-out after 0.\\d+ s (on the device )?in .*still waits for .*wait \\d+ of"
                      + " .*alive"),
              true);
      case THROW_BEFORE, THROW_INSIDE, THROW_AFTER ->
          victim
              ? Expected.exactly("UserFailure", call)
              : Expected.aborted(episode, earliest, behind);
      case ABORT_INSIDE, ABORT_LAUNCHED ->
          new Expected(
              List.of("Aborted"),
              earliest,
              call,
              List.of("rank %d was cancelled".formatted(episode.victim())),
              call == Episode.OPENING);
      case MISMATCH_COUNT,
          MISMATCH_TOTAL,
          MISMATCH_TYPE,
          MISMATCH_OP,
          MISMATCH_SCHEDULE,
          MISMATCH_ROOT,
          MISMATCH_COLLECTIVE,
          MISMATCH_ORDER ->
          Expected.exactly("Mismatch", call, bothSides(episode.bothSides()));
      case MISMATCH_REPLAYS ->
          Expected.exactly("Mismatch", call, "run different collectives on the device");
      case DESCRIPTORS_OPEN -> Expected.atOpening("Setup", "ulimit -n");
      case MAPPING_OPEN -> Expected.atOpening("Setup", "could not map");
      case DEVICE_FULL_OPEN -> Expected.atOpening("Setup", "cannot allocate device memory");
      case DEVICE_FULL_CAPTURE -> resource(earliest, call, "driver error 2\\)");
      case DRIVER_IPC -> Expected.atOpening("Setup", "cannot open the memory of rank \\d+");
      case DRIVER_COPY -> resource(earliest, call, "cannot copy to the device");
      case DRIVER_LAUNCH -> resource(earliest, call, "cannot launch a kernel");
      case DRIVER_REPLAY -> resource(call, call, "cannot launch the graph");
      case DRIVER_LOST ->
          resource(earliest, behind, "the device of rank %d failed".formatted(episode.victim()));
      default -> Expected.onAnyBackend(episode, rank, lost);
    };
  }

  private static Expected lost(int first, int last, String lost) {
    return new Expected(
        List.of("PeerLost"),
        first,
        last,
        List.of(
            Pattern.quote(lost),
            "the process of rank \\d+ has ended(" + IN_A_WAIT + ")? \\(process \\d+\\)"),
        false);
  }

  private static Expected resource(int first, int last, String part) {
    return new Expected(List.of("Resource"), first, last, List.of(part), false);
  }

  /** "FIELD A", "FIELD B": in the message one of them is "FIELD A", and the other only "B". */
  private static String bothSides(List<String> sides) {
    String field =
        List.of("count ", "data type ", "reduce op ", "schedule ", "root ", "collective ").stream()
            .filter(sides.getFirst()::startsWith)
            .findFirst()
            .orElseThrow();
    String one = sides.getFirst().substring(field.length());
    String two = sides.getLast().substring(field.length());
    return "(%1$s%2$s, rank \\d+ %3$s|%1$s%3$s, rank \\d+ %2$s)\\b".formatted(field, one, two);
  }
}
