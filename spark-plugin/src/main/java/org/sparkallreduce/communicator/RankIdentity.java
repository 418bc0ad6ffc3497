// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.util.Optional;
import java.util.UUID;

/**
 * Which rank of which session opens a communicator, and where it runs.
 *
 * @param rank its number, from 0
 * @param worldSize how many ranks there are
 * @param session identity of application, stage and stage attempt; equal on all ranks, and on no
 *     others
 * @param executorId Spark's name of its executor
 * @param host Spark's name of its host
 * @param device the address of its GPU, if Spark assigned one
 */
public record RankIdentity(
    int rank,
    int worldSize,
    UUID session,
    String executorId,
    String host,
    Optional<String> device) {}
