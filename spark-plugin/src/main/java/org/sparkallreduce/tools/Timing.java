// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import java.io.Serializable;

/**
 * One measurement of one case.
 *
 * @param nanos of one call, the mean over the iterations
 * @param wrong elements that were not what they should be, or {@link #NOT_CHECKED}
 */
record Timing(double nanos, long wrong) implements Serializable {
  static final long NOT_CHECKED = -1;

  /** GB/s, with 10^9 bytes in a GB, as rccl-tests counts. */
  double algorithmBandwidth(long bytes) {
    return nanos == 0 ? 0 : bytes / nanos;
  }

  double busBandwidth(Case measured, int ranks) {
    return algorithmBandwidth(measured.bytes(ranks)) * measured.collective().busFactor(ranks);
  }
}
