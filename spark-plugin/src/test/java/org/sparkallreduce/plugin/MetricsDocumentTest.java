// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.plugin;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

class MetricsDocumentTest {
  private static final String HEAD = "| Metric | What |\n|---|---|\n";

  @Test
  void theTableOfMetricsSaysWhatTheDeclarationsSay() throws IOException {
    String expected =
        ExecutorMetric.ALL.stream()
            .map(metric -> "| `%s` | %s |\n".formatted(metric.name(), metric.doc()))
            .collect(Collectors.joining("", HEAD, "\n"));
    assertThat(Files.readString(Path.of("../docs/operations.md")))
        .as("docs/operations.md must have this table:%n%n%s", expected)
        .contains(expected);
  }
}
