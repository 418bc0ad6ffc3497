// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.io.Serializable;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import java.util.Optional;
import org.apache.spark.sql.SparkSession;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.dataset.Collectives;

/** Two ranks in one executor process, each with a GPU that Spark assigned. */
class SharedExecutorIT {
  record Seen(long pid, String device, long sum) implements Serializable {}

  private static Path discovery(Path folder) throws IOException {
    Path script = folder.resolve("discovery");
    Files.writeString(script, "#!/bin/sh\necho '{\"name\":\"gpu\",\"addresses\":[\"3\",\"5\"]}'\n");
    return Files.setPosixFilePermissions(script, PosixFilePermissions.fromString("rwx------"));
  }

  @Test
  void ranksOfOneProcessAllReduceAndHaveADeviceEach(@TempDir Path folder) throws IOException {
    try (SparkSession spark =
        Cluster.start(
            Cluster.conf("local-cluster[1,2,1024]")
                .set("spark.worker.resource.gpu.amount", "2")
                .set("spark.worker.resource.gpu.discoveryScript", discovery(folder).toString())
                .set("spark.executor.resource.gpu.amount", "2")
                .set("spark.task.resource.gpu.amount", "1"))) {
      List<Seen> seen =
          Collectives.run(
              Cluster.numbers(spark, 4),
              2,
              (context, _) -> {
                long[] sum = {context.rank() + 1};
                context.communicator().allReduce(sum, ReduceOp.SUM);
                Optional<String> device = context.device();
                return new Seen(ProcessHandle.current().pid(), device.orElse("none"), sum[0]);
              });
      assertThat(seen).extracting(Seen::sum).containsExactly(3L, 3L);
      assertThat(seen).extracting(Seen::device).containsExactlyInAnyOrder("3", "5");
      assertThat(seen.get(0).pid()).isEqualTo(seen.get(1).pid());
    }
  }
}
