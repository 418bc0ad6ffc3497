// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * The fault campaign on worker processes: plays episodes, and looks after each of them whether
 * every rank got the right result or the right exception in time, and whether anything is left.
 *
 * <p>Arguments: shim, folder for logs, host or gpu, seed, index of the first fault, number of
 * faults. Ends with 1 if anything is wrong; what failed is repeated alone with its seed and index.
 */
public final class Campaign {
  /** After so many faults all that is kept is closed, and nothing at all may be left. */
  private static final int FORGET_AFTER = 10;

  private static final int TELL_AFTER = 100;

  private final Crew crew;
  private final Episode.Plan plan;
  private final long seed;
  private final Bounds bounds;
  private final Map<Fault, Integer> played = new EnumMap<>(Fault.class);
  private final List<String> failures = new ArrayList<>();
  private int notInjected;

  private Campaign(Crew crew, Episode.Plan plan, long seed) {
    this.crew = crew;
    this.plan = plan;
    this.seed = seed;
    this.bounds = new Bounds(plan);
  }

  public static void main(String[] arguments) throws IOException {
    Optional<GpuMachine> gpu = Optional.empty();
    if (arguments[2].equals("gpu")) {
      GpuMachine here = GpuMachine.HERE;
      if (here.kind() == GpuMachine.Kind.NOTHING) {
        System.out.println(here.reason());
        System.exit(1);
      }
      if (!here.isSimulated() && !here.isNvidia()) {
        System.out.println("the campaign reads device memory through NVIDIA's driver only, so far");
        System.exit(1);
      }
      gpu = Optional.of(here);
      System.out.printf(
          "on %s: %s%n",
          here.isSimulated() ? "a SIMULATION, which says nothing about a device" : "a GPU",
          here.name() + (here.isSimulated() ? "" : ", devices " + here.addresses()));
    }
    var place = new WorkerProcess.Place(Path.of(arguments[0]), Path.of(arguments[1]), gpu);
    Files.createDirectories(place.temporary());
    Episode.Plan plan =
        gpu.map(GpuMachine::isSimulated)
            .map(simulated -> simulated ? Episode.Plan.SIMULATED_GPU : Episode.Plan.GPU)
            .orElse(Episode.Plan.CAMPAIGN);
    int first = Integer.parseInt(arguments[4]);
    boolean well;
    try (var crew = new Crew(place)) {
      var campaign = new Campaign(crew, plan, Long.parseLong(arguments[3]));
      well = campaign.run(first, first + Integer.parseInt(arguments[5]));
    }
    System.exit(well ? 0 : 1);
  }

  private boolean run(int first, int end) {
    for (int index = first; index < end; index++) {
      play(Episode.of(plan, seed, index));
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
          "    again: bin/fault-campaign %s --seed %d --only %d%n",
          plan.onGpu() ? "--backend gpu" : "--layer processes", seed, episode.index());
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
        "%d faults on %d worker processes%s, seed %d: %s%n",
        played.values().stream().mapToInt(n -> n).sum(),
        crew.executors(),
        switch (plan) {
          case GPU -> " on a GPU";
          case SIMULATED_GPU -> " on the SIMULATED driver";
          default -> "";
        },
        seed,
        failures.isEmpty() ? "all went as they must" : failures.size() + " FAILED");
  }
}
