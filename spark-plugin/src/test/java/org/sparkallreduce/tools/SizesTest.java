// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatIllegalArgumentException;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class SizesTest {
  @ParameterizedTest
  @CsvSource({
    "8, 8",
    "0, 0",
    "4k, 4096",
    "32K, 32768",
    "1M, 1048576",
    "64m, 67108864",
    "2G, 2147483648",
    "1KB, 1024",
    "1MiB, 1048576",
    "512B, 512"
  })
  void aSizeIsANumberWithASuffix(String text, long bytes) {
    assertThat(Sizes.parse(text)).isEqualTo(bytes);
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "K", "-8", "1.5M", "8T", "eight", "9999999999G", "1 0"})
  void whatIsNoSizeIsNamed(String text) {
    assertThatIllegalArgumentException()
        .isThrownBy(() -> Sizes.parse(text))
        .withMessageContaining("\"" + text + "\"");
  }

  @ParameterizedTest
  @CsvSource({"8, 8", "1024, 1K", "1536, 1536", "67108864, 64M", "3221225472, 3G"})
  void aSizeIsWrittenShort(long bytes, String text) {
    assertThat(Sizes.shortText(bytes)).isEqualTo(text);
  }

  @Test
  void sizesGrowByAFactorUpToTheLargest() {
    assertThat(Sizes.byFactor(8, 128, 2)).containsExactly(8L, 16L, 32L, 64L, 128L);
    assertThat(Sizes.byFactor(8, 100, 4)).containsExactly(8L, 32L);
    assertThat(Sizes.byFactor(8, 8, 2)).containsExactly(8L);
    assertThat(Sizes.byFactor(1L << 62, Long.MAX_VALUE, 2)).containsExactly(1L << 62);
  }

  @Test
  void sizesGrowByAStepUpToTheLargest() {
    assertThat(Sizes.byStep(0, 10, 4)).containsExactly(0L, 4L, 8L);
  }

  @Test
  void rangesThatLeadNowhereAreRefused() {
    assertThatIllegalArgumentException()
        .isThrownBy(() -> Sizes.byFactor(16, 8, 2))
        .withMessageContaining("above the largest");
    assertThatIllegalArgumentException()
        .isThrownBy(() -> Sizes.byFactor(8, 16, 1))
        .withMessageContaining("at least 2");
    assertThatIllegalArgumentException()
        .isThrownBy(() -> Sizes.byFactor(0, 16, 2))
        .withMessageContaining("(-i)");
    assertThatIllegalArgumentException().isThrownBy(() -> Sizes.byStep(0, 16, 0));
    assertThatIllegalArgumentException().isThrownBy(() -> Sizes.byStep(0, 1L << 40, 1));
  }
}
