// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce;

import java.util.Locale;

/**
 * How an all-reduce moves its bytes; the result has the same bits under each. The codes are those
 * of {@code sar_schedule} in the C header. What each one does is drawn in docs/protocol.md.
 */
public enum Schedule {
  /** The backend chooses by world size, bytes, and whether the buffers are registered. */
  AUTO(0),
  /** Each rank loads every peer's input and stores its own output. */
  ONE_SHOT(1),
  /** Each rank reduces its slice into staging; then all load the slices of the others. */
  TWO_SHOT_READ(2),
  /** Slices are stored into the peers' staging buffers, reduced there, and copied to the output. */
  STAGED_WRITE(3),
  /** As staged write, but the reduced slices are stored straight into the peers' outputs. */
  DIRECT_WRITE(4),
  /** Each rank loads its slice from every peer's input and stores it into every peer's output. */
  LOAD_REDUCE_STORE(5),
  /** Small messages: the flag that says that a rank has come brings its data along. */
  LOW_LATENCY(6);

  private final int code;

  Schedule(int code) {
    this.code = code;
  }

  /** As settings, tables and tools name it: one-shot, say. */
  public String text() {
    return name().toLowerCase(Locale.ROOT).replace('_', '-');
  }

  /** How native code names it. */
  public int code() {
    return code;
  }
}
