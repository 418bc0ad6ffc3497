// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.MemorySegment;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;

class PatternTest {
  private static final int COUNT = 3 * Pattern.PERIOD + 17;

  @ParameterizedTest
  @EnumSource(DataType.class)
  void whatItFillsIsRightAndEachChangeIsCounted(DataType type) {
    MemorySegment memory = MemorySegment.ofArray(new byte[COUNT * type.bytes()]);
    Pattern pattern = Pattern.input(type, 1);
    pattern.fill(memory);
    assertThat(pattern.wrong(memory, 0)).isZero();

    memory.asSlice(5L * type.bytes(), 2L * type.bytes()).fill((byte) 0);
    memory.asSlice((COUNT - 1L) * type.bytes(), type.bytes()).fill((byte) 0);
    assertThat(pattern.wrong(memory, 0)).isEqualTo(3);
  }

  @Test
  void aShiftedPartIsWrongAndAPartAtItsPlaceIsRight() {
    MemorySegment memory = MemorySegment.ofArray(new byte[COUNT * 4]);
    Pattern pattern = Pattern.input(DataType.INT32, 0);
    pattern.fill(memory);
    MemorySegment part = memory.asSlice(1_500 * 4, 100 * 4);
    assertThat(pattern.wrong(part, 1_500)).isZero();
    assertThat(pattern.wrong(part, 1_501)).isEqualTo(100);
  }

  @Test
  void ranksHaveDifferentInputs() {
    MemorySegment memory = MemorySegment.ofArray(new byte[COUNT * 4]);
    Pattern.input(DataType.FLOAT32, 0).fill(memory);
    assertThat(Pattern.input(DataType.FLOAT32, 1).wrong(memory, 0)).isEqualTo(COUNT);
  }

  @Test
  void elementsAreReducedWithTheRulesOfTheReduceOps() {
    assertThat(reduce(DataType.FLOAT32, ReduceOp.SUM, 1, 0x1p-24, 0x1p-24)).isEqualTo(1);
    assertThat(reduce(DataType.FLOAT64, ReduceOp.SUM, 1, 0x1p-24)).isEqualTo(1 + 0x1p-24);
    assertThat(reduce(DataType.BFLOAT16, ReduceOp.SUM, 1, 0x1p-8, 0x1p-8)).isEqualTo(1 + 0x1p-7);
    assertThat(reduce(DataType.FLOAT16, ReduceOp.AVERAGE, 1, 2, 6)).isEqualTo(3);
    assertThat(reduce(DataType.INT32, ReduceOp.AVERAGE, -3, -4)).isEqualTo(-3);
    assertThat(reduce(DataType.INT32, ReduceOp.SUM, Integer.MAX_VALUE, 1))
        .isEqualTo(Integer.MIN_VALUE);
    assertThat(reduce(DataType.INT64, ReduceOp.PRODUCT, 3, -5)).isEqualTo(-15);
    assertThat(reduce(DataType.FLOAT64, ReduceOp.MIN, 2, -7, 3)).isEqualTo(-7);
    assertThat(reduce(DataType.FLOAT16, ReduceOp.MAX, 2, -7, 3)).isEqualTo(3);
  }

  private static double reduce(DataType type, ReduceOp op, double... values) {
    long[] bits = new long[values.length];
    for (int i = 0; i < values.length; i++) {
      bits[i] = Element.bits(type, values[i]);
    }
    return Element.value(type, Element.reduce(type, op, bits));
  }
}
