// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.util.Optional;
import java.util.UUID;
import org.sparkallreduce.Device;
import org.sparkallreduce.Settings;
import org.sparkallreduce.ffm.NativeCommunicator;
import org.sparkallreduce.ffm.NativeDevice;

/**
 * This process's part of a connected communicator. It can outlive the stage that opened it: then
 * the ranks of another stage are the same members, perhaps in another order.
 *
 * @param comm owned: whoever has the member closes it
 * @param opened the session that connected it
 * @param number the rank that this process had when the communicator was connected
 * @param worldSize how many members there are
 * @param arenaBytes size of each member's arena
 * @param stagingBytes size of each member's staging buffers, and of the copies of heap arrays
 * @param gpu where its memory is, if it is not on the host
 */
record Member(
    NativeCommunicator comm,
    UUID opened,
    int number,
    int worldSize,
    long arenaBytes,
    long stagingBytes,
    Optional<Gpu> gpu)
    implements AutoCloseable {

  /**
   * What a member on a device has besides.
   *
   * @param calls what only such a communicator can do
   */
  record Gpu(Device device, NativeDevice calls) {}

  /** Whether a stage with these needs can use it. */
  boolean fits(int ranks, Settings settings) {
    return worldSize == ranks
        && arenaBytes == settings.arenaBytes()
        && stagingBytes == settings.stagingBytes();
  }

  /** The shared memory that it owns. */
  long bytes() {
    return arenaBytes + 2 * stagingBytes;
  }

  @Override
  public void close() {
    comm.close();
  }
}
