// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce;

/**
 * What one element of a buffer is. The order of the constants is that of {@code sar_data_type} in
 * the C header: {@link #ordinal()} is what native code sees.
 */
public enum DataType {
  /** IEEE 754 binary64, Java's {@code double}. */
  FLOAT64(Double.BYTES),
  /** IEEE 754 binary32, Java's {@code float}. */
  FLOAT32(Float.BYTES),
  /** IEEE 754 binary16, held in a {@code short}; see {@link Float#float16ToFloat}. */
  FLOAT16(Short.BYTES),
  /** The upper half of a binary32, held in a {@code short}. */
  BFLOAT16(Short.BYTES),
  /** Two's complement, Java's {@code int}; sums and products wrap. */
  INT32(Integer.BYTES),
  /** Two's complement, Java's {@code long}; sums and products wrap. */
  INT64(Long.BYTES);

  private final int bytes;

  DataType(int bytes) {
    this.bytes = bytes;
  }

  /** Size of one element in bytes, which is also its alignment. */
  public int bytes() {
    return bytes;
  }
}
