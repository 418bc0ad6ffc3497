// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.dataset;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatExceptionOfType;

import org.junit.jupiter.api.Test;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.dataset.ElementWise.Outcome;

class ElementWiseTest {
  private static void assertRefused(Outcome outcome, String... parts) {
    assertThatExceptionOfType(AllReduceException.Usage.class)
        .isThrownBy(() -> ElementWise.check(outcome, "features"))
        .satisfies(e -> assertThat(e).hasMessageContainingAll(parts));
  }

  @Test
  void soundColumnsPass() {
    double[] values = {1, 2};
    assertThat(ElementWise.check(new Outcome(10, 0, 0, 2, 2, values), "features"))
        .containsExactly(1, 2);
  }

  @Test
  void nullRowsAreCounted() {
    assertRefused(new Outcome(10, 3, 0, 2, 2, new double[0]), "features", "null in 3 of 10 rows");
  }

  @Test
  void nullElementsAreCounted() {
    assertRefused(new Outcome(10, 0, 4, 2, 2, new double[0]), "features", "4 null elements");
  }

  @Test
  void raggedVectorsAreRefused() {
    assertRefused(
        new Outcome(10, 0, 0, 2, 5, new double[0]), "features", "between 2 and 5 elements");
  }

  @Test
  void anEmptyDatasetHasNoLength() {
    assertRefused(
        new Outcome(0, 0, 0, Long.MAX_VALUE, 0, new double[0]), "features", "has no rows");
  }
}
