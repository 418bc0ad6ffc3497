// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.ffm;

/** What a native call returned; the codes are those of {@code sar_status} in the C header. */
public enum Status {
  OK(0),
  INVALID_ARGUMENT(1),
  MISMATCH(2),
  TIMEOUT(3),
  ABORTED(4),
  PEER_LOST(5),
  OUT_OF_MEMORY(6),
  SYSTEM_ERROR(7),
  UNSUPPORTED(8);

  private static final Status[] BY_CODE = values();

  private final int code;

  Status(int code) {
    this.code = code;
  }

  /** How native code names it. */
  public int code() {
    return code;
  }

  /** AbiTest holds the codes to the order of the constants. */
  static Status of(int code) {
    return code >= 0 && code < BY_CODE.length ? BY_CODE[code] : SYSTEM_ERROR;
  }
}
