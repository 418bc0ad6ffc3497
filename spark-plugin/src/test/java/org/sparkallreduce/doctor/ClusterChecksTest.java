// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.doctor;

import static org.assertj.core.api.Assertions.assertThat;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.sparkallreduce.ProcessIdentity;
import org.sparkallreduce.exchange.HostIdentity;

class ClusterChecksTest {
  private static final RankFacts FIRST = Fakes.rank(0, Fakes.machine());

  private static RankFacts second(
      ProcessIdentity process, HostIdentity host, String pluginFailure, String trialFailure) {
    return new RankFacts(
        1, "h2", "1", process, host, "3", pluginFailure, trialFailure, Fakes.machine());
  }

  private static RankFacts second(HostIdentity host) {
    return second(new ProcessIdentity(101, 7, 1), host, null, null);
  }

  private static Finding onlyFault(RankFacts second) {
    List<Finding> faults =
        ClusterChecks.of(List.of(FIRST, second), Fakes.SETTINGS).stream()
            .filter(finding -> finding.severity().compareTo(Severity.WARNING) >= 0)
            .toList();
    assertThat(faults).hasSize(1);
    return faults.getFirst();
  }

  @Test
  void whatARankSaysComesToTheDriverAsItWas() throws Exception {
    assertThat(Doctor.decode(Doctor.encode(FIRST))).isEqualTo(FIRST);
  }

  @Test
  void ranksThatFitTogetherHaveNothingToCure() {
    assertThat(ClusterChecks.of(List.of(FIRST, Fakes.rank(1, Fakes.machine())), Fakes.SETTINGS))
        .allSatisfy(finding -> assertThat(finding.cure()).isEmpty())
        .extracting(Finding::what)
        .contains(
            "one host, one /dev/shm, one user, one build",
            "2 ranks all-reduced, with the right sum",
            "4 for 2 ranks");
  }

  @Test
  void differentHostsAreAProblem() {
    Finding found = onlyFault(second(new HostIdentity("other boot", 2, 3)));
    assertThat(found.severity()).isEqualTo(Severity.PROBLEM);
    assertThat(found.what()).isEqualTo("they run on different hosts: rank 0: h1, rank 1: h2");
  }

  @Test
  void separateSharedMemoryIsAProblem() {
    Finding found = onlyFault(second(new HostIdentity("boot", 2, 4)));
    assertThat(found.severity()).isEqualTo(Severity.PROBLEM);
    assertThat(found.what()).contains("do not share it: rank 0: h1, rank 1: h2");
    assertThat(found.cure()).contains("--ipc=host");
  }

  @Test
  void aForeignPidNamespaceIsAWarning() {
    Finding found =
        onlyFault(
            second(new ProcessIdentity(101, 7, 99), new HostIdentity("boot", 2, 3), null, null));
    assertThat(found.severity()).isEqualTo(Severity.WARNING);
    assertThat(found.what()).contains("noticed at the deadline only");
  }

  @Test
  void differentUsersAreAProblem() {
    Finding found = onlyFault(Fakes.rank(1, Fakes.machineOf("other", "0.1 host gcc")));
    assertThat(found.what()).isEqualTo("they run as different users: rank 0: spark, rank 1: other");
  }

  @Test
  void differentBuildsAreAProblem() {
    Finding found = onlyFault(Fakes.rank(1, Fakes.machineOf("spark", "0.2 host gcc")));
    assertThat(found.what()).contains("rank 0: 0.1 host gcc, rank 1: 0.2 host gcc");
  }

  @Test
  void anExecutorWithoutThePluginIsAProblem() {
    Finding found =
        onlyFault(
            second(
                new ProcessIdentity(101, 7, 1),
                new HostIdentity("boot", 2, 3),
                "The all-reduce plugin does not run in this process.",
                null));
    assertThat(found.what()).startsWith("executor 1: The all-reduce plugin does not run");
    assertThat(found.cure()).contains("--jars").contains("driver only");
  }

  @Test
  void aTrialThatFailedIsAProblem() {
    Finding found =
        onlyFault(
            second(new ProcessIdentity(101, 7, 1), new HostIdentity("boot", 2, 3), null, "no"));
    assertThat(found.what()).isEqualTo("an all-reduce failed: no");
  }

  @Test
  void theTableSaysHowEachRankIsReached() {
    RankFacts same =
        new RankFacts(
            1, "h1", "0", FIRST.process(), FIRST.hostIdentity(), "", null, null, Fakes.machine());
    RankFacts other = second(new HostIdentity("other boot", 2, 3));
    Report report = Report.of(List.of(), List.of(FIRST, same, other));
    assertThat(report.text())
        .contains(
            """
            rank  host  executor  process  device  backend  link
            0     h1    0         100      -       host     same process
            1     h1    0         100      -       host     same process
            1     h2    1         101      3       host     none: another host
            """);
  }

  @Test
  void jsonHasFindingsAndRanks() throws Exception {
    Report report =
        Report.of(
            List.of(
                Finding.ok("a", "h1", "good"), Finding.problem("b", "h1", "bad", "mend \"it\"")),
            List.of(FIRST));
    JsonNode json = new ObjectMapper().readTree(report.json());
    assertThat(json.get("healthy").asBoolean()).isFalse();
    assertThat(json.get("findings").get(1).get("severity").asText()).isEqualTo("PROBLEM");
    assertThat(json.get("findings").get(1).get("cure").asText()).isEqualTo("mend \"it\"");
    assertThat(json.get("ranks").get(0).get("process").asLong()).isEqualTo(100);
    assertThat(report.text()).contains("problem  b: bad").contains("cure: mend \"it\"");
    assertThat(report.text()).contains("1 problems, 0 warnings");
  }
}
