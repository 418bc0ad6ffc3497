// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.exchange;

import java.nio.ByteBuffer;
import java.util.Optional;
import java.util.UUID;
import org.sparkallreduce.ProcessIdentity;
import org.sparkallreduce.Schedule;

/**
 * What one rank tells all others in the exchange.
 *
 * @param protocol version of this message, {@link #PROTOCOL}
 * @param rank the sender's rank
 * @param worldSize how many ranks the sender counts
 * @param session the sender's session: application, stage and stage attempt
 * @param executorId the sender's executor
 * @param host how its host is called, for messages to people
 * @param hostIdentity whether two ranks can share memory at all
 * @param process the sender's process
 * @param device the address of the sender's GPU, if Spark assigned one
 * @param build the host library's own description: backend, version, compiler
 * @param arenaBytes size of its arena
 * @param stagingBytes size of its staging buffers
 * @param schedule the schedule of its all-reduce calls that name none
 * @param autoTable the fingerprint of its table for auto
 * @param gpu what it says of its GPU
 * @param held what it holds from an earlier stage; then it has no handle
 * @param handle how peers reach its memory; read only; empty if it holds something
 */
public record Hello(
    int protocol,
    int rank,
    int worldSize,
    UUID session,
    String executorId,
    String host,
    HostIdentity hostIdentity,
    ProcessIdentity process,
    Optional<String> device,
    String build,
    long arenaBytes,
    long stagingBytes,
    Schedule schedule,
    String autoTable,
    GpuOffer gpu,
    Optional<Held> held,
    ByteBuffer handle) {

  /** Raised whenever the encoding changes. */
  public static final int PROTOCOL = 3;

  /** How messages to people name this rank. */
  public String describe() {
    return "rank %d (executor %s on %s, process %d)"
        .formatted(rank, executorId, host, process.pid());
  }
}
