// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.dataset;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.UUID;
import org.junit.jupiter.api.Test;
import org.sparkallreduce.AllReduceException;

class RankFailureTest {
  private static RankFailure failure(Throwable thrown) {
    return RankFailure.of(new UUID(1, 2), 0, 3, "executor 7 on gamma", thrown);
  }

  @Test
  void aUserExceptionKeepsItsClassMessageAndStack() {
    AllReduceException exception =
        failure(new IllegalStateException("bad row", new RuntimeException("the root")))
            .toException(null);
    assertThat(exception)
        .isInstanceOfSatisfying(
            AllReduceException.RankFailed.class, e -> assertThat(e.rank()).isEqualTo(3))
        .hasMessageContaining("Rank 3 (executor 7 on gamma) failed first")
        .hasMessageContaining("java.lang.IllegalStateException: bad row")
        .hasMessageContaining("Caused by: java.lang.RuntimeException: the root")
        .hasMessageContaining("at org.sparkallreduce.dataset.RankFailureTest");
  }

  @Test
  void anErrorOfTheLibraryKeepsItsType() {
    assertThat(failure(new AllReduceException.TimedOut("rank 1 is missing")).toException(null))
        .isInstanceOf(AllReduceException.TimedOut.class)
        .hasMessage("Rank 3 (executor 7 on gamma): rank 1 is missing");
    assertThat(failure(new AllReduceException.Setup("noexec")).toException(null))
        .isInstanceOf(AllReduceException.Setup.class);
    assertThat(failure(new AllReduceException.Mismatch("counts")).toException(null))
        .isInstanceOf(AllReduceException.Mismatch.class);
    assertThat(failure(new AllReduceException.PeerLost("gone")).toException(null))
        .isInstanceOf(AllReduceException.PeerLost.class);
    assertThat(failure(new AllReduceException.Resource("full")).toException(null))
        .isInstanceOf(AllReduceException.Resource.class);
    assertThat(failure(new AllReduceException.Aborted("peer")).toException(null))
        .isInstanceOf(AllReduceException.Aborted.class);
  }

  @Test
  void theRankIsNamedOnce() {
    assertThat(failure(new AllReduceException.Mismatch("Rank 3: rank 1 reports: counts")))
        .extracting(report -> report.toException(null).getMessage())
        .isEqualTo("Rank 3 (executor 7 on gamma): rank 1 reports: counts");
  }

  @Test
  void misuseInsideOfTheFunctionIsAFailureOfTheFunction() {
    assertThat(failure(new AllReduceException.Usage("count is -1")).toException(null))
        .isInstanceOf(AllReduceException.RankFailed.class)
        .hasMessageContaining("count is -1");
  }

  @Test
  void sparksOwnAccountIsKeptBesideIt() {
    var spark = new IllegalStateException("Job aborted");
    assertThat(failure(new IllegalStateException("bad row")).toException(spark).getSuppressed())
        .containsExactly(spark);
  }
}
