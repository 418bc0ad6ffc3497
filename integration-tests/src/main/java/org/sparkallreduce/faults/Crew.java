// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;

/**
 * The worker processes: plays an episode with some of them, judges what became of each rank, and
 * looks for what is left, in the processes and in the file system.
 */
final class Crew implements AutoCloseable {
  private static final int SLOTS = 4;

  /** How long after a fault its traces may take to go, since some go on another thread. */
  private static final long TRACES_SECONDS = 10;

  private static final long READY_SECONDS = 120;

  private final WorkerProcess.Place place;
  private final BlockingQueue<WorkerProcess.Said> said = new LinkedBlockingQueue<>();
  private final WorkerProcess[] slots = new WorkerProcess[SLOTS];
  private final int[] kept = new int[SLOTS];
  private final long[] heapKib = new long[SLOTS];
  private final Set<Long> pids = new HashSet<>();
  private final long deviceMemory;
  private final Set<Long> settled = new HashSet<>();
  private int executors;

  Crew(WorkerProcess.Place place) {
    this.place = place;
    replace(0);
    slots[0].close(); // it leaves the archive of classes for the others
    for (int slot = 0; slot < SLOTS; slot++) {
      start(slot);
    }
    for (WorkerProcess worker : slots) {
      awaitReady(worker);
    }
    deviceMemory = deviceMemory();
  }

  /** What is in use of the devices; 0 on the host. */
  private long deviceMemory() {
    return place.gpu().map(gpu -> gpu.memoryInUse(pids())).orElse(0L);
  }

  /** How many processes there have been. */
  int executors() {
    return executors;
  }

  List<Long> pids() {
    return Arrays.stream(slots).map(WorkerProcess::pid).toList();
  }

  /** What of a process's heap was in use when it last kept nothing. */
  long heapKib(int slot) {
    return heapKib[slot];
  }

  private void start(int slot) {
    slots[slot] = new WorkerProcess(executors++, place, said);
    pids.add(slots[slot].pid());
    kept[slot] = 0;
  }

  private void replace(int slot) {
    if (slots[slot] != null) {
      Buffers.deleteRegistered(slots[slot].pid()); // the campaign's own, not the library's
    }
    start(slot);
    awaitReady(slots[slot]);
  }

  private void awaitReady(WorkerProcess worker) {
    await(worker, "ready");
    worker.noteIdle();
  }

  /** Waits until {@code worker} says {@code word}; returns all words of that line. */
  private String[] await(WorkerProcess worker, String word) {
    var others = new ArrayList<WorkerProcess.Said>();
    while (true) {
      WorkerProcess.Said next = poll();
      if (next == null || (next.worker() == worker && next.line().equals(WorkerProcess.ENDED))) {
        throw new IllegalStateException(
            "executor %d did not say \"%s\"; see its log in %s"
                .formatted(worker.executor, word, place.folder()));
      }
      if (next.worker() == worker && next.words()[0].equals(word)) {
        said.addAll(others);
        return next.words();
      }
      others.add(next);
    }
  }

