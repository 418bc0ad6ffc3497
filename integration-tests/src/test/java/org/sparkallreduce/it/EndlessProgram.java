// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.spark.SparkConf;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.sparkallreduce.dataset.RankContext;

/**
 * An application that never ends by itself: its two executors say their process numbers in a folder
 * once they are where they are to be killed. Arguments: where, {@code collective} or {@code
 * opening}, and the folder.
 */
public final class EndlessProgram {
  private EndlessProgram() {}

  public static void main(String[] arguments) {
    boolean opening = arguments[0].equals("opening");
    String folder = arguments[1];
    try (var spark = new JavaSparkContext(new SparkConf().setAppName("endless"))) {
      OwnStage.run(spark.sc(), 2, _ -> run(opening, Path.of(folder)));
    }
  }

  private static void run(boolean opening, Path folder) throws IOException {
    if (opening && TaskContext.getPartitionId() == 1) {
      say(folder); // and stays away, so that rank 0 waits in the exchange
      while (!TaskContext.get().isInterrupted()) {
        Thread.onSpinWait();
      }
      return;
    }
    if (opening) {
      say(folder);
    }
    RankContext context = RankContext.open();
    context.communicator().barrier();
    say(folder);
    while (true) {
      context.communicator().barrier();
    }
  }

  private static void say(Path folder) throws IOException {
    String pid = Long.toString(ProcessHandle.current().pid());
    if (!Files.exists(folder.resolve(pid))) {
      Files.createFile(folder.resolve(pid));
    }
  }
}
