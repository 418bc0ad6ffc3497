// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce;

/**
 * How the ranks' elements become one. Ranks are combined in the order 0, 1, ..., N-1, in float32
 * for {@link DataType#FLOAT16} and {@link DataType#BFLOAT16} and otherwise in the type itself, and
 * rounded once; so every rank gets the same bits, in every run and under every schedule. The codes
 * are those of {@code sar_reduce_op} in the C header.
 */
public enum ReduceOp {
  /** The sum; integers wrap. */
  SUM(0),
  /** The product; integers wrap. */
  PRODUCT(1),
  /** The smallest; NaN if any is NaN; -0 is below +0. */
  MIN(2),
  /** The largest; NaN if any is NaN; +0 is above -0. */
  MAX(3),
  /** The sum divided by the number of ranks; integers are cut towards zero. */
  AVERAGE(4);

  private final int code;

  ReduceOp(int code) {
    this.code = code;
  }

  /** How native code names it. */
  public int code() {
    return code;
  }
}
