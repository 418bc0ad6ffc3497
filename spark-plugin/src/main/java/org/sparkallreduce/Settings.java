// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce;

import java.nio.file.Path;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.spark.SparkConf;
import org.apache.spark.network.util.ByteUnit;
import org.apache.spark.network.util.JavaUtils;
import scala.Tuple2;

/**
 * The values of all settings, read once from the Spark configuration. {@link #ALL} is what the
 * table in docs/operations.md is tested against.
 *
 * @param timeout how long a collective, or the opening of a communicator, waits for a rank
 * @param backend where buffers are and what reduces them
 * @param gpuShared whether several ranks may use one device
 * @param schedule the schedule of all-reduce calls that name none
 * @param arenaBytes size of each rank's symmetric arena
 * @param stagingBytes size of each rank's staging buffers
 * @param spin how long a waiting rank spins before it sleeps in the kernel
 * @param leaseIdle how long an executor keeps a communicator for the next stage
 * @param leaseMemory how many bytes such communicators may have on an executor
 * @param nudgedExchange whether the exchange wakes Spark's allGather
 * @param slotsTimeout how long a submission waits for enough free slots
 * @param nativeDirectory where the native library is unpacked, if not in the temporary folder
 * @param autoTableFile the driver's file with the table for auto, if not the one in the jar
 * @param autoTable the table for auto itself: the driver reads it and gives it to the executors
 */
