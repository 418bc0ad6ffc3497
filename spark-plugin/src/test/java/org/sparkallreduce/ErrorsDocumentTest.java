// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/**
 * Every text that a user may get is in docs/operations.md with its cure. Texts are found in the
 * sources, where exceptions are made; both sides are compared without their values, up to where the
 * shorter one ends.
 */
class ErrorsDocumentTest {
  private static final String LITERAL = "\"((?:[^\"\\\\]|\\\\.)*)\"";
  private static final Pattern PIECE = Pattern.compile("\\s*\\+?\\s*" + LITERAL);
  private static final Pattern JAVA =
      Pattern.compile("new AllReduceException\\.\\w+\\([^;\"]*(?=\")");
  private static final Pattern NATIVE =
      Pattern.compile(
          "(refuse\\(\\s*(?:[^,()\"]|\\([^()]*\\))*,|refuse_segment\\(\\s*\\w+,|message\\s*\\.append\\()");

  /** Values: of code, and the words in capitals of the document. Symmetric, so "A" is one too. */
  private static final Pattern VALUE =
      Pattern.compile("%#?[.0-9]*(?:llu|lld|llx|zu|[a-z])|\\b[A-Z]+\\b|\\b\\d+\\b");

  private static final int FEWEST_LETTERS = 5;

  @Test
  void everyTextOfAnExceptionIsInTheTablesOfErrors() throws IOException {
    List<String> documented = documented();
    List<String> texts = new ArrayList<>();
    sources("src/main/java", ".java").forEach(file -> collect(JAVA, read(file), texts));
    for (String backend : List.of("../native/host", "../native/gpu")) {
      sources(backend, ".cpp").forEach(file -> collect(NATIVE, read(file), texts));
    }

    assertThat(texts).as("the patterns still find them").hasSizeGreaterThan(100);
    assertThat(texts)
        .as("texts of the code that docs/operations.md lacks")
        .filteredOn(text -> letters(text) >= FEWEST_LETTERS)
        .filteredOn(text -> documented.stream().noneMatch(row -> same(text, row)))
        .isEmpty();
  }

  private static void collect(Pattern place, String source, List<String> texts) {
    Matcher found = place.matcher(source);
    while (found.find()) {
      String literal = literal(source, found.end());
      boolean isBeginning = !literal.isEmpty() && " :,;".indexOf(literal.charAt(0)) < 0;
      if (isBeginning) {
        boolean ofSegment = found.groupCount() > 0 && found.group(1).startsWith("refuse_segment");
        texts.add(
            normal((ofSegment ? "the handle of rank %u names a segment that " : "") + literal));
      }
    }
  }

  /** The literals that stand one after the other, as one. */
  private static String literal(String source, int begin) {
    var text = new StringBuilder();
    Matcher piece = PIECE.matcher(source);
    for (int at = begin; piece.region(at, source.length()).lookingAt(); at = piece.end()) {
      text.append(piece.group(1));
    }
    return text.toString().replace("\\\"", "\"").replaceAll("%n.*", "");
  }

  private static List<String> documented() {
    String document = read(Path.of("../docs/operations.md"));
    String errors = document.substring(document.indexOf("\n## Errors"));
    return Pattern.compile("`([^`]+)`")
        .matcher(errors)
        .results()
        .map(entry -> entry.group(1).replaceAll("\\s+", " ").replaceFirst("\\.\\.\\..*", ""))
        .map(entry -> normal(entry.strip()))
        .toList();
  }

  private static String normal(String text) {
    return VALUE.matcher(text).replaceAll("#").replaceFirst("^Rank #: ", "");
  }

  private static boolean same(String text, String row) {
    int length = Math.min(text.length(), row.length());
    return letters(text.substring(0, length)) >= FEWEST_LETTERS
        && text.substring(0, length).equals(row.substring(0, length));
  }

  private static int letters(String text) {
    return text.replaceAll("[# ]", "").length();
  }

  private static List<Path> sources(String folder, String ending) throws IOException {
    try (Stream<Path> files = Files.walk(Path.of(folder))) {
      return files.filter(file -> file.toString().endsWith(ending)).sorted().toList();
    }
  }

  private static String read(Path file) {
    try {
      return Files.readString(file);
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }
}
