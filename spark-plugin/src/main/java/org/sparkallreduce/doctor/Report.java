// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.doctor;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.sparkallreduce.exchange.HostIdentity;

/**
 * What the doctor found.
 *
 * @param ranks the table of ranks; empty if only a machine was looked at
 */
public record Report(List<Finding> findings, List<Rank> ranks) {

  /**
   * A line of the table.
   *
   * @param link how it reaches rank 0
   */
  public record Rank(
      int rank,
      String host,
      String executor,
      long process,
      String device,
      String backend,
      String link) {
    private List<String> cells() {
      return List.of(
          Integer.toString(rank), host, executor, Long.toString(process), device, backend, link);
    }
  }

  private static final List<String> HEAD =
      List.of("rank", "host", "executor", "process", "device", "backend", "link");

  public Report {
    findings = List.copyOf(findings);
    ranks = List.copyOf(ranks);
  }

  static Report of(List<Finding> findings, List<RankFacts> ranks) {
    return new Report(findings, ranks.stream().map(rank -> row(rank, ranks.getFirst())).toList());
  }

  private static Rank row(RankFacts rank, RankFacts first) {
    return new Rank(
        rank.rank(),
        rank.host(),
        rank.executorId(),
        rank.process().pid(),
        rank.device().isEmpty() ? "-" : rank.device(),
        rank.machine().nativeBuild() == null ? "-" : "host",
        link(rank, first));
  }

  private static String link(RankFacts rank, RankFacts first) {
    HostIdentity a = first.hostIdentity();
    HostIdentity b = rank.hostIdentity();
    if (!a.bootId().equals(b.bootId())) {
      return "none: another host";
    }
    if (a.sharedMemoryDevice() != b.sharedMemoryDevice()) {
      return "none: another /dev/shm";
    }
    return rank.process().equals(first.process()) ? "same process" : "shared memory";
  }

  /** Whether an all-reduce can work: there is no problem. */
  public boolean healthy() {
    return findings.stream().noneMatch(finding -> finding.severity() == Severity.PROBLEM);
  }

  /** For people. */
  public String text() {
    var text = new StringBuilder();
    Map<String, List<Finding>> places =
        findings.stream()
            .collect(
                Collectors.groupingBy(Finding::where, LinkedHashMap::new, Collectors.toList()));
    places.forEach(
        (place, found) -> {
          text.append(place).append('\n');
          found.forEach(
              finding -> text.append("  ").append(finding.text().indent(2).strip()).append('\n'));
        });
    if (!ranks.isEmpty()) {
      text.append('\n').append(table());
    }
    Map<Severity, Long> counts =
        findings.stream().collect(Collectors.groupingBy(Finding::severity, Collectors.counting()));
    return text.append(
            "%n%d problems, %d warnings%n"
                .formatted(
                    counts.getOrDefault(Severity.PROBLEM, 0L),
                    counts.getOrDefault(Severity.WARNING, 0L)))
        .toString();
  }

  private String table() {
    var rows = new ArrayList<List<String>>();
    rows.add(HEAD);
    ranks.forEach(rank -> rows.add(rank.cells()));
    int[] widths =
        IntStream.range(0, HEAD.size())
            .map(c -> rows.stream().mapToInt(row -> row.get(c).length()).max().orElse(0))
            .toArray();
    return rows.stream()
        .map(
            row ->
                IntStream.range(0, widths.length)
                    .mapToObj(c -> ("%-" + widths[c] + "s").formatted(row.get(c)))
                    .collect(Collectors.joining("  "))
                    .stripTrailing())
        .collect(Collectors.joining("\n", "", "\n"));
  }

  /** For programs: {@code healthy}, {@code findings}, {@code ranks}. */
  public String json() {
    var content = new LinkedHashMap<String, Object>();
    content.put("healthy", healthy());
    content.put("findings", findings);
    content.put("ranks", ranks);
    try {
      return new ObjectMapper()
          .enable(SerializationFeature.INDENT_OUTPUT)
          .writeValueAsString(content);
    } catch (JsonProcessingException e) {
      throw new IllegalStateException("texts and numbers always become JSON", e);
    }
  }
}
