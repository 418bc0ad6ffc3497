// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.jar.JarFile;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** spark-submit of the packaged jars, as a user does it. */
class SubmitIT {
  @TempDir private Path folder;

  @Test
  void theFirstProgramOfTheReadmeNeedsTheJarAndThePluginOnly() throws Exception {
    Path program = Submit.compile(folder, "FirstProgram", Submit.resource("/FirstProgram.java"));
    Submit.Ended ended =
        Submit.run(
            folder,
            "spark-submit",
            "--master",
            "local-cluster[2,1,1024]",
            "--jars",
            Cluster.pluginJar(),
            "--conf",
            "spark.plugins=" + Cluster.PLUGIN,
            "--class",
            "FirstProgram",
            program.toString());
    assertThat(ended.output()).contains("Both ranks know the mean: [499999.5, 499999.5]");
    assertThat(ended.exitCode()).isZero();
  }

  @Test
  void kryoWithRequiredRegistrationNeedsOurRegistratorOnly() throws Exception {
    Submit.Ended ended =
        Submit.run(
            folder,
            "spark-submit",
            "--master",
            "local-cluster[2,1,1024]",
            "--jars",
            Cluster.pluginJar(),
            "--conf",
            "spark.plugins=" + Cluster.PLUGIN,
            "--conf",
            "spark.serializer=org.apache.spark.serializer.KryoSerializer",
            "--conf",
            "spark.kryo.registrationRequired=true",
            "--conf",
            "spark.kryo.registrator=org.sparkallreduce.plugin.AllReduceKryoRegistrator",
            "--class",
            "org.sparkallreduce.it.KryoProgram",
            Cluster.testsJar());
    assertThat(ended.output())
        .contains("in-stage: [Answer[rank=0, sum=3.0], Answer[rank=1, sum=3.0]]");
    assertThat(ended.output()).contains("one-shot: [4.0, 6.0]");
    assertThat(ended.exitCode()).isZero();
  }

  @Test
  void theJarHasTheLicenceOfAllThatIsInIt() throws Exception {
    try (var jar = new JarFile(Cluster.pluginJar())) {
      var licence =
          new String(jar.getInputStream(jar.getEntry("META-INF/LICENSE")).readAllBytes(), UTF_8);
      assertThat(licence).isEqualTo(Files.readString(Cluster.root().resolve("LICENSE")));
    }
  }

  @Test
  void theDemoHoldsWhatItClaims() throws Exception {
    Submit.Ended ended = Submit.run(folder, "demo");
    assertThat(ended.output())
        .contains("accuracy on the held-out fifth")
        .contains("faster per step")
        .doesNotContain("FAILED");
    assertThat(ended.exitCode()).isZero();
  }

  @Test
  void theDemoExplainsItsArguments() throws Exception {
    for (String[] arguments :
        new String[][] {{"--ranks", "17"}, {"--ranks"}, {"--backend", "cpu"}, {"--help"}}) {
      Submit.Ended ended = Submit.run(folder, "demo", arguments);
      assertThat(ended.output())
          .isEqualTo(
              "usage: bin/demo [--ranks N] [--backend auto|gpu|host], with N from 1 to 16\n");
      assertThat(ended.exitCode()).isEqualTo(2);
    }
  }
}