  private WorkerProcess.Said poll() {
    try {
      return said.poll(READY_SECONDS, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Plays {@code episode}; says what was wrong with it. */
  List<String> play(Episode episode, Bounds bounds) {
    List<Integer> chosen = episode.slots(SLOTS);
    int victim = chosen.get(episode.victim());
    if (episode.fault() == Fault.REPLACED) {
      slots[victim].kill();
      replace(victim);
    }
    List<WorkerProcess> ranks = chosen.stream().map(slot -> slots[slot]).toList();
    String lost =
        "rank %1$d (executor %2$d on host-of-%2$d, process %3$d)"
            .formatted(episode.victim(), slots[victim].executor, slots[victim].pid());
    var director = new Director(episode, ranks, said);
    var wrong = new ArrayList<String>();
    try (var _ = Filler.of(episode)) {
      director.play();
    } catch (Director.Stuck e) {
      chosen.forEach(slot -> slots[slot].kill());
      chosen.forEach(this::replace);
      wrong.add(String.valueOf(e.getMessage()));
      return wrong;
    }
    director.judge(lost, bounds, wrong);
    for (int rank = 0; rank < ranks.size(); rank++) {
      kept[chosen.get(rank)] = director.kept(rank);
    }
    if (episode.fault().kills()) {
      replace(victim);
    }
    if (place.gpu().map(gpu -> !gpu.isSimulated()).orElse(false)) {
      // A real driver opens some things when it first meets a peer, and keeps them.
      ranks.stream()
          .filter(worker -> worker.isAlive() && settled.add(worker.pid()))
          .forEach(WorkerProcess::noteIdle);
    }
    chosen.forEach(slot -> checkTraces(slot, 1, wrong)); // one thread looks after what is kept
    checkFileSystem(wrong);
    checkDevices(wrong);
    return wrong;
  }

  private void checkDevices(List<String> wrong) {
    settle(
        "",
        () -> {
          long more = deviceMemory() - deviceMemory;
          return more <= 0 ? "" : "%d bytes of device memory left".formatted(more);
        },
        wrong);
  }

  /** Closes all that is kept: then nothing at all may be mapped. */
  List<String> forget() {
    var wrong = new ArrayList<String>();
    for (int slot = 0; slot < SLOTS; slot++) {
      slots[slot].tell("forget");
      heapKib[slot] = Long.parseLong(await(slots[slot], "forgotten")[1]);
      kept[slot] = 0;
      checkTraces(slot, 0, wrong);
    }
    return wrong;
  }

  private void checkTraces(int slot, int threads, List<String> wrong) {
    WorkerProcess worker = slots[slot];
    long pid = worker.pid();
    int mapped = kept[slot] * Episode.KEPT_RANKS;
    String who = "executor %d, process %d: ".formatted(worker.executor, pid);
    settle(who, () -> moreThan(mapped, "mappings of shared memory", Traces.mappings(pid)), wrong);
    settle(who, () -> moreThan(0, "new descriptors", worker.newDescriptors()), wrong);
    if (place.gpu().isPresent()) {
      settle(who, () -> worker.newThreads() <= 0 ? "" : "new threads", wrong);
    }
    settle(who, () -> moreThan(0, "child processes", Traces.children(pid)), wrong);
    settle(who, () -> moreThan(threads, "threads of ours", Traces.threads(pid)), wrong);
  }

  private void checkFileSystem(List<String> wrong) {
    Supplier<List<String>> names = () -> Filler.isPrivate() ? Traces.names() : Traces.namesOf(pids);
    settle("", () -> moreThan(0, "names in /dev/shm", names.get()), wrong);
    settle("", () -> moreThan(0, "temporary files", Traces.files(place.temporary())), wrong);
  }

  private static String moreThan(int most, String what, List<String> found) {
    return found.size() <= most ? "" : "%s left: %s".formatted(what, found);
  }

  /** Waits for traces that go on another thread; {@code trace} says what is there still. */
  static void settle(String who, Supplier<String> trace, List<String> wrong) {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(TRACES_SECONDS);
    String left = trace.get();
    while (!left.isEmpty() && System.nanoTime() < end) {
      LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(1));
      left = trace.get();
    }
    if (!left.isEmpty()) {
      wrong.add(who + left);
    }
  }

  @Override
  public void close() {
    for (WorkerProcess worker : slots) {
      worker.close();
    }
  }

  /** What is left when all have ended. */
  List<String> end() {
    var wrong = new ArrayList<String>();
    for (WorkerProcess worker : slots) {
      if (!worker.close()) {
        wrong.add("executor %d did not end when it was told to".formatted(worker.executor));
      }
    }
    checkFileSystem(wrong);
    return wrong;
  }
}
