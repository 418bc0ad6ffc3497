// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

class ReadmeTest {
  private static final Pattern JAVA_BLOCK = Pattern.compile("(?s)```java\\n(.*?)```");
  private static final Pattern BLOCK = Pattern.compile("(?sm)^```\\w*\\n(.*?)^```$");
  private static final Pattern PROMISES =
      Pattern.compile("(?s)\n\\| Promise \\| Held by \\|\n(.*?)\n\n");
  private static final Pattern PROGRAM = Pattern.compile("`(bin/[a-z-]+)[^`]*`");
  private static final Pattern TEST = Pattern.compile("`(\\w+(?:_test|Test|IT))`");

  private static String readme() throws IOException {
    return Files.readString(Cluster.root().resolve("README.md"));
  }

  @Test
  void theFirstProgramIsTheOneThatIsTested() throws Exception {
    var block = JAVA_BLOCK.matcher(readme());
    assertThat(block.find()).isTrue();
    assertThat(block.group(1)).isEqualTo(Submit.resource("/FirstProgram.java"));
    assertThat(block.group(1).lines().count()).isLessThanOrEqualTo(20);
  }

  /** The java on the PATH may be an older one: bin/java-home is there to find the right one. */
  @Test
  void noCommandNeedsAJavaOnThePath() throws Exception {
    List<String> commands =
        BLOCK
            .matcher(readme())
            .results()
            .flatMap(block -> block.group(1).lines())
            .map(line -> line.split(" ", 2)[0])
            .toList();
    assertThat(commands).contains("bin/test", "bin/spark-submit");
    assertThat(commands).doesNotContain("java", "javac", "jar");
  }

  @Test
  void everyPromiseIsHeldByTestsAndProgramsThatAreThere() throws Exception {
    var table = PROMISES.matcher(readme());
    assertThat(table.find()).isTrue();
    List<String> rows = table.group(1).lines().skip(1).toList(); // the first is a ruler
    assertThat(rows).hasSizeGreaterThanOrEqualTo(5);
    Set<String> tests = tests();
    for (String row : rows) {
      List<String> named = names(TEST, row);
      assertThat(named).as(row).isNotEmpty();
      assertThat(tests).containsAll(named);
      assertThat(names(PROGRAM, row)).allMatch(name -> Files.exists(Cluster.root().resolve(name)));
    }
  }

  private static List<String> names(Pattern pattern, String row) {
    return pattern.matcher(row).results().map(found -> found.group(1)).toList();
  }

  private static Set<String> tests() throws IOException {
    try (Stream<Path> ofNative = Files.walk(Cluster.root().resolve("native/tests"));
        Stream<Path> plugin = Files.walk(Cluster.root().resolve("spark-plugin/src/test"));
        Stream<Path> own = Files.walk(Cluster.root().resolve("integration-tests/src/test"))) {
      return Stream.of(ofNative, plugin, own)
          .flatMap(files -> files)
          .map(file -> file.getFileName().toString())
          .filter(name -> name.endsWith(".cpp") || name.endsWith(".java"))
          .map(name -> name.substring(0, name.lastIndexOf('.')))
          .collect(Collectors.toSet());
    }
  }
}
