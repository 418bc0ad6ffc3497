// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.ffm;

/**
 * What one communicator has done on this rank since it was created.
 *
 * @param collectives collectives that succeeded
 * @param bytes the sum of their buffer sizes
 * @param waitNanos time spent waiting for peers
 * @param totalNanos time spent in collectives, waits included
 * @param unregistered collectives that fell back to staging because a buffer was not registered
 */
public record Statistics(
    long collectives, long bytes, long waitNanos, long totalNanos, long unregistered) {}
