// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.ffm;

/**
 * The details of a thread's last failed native call ({@code sar_failure} and its text).
 *
 * @param status what kind of failure
 * @param message what the library says about it
 * @param sequence number of the collective in its communicator, from 1; 0 outside of one
 * @param originRank the rank that noticed it first, -1 if unknown
 * @param culpritRank the rank that caused it, -1 if unknown
 * @param missingRanks bit r: rank r had not arrived
 * @param deadRanks bit r: the process of rank r has ended
 * @param waitedNanos how long the wait that failed had lasted
 */
public record Failure(
    Status status,
    String message,
    long sequence,
    int originRank,
    int culpritRank,
    int missingRanks,
    int deadRanks,
    long waitedNanos) {}
