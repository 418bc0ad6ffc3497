// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import java.io.Serializable;
import java.util.List;

/**
 * What every rank is told to measure; the same on all of them.
 *
 * @param registered buffers from the arena; false: heap arrays, which are copied
 * @param checks how many calls are checked, element by element; 0: none
 * @param memcpy whether the time is taken too in which all ranks copy as many bytes at once
 * @param compiled whether each measurement waits until the JIT compilers have nothing to do
 */
record Job(
    List<Case> cases,
    Placement placement,
    boolean registered,
    int checks,
    boolean memcpy,
    boolean compiled)
    implements Serializable {
  /** Whether input and output are different memory. */
  enum Placement {
    OUT_OF_PLACE,
    IN_PLACE,
    BOTH;

    boolean includes(Placement one) {
      return this == BOTH || this == one;
    }
  }

  /** The largest input or output of a rank, in bytes. */
  long largestBuffer(int ranks) {
    return cases.stream().mapToLong(c -> c.bytes(ranks)).max().orElse(0);
  }
}
