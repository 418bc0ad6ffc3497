// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.dataset;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.Settings;

/**
 * What the driver knows of its executors and of failures in running stages. The plugin's driver
 * part installs one per application and feeds it; nothing here ever blocks, since Spark hands the
 * messages of all executors to one thread.
 */
public final class DriverNode {
  private static final AtomicReference<@Nullable DriverNode> INSTALLED = new AtomicReference<>();

  private final Settings settings;
  private final List<String> devices;
  private final Map<String, ExecutorHealth> unfit = new ConcurrentHashMap<>();
  private final Map<UUID, Optional<RankFailure>> runs = new ConcurrentHashMap<>();
  private final LeaseBook leases = new LeaseBook();

  /**
   * @param devices the GPU addresses of the driver's own resources
   */
  public DriverNode(Settings settings, List<String> devices) {
    this.settings = settings;
    this.devices = List.copyOf(devices);
  }

  public static void install(DriverNode node) {
    INSTALLED.set(node);
  }

  /** Takes {@code node} away again, unless the next application's has replaced it. */
  public static void remove(DriverNode node) {
    INSTALLED.compareAndSet(node, null);
  }

  /** Whether the plugin's driver part runs in this process. */
  public static boolean isInstalled() {
    return INSTALLED.get() != null;
  }

  static Optional<DriverNode> find() {
    return Optional.ofNullable(INSTALLED.get());
  }

  public void executorStarted(ExecutorHealth health) {
    if (health.failure() != null) {
      unfit.put(health.executorId(), health);
    }
  }

  public void executorRemoved(String executorId) {
    unfit.remove(executorId);
  }

  /** Keeps the report if it is the first cause of its stage attempt, and of no earlier attempt. */
  public void rankFailed(RankFailure report) {
    runs.computeIfPresent(
        report.run(), (_, known) -> Optional.of(known.map(k -> later(k, report)).orElse(report)));
  }

  private static RankFailure later(RankFailure known, RankFailure report) {
    if (report.attempt() != known.attempt()) {
      return report.attempt() > known.attempt() ? report : known;
    }
    boolean better =
        known.kind() == RankFailure.Kind.FOLLOW_UP && report.kind() != RankFailure.Kind.FOLLOW_UP;
    return better ? report : known;
  }

  Settings settings() {
    return settings;
  }

  List<String> devices() {
    return devices;
  }

  LeaseBook leases() {
    return leases;
  }

  /** Live executors that reported that they cannot take part. */
  List<ExecutorHealth> unfitExecutors() {
    return List.copyOf(unfit.values());
  }

  /** Begins to listen for failures of a run. */
  void begin(UUID run) {
    runs.put(run, Optional.empty());
  }

  /** The first cause of the run's last failed attempt; the run is forgotten. */
  Optional<RankFailure> end(UUID run) {
    return Optional.ofNullable(runs.remove(run)).flatMap(report -> report);
  }
}
