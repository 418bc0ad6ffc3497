// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.plugin;

import java.util.List;
import java.util.function.ToLongFunction;
import org.sparkallreduce.communicator.Activity;

/**
 * A gauge of an executor for Spark's metrics system. {@link #ALL} is what the table in
 * docs/operations.md is tested against.
 *
 * @param doc what it counts, for the documentation
 */
record ExecutorMetric(String name, String doc, ToLongFunction<Activity> value) {
  static final List<ExecutorMetric> ALL =
      List.of(
          new ExecutorMetric("collectives", "collectives that succeeded", Activity::collectives),
          new ExecutorMetric("bytes", "their buffer sizes: count x element size", Activity::bytes),
          new ExecutorMetric(
              "totalNanos",
              "time in collectives, waits included; on the host backend a call of up to 16 KiB"
                  + " counts only from where it begins to wait",
              Activity::totalNanos),
          new ExecutorMetric(
              "waitNanos",
              "the part of it spent waiting for peers; a wait of less than some microseconds is"
                  + " not counted",
              Activity::waitNanos),
          new ExecutorMetric(
              "reduceNanos",
              "the rest of it: reducing and moving data",
              activity -> activity.totalNanos() - activity.waitNanos()),
          new ExecutorMetric(
              "unregistered",
              "collectives that fell back to staging, since a buffer of some rank was not"
                  + " registered",
              Activity::unregistered),
          new ExecutorMetric(
              "slowestPeer",
              "not a sum: the rank for which the last rank that ended here had waited longest in"
                  + " its stage; -1: it waited for none",
              activity -> activity.last().slowestPeer().orElse(-1)),
          new ExecutorMetric(
              "slowestPeerWaitNanos",
              "not a sum: how long it had waited for that rank",
              ExecutorMetric::slowestWait));

  private static long slowestWait(Activity activity) {
    var last = activity.last();
    return last.slowestPeer().stream().mapToLong(last.peerWaitNanos()::get).sum();
  }
}
