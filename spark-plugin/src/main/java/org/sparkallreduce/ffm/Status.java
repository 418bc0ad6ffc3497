// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.ffm;

/** What a native call returned; in the order of {@code sar_status} in the C header. */
public enum Status {
  OK,
  INVALID_ARGUMENT,
  MISMATCH,
  TIMEOUT,
  ABORTED,
  PEER_LOST,
  OUT_OF_MEMORY,
  SYSTEM_ERROR,
  UNSUPPORTED;

  private static final Status[] VALUES = values();

  static Status of(int code) {
    return code >= 0 && code < VALUES.length ? VALUES[code] : SYSTEM_ERROR;
  }
}
