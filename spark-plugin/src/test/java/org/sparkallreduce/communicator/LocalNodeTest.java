// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatExceptionOfType;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.sparkallreduce.AllReduceException;

class LocalNodeTest {
  private final LocalNode failed =
      LocalNode.failed("3", "delta", _ -> {}, "the folder is mounted noexec");

  @AfterEach
  void remove() {
    LocalNode.remove(failed);
  }

  @Test
  void aProcessWithoutThePluginSaysHowToStartIt() {
    assertThatExceptionOfType(AllReduceException.Setup.class)
        .isThrownBy(LocalNode::current)
        .withMessageContaining("spark.plugins=org.sparkallreduce.plugin.AllReducePlugin");
  }

  @Test
  void aFailedProcessNamesExecutorHostAndReason() {
    LocalNode.install(failed);
    assertThatExceptionOfType(AllReduceException.Setup.class)
        .isThrownBy(LocalNode::current)
        .withMessage(
            "Executor 3 on host delta cannot take part in an all-reduce:"
                + " the folder is mounted noexec");
    assertThat(LocalNode.find()).contains(failed);
  }

  @Test
  void removingAReplacedNodeLeavesItsSuccessor() {
    LocalNode.install(LocalNode.failed("2", "delta", _ -> {}, "older"));
    LocalNode older = LocalNode.find().orElseThrow();
    LocalNode.install(failed);
    LocalNode.remove(older);
    assertThat(LocalNode.find()).contains(failed);
  }
}
