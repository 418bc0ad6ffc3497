// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import java.util.List;

/** Where ranks are started and the job is measured on them: processes, or Spark's executors. */
@FunctionalInterface
interface Run {
  /** Who is told, on one thread. */
  interface Listener {
    /** All ranks are connected. */
    void started(List<RankInfo> ranks);

    /** A case has ended on all ranks. */
    void measured(Measured measured);

    /** Called every now and then while nothing else happens. */
    default void waiting() {}
  }

  /**
   * Blocks until the whole job is done.
   *
   * @throws ToolException if it cannot be
   */
  void measure(Job job, int ranks, Listener listener);
}
