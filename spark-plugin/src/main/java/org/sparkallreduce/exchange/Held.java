// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.exchange;

import java.util.UUID;

/**
 * A rank's word that it still holds its part of a communicator that an earlier stage opened.
 *
 * @param opened which communicator: the session that opened it. A lease alone does not say it: two
 *     stages that ran on different executors leave a communicator each under one lease
 * @param member which part of it: the rank that the process had when it was opened
 * @param sequence how many collectives it has seen
 */
public record Held(UUID opened, int member, long sequence) {}
