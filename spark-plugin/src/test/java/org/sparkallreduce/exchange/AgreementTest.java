// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.exchange;

import static org.assertj.core.api.Assertions.assertThatCode;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.List;
import java.util.UUID;
import java.util.function.UnaryOperator;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.Backend;

class AgreementTest {
  @Test
  void ranksThatSayTheSameMayWorkTogether() {
    assertThatCode(
            () -> Agreement.check(List.of(Hellos.of(0, 3), Hellos.of(1, 3), Hellos.of(2, 3)), 3))
        .doesNotThrowAnyException();
  }

  static Stream<Arguments> differences() {
    return Stream.of(
        difference("session", parts -> parts.withSession(new UUID(9, 9))),
        difference("native build", parts -> parts.withBuild("host 0.2")),
        difference(
            "spark.allreduce.backend", parts -> parts.withGpu(GpuOffer.none(Backend.HOST, false))),
        difference(
            "spark.allreduce.gpu.shared",
            parts -> parts.withGpu(GpuOffer.none(Backend.AUTO, true))),
        difference("spark.allreduce.arena.size", parts -> parts.withArenaBytes(1 << 21)),
        difference("spark.allreduce.staging.size", parts -> parts.withStagingBytes(1 << 17)),
        difference("spark.allreduce.auto.table", parts -> parts.withAutoTable("3 rows")));
  }

  private static Arguments difference(String name, UnaryOperator<Hellos.Parts> change) {
    return Arguments.of(name, change);
  }

  @ParameterizedTest
  @MethodSource("differences")
  void aDifferenceNamesTheRankTheFieldAndTheCure(String name, UnaryOperator<Hellos.Parts> change) {
    var ranks = List.of(Hellos.of(0, 3), Hellos.of(1, 3), Hellos.of(2, 3, change));

    assertThatThrownBy(() -> Agreement.check(ranks, 3))
        .isInstanceOf(AllReduceException.Setup.class)
        .hasMessageContaining("rank 2 (executor executor-2 on host-ä, process 1002)")
        .hasMessageContaining(name);
  }

  @Test
  void peersOnAnotherHostAreRefusedWithBothNamed() {
    var ranks = List.of(Hellos.of(0, 2), Hellos.of(1, 2, parts -> parts.withBootId("another")));

    assertThatThrownBy(() -> Agreement.check(ranks, 2))
        .isInstanceOf(AllReduceException.Setup.class)
        .hasMessageContaining("rank 0 (executor executor-0")
        .hasMessageContaining("rank 1 (executor executor-1")
        .hasMessageContaining("different hosts");
  }

  @Test
  void containersThatDoNotShareMemoryAreRefusedWithTheCure() {
    var ranks = List.of(Hellos.of(0, 2), Hellos.of(1, 2, parts -> parts.withSharedMemoryDevice(5)));

    assertThatThrownBy(() -> Agreement.check(ranks, 2))
        .isInstanceOf(AllReduceException.Setup.class)
        .hasMessageContaining("do not share /dev/shm")
        .hasMessageContaining("--ipc");
  }

  @Test
  void aMessageInTheWrongPlaceIsRefused() {
    assertThatThrownBy(() -> Agreement.check(List.of(Hellos.of(1, 2), Hellos.of(0, 2)), 2))
        .isInstanceOf(AllReduceException.Setup.class)
        .hasMessageContaining("place 0 is from rank 1");
  }

  @Test
  void tooFewMessagesAreRefused() {
    assertThatThrownBy(() -> Agreement.check(List.of(Hellos.of(0, 2)), 2))
        .isInstanceOf(AllReduceException.Setup.class)
        .hasMessageContaining("1 messages for 2 ranks");
  }
}
