// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.Settings;
import org.sparkallreduce.ffm.NativeLibrary;

/**
 * Ranks as processes that this one starts, with the exchange through their pipes. However it ends,
 * no process and no shared memory is left: a rank that ends early ends all others.
 */
final class ProcessRun implements Run {
  private static final long LOOK_MILLIS = 200;

  /** How long the other ranks may take to notice that one has failed, before they are ended. */
  private static final long AFTERMATH_MILLIS = 3_000;

  private static final String LOG_SETTINGS = "log4j2.configurationFile";

  private final Map<String, String> settings;
  private final String autoTable;
  private final Duration timeout;

  /** Starts ranks with {@code settings}, which are those of Spark's configuration. */
  ProcessRun(Map<String, String> settings) {
    this.settings = Map.copyOf(settings);
    Settings parsed = Settings.from(settings).readAutoTable();
    this.autoTable = parsed.autoTable().text();
    this.timeout = parsed.timeout();
  }

  @Override
  public void measure(Job job, int ranks, Listener listener) {
    var session = new Session(job, ranks, listener);
    Thread killer = Thread.ofPlatform().unstarted(session::close);
    Runtime.getRuntime().addShutdownHook(killer); // an interrupted tool leaves nothing either
    try (session) {
      session.run();
    } finally {
      forget(killer);
    }
  }

  private static void forget(Thread hook) {
    try {
      Runtime.getRuntime().removeShutdownHook(hook);
    } catch (IllegalStateException e) {
      // The tool was interrupted: the hook runs already.
    }
  }

  /** Null: the rank's output has ended. */
  private record Event(int rank, @Nullable Message message) {}

  private final class Session implements AutoCloseable {
    private final Job job;
    private final int ranks;
    private final Listener listener;
    private final BlockingQueue<Event> events = new LinkedBlockingQueue<>();
    private final List<Process> processes = new ArrayList<>();
    private final List<ObjectOutputStream> inputs = new ArrayList<>();
    private final @Nullable String[] words;
    private final @Nullable RankInfo[] infos;
    private final Map<Integer, List<Measured>> parts = new TreeMap<>();
    private final boolean[] done;

    Session(Job job, int ranks, Listener listener) {
      this.job = job;
      this.ranks = ranks;
      this.listener = listener;
      this.words = new String[ranks];
      this.infos = new RankInfo[ranks];
      this.done = new boolean[ranks];
    }

    void run() {
      long begin = System.nanoTime();
      UUID session = UUID.randomUUID();
      for (int rank = 0; rank < ranks; rank++) {
        start(rank);
      }
      for (int rank = 0; rank < ranks; rank++) {
        tell(rank, new Message.Start(rank, ranks, session, settings, autoTable, job));
      }
      while (!allDone()) {
        Event event = next(LOOK_MILLIS).orElse(null);
        if (event == null) {
          requireStart(begin);
          listener.waiting();
        } else if (event.message() == null || event.message() instanceof Message.Failed) {
          if (!done[event.rank()]) {
            throw new ToolException(explain(event));
          }
        } else {
          handle(event.rank(), event.message());
        }
      }
    }

    /** Once they are connected, the collectives' own deadline is enough. */
    private void requireStart(long begin) {
      if (System.nanoTime() - begin > timeout.toNanos()) {
        for (int rank = 0; rank < ranks; rank++) {
          if (infos[rank] == null) {
            throw new ToolException(
                "Rank %d (process %d) was not ready within %d s (spark.allreduce.timeout)."
                    .formatted(rank, processes.get(rank).pid(), timeout.toSeconds()));
          }
        }
      }
    }

    private boolean allDone() {
      return IntStream.range(0, ranks).allMatch(rank -> done[rank]);
    }

    private synchronized void start(int rank) {
      try {
        Process process =
            new ProcessBuilder(command()).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        processes.add(process);
        inputs.add(new ObjectOutputStream(process.getOutputStream()));
        Thread.ofPlatform().daemon().name("rank " + rank).start(() -> read(rank, process));
      } catch (IOException e) {
        throw new UncheckedIOException("Cannot start the process of rank " + rank, e);
      }
    }

    private void read(int rank, Process process) {
      try (var in = new ObjectInputStream(process.getInputStream())) {
        while (true) {
          events.add(new Event(rank, (Message) in.readObject()));
        }
      } catch (IOException | ClassNotFoundException e) {
        events.add(new Event(rank, null)); // the process says by its exit code how it ended
      }
    }

