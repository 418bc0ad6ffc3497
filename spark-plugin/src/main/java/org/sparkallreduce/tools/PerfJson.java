// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** A run as one JSON document; docs/performance.md describes its fields. */
final class PerfJson {
  private PerfJson() {}

  static String document(RunInfo info, Job job, List<RankInfo> ranks, List<Measured> all) {
    var root = JsonNodeFactory.instance.objectNode();
    root.put("tool", "allreduce-perf")
        .put("version", info.version())
        .put("time", Instant.now().truncatedTo(ChronoUnit.SECONDS).toString())
        .put("mode", info.mode())
        .put("backend", "host")
        .put("nativeBuild", ranks.getFirst().build())
        .put("java", Runtime.version().toString())
        .put("host", info.host())
        .put("processor", info.processor())
        .put("processors", info.processors())
        .put("ranks", ranks.size())
        .put("registered", job.registered());
    var pids = root.putArray("pids");
    ranks.forEach(rank -> pids.add(rank.pid()));
    var results = root.putArray("results");
    for (Measured measured : all) {
      fill(results.addObject(), job.cases().get(measured.index()), measured, ranks.size());
    }
    root.put("wrong", all.stream().mapToLong(Measured::wrong).sum())
        .put("averageBusGBs", PerfTable.averageBusBandwidth(job, ranks.size(), all));
    try {
      return new ObjectMapper().writerWithDefaultPrettyPrinter().writeValueAsString(root) + "\n";
    } catch (JsonProcessingException e) {
      throw new IllegalStateException("a tree can always be written", e);
    }
  }

  private static void fill(ObjectNode result, Case row, Measured measured, int ranks) {
    result
        .put("collective", row.collective().text())
        .put("schedule", row.schedule().text())
        .put("type", Names.of(row.type()))
        .put("redop", row.collective().reduces() ? Names.of(row.op()) : "none")
        .put("root", row.collective() == Collective.BROADCAST ? row.root() : -1)
        .put("bytes", row.bytes(ranks))
        .put("count", row.count())
        .put("warmup", row.warmup())
        .put("iterations", row.iterations());
    put(result, "outOfPlace", row, measured.outOfPlace(), ranks);
    put(result, "inPlace", row, measured.inPlace(), ranks);
    if (measured.memcpyNanos() > 0) {
      result.put("memcpyUs", measured.memcpyNanos() / 1_000);
    }
  }

  private static void put(
      ObjectNode result, String name, Case row, @Nullable Timing timing, int ranks) {
    if (timing == null) {
      result.putNull(name);
      return;
    }
    ObjectNode placement =
        result
            .putObject(name)
            .put("timeUs", timing.nanos() / 1_000)
            .put("algGBs", timing.algorithmBandwidth(row.bytes(ranks)))
            .put("busGBs", timing.busBandwidth(row, ranks));
    if (timing.wrong() == Timing.NOT_CHECKED) {
      placement.putNull("wrong");
    } else {
      placement.put("wrong", timing.wrong());
    }
  }
}
