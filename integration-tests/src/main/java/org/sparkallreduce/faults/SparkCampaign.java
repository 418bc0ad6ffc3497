// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.dataset.Collectives;

/**
 * The faults that only Spark can suffer: executors that are killed and replaced, stages that are
 * retried, jobs that are cancelled. Runs through spark-submit on a local cluster of two executors.
 *
 * <p>Arguments: seed, index of the first fault, number of faults. Ends with 1 if anything is wrong.
 */
public final class SparkCampaign {
  private static final int PATIENCE_SECONDS = 120;

  /** One kept communicator of two ranks. */
  private static final int MOST_MAPPINGS = SparkEpisode.RANKS;

  /**
   * What a cancelled job's successor may need to come into its function: four times the second that
   * is promised, since it has to be scheduled and to open its communicator, on cores that others
   * want too.
   */
  private static final long NEXT_JOB_NANOS = TimeUnit.SECONDS.toNanos(4);

  private final JavaSparkContext spark;
  private final JavaRDD<Integer> rows;
  private final Path signs;
  private final long seed;
  private final AtomicReference<Runnable> onTaskStart = new AtomicReference<>(() -> {});
  private final Set<Long> executorsSeen = new HashSet<>();
  private final Map<SparkFault, Integer> played = new EnumMap<>(SparkFault.class);
  private final List<Long> afterCancel = new ArrayList<>();
  private volatile long cancelled;
  private final List<String> failures = new ArrayList<>();

  private SparkCampaign(JavaSparkContext spark, Path signs, long seed) {
    this.spark = spark;
    this.rows = spark.parallelize(IntStream.range(0, 10).boxed().toList());
    this.signs = signs;
    this.seed = seed;
  }

  public static void main(String[] arguments) throws IOException {
    int first = Integer.parseInt(arguments[1]);
    int count = Integer.parseInt(arguments[2]);
    Path signs = Files.createTempDirectory("fault-signs-");
    SparkCampaign campaign;
    try (var spark = new JavaSparkContext(new SparkConf().setAppName("fault campaign"))) {
      campaign = new SparkCampaign(spark, signs, Long.parseLong(arguments[0]));
      spark.sc().addSparkListener(campaign.new Starts());
      for (int index = first; index < first + count; index++) {
        campaign.play(SparkEpisode.of(campaign.seed, index, signs));
      }
    }
    campaign.checkNothingIsLeft();
    campaign.report();
    System.exit(campaign.failures.isEmpty() ? 0 : 1);
  }

  private final class Starts extends SparkListener {
    @Override
    public void onTaskStart(SparkListenerTaskStart start) {
      onTaskStart.getAndSet(() -> {}).run();
    }
  }

  private void play(SparkEpisode episode) {
    played.merge(episode.fault(), 1, Integer::sum);
    String wrong;
    try {
      wrong = outcome(episode);
    } catch (IOException | InterruptedException e) {
      wrong = e.toString();
    }
    if (wrong.isEmpty()) {
      wrong = traces();
    }
    if (!wrong.isEmpty()) {
      failures.add("fault %d (%s): %s".formatted(episode.index(), episode.fault(), wrong));
      System.out.println("FAILED: " + episode + "\n    " + wrong);
      System.out.printf(
          "    again: bin/fault-campaign --layer spark --seed %d --only %d%n",
          seed, episode.index());
    }
  }

