// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import java.util.Locale;

/**
 * The collectives that can be measured, in the terms of rccl-tests: what size and count mean for
 * each, and what its algorithm bandwidth is multiplied by to get the bus bandwidth.
 */
enum Collective {
  ALL_REDUCE,
  REDUCE_SCATTER,
  ALL_GATHER,
  BROADCAST;

  /** As the command line names it. */
  String text() {
    return name().toLowerCase(Locale.ROOT).replace('_', '-');
  }

  boolean reduces() {
    return this == ALL_REDUCE || this == REDUCE_SCATTER;
  }

  /** Whether one buffer of a rank has a slice for each rank; its size is the message's size. */
  private boolean hasSlices() {
    return this == REDUCE_SCATTER || this == ALL_GATHER;
  }

  /**
   * The count that a call for about {@code bytes} bytes is made with: of a slice, where there are
   * slices. At least 1 for those, so that every size can be measured.
   */
  long count(long bytes, int elementBytes, int ranks) {
    long elements = bytes / elementBytes;
    return hasSlices() ? Math.max(1, elements / ranks) : elements;
  }

  /** The size column: bytes of the larger buffer of a rank. */
  long bytes(long count, int elementBytes, int ranks) {
    return count * elementBytes * (hasSlices() ? ranks : 1);
  }

  /** How many slices of {@code count} elements a rank's input has. */
  int inputSlices(int ranks) {
    return this == REDUCE_SCATTER ? ranks : 1;
  }

  /** How many slices of {@code count} elements a rank's output has. */
  int outputSlices(int ranks) {
    return this == ALL_GATHER ? ranks : 1;
  }

  /** Bus bandwidth = algorithm bandwidth (size / time) x this. */
  double busFactor(int ranks) {
    double others = (ranks - 1.0) / ranks;
    return switch (this) {
      case ALL_REDUCE -> 2 * others;
      case REDUCE_SCATTER, ALL_GATHER -> others;
      case BROADCAST -> 1;
    };
  }
}
