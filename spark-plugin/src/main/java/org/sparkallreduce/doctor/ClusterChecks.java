// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.doctor;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.sparkallreduce.Settings;

/** Judges the ranks of a cluster: each of their machines, and whether they can work together. */
final class ClusterChecks {
  private static final String RANKS = "ranks";

  private ClusterChecks() {}

  static List<Finding> of(List<RankFacts> ranks, Settings settings) {
    var findings = new ArrayList<Finding>();
    machines(ranks, settings, findings);
    for (RankFacts rank : ranks) {
      if (rank.pluginFailure() != null) {
        findings.add(
            Finding.problem(
                "plugin",
                rank.host(),
                "executor %s: %s".formatted(rank.executorId(), rank.pluginFailure()),
                "as the message says. If the plugin runs on the driver only: give the jar to --jars"
                    + " and spark.plugins to spark-submit, so that executors have both when they"
                    + " start"));
      }
    }
    together(ranks, findings);
    trial(ranks, findings);
    return findings;
  }

  /** Ranks of one host see the same: the first of them speaks for it. */
  private static void machines(List<RankFacts> ranks, Settings settings, List<Finding> findings) {
    Map<String, List<RankFacts>> hosts =
        ranks.stream()
            .collect(
                Collectors.groupingBy(RankFacts::host, LinkedHashMap::new, Collectors.toList()));
    for (List<RankFacts> ofHost : hosts.values()) {
      findings.addAll(MachineChecks.of(ofHost.getFirst().machine(), settings, ofHost.size()));
    }
  }

  private static void together(List<RankFacts> ranks, List<Finding> findings) {
    int before = findings.size();
    differ(ranks, rank -> rank.hostIdentity().bootId(), RankFacts::host)
        .ifPresent(
            found ->
                findings.add(
                    Finding.problem(
                        "hosts",
                        RANKS,
                        "they run on different hosts: " + found,
                        "all ranks must run on one host: fewer ranks than one host has task slots,"
                            + " or a cluster of one worker host")));
    if (findings.size() > before) {
      return; // what follows makes sense on one host only
    }
    differ(ranks, rank -> rank.hostIdentity().sharedMemoryDevice(), RankFacts::host)
        .ifPresent(
            found ->
                findings.add(
                    Finding.problem(
                        "/dev/shm",
                        RANKS,
                        "they run in containers that do not share it: " + found,
                        "a common IPC namespace (docker: --ipc=host or --ipc=container:...) or one"
                            + " volume on /dev/shm")));
    differ(ranks, rank -> rank.machine().user(), rank -> rank.machine().user())
        .ifPresent(
            found ->
                findings.add(
                    Finding.problem(
                        "user",
                        RANKS,
                        "they run as different users: " + found,
                        "run all executors as one user: a rank opens segments of its own user"
                            + " only")));
    differ(
            ranks,
            rank -> Objects.requireNonNullElse(rank.machine().nativeBuild(), "none"),
            rank -> Objects.requireNonNullElse(rank.machine().nativeBuild(), "none"))
        .ifPresent(
            found ->
                findings.add(
                    Finding.problem(
                        "native library",
                        RANKS,
                        "they have different builds: " + found,
                        "one jar on the driver and on all executors")));
    differ(ranks, rank -> rank.process().pidNamespace(), RankFacts::host)
        .ifPresent(
            found ->
                findings.add(
                    Finding.warning(
                        "PID namespace",
                        RANKS,
                        "they have different ones, so a rank whose process dies is noticed at the"
                            + " deadline only: "
                            + found,
                        "let the containers share one (docker: --pid=host, Kubernetes:"
                            + " shareProcessNamespace)")));
    if (findings.size() == before) {
      findings.add(Finding.ok("together", RANKS, "one host, one /dev/shm, one user, one build"));
    }
  }

  /** Where the ranks differ: "rank 0: A, rank 2: B". */
  private static Optional<String> differ(
      List<RankFacts> ranks, Function<RankFacts, Object> value, Function<RankFacts, String> name) {
    var firsts = new LinkedHashMap<Object, RankFacts>();
    ranks.forEach(rank -> firsts.putIfAbsent(value.apply(rank), rank));
    return firsts.size() <= 1
        ? Optional.empty()
        : Optional.of(
            firsts.values().stream()
                .map(rank -> "rank %d: %s".formatted(rank.rank(), name.apply(rank)))
                .collect(Collectors.joining(", ")));
  }

  private static void trial(List<RankFacts> ranks, List<Finding> findings) {
    RankFacts failed =
        ranks.stream().filter(rank -> rank.trialFailure() != null).findFirst().orElse(null);
    findings.add(
        failed == null
            ? Finding.ok(
                "trial", RANKS, "%d ranks all-reduced, with the right sum".formatted(ranks.size()))
            : Finding.problem(
                "trial",
                RANKS,
                "an all-reduce failed: " + failed.trialFailure(),
                "as the message says, or as the other findings do"));
  }
}
