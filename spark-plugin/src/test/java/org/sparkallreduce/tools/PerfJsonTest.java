// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import static org.assertj.core.api.Assertions.assertThat;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Set;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;

class PerfJsonTest {
  private final JsonNode document = read();

  private static JsonNode read() {
    try {
      return new ObjectMapper()
          .readTree(
              PerfJson.document(
                  PerfFixture.INFO, PerfFixture.JOB, PerfFixture.RANKS, PerfFixture.ALL));
    } catch (IOException e) {
      throw new AssertionError(e);
    }
  }

  @Test
  void theDocumentSaysWhatWasMeasuredOnWhat() {
    assertThat(document.get("tool").asText()).isEqualTo("allreduce-perf");
    assertThat(document.get("mode").asText()).isEqualTo("processes");
    assertThat(document.get("ranks").asInt()).isEqualTo(2);
    assertThat(document.get("pids").get(1).asLong()).isEqualTo(4712);
    assertThat(document.get("registered").asBoolean()).isTrue();
    assertThat(document.get("wrong").asLong()).isEqualTo(3);
  }

  @Test
  void aResultHasBothPlacementsAndTheLimit() {
    JsonNode result = document.get("results").get(1);
    assertThat(result.get("schedule").asText()).isEqualTo("one-shot");
    assertThat(result.get("bytes").asLong()).isEqualTo(1 << 20);
    assertThat(result.get("iterations").asInt()).isEqualTo(64);
    assertThat(result.get("outOfPlace").get("timeUs").asDouble()).isEqualTo(100);
    assertThat(result.get("outOfPlace").get("busGBs").asDouble()).isEqualTo(10.48576);
    assertThat(result.get("inPlace").get("wrong").asLong()).isEqualTo(3);
    assertThat(result.get("memcpyUs").asDouble()).isEqualTo(50);
  }

  @Test
  void whatWasNotMeasuredOrCheckedIsNull() {
    JsonNode result = document.get("results").get(2);
    assertThat(result.get("outOfPlace").isNull()).isTrue();
    assertThat(result.get("inPlace").get("wrong").isNull()).isTrue();
  }

  @Test
  void everyFieldIsInTheDocumentation() throws IOException {
    String page = Files.readString(Path.of("../docs/performance.md"));
    var missing = new TreeSet<String>();
    collect(document, page, missing);
    assertThat(missing).isEmpty();
  }

  private static void collect(JsonNode node, String page, Set<String> missing) {
    node.properties()
        .forEach(
            field -> {
              if (!page.contains("`" + field.getKey() + "`")) {
                missing.add(field.getKey());
              }
            });
    node.forEach(child -> collect(child, page, missing));
  }
}
