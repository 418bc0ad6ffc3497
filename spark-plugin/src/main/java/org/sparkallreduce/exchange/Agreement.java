// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.exchange;

import java.util.List;
import java.util.Objects;
import java.util.function.Function;
import org.sparkallreduce.AllReduceException;

/** The checks that all ranks make on the messages of all ranks, before any memory is shared. */
public final class Agreement {
  private Agreement() {}

  /** What must be equal on all ranks, and what to do if it is not. */
  private record Field(String name, Function<Hello, Object> value, String cure) {}

  private static final List<Field> FIELDS =
      List.of(
          new Field(
              "session", Hello::session, "Open one communicator per rank in a barrier stage."),
          new Field(
              "native build",
              Hello::build,
              "Use one build of spark-allreduce on the driver and on all executors."),
          new Field(
              "backend",
              hello -> hello.gpu().setting(),
              "Set spark.allreduce.backend once, for the whole application."),
          new Field(
              "whether a GPU may be shared",
              hello -> hello.gpu().shared(),
              "Set spark.allreduce.gpu.shared once, for the whole application."),
          new Field(
              "arena size",
              Hello::arenaBytes,
              "Set spark.allreduce.arena.size once, for the whole application."),
          new Field(
              "staging size",
              Hello::stagingBytes,
              "Set spark.allreduce.staging.size once, for the whole application."),
          new Field(
              "default schedule",
              Hello::schedule,
              "Set spark.allreduce.schedule once, for the whole application."),
          new Field(
              "table for auto",
              Hello::autoTable,
              "Set spark.allreduce.auto.table once, for the whole application; the executors get"
                  + " the driver's table."));

  /**
   * Compares the messages.
   *
   * @param all one message per rank, in rank order
   * @param worldSize how many ranks this one counts
   * @throws AllReduceException.Setup if the ranks cannot work together; it names rank and field
   */
  public static void check(List<Hello> all, int worldSize) {
    Hello first = all.getFirst();
    for (int rank = 0; rank < all.size(); rank++) {
      Hello hello = all.get(rank);
      if (hello.rank() != rank || hello.worldSize() != worldSize || all.size() != worldSize) {
        throw new AllReduceException.Setup(
            "The exchange brought %d messages for %d ranks; the one in place %d is from rank %d of %d."
                    .formatted(all.size(), worldSize, rank, hello.rank(), hello.worldSize())
                + " Call nothing else on the barrier context before the communicator is open.");
      }
      checkHost(first, hello);
      for (Field field : FIELDS) {
        checkEqual(field, first, hello);
      }
    }
  }

  private static void checkEqual(Field field, Hello first, Hello other) {
    Object expected = field.value().apply(first);
    Object actual = field.value().apply(other);
    if (!Objects.equals(expected, actual)) {
      throw new AllReduceException.Setup(
          "The ranks differ in %s: %s has %s, %s has %s. %s"
              .formatted(
                  field.name(),
                  first.describe(),
                  expected,
                  other.describe(),
                  actual,
                  field.cure()));
    }
  }

  private static void checkHost(Hello first, Hello other) {
    HostIdentity a = first.hostIdentity();
    HostIdentity b = other.hostIdentity();
    if (!a.bootId().equals(b.bootId())) {
      throw new AllReduceException.Setup(
          "%s and %s run on different hosts. All ranks of a communicator must run on one host: use"
                  .formatted(first.describe(), other.describe())
              + " fewer ranks than one host has task slots, or a cluster of one worker host.");
    }
    if (a.sharedMemoryDevice() != b.sharedMemoryDevice()) {
      throw new AllReduceException.Setup(
          "%s and %s run on one machine but in containers that do not share /dev/shm. Start the"
                  .formatted(first.describe(), other.describe())
              + " executors' containers with a common IPC namespace (docker: --ipc=host or"
              + " --ipc=container:..., Kubernetes: hostIPC or one pod with a shared emptyDir on"
              + " /dev/shm).");
    }
  }
}
