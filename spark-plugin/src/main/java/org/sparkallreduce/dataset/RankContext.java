// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.dataset;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.apache.spark.BarrierTaskContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;
import org.apache.spark.resource.ResourceInformation;
import org.apache.spark.util.TaskCompletionListener;
import org.apache.spark.util.TaskFailureListener;
import org.apache.spark.util.TaskInterruptListener;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.Settings;
import org.sparkallreduce.communicator.Communicator;
import org.sparkallreduce.communicator.Leases;
import org.sparkallreduce.communicator.LocalNode;
import org.sparkallreduce.communicator.OpeningAbort;
import org.sparkallreduce.communicator.RankIdentity;
import org.sparkallreduce.exchange.Exchange;
import org.sparkallreduce.exchange.NudgedExchange;
import org.sparkallreduce.exchange.PlainExchange;
import org.sparkallreduce.ffm.Statistics;

/**
 * One rank of a barrier stage: who it is, and the communicator that joins it to its peers. It ends
 * with its task: the communicator is closed whatever happens, and aborted on all ranks as soon as
 * this one fails or is killed.
 *
 * <p>Used by the task's own thread.
 */
public final class RankContext {
  private static final Logger LOG = LoggerFactory.getLogger(RankContext.class);

  /** Run of those who call {@link #open()} in a stage of their own: the driver waits for none. */
  private static final UUID OWN_STAGE = new UUID(0, 0);

  /** Attempt ids of the tasks of this process that have opened their context. */
  private static final Set<Long> OPEN = ConcurrentHashMap.newKeySet();

  private final BarrierTaskContext task;
  private final UUID run;
  private final Optional<UUID> lease;
  private final int size;
  private final Optional<String> device;
  private final OpeningAbort opening = new OpeningAbort();
  private volatile @Nullable Communicator communicator;
  private @Nullable Leases leases;
  private final Consumer<RankStatistics> statistics;
  private Runnable settleMetrics = () -> {};
  private volatile boolean failed;

  private RankContext(
      BarrierTaskContext task,
      UUID run,
      Optional<UUID> lease,
      List<String> localDevices,
      Consumer<RankStatistics> statistics) {
    this.task = task;
    this.run = run;
    this.lease = lease;
    this.statistics = statistics;
    this.size = task.getTaskInfos().length;
    this.device = device(task.resourcesJMap(), localDevices, task.partitionId());
  }

  /**
   * For a barrier stage of your own: joins this task with the other tasks of its stage, all of
   * which must call it, once. {@link Collectives#run} does this by itself.
   *
   * @throws AllReduceException.Setup if this is no task of a barrier stage, or the plugin does not
   *     run in this executor
   */
  public static RankContext open() {
    if (!(TaskContext.get() instanceof BarrierTaskContext task)) {
      throw new AllReduceException.Setup(
          TaskContext.get() == null
              ? "An all-reduce needs a running task, and this thread runs none. Call it inside of"
                  + " the function that is given to Collectives.run."
              : "This task belongs to an ordinary stage, in which Spark does not run all tasks at"
                  + " the same time. Use Collectives.run, or rdd.barrier().mapPartitions(...).");
    }
    return open(task, OWN_STAGE, Optional.empty(), List.of(), _ -> {});
  }

  /**
   * @param statistics is given what this rank did, when its task ends
   */
  static RankContext open(
      BarrierTaskContext task,
      UUID run,
      Optional<UUID> lease,
      List<String> localDevices,
      Consumer<RankStatistics> statistics) {
    if (!OPEN.add(task.taskAttemptId())) {
      throw new AllReduceException.Usage(
          "Rank %d has opened its context already; pass that one on."
              .formatted(task.partitionId()));
    }
    var context = new RankContext(task, run, lease, localDevices, statistics);
    context.listen();
    context.connect();
    return context;
  }

  private void listen() {
    // The last that was registered runs first: what the user adds still finds it open.
    var unused =
        task.addTaskCompletionListener((TaskCompletionListener) _ -> close())
            .addTaskFailureListener((TaskFailureListener) (_, error) -> fail(error))
            .addTaskInterruptListener(
                (TaskInterruptListener)
                    (_, reason) -> abort("rank %d was cancelled: %s".formatted(rank(), reason)));
  }