public record Settings(
    Duration timeout,
    Backend backend,
    boolean gpuShared,
    Schedule schedule,
    long arenaBytes,
    long stagingBytes,
    Duration spin,
    Duration leaseIdle,
    long leaseMemory,
    boolean nudgedExchange,
    Duration slotsTimeout,
    Optional<String> nativeDirectory,
    Optional<String> autoTableFile,
    AutoTable autoTable) {

  public static final String PREFIX = "spark.allreduce.";

  static final Setting<Duration> TIMEOUT =
      new Setting<>(
          PREFIX + "timeout",
          "duration",
          "300s",
          "How long a collective, or the opening of a communicator, waits for a rank that is alive"
              + " before it fails on all ranks. A rank whose process has died is noticed at once.",
          text -> duration(text, Duration.ofMillis(1)));

  static final Setting<Backend> BACKEND =
      new Setting<>(
          PREFIX + "backend",
          "backend",
          "auto",
          "Where the ranks' buffers are and what reduces them. auto: on the GPUs, if Spark has"
              + " assigned one to every rank and all can work together, otherwise on the host, with"
              + " a warning if any rank had one; gpu: the job fails where auto would take the host;"
              + " host: no driver is touched.",
          text -> oneOf(Backend.values(), text));

  static final Setting<Boolean> GPU_SHARED =
      new Setting<>(
          PREFIX + "gpu.shared",
          "boolean",
          "false",
          "Whether several ranks may use one GPU, which they then share the multiprocessors of."
              + " Otherwise that is refused, since it mostly is a mistake in the resources.",
          Settings::bool);

  static final Setting<Schedule> SCHEDULE =
      new Setting<>(
          PREFIX + "schedule",
          "schedule",
          "auto",
          "The schedule of all-reduce calls that name none: " + names(Schedule.values()) + ".",
          text -> oneOf(Schedule.values(), text));

  static final Setting<Long> ARENA_SIZE =
      new Setting<>(
          PREFIX + "arena.size",
          "size",
          "64m",
          "Size of each rank's symmetric arena, from which registered buffers and the copies of"
              + " heap arrays are cut. It is shared memory outside of the heap: count it to"
              + " spark.executor.memoryOverhead.",
          text -> size(text, 1 << 16));

  static final Setting<Long> STAGING_SIZE =
      new Setting<>(
          PREFIX + "staging.size",
          "size",
          "12m",
          "Size of each rank's staging buffers. Larger messages pass through them in pieces.",
          text -> size(text, 1 << 16));

  static final Setting<Duration> SPIN =
      new Setting<>(
          PREFIX + "wait.spin",
          "duration",
          "50us",
          "How long a waiting rank spins before it sleeps in the kernel. Longer is faster where"
              + " each rank has a core of its own; 0us saves the most processor time.",
          text -> duration(text, Duration.ZERO));

  static final Setting<Duration> SLOTS_TIMEOUT =
      new Setting<>(
          PREFIX + "slots.timeout",
          "duration",
          "120s",
          "How long a job waits for as many free task slots as it has ranks before it fails. An"
              + " application's first job waits so for the start of its executors.",
          text -> duration(text, Duration.ofSeconds(1)));

  static final Setting<Optional<String>> NATIVE_DIRECTORY =
      new Setting<>(
          PREFIX + "native.directory",
          "folder",
          "",
          "Folder on each host in which every process unpacks its private copy of the native"
              + " library; it must allow execution. Empty: the JVM's temporary folder.",
          text -> text.isEmpty() ? Optional.empty() : Optional.of(text));

  static final Setting<Boolean> NUDGED_EXCHANGE =
      new Setting<>(
          PREFIX + "exchange.nudged",
          "boolean",
          "true",
          "Whether the exchange wakes Spark's allGather when its answer may be there, which takes"
              + " milliseconds. false: plain allGather, which takes a second and knows no deadline"
              + " but spark.barrier.sync.timeout.",
          Settings::bool);

  static final Setting<Duration> LEASE_IDLE =
      new Setting<>(
          PREFIX + "lease.idle",
          "duration",
          "60s",
          "How long an executor keeps the communicator of a finished stage for the next stage of"
              + " the same layout. 0s: it is closed with its stage.",
          text -> duration(text, Duration.ZERO));

  static final Setting<Long> LEASE_MEMORY =
      new Setting<>(
          PREFIX + "lease.memory",
          "size",
          "1g",
          "How much shared memory the communicators that an executor keeps for later stages may"
              + " have; beyond that, the oldest are closed.",
          text -> size(text, 0));

  static final Setting<Optional<String>> AUTO_TABLE =
      new Setting<>(
          PREFIX + "auto.table",
          "file",
          "",
          "File on the driver with the table from which auto takes its schedules, as written by"
              + " bin/allreduce-perf --tune. Empty: the one in the jar, conf/auto-table.txt.",
          text -> text.isEmpty() ? Optional.empty() : Optional.of(text));

  /** Every setting, in the order of the documentation. */
  public static final List<Setting<?>> ALL =
      List.of(
          TIMEOUT,
          BACKEND,
          GPU_SHARED,
          SCHEDULE,
          AUTO_TABLE,
          ARENA_SIZE,
          STAGING_SIZE,
          SPIN,
          LEASE_IDLE,
          LEASE_MEMORY,
          NUDGED_EXCHANGE,
          SLOTS_TIMEOUT,
          NATIVE_DIRECTORY);

  /**
   * Reads the settings.
   *
   * @throws AllReduceException.Setup if a value cannot be read, or a key with our prefix is unknown
   */
  public static Settings from(SparkConf conf) {
    var own = new HashMap<String, String>();
    for (Tuple2<String, String> entry : conf.getAllWithPrefix(PREFIX)) {
      own.put(PREFIX + entry._1(), entry._2());
    }
    return from(own);
  }

  /** As {@link #from(SparkConf)}, from settings of ours alone. */
  public static Settings from(Map<String, String> conf) {
    var unknown = new TreeSet<>(conf.keySet());
    ALL.forEach(setting -> unknown.remove(setting.key()));
    if (!unknown.isEmpty()) {
      throw new AllReduceException.Setup(
          "Unknown setting %s. The settings are: %s."
              .formatted(
                  String.join(", ", unknown),
                  ALL.stream().map(Setting::key).collect(Collectors.joining(", "))));
    }
    return new Settings(
        TIMEOUT.in(conf),
        BACKEND.in(conf),
        GPU_SHARED.in(conf),
        SCHEDULE.in(conf),
        ARENA_SIZE.in(conf),
        STAGING_SIZE.in(conf),
        SPIN.in(conf),
        LEASE_IDLE.in(conf),
        LEASE_MEMORY.in(conf),
        NUDGED_EXCHANGE.in(conf),
        SLOTS_TIMEOUT.in(conf),
        NATIVE_DIRECTORY.in(conf),
        AUTO_TABLE.in(conf),
        AutoTable.packed());
  }

  /** With the table for auto of {@code spark.allreduce.auto.table}, where the file is. */
  public Settings readAutoTable() {
    return autoTableFile.map(file -> withAutoTable(AutoTable.read(Path.of(file)))).orElse(this);
  }

  /** With another table for auto. */
  public Settings withAutoTable(AutoTable table) {
    return new Settings(
        timeout,
        backend,
        gpuShared,
        schedule,
        arenaBytes,
        stagingBytes,
        spin,
        leaseIdle,
        leaseMemory,
        nudgedExchange,
        slotsTimeout,
        nativeDirectory,
        autoTableFile,
        table);
  }

  private static Duration duration(String text, Duration least) {
    // Spark's own syntax; it counts microseconds at best, which is all that is needed here.
    Duration value =
        Duration.of(JavaUtils.timeStringAs(text, TimeUnit.MICROSECONDS), ChronoUnit.MICROS);
    if (value.compareTo(least) < 0) {
      throw new IllegalArgumentException("it must be at least " + least.toMillis() + "ms");
    }
    return value;
  }

  private static boolean bool(String text) {
    return switch (text) {
      case "true" -> true;
      case "false" -> false;
      default -> throw new IllegalArgumentException("it must be true or false");
    };
  }

  private static long size(String text, long least) {
    long value = JavaUtils.byteStringAs(text, ByteUnit.BYTE);
    if (value < least) {
      throw new IllegalArgumentException("it must be at least " + least + " bytes");
    }
    return value;
  }

  private static <E extends Enum<E>> E oneOf(E[] values, String text) {
    String name = text.toUpperCase(Locale.ROOT).replace('-', '_');
    return Arrays.stream(values)
        .filter(value -> value.name().equals(name))
        .findFirst()
        .orElseThrow(() -> new IllegalArgumentException("it must be one of " + names(values)));
  }

  private static <E extends Enum<E>> String names(E[] values) {
    return Arrays.stream(values)
        .map(value -> value.name().toLowerCase(Locale.ROOT).replace('_', '-'))
        .collect(Collectors.joining(", "));
  }
}
