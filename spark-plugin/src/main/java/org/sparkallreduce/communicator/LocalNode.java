// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.util.Optional;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.Settings;
import org.sparkallreduce.ffm.NativeLibrary;

/**
 * What this process has for its ranks: the loaded library and the settings, or the reason why there
 * is none. The plugin's executor part installs one per process, before the first task runs.
 */
public final class LocalNode implements AutoCloseable {
  /** Brings a message to the plugin's driver part, and returns when it has been taken in. */
  @FunctionalInterface
  public interface DriverLink {
    void tell(Object message) throws Exception;
  }

  /** What a process can serve its ranks with. */
  private record Equipment(NativeLibrary library, Settings settings, Leases leases) {}

  private static final AtomicReference<@Nullable LocalNode> INSTALLED = new AtomicReference<>();

  private final String executorId;
  private final String host;
  private final DriverLink driver;
  private final @Nullable Equipment equipment;
  private final Activity activity = new Activity();
  private final String failure;

  private LocalNode(
      String executorId,
      String host,
      DriverLink driver,
      @Nullable Equipment equipment,
      String failure) {
    this.executorId = executorId;
    this.host = host;
    this.driver = driver;
    this.equipment = equipment;
    this.failure = failure;
  }

  /** A process that can serve ranks. */
  public static LocalNode ready(
      String executorId, String host, DriverLink driver, NativeLibrary library, Settings settings) {
    return new LocalNode(
        executorId, host, driver, new Equipment(library, settings, new Leases(settings)), "");
  }

  /** A process that cannot, because of {@code reason}. */
  public static LocalNode failed(String executorId, String host, DriverLink driver, String reason) {
    return new LocalNode(executorId, host, driver, null, reason);
  }

  /** Makes {@code node} this process's own; the next application's replaces it. */
  public static void install(LocalNode node) {
    INSTALLED.set(node);
  }

  /** Takes {@code node} away again, unless another one has replaced it. */
  public static void remove(LocalNode node) {
    INSTALLED.compareAndSet(node, null);
  }

  /** This process's node, able to serve ranks or not. */
  public static Optional<LocalNode> find() {
    return Optional.ofNullable(INSTALLED.get());
  }

  /**
   * This process's node.
   *
   * @throws AllReduceException.Setup with the reason, if it cannot serve ranks
   */
  public static LocalNode current() {
    LocalNode node = INSTALLED.get();
    if (node == null) {
      throw new AllReduceException.Setup(
          "The all-reduce plugin does not run in this process. Start the application with"
              + " --conf spark.plugins=org.sparkallreduce.plugin.AllReducePlugin.");
    }
    node.equipment();
    return node;
  }

  public String executorId() {
    return executorId;
  }

  public String host() {
    return host;
  }

  public DriverLink driver() {
    return driver;
  }

  public NativeLibrary library() {
    return equipment().library();
  }

  public Settings settings() {
    return equipment().settings();
  }

  /** What this process's ranks have done. */
  public Activity activity() {
    return activity;
  }

  /** The communicators that this process keeps between stages. */
  public Leases leases() {
    return equipment().leases();
  }

  /** Closes what is kept between stages. */
  @Override
  public void close() {
    if (equipment != null) {
      equipment.leases().close();
    }
  }

  private Equipment equipment() {
    if (equipment == null) {
      throw new AllReduceException.Setup(
          "Executor %s on host %s cannot take part in an all-reduce: %s"
              .formatted(executorId, host, failure));
    }
    return equipment;
  }
}
