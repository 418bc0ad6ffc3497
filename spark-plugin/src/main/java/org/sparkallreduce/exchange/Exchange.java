// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.exchange;

/**
 * Tells every rank what all ranks have to say, once each, through Spark. Collective; called by the
 * task's own thread.
 */
@FunctionalInterface
public interface Exchange {
  /**
   * Blocks until all ranks have called it.
   *
   * @return the messages of all ranks, in rank order
   * @throws org.apache.spark.TaskKilledException if the task is killed meanwhile
   * @throws org.sparkallreduce.AllReduceException.TimedOut if a rank does not come in time
   */
  String[] allGather(String message);
}
