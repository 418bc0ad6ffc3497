// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.file.Files;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

class ReadmeTest {
  private static final Pattern JAVA_BLOCK = Pattern.compile("(?s)```java\\n(.*?)```");

  @Test
  void theFirstProgramIsTheOneThatIsTested() throws Exception {
    var block = JAVA_BLOCK.matcher(Files.readString(Cluster.root().resolve("README.md")));
    assertThat(block.find()).isTrue();
    assertThat(block.group(1)).isEqualTo(Submit.resource("/FirstProgram.java"));
    assertThat(block.group(1).lines().count()).isLessThanOrEqualTo(20);
  }
}
