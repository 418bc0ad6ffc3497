// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce;

/**
 * What one element of a buffer is. The codes are those of {@code sar_data_type} in the C header.
 */
public enum DataType {
  /** IEEE 754 binary64, Java's {@code double}. */
  FLOAT64(0, Double.BYTES),
  /** IEEE 754 binary32, Java's {@code float}. */
  FLOAT32(1, Float.BYTES),
  /** IEEE 754 binary16, held in a {@code short}; see {@link Float#float16ToFloat}. */
  FLOAT16(2, Short.BYTES),
  /** The upper half of a binary32, held in a {@code short}. */
  BFLOAT16(3, Short.BYTES),
  /** Two's complement, Java's {@code int}; sums and products wrap. */
  INT32(4, Integer.BYTES),
  /** Two's complement, Java's {@code long}; sums and products wrap. */
  INT64(5, Long.BYTES);

  private final int code;
  private final int bytes;

  DataType(int code, int bytes) {
    this.code = code;
    this.bytes = bytes;
  }

  /** How native code names it. */
  public int code() {
    return code;
  }

  /** Size of one element in bytes, which is also its alignment. */
  public int bytes() {
    return bytes;
  }
}
