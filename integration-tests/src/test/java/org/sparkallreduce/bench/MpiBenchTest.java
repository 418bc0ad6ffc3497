// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.bench;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The comparison, with stand-ins for our tool and for an MPI library. */
class MpiBenchTest {
  private static final String OURS =
      """
      echo 'x' >>"${0%/*}/rounds"
      echo '{"nativeBuild": "b", "java": "25", "results": [{"bytes": 8, "warmup": 5, "iterations": 10,
        "memcpyUs": 0.25, "outOfPlace": {"timeUs": '$(wc -l <"${0%/*}/rounds")'}}]}'
      """;

  @TempDir private Path folder;

  private String script(String name, String body) throws IOException {
    Path script = Files.writeString(folder.resolve(name), "#!/bin/bash\n" + body);
    Files.setPosixFilePermissions(script, PosixFilePermissions.fromString("rwxr-xr-x"));
    return script.toString();
  }

  private String run(String ours, String library) throws Exception {
    var output = new ByteArrayOutputStream();
    var before = System.out;
    System.setOut(new PrintStream(output, true, StandardCharsets.UTF_8));
    try {
      MpiBench.main(
          new String[] {
            script("ours", ours),
            folder.resolve("out.json").toString(),
            "3",
            "4",
            "64M",
            "Some MPI",
            script("theirs", library),
            "-np",
            "%RANKS%",
            ";"
          });
    } finally {
      System.setOut(before);
    }
    return output.toString(StandardCharsets.UTF_8);
  }

  @Test
  void theMediansOfTheRoundsAreCompared() throws Exception {
    String output = run(OURS, "echo 'Some MPI 1.0'\necho \"8 ${2}.5 0\"\n");
    // Ours took 1, 2 and 3 us, theirs as many as there are ranks, and a half.
    assertThat(output)
        .contains("4 ranks,")
        .contains("median (least to most) of 3 rounds")
        .contains("| bytes | spark-allreduce | Some MPI | times faster | memcpy | time / memcpy |")
        .contains(
            "| 8 | 2.00 (1.00 to 3.00) | 4.50 (4.50 to 4.50) | 2.25 | 0.25 (0.25 to 0.25) | 8.00 |")
        .contains("- Some MPI: Some MPI 1.0", "-np N");
    JsonNode row =
        new ObjectMapper()
            .readTree(folder.resolve("out.json").toFile())
            .get("tables")
            .get(0)
            .get("rows")
            .get(0);
    assertThat(row.get("spark-allreduce").get("medianUs").asDouble()).isEqualTo(2);
    assertThat(row.get("Some MPI").get("mostUs").asDouble()).isEqualTo(4.5);
  }

  @Test
  void theLibraryMeasuresTheSameCases() throws Exception {
    run(OURS, "echo 'Some MPI'\necho \"8 1.0 0\"\necho \"$*\" >\"${0%/*}/arguments\"\n");
    assertThat(folder.resolve("arguments")).hasContent("-np 4 8:5:10\n");
  }

  @Test
  void wrongResultsOrAFailureOfTheLibraryEndTheRun() {
    assertThatThrownBy(() -> run(OURS, "echo 'Some MPI'\necho '8 1.0 2'\n"))
        .hasMessageContaining("Some MPI says 8 1.0 2");
    assertThatThrownBy(() -> run(OURS, "echo oops\nexit 7\n"))
        .hasMessageContaining("ended with code 7");
    assertThatThrownBy(() -> run(OURS, "echo 'Some MPI'\n")).hasMessageContaining("measured only");
  }
}
