// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.exchange;

import java.util.UUID;

/**
 * A rank's word that it still holds its part of a communicator that an earlier stage opened.
 *
 * @param lease which communicator
 * @param member which part of it: the rank that the process had when it was opened
 * @param sequence how many collectives it has seen
 */
public record Held(UUID lease, int member, long sequence) {}