  private void connect() {
    LocalNode node = LocalNode.current();
    var identity =
        new RankIdentity(rank(), size, session(), node.executorId(), node.host(), device);
    Communicator open =
        Communicator.open(
            node.library(),
            node.settings(),
            identity,
            exchange(node.settings()),
            lease,
            node.leases(),
            opening);
    leases = node.leases();
    communicator = open; // before anything else can fail: what is set here is closed with the task
    Supplier<Statistics> done = node.activity().follow(open);
    settleMetrics =
        () ->
            statistics.accept(
                new RankStatistics(
                    task.stageId(),
                    attempt(),
                    rank(),
                    "executor %s on %s".formatted(node.executorId(), node.host()),
                    done.get()));
    if (task.isInterrupted()) { // the listener may have come between connecting and this line
      abort("rank %d was cancelled".formatted(rank()));
    }
  }

  private Exchange exchange(Settings settings) {
    return settings.nudgedExchange()
        ? new NudgedExchange(task, settings.timeout())
        : new PlainExchange(task);
  }

  /** The same on all ranks, and another one in each attempt of each stage. */
  private UUID session() {
    String name =
        "%s/%d/%d"
            .formatted(SparkEnv.get().conf().getAppId(), task.stageId(), task.stageAttemptNumber());
    return UUID.nameUUIDFromBytes(name.getBytes(StandardCharsets.UTF_8));
  }

  /** This rank, from 0; it is also the number of its partition. */
  public int rank() {
    return task.partitionId();
  }

  /** The world size: how many ranks there are. */
  public int size() {
    return size;
  }

  /** Joins the ranks of this stage attempt. Do not close it: it is closed with the task. */
  public Communicator communicator() {
    Communicator open = communicator;
    if (open == null) {
      throw new AllReduceException.Usage("Rank %d has no communicator yet.".formatted(rank()));
    }
    return open;
  }

  /**
   * Address of the GPU that Spark assigned to this task (resource {@code gpu}), if any. In local
   * mode Spark assigns none to tasks: there, rank r gets the r-th address of the driver's resources
   * ({@code spark.driver.resource.gpu.amount}), if there are that many.
   */
  public Optional<String> device() {
    return device;
  }

  /** How often this stage was tried before. */
  public int attempt() {
    return task.stageAttemptNumber();
  }

  /**
   * Ends the task if it was cancelled. Call it in long loops that make no collective call; in
   * collectives this is looked after.
   *
   * @throws TaskKilledException if it was
   */
  public void checkInterrupted() {
    if (task.isInterrupted()) {
      throw new TaskKilledException("rank %d was cancelled".formatted(rank()));
    }
  }

  static Optional<String> device(
      Map<String, ResourceInformation> resources, List<String> localDevices, int rank) {
    ResourceInformation gpu = resources.get("gpu");
    if (gpu != null && gpu.addresses().length > 0) {
      return Optional.of(gpu.addresses()[0]);
    }
    return rank < localDevices.size() ? Optional.of(localDevices.get(rank)) : Optional.empty();
  }

  /**
   * Tells the driver first and the peers then, so that their errors cannot overtake this one. Spark
   * may call it several times.
   */
  private void fail(Throwable error) {
    if (failed) {
      return;
    }
    failed = true;
    if (!task.isInterrupted()) {
      report(error);
    }
    abort("rank %d failed: %s".formatted(rank(), error));
  }

  private void report(Throwable error) {
    LocalNode.find()
        .ifPresent(
            node -> {
              String where = "executor %s on %s".formatted(node.executorId(), node.host());
              try {
                node.driver().tell(RankFailure.of(run, attempt(), rank(), where, error));
              } catch (Exception e) {
                LOG.warn("The driver could not be told that rank {} failed", rank(), e);
              }
            });
  }

  private void abort(String cause) {
    opening.raise(cause);
    Communicator open = communicator;
    if (open != null) {
      open.abort(cause);
    }
  }

  private void close() {
    OPEN.remove(task.taskAttemptId());
    Communicator open = communicator;
    if (open == null) {
      return;
    }
    try {
      settleMetrics.run();
    } catch (AllReduceException.Usage e) {
      LOG.warn("The function of rank {} closed its communicator itself", rank(), e);
    }
    // Not the process's present store: at the end of the application there is none.
    Leases store = leases;
    if (store != null && lease.isPresent() && !failed && !task.isInterrupted()) {
      open.closeInto(store, lease.get());
    } else {
      open.close();
    }
  }
}
