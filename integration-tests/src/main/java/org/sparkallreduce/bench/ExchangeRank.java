// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.bench;

import java.io.IOException;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.UUID;
import org.apache.spark.BarrierTaskContext;
import org.sparkallreduce.DataType;
import org.sparkallreduce.communicator.Communicator;
import org.sparkallreduce.communicator.Leases;
import org.sparkallreduce.communicator.LocalNode;
import org.sparkallreduce.communicator.RankIdentity;
import org.sparkallreduce.communicator.RegisteredBuffer;
import org.sparkallreduce.dataset.RankContext;
import org.sparkallreduce.exchange.Exchange;
import org.sparkallreduce.exchange.NudgedExchange;
import org.sparkallreduce.exchange.PlainExchange;

/**
 * One rank's part of the benchmark, in one barrier stage. The stage's own communicator brings the
 * ranks to the same point before each sample, and is not measured.
 */
final class ExchangeRank {
  private static final int REGISTERED_BYTES = 1 << 20;

  /** How many samples of each kind are taken. */
  record Counts(int plain, int nudged, int open, int attach, int register) implements Serializable {
    static final Counts FULL = new Counts(100, 400, 120, 400, 2_000);
    static final Counts QUICK = new Counts(2, 10, 3, 10, 50);
  }

  /** One kind of sample: what each round took on this rank. */
  record Series(String name, List<Long> nanos) implements Serializable {}

  /** What one rank measured. */
  record Measured(int messageBytes, List<Series> series) implements Serializable {}

  private interface Sample {
    void take(int round) throws IOException;
  }

  private final Communicator together;
  private final BarrierTaskContext task = BarrierTaskContext.get();
  private final LocalNode node = LocalNode.current();
  private final Exchange nudged = new NudgedExchange(task, node.settings().timeout());
  private final Exchange plain = new PlainExchange(task);
  private final int rank;
  private final int ranks;
  private String message = "";

  private ExchangeRank(RankContext context) {
    this.together = context.communicator();
    this.rank = context.rank();
    this.ranks = context.size();
  }

  static Measured measure(RankContext context, Counts counts) throws IOException {
    return new ExchangeRank(context).run(counts);
  }

  private Measured run(Counts counts) throws IOException {
    var series = new ArrayList<Series>();
    openAndClose(series, counts.open());
    exchangeAndAttach(series, counts);
    register(series, counts.register());
    return new Measured(message.length(), series);
  }

  private long time(int round, Sample sample) throws IOException {
    together.barrier();
    long start = System.nanoTime();
    sample.take(round);
    return System.nanoTime() - start;
  }

  private void openAndClose(List<Series> series, int rounds) throws IOException {
    var opened = new ArrayList<Long>();
    var closed = new ArrayList<Long>();
    for (int round = -1; round < rounds; round++) { // the first warms up
      var communicators = new ArrayList<Communicator>(1);
      long open =
          time(
              round,
              r ->
                  communicators.add(
                      open("open", r, Optional.empty(), new Leases(node.settings()))));
      long close = time(round, _ -> communicators.getFirst().close());
      if (round >= 0) {
        opened.add(open);
        closed.add(close);
      }
    }
    series.add(new Series("open a communicator", opened));
    series.add(new Series("close it", closed));
  }

  /**
   * In turn, since they are compared. The message is as long as the one that opens a communicator.
   */
  private void exchangeAndAttach(List<Series> series, Counts counts) throws IOException {
    var exchanged = new ArrayList<Long>();
    var attached = new ArrayList<Long>();
    UUID lease = new UUID(0, 1);
    try (var leases = new Leases(node.settings())) {
      open("attach", -1, Optional.of(lease), leases).closeInto(leases, lease);
      for (int round = 0; round < Math.max(counts.nudged(), counts.attach()); round++) {
        exchanged.add(time(round, _ -> requireAll(nudged.allGather(message))));
        var communicators = new ArrayList<Communicator>(1);
        attached.add(
            time(round, r -> communicators.add(open("attach", r, Optional.of(lease), leases))));
        communicators.getFirst().closeInto(leases, lease);
      }
    }
    var sparks = new ArrayList<Long>();
    for (int round = 0; round < counts.plain(); round++) {
      sparks.add(time(round, _ -> requireAll(plain.allGather(message))));
    }
    series.add(new Series("Spark's allGather", sparks));
    series.add(new Series("nudged allGather", first(exchanged, counts.nudged())));
    series.add(new Series("attach to a lease", first(attached, counts.attach())));
  }

  private static List<Long> first(List<Long> nanos, int count) {
    return new ArrayList<>(nanos.subList(0, count)); // a subList cannot be serialized
  }

  private void requireAll(String[] messages) {
    if (messages.length != ranks || Arrays.stream(messages).anyMatch(String::isEmpty)) {
      throw new IllegalStateException("a wrong exchange: " + Arrays.toString(messages));
    }
  }

  private void register(List<Series> series, int rounds) throws IOException {
    var registered = new ArrayList<Long>();
    Path file =
        Files.createTempFile(Path.of("/dev/shm"), "exchange-bench-" + rank + "-", ".memory");
    try {
      Files.write(file, new byte[REGISTERED_BYTES]);
      for (int round = -rounds / 10; round < rounds; round++) {
        var buffers = new ArrayList<RegisteredBuffer>(1);
        long nanos =
            time(
                round,
                _ ->
                    buffers.add(
                        together.register(file, 0, REGISTERED_BYTES / 4, DataType.FLOAT32)));
        together.deregister(buffers.getFirst());
        if (round >= 0) {
          registered.add(nanos);
        }
      }
    } finally {
      Files.delete(file);
    }
    series.add(new Series("register a buffer", registered));
  }

  private Communicator open(String what, int round, Optional<UUID> lease, Leases leases) {
    String session = "%s/%d/%d".formatted(what, task.stageId(), round);
    var identity =
        new RankIdentity(
            rank,
            ranks,
            UUID.nameUUIDFromBytes(session.getBytes(StandardCharsets.UTF_8)),
            node.executorId(),
            node.host(),
            Optional.empty());
    return Communicator.open(
        node.library(), node.settings(), identity, this::exchange, lease, leases);
  }

  private String[] exchange(String hello) {
    if (message.isEmpty()) {
      message = "x".repeat(hello.length());
    }
    return nudged.allGather(hello);
  }
}
