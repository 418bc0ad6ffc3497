// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.TreeSet;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class OperationsDocumentTest {
  private static final String HEAD =
      """
      | Setting | Type | Default | What it does |
      |---|---|---|---|
      """;
  private static final Pattern KEY = Pattern.compile("spark\\.allreduce\\.[a-z]+(\\.[a-z]+)*");

  @Test
  void theTableOfSettingsSaysWhatTheDeclarationsSay() throws IOException {
    String expected =
        Settings.ALL.stream()
            .map(OperationsDocumentTest::row)
            .collect(Collectors.joining("", HEAD, ""));

    assertThat(table(read("docs/operations.md")))
        .as("docs/operations.md must have this table:%n%n%s", expected)
        .isEqualTo(expected);
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "README.md",
        "docs/operations.md",
        "docs/protocol.md",
        "docs/performance.md",
        "conf/spark-defaults.conf",
      })
  void everySettingThatADocumentNamesExists(String document) throws IOException {
    var named = new TreeSet<String>();
    var matcher = KEY.matcher(read(document));
    while (matcher.find()) {
      named.add(matcher.group());
    }

    assertThat(Settings.ALL.stream().map(Setting::key)).containsAll(named);
  }

  private static String row(Setting<?> setting) {
    String initial =
        setting.defaultText().isEmpty() ? "(empty)" : "`%s`".formatted(setting.defaultText());
    return "| `%s` | %s | %s | %s |\n"
        .formatted(setting.key(), setting.type(), initial, setting.doc().replace("|", "\\|"));
  }

  /** From the table's head to the first line that is not part of it. */
  private static String table(String document) {
    int head = document.indexOf(HEAD);
    return head < 0
        ? ""
        : document
            .substring(head)
            .lines()
            .takeWhile(line -> line.startsWith("|"))
            .map(line -> line + "\n")
            .collect(Collectors.joining());
  }

  private static String read(String document) throws IOException {
    return Files.readString(Path.of("..").resolve(document));
  }
}
