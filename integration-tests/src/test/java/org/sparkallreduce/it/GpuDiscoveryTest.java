// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.spark.resource.ResourceInformation;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** conf/gpu-discovery with the vendors' tools played by scripts. */
class GpuDiscoveryTest {
  @TempDir private Path tools;

  private record Answer(int exitCode, String out, String error) {}

  private void tool(String name, String body) throws IOException {
    Path script = Files.writeString(tools.resolve(name), "#!/bin/bash\n" + body + "\n");
    Files.setPosixFilePermissions(script, PosixFilePermissions.fromString("rwxr-xr-x"));
  }

  private Answer discover() throws IOException, InterruptedException {
    var builder = new ProcessBuilder(Cluster.root().resolve("conf/gpu-discovery").toString());
    builder.environment().put("PATH", tools + ":/usr/bin:/bin");
    Process process = builder.start();
    String out = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    String error = new String(process.getErrorStream().readAllBytes(), StandardCharsets.UTF_8);
    return new Answer(process.waitFor(), out, error);
  }

  private void assertAddresses(String... addresses) throws Exception {
    Answer answer = discover();
    assertThat(answer.exitCode()).isZero();
    ResourceInformation gpus = ResourceInformation.parseJson(answer.out());
    assertThat(gpus.name()).isEqualTo("gpu");
    assertThat(gpus.addresses()).containsExactly(addresses);
  }

  @Test
  void listsNvidiaGpus() throws Exception {
    tool(
        "nvidia-smi",
        "[ \"$*\" = '--query-gpu=index --format=csv,noheader' ] && printf '0\\n1\\n10\\n2\\n'");
    assertAddresses("0", "1", "2", "10");
  }

  @Test
  void listsAmdGpusByAmdSmi() throws Exception {
    tool(
        "amd-smi",
        "[ \"$*\" = 'list --csv' ] && printf 'gpu,gpu_bdf,gpu_uuid\\n"
            + "0,0000:03:00.0,89ff74a1\\n1,0000:26:00.0,00ff74a1\\n'");
    assertAddresses("0", "1");
  }

  @Test
  void listsAmdGpusByRocmSmi() throws Exception {
    tool(
        "rocm-smi",
        "[ \"$*\" = '--showid --csv' ] && printf 'device,Device Name,Device ID\\n"
            + "card0,Instinct,0x74a1\\ncard1,Instinct,0x74a1\\n\\n'");
    assertAddresses("0", "1");
  }

  @Test
  void asksTheNextToolIfOneFails() throws Exception {
    tool(
        "nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18");
    tool("amd-smi", "printf 'gpu,gpu_bdf\\n4,0000:03:00.0\\n'");
    assertAddresses("4");
  }

  @Test
  void saysWhatIsMissing() throws Exception {
    for (String name : new String[] {"nvidia-smi", "amd-smi", "rocm-smi"}) {
      tool(name, "exit 1");
    }
    Answer answer = discover();
    assertThat(answer.exitCode()).isEqualTo(1);
    assertThat(answer.out()).isEmpty();
    assertThat(answer.error()).contains("nvidia-smi", "amd-smi", "rocm-smi");
  }
}
