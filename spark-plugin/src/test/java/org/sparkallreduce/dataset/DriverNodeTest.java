// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.dataset;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.List;
import java.util.UUID;
import org.apache.spark.SparkConf;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.Settings;

class DriverNodeTest {
  private final DriverNode node = new DriverNode(Settings.from(new SparkConf(false)), List.of());
  private final UUID run = UUID.randomUUID();

  private RankFailure failure(int attempt, int rank, Throwable thrown) {
    return RankFailure.of(run, attempt, rank, "executor 0 on here", thrown);
  }

  @BeforeEach
  void begin() {
    node.begin(run);
  }

  @Test
  void keepsTheFirstFailureOfAnAttempt() {
    node.rankFailed(failure(0, 2, new IllegalStateException("the cause")));
    node.rankFailed(failure(0, 1, new IllegalStateException("later")));
    assertThat(node.end(run)).get().extracting(RankFailure::rank).isEqualTo(2);
  }

  @Test
  void prefersACauseToAFollowUpThatCameBefore() {
    node.rankFailed(failure(0, 0, new AllReduceException.Aborted("rank 1 failed")));
    node.rankFailed(failure(0, 1, new IllegalStateException("the cause")));
    assertThat(node.end(run)).get().extracting(RankFailure::rank).isEqualTo(1);
  }

  @Test
  void prefersTheLastAttempt() {
    node.rankFailed(failure(0, 0, new IllegalStateException("first attempt")));
    node.rankFailed(failure(1, 1, new AllReduceException.PeerLost("second attempt")));
    node.rankFailed(failure(0, 2, new IllegalStateException("a late report")));
    assertThat(node.end(run)).get().extracting(RankFailure::rank).isEqualTo(1);
  }

  @Test
  void forgetsARunThatHasEnded() {
    node.rankFailed(failure(0, 0, new IllegalStateException()));
    assertThat(node.end(run)).isPresent();
    node.rankFailed(failure(0, 0, new IllegalStateException()));
    assertThat(node.end(run)).isEmpty();
  }

  @Test
  void forgetsAnUnfitExecutorThatIsGone() {
    node.executorStarted(new ExecutorHealth("1", "here", "0.1.0", null));
    node.executorStarted(new ExecutorHealth("2", "here", "0.1.0", "noexec"));
    assertThat(node.unfitExecutors()).extracting(ExecutorHealth::executorId).containsExactly("2");
    node.executorRemoved("2");
    assertThat(node.unfitExecutors()).isEmpty();
  }
}
