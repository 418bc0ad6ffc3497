// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.exchange;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.List;
import org.junit.jupiter.api.Test;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.Backend;

class BackendChoiceTest {
  private static GpuOffer ready(Backend setting, int device) {
    return new GpuOffer(setting, false, "gpu 0.1", "GPU-" + device, "GPU number " + device, "");
  }

  private static GpuOffer obstacle(Backend setting, String why) {
    return new GpuOffer(setting, false, "gpu 0.1", "", "", why);
  }

  private static Hello auto(int rank) {
    return Hellos.of(rank, 3, parts -> parts.withGpu(ready(Backend.AUTO, rank)));
  }

  @Test
  void autoTakesTheGpuIfEveryRankHasOne() {
    assertThat(BackendChoice.of(List.of(auto(0), auto(1), auto(2))))
        .returns(Backend.GPU, BackendChoice::backend)
        .returns(true, choice -> choice.reason().isEmpty());
  }

  @Test
  void autoTakesTheHostAndHasNothingToSayWhereNoRankHasAGpu() {
    Hello none = Hellos.of(0, 1, parts -> parts.withGpu(GpuOffer.none(Backend.AUTO, false)));

    assertThat(BackendChoice.of(List.of(none)))
        .returns(Backend.HOST, BackendChoice::backend)
        .returns(true, choice -> choice.reason().isEmpty());
  }

  @Test
  void autoTakesTheHostAndNamesTheRankThatHasNoGpu() {
    Hello none = Hellos.of(1, 3, parts -> parts.withGpu(GpuOffer.none(Backend.AUTO, false)));

    BackendChoice choice = BackendChoice.of(List.of(auto(0), none, auto(2)));

    assertThat(choice.backend()).isEqualTo(Backend.HOST);
    assertThat(choice.reason().orElseThrow())
        .contains("rank 1 (executor executor-1", "has no GPU", "spark.task.resource.gpu.amount");
  }

  @Test
  void autoTakesTheHostAndSaysWhyARankCannotUseItsGpu() {
    Hello failing = Hellos.of(2, 3, parts -> parts.withGpu(obstacle(Backend.AUTO, "no driver")));

    BackendChoice choice = BackendChoice.of(List.of(auto(0), auto(1), failing));

    assertThat(choice.backend()).isEqualTo(Backend.HOST);
    assertThat(choice.reason().orElseThrow())
        .contains("rank 2 (executor executor-2", "cannot use its GPU: no driver");
  }

  @Test
  void whoDemandsTheGpuGetsTheReasonInstead() {
    Hello first = Hellos.of(0, 2, parts -> parts.withGpu(ready(Backend.GPU, 0)));
    Hello second = Hellos.of(1, 2, parts -> parts.withGpu(obstacle(Backend.GPU, "no driver")));

    assertThatThrownBy(() -> BackendChoice.of(List.of(first, second)))
        .isInstanceOf(AllReduceException.Setup.class)
        .hasMessageContaining("spark.allreduce.backend is gpu")
        .hasMessageContaining("rank 1")
        .hasMessageContaining("no driver");
  }

  @Test
  void whoForbidsTheGpuGetsTheHost() {
    Hello first = Hellos.of(0, 1, parts -> parts.withGpu(GpuOffer.none(Backend.HOST, false)));

    assertThat(BackendChoice.of(List.of(first)).backend()).isEqualTo(Backend.HOST);
  }

  @Test
  void twoRanksOnOneDeviceAreRefusedByNameUnlessTheyMay() {
    Hello second = Hellos.of(1, 2, parts -> parts.withGpu(ready(Backend.AUTO, 0)));
    assertThat(BackendChoice.of(List.of(auto(0), second)).reason().orElseThrow())
        .contains("rank 0", "rank 1", "same GPU, GPU number 0", "spark.allreduce.gpu.shared");

    var shared = new GpuOffer(Backend.AUTO, true, "gpu 0.1", "GPU-0", "GPU number 0", "");
    List<Hello> sharing =
        List.of(
            Hellos.of(0, 2, parts -> parts.withGpu(shared)),
            Hellos.of(1, 2, parts -> parts.withGpu(shared)));
    assertThat(BackendChoice.of(sharing).backend()).isEqualTo(Backend.GPU);
  }

  @Test
  void namespacesThatHandlesDoNotCrossAreNamed() {
    GpuOffer gpu = ready(Backend.AUTO, 1);
    Hello otherPids = Hellos.of(1, 2, parts -> parts.withGpu(gpu).withPidNamespace(99));
    Hello otherIpc = Hellos.of(1, 2, parts -> parts.withGpu(gpu).withIpcNamespace(99));

    assertThat(BackendChoice.of(List.of(auto(0), otherPids)).reason().orElseThrow())
        .contains("different PID namespaces", "--pid");
    assertThat(BackendChoice.of(List.of(auto(0), otherIpc)).reason().orElseThrow())
        .contains("different IPC namespaces", "--ipc");
  }

  @Test
  void buildsOfTheGpuLibraryThatDifferAreNamed() {
    var other = new GpuOffer(Backend.AUTO, false, "gpu 0.2", "GPU-1", "GPU number 1", "");
    Hello second = Hellos.of(1, 2, parts -> parts.withGpu(other));

    assertThat(BackendChoice.of(List.of(auto(0), second)).reason().orElseThrow())
        .contains("gpu 0.1", "gpu 0.2", "use one build");
  }
}