    private void handle(int rank, Message message) {
      switch (message) {
        case Message.Word word -> {
          words[rank] = word.text();
          if (Arrays.stream(words).allMatch(Objects::nonNull)) {
            tellAll(new Message.Words(List.of(words.clone())));
            Arrays.fill(words, null);
          }
        }
        case Message.Ready ready -> {
          infos[rank] = ready.rank();
          if (Arrays.stream(infos).allMatch(Objects::nonNull)) {
            listener.started(List.of(infos.clone()));
          }
        }
        case Message.Result result -> join(result.measured());
        case Message.Done _ -> done[rank] = true;
        default -> throw new IllegalStateException("rank " + rank + " said " + message);
      }
    }

    private void join(Measured part) {
      List<Measured> all = parts.computeIfAbsent(part.index(), _ -> new ArrayList<>());
      all.add(part);
      if (all.size() == ranks) {
        parts.remove(part.index());
        listener.measured(Measured.join(all));
        tellAll(new Message.Next());
      }
    }

    private void tellAll(Message message) {
      for (int rank = 0; rank < ranks; rank++) {
        tell(rank, message);
      }
    }

    /** A rank that does not listen any more has ended; its output tells. */
    private void tell(int rank, Message message) {
      try {
        inputs.get(rank).writeObject(message);
        inputs.get(rank).flush();
      } catch (IOException e) {
        // Nobody reads it.
      }
    }

    private Optional<Event> next(long millis) {
      try {
        return Optional.ofNullable(events.poll(millis, TimeUnit.MILLISECONDS));
      } catch (InterruptedException e) {
        throw new ToolException("Interrupted.");
      }
    }

    /**
     * A rank that was killed is the cause, and what its peers say is not; but they may say it
     * first.
     */
    private String explain(Event first) {
      var told = new TreeMap<Integer, String>();
      var ended = new TreeMap<Integer, String>();
      long start = System.nanoTime();
      Event event = first;
      while (true) {
        if (event.message() instanceof Message.Failed failed) {
          told.putIfAbsent(event.rank(), failed.why());
        } else if (event.message() == null
            && !done[event.rank()]
            && !told.containsKey(event.rank())) {
          ended.put(event.rank(), howItEnded(event.rank()));
        }
        long left = AFTERMATH_MILLIS - TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
        Optional<Event> next =
            told.size() + ended.size() < ranks && left > 0 ? next(left) : Optional.empty();
        if (next.isEmpty()) {
          break;
        }
        event = next.get();
      }
      if (!ended.isEmpty()) {
        return String.join(" ", ended.values());
      }
      return "%s All ranks were ended."
          .formatted(told.getOrDefault(first.rank(), told.firstEntry().getValue()));
    }

    private String howItEnded(int rank) {
      Process process = processes.get(rank);
      try {
        if (!process.waitFor(AFTERMATH_MILLIS, TimeUnit.MILLISECONDS)) {
          return "Rank %d (process %d) has closed its output.".formatted(rank, process.pid());
        }
      } catch (InterruptedException e) {
        throw new ToolException("Interrupted.");
      }
      int code = process.exitValue();
      String how = code > 128 ? "was killed by signal " + (code - 128) : "ended with code " + code;
      return "Rank %d (process %d) %s before it was done; the other ranks were ended."
          .formatted(rank, process.pid(), how);
    }

    /** Ends what still runs, waits for it, and removes the segments of those that were killed. */
    @Override
    public synchronized void close() {
      boolean killed = false;
      for (int rank = 0; rank < processes.size(); rank++) {
        Process process = processes.get(rank);
        if (!done[rank]) {
          killed = true;
          process.destroyForcibly();
        }
      }
      for (int rank = 0; rank < processes.size(); rank++) {
        await(processes.get(rank));
      }
      if (killed) {
        int unused = NativeLibrary.load(Optional.empty()).sweep();
      }
    }

    private static void await(Process process) {
      try {
        if (!process.waitFor(AFTERMATH_MILLIS, TimeUnit.MILLISECONDS)) {
          process.destroyForcibly().waitFor();
        }
      } catch (InterruptedException e) {
        process.destroyForcibly();
        Thread.currentThread().interrupt();
      }
    }
  }

  /** This JVM again, with the same class path and log settings, and no threads that compete. */
  private static List<String> command() {
    return List.of(
        Path.of(System.getProperty("java.home"), "bin", "java").toString(),
        "--enable-native-access=ALL-UNNAMED",
        "--sun-misc-unsafe-memory-access=allow", // Spark's Kryo asks how arrays are laid out
        "-XX:+UseSerialGC",
        "-D%s=%s".formatted(LOG_SETTINGS, System.getProperty(LOG_SETTINGS, "")),
        "-cp",
        System.getProperty("java.class.path"),
        RankProcess.class.getName());
  }
}
