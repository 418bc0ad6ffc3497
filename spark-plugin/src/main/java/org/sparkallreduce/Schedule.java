// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce;

/**
 * How an all-reduce moves its bytes; the result has the same bits under each. The order of the
 * constants is that of {@code sar_schedule} in the C header. What each one does is drawn in
 * docs/protocol.md.
 */
public enum Schedule {
  /** The backend chooses by world size, bytes, and whether the buffers are registered. */
  AUTO,
  /** Each rank loads every peer's input and stores its own output. */
  ONE_SHOT,
  /** Each rank reduces its slice into staging; then all load the slices of the others. */
  TWO_SHOT_READ,
  /** Slices are stored into the peers' staging buffers, reduced there, and copied to the output. */
  STAGED_WRITE,
  /** As staged write, but the reduced slices are stored straight into the peers' outputs. */
  DIRECT_WRITE,
  /** Each rank loads its slice from every peer's input and stores it into every peer's output. */
  LOAD_REDUCE_STORE
}
