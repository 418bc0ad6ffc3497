// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Base64;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import org.apache.spark.SparkConf;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.Settings;
import org.sparkallreduce.communicator.Leases;
import org.sparkallreduce.exchange.Exchange;
import org.sparkallreduce.ffm.NativeLibrary;

/**
 * A process that plays ranks, one after the other, as a campaign tells it on its standard input: an
 * executor without Spark. It answers on its standard output, a line each:
 *
 * <pre>
 *   ready                    is there, has swept and warmed up
 *   exchange MESSAGE         its part of an exchange; answer MESSAGES... or broken comes back
 *   reached                  the fault's moment has come
 *   done                     it has aborted, or interrupted, its rank
 *   outcome OUTCOME          what became of its rank
 *   forgotten KIB            keeps nothing; what of its heap is in use after a collection
 * </pre>
 *
 * <p>Arguments: the preloaded library of faults, the executor's number, and the GPUs that the ranks
 * use, separated by commas, if they use any.
 */
public final class Worker {
  /** Thrown by the exchange when another rank did not come, as Spark ends it then. */
  static final class Broken extends RuntimeException {
    private static final long serialVersionUID = 1L;

    Broken() {
      super("the exchange was broken: another rank has failed");
    }
  }

  private static final String NO_KEPT_TIME = "0s";
  private static final String KEPT_TIME = "1h";

  final NativeLibrary library = NativeLibrary.load(Optional.empty());
  final Shim shim;
  final String executor;

  /** The addresses of the GPUs; empty: on the host. */
  final List<String> gpu;

  final BlockingQueue<String> answers = new LinkedBlockingQueue<>();
  final Semaphore go = new Semaphore(0);
  private final PrintStream out;
  private final @Nullable GpuDriver driver;
  private Leases leases;
  private volatile @Nullable RankProgram current;

  private Worker(Path shim, String executor, List<String> gpu, PrintStream out) {
    this.shim = new Shim(shim);
    this.executor = executor;
    this.gpu = gpu;
    this.out = out;
    this.driver = gpu.isEmpty() ? null : new GpuDriver();
    this.leases = new Leases(settings(60_000, KEPT_TIME));
  }

  GpuDriver driver() {
    return Objects.requireNonNull(driver);
  }

  /** What Spark would have assigned to a rank: a GPU of its own, as long as there are enough. */
  Optional<String> device(int rank) {
    return gpu.isEmpty() ? Optional.empty() : Optional.of(gpu.get(rank % gpu.size()));
  }

  GpuDriver.Context context(int rank) {
    return driver().new Context(rank % gpu.size());
  }

  /**
   * How much of a device is left free where it is to be full: on a real one the contexts of others
   * must still find room, so there the arena is larger.
   */
  long deviceRoom() {
    return driver().isSimulated() ? 4L << 20 : 6L << 30;
  }

  public static void main(String[] arguments) throws IOException {
    PrintStream out = System.out;
    System.setOut(System.err); // lines of anybody else must not come between
    List<String> gpu = arguments.length > 2 ? List.of(arguments[2].split(",", -1)) : List.of();
    var worker = new Worker(Path.of(arguments[0]), arguments[1], gpu, out);
    worker.library.sweep();
    new LoneRank(worker, 0).warmUp();
    worker.say("ready");
    worker.obey();
  }

  Settings settings(long timeoutMillis, String keptTime) {
    return settings(timeoutMillis, keptTime, "8m");
  }

  private Settings settings(long timeoutMillis, String keptTime, String arena) {
    return Settings.from(
        new SparkConf(false)
            .set("spark.allreduce.backend", gpu.isEmpty() ? "auto" : "gpu")
            .set("spark.allreduce.gpu.shared", Boolean.toString(!gpu.isEmpty()))
            .set("spark.allreduce.timeout", timeoutMillis + "ms")
            .set("spark.allreduce.arena.size", arena)
            .set("spark.allreduce.staging.size", "64k")
            .set("spark.allreduce.lease.idle", keptTime));
  }

  Settings settings(Episode episode) {
    boolean large = episode.fault() == Fault.DEVICE_FULL_OPEN && !driver().isSimulated();
    return settings(
        episode.timeoutMillis(), episode.kept() ? KEPT_TIME : NO_KEPT_TIME, large ? "8g" : "8m");
  }

  Leases leases() {
    return leases;
  }

  synchronized void say(String line) {
    out.println(line);
    out.flush();
  }

  /** An exchange through the campaign. */
  Exchange exchange() {
    return message -> {
      say("exchange " + message);
      String[] words = take(answers).split(" ", -1);
      if (words[0].equals("broken")) {
        throw new Broken();
      }
      String[] messages = new String[words.length - 1];
      System.arraycopy(words, 1, messages, 0, messages.length);
      return messages;
    };
  }

  private static String take(BlockingQueue<String> queue) {
    try {
      return queue.take();
    } catch (InterruptedException e) {
      throw new IllegalStateException("nobody interrupts the exchange", e);
    }
  }

  /** Until the campaign closes the pipe: then it ends too, however the campaign ended. */
  private void obey() throws IOException {
    var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] words = line.split(" ", -1);
      switch (words[0]) {
        case "run" -> run(words);
        case "answer", "broken" -> answers.add(line);
        case "go" -> go.release();
        case "abort" -> current().abort();
        case "interrupt" -> current().interrupt();
        case "forget" -> forget();
        default -> throw new IllegalArgumentException(line);
      }
    }
    leases.close();
    System.exit(0);
  }

  private void run(String[] words) {
    answers.clear();
    go.drainPermits();
    Episode episode =
        Episode.of(
            Episode.Plan.valueOf(words[1]), Long.parseLong(words[2]), Integer.parseInt(words[3]));
    var program = new RankProgram(this, episode, Integer.parseInt(words[4]));
    current = program;
    Thread.ofPlatform()
        .name("rank")
        .start(() -> say("outcome " + program.play() + " " + leases.size()));
  }

  private RankProgram current() {
    return Objects.requireNonNull(current, "no program runs");
  }

  /** Closes what is kept. */
  private void forget() {
    leases.close();
    leases = new Leases(settings(60_000, KEPT_TIME));
    System.gc();
    var heap = ManagementFactory.getMemoryMXBean().getHeapMemoryUsage();
    say("forgotten " + heap.getUsed() / 1024);
  }

  static String encode(String text) {
    return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
  }

  static String decode(String text) {
    return new String(Base64.getDecoder().decode(text), StandardCharsets.UTF_8);
  }
}
