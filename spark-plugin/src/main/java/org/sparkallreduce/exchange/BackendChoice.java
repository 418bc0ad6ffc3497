// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.exchange;

import java.util.List;
import java.util.Optional;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.Backend;
import org.sparkallreduce.ProcessIdentity;

/**
 * The backend that the ranks take. It is a function of what all ranks said in one exchange, so all
 * come to the same answer: a mixed outcome cannot be.
 *
 * @param backend GPU or HOST
 * @param reason why it is the host although a rank had a GPU, or was to have one; empty if not so
 */
public record BackendChoice(Backend backend, Optional<String> reason) {
  private static final BackendChoice GPU = new BackendChoice(Backend.GPU, Optional.empty());
  private static final BackendChoice HOST = new BackendChoice(Backend.HOST, Optional.empty());

  /**
   * Chooses.
   *
   * @param ranks what each rank said, in rank order; they agree on the settings
   * @throws AllReduceException.Setup if the GPU is demanded and cannot be had; on all ranks alike
   */
  public static BackendChoice of(List<Hello> ranks) {
    if (ranks.getFirst().gpu().setting() == Backend.HOST) {
      return HOST;
    }
    boolean anyHas = ranks.stream().anyMatch(BackendChoice::hasGpu);
    if (!anyHas && ranks.getFirst().gpu().setting() == Backend.AUTO) {
      return HOST;
    }
    return obstacle(ranks).map(reason -> without(ranks, reason)).orElse(GPU);
  }

  /** What follows if the ranks cannot use their GPUs because of {@code reason}. */
  public static BackendChoice without(List<Hello> ranks, String reason) {
    if (ranks.getFirst().gpu().setting() == Backend.GPU) {
      throw new AllReduceException.Setup(
          "spark.allreduce.backend is gpu, but %s. Or set it to auto, which takes the host backend then."
              .formatted(reason));
    }
    return new BackendChoice(Backend.HOST, Optional.of(reason));
  }

  private static boolean hasGpu(Hello rank) {
    return rank.gpu().isReady() || !rank.gpu().obstacle().isEmpty();
  }

  private static Optional<String> obstacle(List<Hello> ranks) {
    for (Hello rank : ranks) {
      if (!rank.gpu().obstacle().isEmpty()) {
        return Optional.of(
            "%s cannot use its GPU: %s".formatted(rank.describe(), rank.gpu().obstacle()));
      }
      if (!rank.gpu().isReady()) {
        return Optional.of(
            "%s has no GPU: Spark has assigned it none (spark.task.resource.gpu.amount)"
                .formatted(rank.describe()));
      }
    }
    for (Hello first : ranks) {
      for (Hello second : ranks.subList(first.rank() + 1, ranks.size())) {
        Optional<String> between = between(first, second);
        if (between.isPresent()) {
          return between;
        }
      }
    }
    return Optional.empty();
  }

  private static Optional<String> between(Hello a, Hello b) {
    if (!a.gpu().build().equals(b.gpu().build())) {
      return Optional.of(
          "%s has the GPU library \"%s\", but %s has \"%s\": use one build of spark-allreduce on all executors"
              .formatted(a.describe(), a.gpu().build(), b.describe(), b.gpu().build()));
    }
    if (a.gpu().uuid().equals(b.gpu().uuid()) && !a.gpu().shared()) {
      return Optional.of(
          ("%s and %s use the same GPU, %s: give each rank one of its own"
                  + " (spark.task.resource.gpu.amount=1, and other addresses on each executor), or"
                  + " allow it with spark.allreduce.gpu.shared=true")
              .formatted(a.describe(), b.describe(), a.gpu().device()));
    }
    return namespaces(a, b);
  }

  /** Handles of device memory do not cross them. */
  private static Optional<String> namespaces(Hello a, Hello b) {
    ProcessIdentity first = a.process();
    ProcessIdentity second = b.process();
    if (first.pidNamespace() != second.pidNamespace()) {
      return Optional.of(
          "%s and %s run in different PID namespaces, across which GPU memory cannot be shared: start the executors' containers with a common one (docker: --pid=host or --pid=container:..., Kubernetes: one pod with shareProcessNamespace)"
              .formatted(a.describe(), b.describe()));
    }
    if (a.hostIdentity().ipcNamespace() != b.hostIdentity().ipcNamespace()) {
      return Optional.of(
          "%s and %s run in different IPC namespaces, across which GPU memory cannot be shared: start the executors' containers with a common one (docker: --ipc=host or --ipc=container:..., Kubernetes: hostIPC or one pod)"
              .formatted(a.describe(), b.describe()));
    }
    return Optional.empty();
  }
}
