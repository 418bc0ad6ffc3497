// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import static org.assertj.core.api.Assertions.assertThat;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.sparkallreduce.Schedule;

/** bin/allreduce-perf, from the packaged jar. */
class PerfIT {
  private static final Pattern RANK = Pattern.compile("#  Rank +\\d+  Pid +(\\d+) on .*");
  private static final int NOT_FINISHED = 3;
  private static final int SCHEDULES = Schedule.values().length;

  @TempDir private Path folder;

  private Submit.Ended perf(String... arguments) throws Exception {
    return Submit.run(folder, "allreduce-perf", arguments);
  }

  @Test
  void everyCollectiveAndScheduleGivesRightResults() throws Exception {
    Path json = folder.resolve("out.json");
    Path svg = folder.resolve("out.svg");
    Submit.Ended ended =
        perf(
            "--collective=all",
            "--schedule=all",
            "-d=float,bfloat16,int64",
            "-o=sum,max",
            "-b=8",
            "-e=256K",
            "-f=32",
            "-n=5",
            "-w=1",
            "--json",
            json.toString(),
            "--svg",
            svg.toString());
    assertThat(ended.output())
        .contains("# nRanks 2 minBytes 8 maxBytes 262144 step: 32(factor)")
        .contains("#  Rank  1  Pid")
        .contains("# all-reduce, schedule load-reduce-store")
        .contains("# broadcast")
        .contains("# Out of bounds values : 0 OK");
    assertThat(ended.exitCode()).isZero();

    JsonNode document = new ObjectMapper().readTree(json.toFile());
    // Types x (sizes x (ops x (schedules + reduce-scatter) + all-gather and broadcast)), but that
    // low latency carries the smallest of the four sizes only.
    assertThat(document.get("results")).hasSize(3 * (4 * (2 * (SCHEDULES + 1) + 2) - 2 * 3));
    assertThat(document.get("results"))
        .allSatisfy(result -> assertThat(result.get("inPlace").get("wrong").asInt()).isZero());
    assertThat(Files.readString(svg)).startsWith("<?xml").endsWith("</svg>\n");
  }

  @Test
  void heapArraysAreMeasuredToo() throws Exception {
    Submit.Ended ended =
        perf("--unregistered", "--ranks=3", "-b=100", "-e=300", "-i=100", "-n=5", "-w=1", "--json");
    // Progress lines may stand before it.
    String json = ended.output().substring(ended.output().indexOf('{'));
    JsonNode document = new ObjectMapper().readTree(json);
    assertThat(document.get("registered").asBoolean()).isFalse();
    assertThat(document.get("results")).hasSize(3);
    assertThat(document.get("wrong").asInt()).isZero();
    assertThat(ended.exitCode()).isZero();
  }

  @Test
  void aRankThatIsKilledEndsTheRunWithItsNameAndLeavesNothing() throws Exception {
    Process tool =
        new ProcessBuilder(
                Cluster.root().resolve("bin/allreduce-perf").toString(), "-n=2000000000", "-b=1M")
            .redirectErrorStream(true)
            .start();
    var pids = new ArrayList<String>();
    String killed = "";
    try (var lines =
        new BufferedReader(new InputStreamReader(tool.getInputStream(), StandardCharsets.UTF_8))) {
      while (pids.size() < 2) {
        var rank = RANK.matcher(String.valueOf(lines.readLine()));
        if (rank.matches()) {
          pids.add(rank.group(1));
        }
      }
      killed = pids.get(1);
      assertThat(ProcessHandle.of(Long.parseLong(killed)).orElseThrow().destroyForcibly()).isTrue();
      assertThat(lines.lines())
          .anyMatch(
              line ->
                  line.startsWith("allreduce-perf: Rank 1 (process")
                      && line.contains("was killed by signal 9 before it was done"));
    } finally {
      tool.destroyForcibly();
    }
    assertThat(tool.waitFor()).isEqualTo(NOT_FINISHED);
    assertThat(pids).allMatch(pid -> ProcessHandle.of(Long.parseLong(pid)).isEmpty());
    assertThat(segmentsOf(pids)).isEmpty();
  }

  @Test
  void theTasksOfABarrierStageAreMeasuredToo() throws Exception {
    Submit.Ended ended =
        perf("--spark", "--ranks", "2", "-b=1K", "-e=64K", "-f=8", "-n=10", "-w=1");
    assertThat(ended.output())
        .contains("# Tasks of a barrier stage")
        .contains("# Out of bounds values : 0 OK");
    assertThat(ended.exitCode()).isZero();
  }

  @Test
  void aTunedTableIsOneThatLoads() throws Exception {
    Path table = folder.resolve("table.txt");
    Submit.Ended tuned =
        perf("--tune", table.toString(), "--ranks=1,2", "-b=64", "-e=64K", "-f=32", "-n=10");
    assertThat(tuned.output()).contains("# 2 ranks, microseconds", "Wrote " + table);
    assertThat(tuned.exitCode()).isZero();
    assertThat(Files.readString(table)).contains("\nhost 1 * ", "\nhost 16 * ");

    Submit.Ended used = perf("--conf=spark.allreduce.auto.table=" + table, "-e=64", "-n=5", "-w=1");
    assertThat(used.output()).contains("# Out of bounds values : 0 OK");
    assertThat(used.exitCode()).isZero();

    Files.writeString(table, "\nhost 2 many one-shot\n");
    Submit.Ended refused = perf("--conf=spark.allreduce.auto.table=" + table, "-e=64");
    assertThat(refused.output()).contains("Line 2 of the table for auto, " + table);
    assertThat(refused.exitCode()).isEqualTo(NOT_FINISHED);
  }

  private static List<String> segmentsOf(List<String> pids) throws IOException {
    try (Stream<Path> files = Files.list(Path.of("/dev/shm"))) {
      return files
          .map(file -> file.getFileName().toString())
          .filter(name -> name.startsWith("spark-allreduce-"))
          .filter(name -> pids.contains(name.split("-", -1)[3]))
          .toList();
    }
  }
}
