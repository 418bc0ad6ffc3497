// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.exchange;

import static org.assertj.core.api.Assertions.assertThatCode;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Replays the inputs that fuzzing has kept. */
class HelloCodecCorpusTest {
  private static final Path CORPUS = Path.of("src/test/fuzz/hello");

  static List<Path> corpus() throws IOException {
    try (Stream<Path> files = Files.list(CORPUS)) {
      return files.sorted().toList();
    }
  }

  @ParameterizedTest
  @MethodSource("corpus")
  void aKeptInputIsRefusedOrDecodesToWhatCanBeSentAgain(Path file) {
    assertThatCode(() -> HelloCodecFuzzer.fuzzerTestOneInput(Files.readAllBytes(file)))
        .doesNotThrowAnyException();
  }
}
