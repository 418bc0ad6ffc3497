// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;

/**
 * The fault campaign on worker processes: plays episodes, and looks after each of them whether
 * every rank got the right result or the right exception in time, and whether anything is left.
 *
 * <p>Arguments: shim, folder for logs, seed, index of the first fault, number of faults. Ends with
 * 1 if anything is wrong; what failed is repeated alone with its seed and index.
 */
public final class Campaign {
  /** After so many faults all that is kept is closed, and nothing at all may be left. */
  private static final int FORGET_AFTER = 10;

  private static final int TELL_AFTER = 100;

  private final Crew crew;
  private final long seed;
  private final Bounds bounds = new Bounds();
  private final Map<Fault, Integer> played = new EnumMap<>(Fault.class);
  private final List<String> failures = new ArrayList<>();
  private int notInjected;

  private Campaign(Crew crew, long seed) {
    this.crew = crew;
    this.seed = seed;
  }

  public static void main(String[] arguments) throws IOException {
    var place = new WorkerProcess.Place(Path.of(arguments[0]), Path.of(arguments[1]));
    Files.createDirectories(place.temporary());
    int first = Integer.parseInt(arguments[3]);
    boolean well;
    try (var crew = new Crew(place)) {
      var campaign = new Campaign(crew, Long.parseLong(arguments[2]));
      well = campaign.run(first, first + Integer.parseInt(arguments[4]));
    }
    System.exit(well ? 0 : 1);
  }

  private boolean run(int first, int end) {
    for (int index = first; index < end; index++) {
      play(Episode.of(Episode.Plan.CAMPAIGN, seed, index));
      if (index % FORGET_AFTER == FORGET_AFTER - 1) {
        note("after fault %d, with nothing kept".formatted(index), crew.forget());
      }
      if (index % TELL_AFTER == TELL_AFTER - 1) {
        System.out.printf("%d of %d, %d FAILED%n", index + 1, end, failures.size());
      }
    }
    note("at the end, with nothing kept", crew.forget());
    note("after all processes have ended", crew.end());
    note("all faults together", bounds.late());
    report();
    return failures.isEmpty();
  }

  private void play(Episode episode) {
    if (episode.fault() == Fault.MEMORY_FULL && !Filler.isPrivate()) {
      notInjected++; // to fill everybody's /dev/shm is no option
      return;
    }
    played.merge(episode.fault(), 1, Integer::sum);
    List<String> wrong = crew.play(episode, bounds);
    note(episode.toString(), wrong);
    if (!wrong.isEmpty()) {
      System.out.printf(
          "    again: bin/fault-campaign --layer processes --seed %d --only %d%n",
          seed, episode.index());
    }
  }

  private void note(String what, List<String> wrong) {
    if (!wrong.isEmpty()) {
      failures.add(what);
      System.out.println("FAILED: " + what + "\n    " + String.join("\n    ", wrong));
    }
  }

  private void report() {
    System.out.printf("%n%s%n", bounds.report(played));
    if (notInjected > 0) {
      System.out.printf(
          "NOT INJECTED: %d times \"%s\", since this user may not mount a /dev/shm of its own%n",
          notInjected, Fault.MEMORY_FULL);
    }
    System.out.printf(
        "%d faults on %d worker processes, seed %d: %s%n",
        played.values().stream().mapToInt(n -> n).sum(),
        crew.executors(),
        seed,
        failures.isEmpty() ? "all went as they must" : failures.size() + " FAILED");
  }
}