  /** Runs the job, and strikes it; empty if it ended as it must. */
  private String outcome(SparkEpisode episode) throws IOException, InterruptedException {
    String missing = settle(() -> executors().size() == SparkEpisode.RANKS ? "" : "executors");
    if (!missing.isEmpty()) {
      return "there are not as many executors as before";
    }
    if (episode.fault().cancels()) {
      // So that what is measured behind it is not how long a new executor takes for its first job.
      runWell();
    }
    List<Long> executors = executors();
    switch (episode.fault()) {
      case KILL_AT_START -> onTaskStart.set(() -> Signals.kill(executors.get(episode.victim())));
      case CANCEL_AT_START -> onTaskStart.set(() -> cancel(episode));
      case REPLACED -> Signals.kill(executors.get(episode.victim()));
      default -> {}
    }
    CompletableFuture<List<SparkEpisode.Result>> job = submit(episode);
    if (episode.fault() == SparkFault.STOP_BRIEFLY) {
      long pid = awaitSign(episode, episode.victim(), job);
      Signals.stop(pid);
      LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(episode.delayMillis()));
      Signals.resume(pid);
    }
    if (episode.fault() == SparkFault.CANCEL_INSIDE
        || episode.fault() == SparkFault.CANCEL_OUTSIDE) {
      awaitSign(episode, episode.victim(), job);
      cancel(episode);
    }
    String wrong = judge(episode, job);
    return wrong.isEmpty() && episode.fault().cancels() ? next() : wrong;
  }

  private CompletableFuture<List<SparkEpisode.Result>> submit(SparkEpisode episode) {
    var job = new CompletableFuture<List<SparkEpisode.Result>>();
    Thread.ofPlatform()
        .daemon()
        .start(
            () -> {
              spark.setJobGroup(group(episode), episode.fault().toString(), episode.interrupts());
              try {
                job.complete(
                    Collectives.run(
                        rows, SparkEpisode.RANKS, (context, _) -> episode.run(context)));
              } catch (Throwable t) {
                job.completeExceptionally(t);
              }
            });
    return job;
  }

  private static String group(SparkEpisode episode) {
    return "fault " + episode.index();
  }

  private void cancel(SparkEpisode episode) {
    cancelled = System.nanoTime();
    spark.cancelJobGroup(group(episode));
  }

  private static long awaitSign(SparkEpisode episode, int rank, CompletableFuture<?> job)
      throws IOException {
    Path file = Path.of(episode.signs(), "%d-reached-%d".formatted(episode.index(), rank));
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
    while (!Files.exists(file)) {
      if (job.isDone() || System.nanoTime() > end) {
        throw new IOException("rank %d never came to its fault: %s".formatted(rank, job));
      }
      LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(1));
    }
    return Long.parseLong(Files.readString(file));
  }

  private String judge(SparkEpisode episode, CompletableFuture<List<SparkEpisode.Result>> job)
      throws InterruptedException {
    List<SparkEpisode.Result> results = List.of();
    @Nullable Throwable thrown = null;
    try {
      results = job.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
    } catch (ExecutionException e) {
      thrown = e.getCause();
    } catch (TimeoutException e) {
      return "the job stands still";
    }
    return switch (episode.fault().ending()) {
      case WELL -> thrown == null ? check(episode, results, 0) : "it failed: " + thrown;
      case RETRIED -> thrown == null ? check(episode, results, 1) : "it failed: " + thrown;
      case RANK_FAILED ->
          thrown instanceof AllReduceException.RankFailed failed
                  && failed.rank() == episode.victim()
                  && String.valueOf(failed.getMessage()).contains("told to fail")
              ? ""
              : "it should say which rank failed: " + thrown;
      case MISMATCH ->
          thrown instanceof AllReduceException.Mismatch
                  && String.valueOf(thrown.getMessage()).matches("(?s).*count \\d+.*count \\d+.*")
              ? ""
              : "it should say that the counts differ: " + thrown;
      case CANCELLED ->
          thrown instanceof AllReduceException.Aborted ? "" : "it should be aborted: " + thrown;
    };
  }

  private static String check(
      SparkEpisode episode, List<SparkEpisode.Result> results, int leastAttempt) {
    if (results.size() != SparkEpisode.RANKS) {
      return "%d results".formatted(results.size());
    }
    for (SparkEpisode.Result result : results) {
      for (int number = 0; number < episode.calls(); number++) {
        if (result.firsts().get(number) != episode.expected(number, 0)) {
          return "wrong: " + result.firsts();
        }
      }
      if (result.attempt() < leastAttempt) {
        return "it was right at once, so nothing struck it";
      }
    }
    return "";
  }

  /** The next job starts at once. */
  private String next() throws IOException, InterruptedException {
    long after = runWell() - cancelled;
    afterCancel.add(after);
    return after <= NEXT_JOB_NANOS
        ? ""
        : "the next job was in its function after %.0f ms".formatted(after * 1e-6);
  }

  /** Runs a job without a fault; says when its last rank had come into its function. */
  private long runWell() throws IOException, InterruptedException {
    var well = new SparkEpisode(seed, -1, SparkFault.DELAY, 0, 0, 1, false, 0, signs.toString());
    try {
      return submit(well).get(PATIENCE_SECONDS, TimeUnit.SECONDS).stream()
          .mapToLong(SparkEpisode.Result::started)
          .max()
          .orElseThrow();
    } catch (ExecutionException | TimeoutException e) {
      throw new IOException("a job without a fault failed: " + e, e);
    }
  }

  private List<Long> executors() {
    List<Long> executors = List.copyOf(ExecutorPids.find());
    executorsSeen.addAll(executors);
    return executors;
  }

  /** What is left in driver and executors that should not be. */
  private String traces() {
    String left = settle(() -> left(ProcessHandle.current().pid(), 0));
    for (long executor : executors()) {
      left += settle(() -> left(executor, MOST_MAPPINGS));
    }
    return left + settle(this::names);
  }

  private String names() {
    executors();
    var names = new ArrayList<>(Traces.namesOf(executorsSeen));
    names.addAll(Traces.nativeFoldersOf(executorsSeen));
    return names.isEmpty() ? "" : "left in the file system: " + names;
  }

  private static String left(long pid, int mappings) {
    var left = new ArrayList<String>();
    if (Traces.mappings(pid).size() > mappings) {
      left.add("mappings: " + Traces.mappings(pid));
    }
    List<String> descriptors =
        Traces.descriptors(pid).keySet().stream()
            .filter(target -> target.contains("/dev/shm") || target.contains("spark-allreduce-"))
            .filter(target -> !target.contains(".jar"))
            .toList();
    if (!descriptors.isEmpty()) {
      left.add("descriptors: " + descriptors);
    }
    if (Traces.threads(pid).size() > 1) { // one looks after what is kept
      left.add("threads: " + Traces.threads(pid));
    }
    return left.isEmpty() ? "" : "process %d: %s; ".formatted(pid, left);
  }

  private static String settle(Supplier<String> trace) {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS / 4);
    String left = trace.get();
    while (!left.isEmpty() && System.nanoTime() < end) {
      LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(5));
      left = trace.get();
    }
    return left;
  }

  private void checkNothingIsLeft() throws IOException {
    String left = settle(() -> left(ProcessHandle.current().pid(), 0) + names());
    left += settle(() -> executors().isEmpty() ? "" : "executors: " + executors());
    if (!left.isEmpty()) {
      failures.add("after the application: " + left);
    }
    for (Path sign : Traces.list(signs)) {
      Files.delete(sign);
    }
    Files.delete(signs);
  }

  private void report() {
    System.out.printf("%n%-48s %6s%n", "fault of a job on a local cluster", "played");
    played.forEach((fault, count) -> System.out.printf("%-48s %6d%n", fault, count));
    afterCancel.stream()
        .mapToLong(n -> n)
        .max()
        .ifPresent(
            most ->
                System.out.printf(
                    "the job after a cancelled one was in its function within %.0f ms at most%n",
                    most * 1e-6));
    System.out.printf(
        "%d faults of jobs on %d executors, seed %d: %s%n",
        played.values().stream().mapToInt(n -> n).sum(),
        executorsSeen.size(),
        seed,
        failures.isEmpty() ? "all went as they must" : failures.size() + " FAILED");
    failures.forEach(failure -> System.out.println("FAILED: " + failure));
  }
}
