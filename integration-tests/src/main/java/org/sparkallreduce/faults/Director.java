// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * Plays one episode with the workers that have its ranks: carries their exchanges, and does to them
 * from outside what they cannot do to themselves.
 */
final class Director {
  /** An episode that did not end, or in which a worker did what it never should. */
  static final class Stuck extends Exception {
    private static final long serialVersionUID = 1L;

    Stuck(String message) {
      super(message);
    }
  }

  /** How long an episode may take: much longer than all of its bounds together. */
  private static final long PATIENCE_SECONDS = 90;

  private final Episode episode;
  private final List<WorkerProcess> ranks;
  private final BlockingQueue<WorkerProcess.Said> said;
  private final @Nullable Outcome[] outcomes;
  private final int[] kept;
  private final @Nullable String[] messages;
  private boolean broken;
  private boolean struck;
  private boolean released;
  private long struckAt;

  Director(Episode episode, List<WorkerProcess> ranks, BlockingQueue<WorkerProcess.Said> said) {
    this.episode = episode;
    this.ranks = ranks;
    this.said = said;
    this.outcomes = new Outcome[ranks.size()];
    this.kept = new int[ranks.size()];
    this.messages = new String[ranks.size()];
  }

  private WorkerProcess victim() {
    return ranks.get(episode.victim());
  }

  private WorkerProcess other() {
    return ranks.get(episode.other());
  }

  /** How long after the fault, or after it came to that call, a rank noticed it; 0: no moment. */
  private long noticedAfter(Outcome outcome) {
    return struckAt == 0 || outcome.thrown() == 0
        ? 0
        : outcome.thrown() - Math.max(struckAt, outcome.entered());
  }

  /**
   * Adds what is wrong with the ranks' outcomes to {@code wrong}.
   *
   * @param lost how the victim is called where its process has ended
   */
  void judge(String lost, Bounds bounds, List<String> wrong) {
    int withoutMemory = 0;
    for (int rank = 0; rank < episode.ranks(); rank++) {
      Outcome outcome = outcomes[rank];
      if (outcome == null) {
        continue; // the victim was killed
      }
      String fault = Expected.of(episode, rank, lost).fault(outcome);
      if (!fault.isEmpty()) {
        wrong.add("rank %d: %s; it %s".formatted(rank, fault, outcome));
      }
      withoutMemory += outcome.kind().equals("Resource") ? 1 : 0;
      bounds.note(episode.fault(), noticedAfter(outcome)).ifPresent(wrong::add);
    }
    // A rank that had room gives it back when it hears of another's failure: a late one may find
    // it.
    int fewest = episode.room() == 0 ? episode.ranks() : 1;
    if (episode.fault() == Fault.MEMORY_FULL && withoutMemory < fewest) {
      wrong.add(
          "%d ranks found no memory, though there was room for %d of %d"
              .formatted(withoutMemory, episode.room(), episode.ranks()));
    }
  }

  /** How many communicators the rank's process keeps. */
  int kept(int rank) {
    return kept[rank];
  }

  void play() throws Stuck {
    for (int rank = 0; rank < ranks.size(); rank++) {
      ranks
          .get(rank)
          .tell("run %s %d %d %d".formatted(episode.plan(), episode.seed(), episode.index(), rank));
    }
    while (!isOver()) {
      WorkerProcess.Said next = next();
      int rank = ranks.indexOf(next.worker());
      String[] words = next.words();
      switch (words[0]) {
        case "exchange" -> exchange(rank, words[1]);
        case "reached" -> strike();
        case "done" -> other().tell("go");
        case "outcome" -> ended(rank, words);
        default -> {
          if (!next.line().equals(WorkerProcess.ENDED) || rank != episode.victim() || !struck) {
            throw new Stuck(
                "executor %d, rank %d: %s".formatted(next.worker().executor, rank, next.line()));
          }
        }
      }
    }
  }

  private boolean isOver() {
    for (int rank = 0; rank < ranks.size(); rank++) {
      boolean dead = rank == episode.victim() && episode.fault().kills() && struck;
      if (outcomes[rank] == null && !dead) {
        return false;
      }
    }
    return true;
  }

  private WorkerProcess.Said next() throws Stuck {
    try {
      while (true) {
        WorkerProcess.Said next = said.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
        if (next == null) {
          throw new Stuck("it stands still: " + state());
        }
        if (ranks.contains(next.worker())) {
          return next;
        }
      }
    } catch (InterruptedException e) {
      throw new Stuck("interrupted");
    }
  }

  private String state() {
    var text = new ArrayList<String>();
    for (int rank = 0; rank < ranks.size(); rank++) {
      text.add("rank %d (process %d): %s".formatted(rank, ranks.get(rank).pid(), outcomes[rank]));
    }
    return String.join("; ", text);
  }

  private void exchange(int rank, String message) {
    if (broken) {
      ranks.get(rank).tell("broken");
      return;
    }
    messages[rank] = message;
    if (Arrays.asList(messages).contains(null)) {
      return;
    }
    if (episode.fault() == Fault.KILL_IN_EXCHANGE && !struck) {
      strike();
    }
    for (int to = 0; to < ranks.size(); to++) {
      ranks.get(to).tell("answer " + String.join(" ", answer(to)));
    }
    Arrays.fill(messages, null);
  }

  private List<String> answer(int to) {
    var answer = new ArrayList<String>();
    for (int from = 0; from < messages.length; from++) {
      boolean damaged =
          from == episode.victim() && (episode.damagedForAll() || to == episode.other());
      String message = String.valueOf(messages[from]);
      answer.add(
          switch (episode.fault()) {
            case MESSAGE_CUT -> damaged ? cut(message) : message;
            case MESSAGE_FLIPPED -> damaged ? flip(message) : message;
            default -> message;
          });
    }
    return answer;
  }

  private String cut(String message) {
    return message.substring(
        0,
        new SplittableRandom(episode.detail()).nextInt(message.length() - 3)); // more than padding
  }

  private String flip(String message) {
    byte[] bytes = Base64.getDecoder().decode(message);
    int bit = new SplittableRandom(episode.detail()).nextInt(8 * bytes.length);
    bytes[bit / 8] ^= (byte) (1 << (bit % 8));
    return Base64.getEncoder().encodeToString(bytes);
  }

  /** The fault's moment has come. */
  private void strike() {
    struck = true;
    switch (episode.fault()) {
      case KILL_BEFORE, KILL_STARVED, KILL_IN_EXCHANGE -> kill();
      case KILL_INSIDE, KILL_LAUNCHED -> {
        kill();
        other().tell("go");
      }
      case KILL_LOOSE -> {
        LockSupport.parkNanos(episode.delayMillis() * 50_000);
        kill();
      }
      case STOP_LONG -> victim().stop();
      case STOP_BRIEFLY, STOP_LAUNCHED -> {
        victim().stop();
        other().tell("go");
        LockSupport.parkNanos(episode.delayMillis() * 1_000_000);
        victim().resume();
      }
      case ABORT_INSIDE, ABORT_LAUNCHED -> {
        struckAt = System.nanoTime();
        victim().tell("abort");
      }
      case INTERRUPT_INSIDE -> victim().tell("interrupt");
      default -> {}
    }
  }

  private void kill() {
    struckAt = System.nanoTime();
    victim().kill();
  }

  private void ended(int rank, String[] words) {
    outcomes[rank] = Outcome.parse(words);
    kept[rank] = Integer.parseInt(words[6]);
    // Whoever waits in an exchange waits for this rank too: Spark ends the stage then.
    broken = true;
    for (int waiting = 0; waiting < messages.length; waiting++) {
      if (messages[waiting] != null) {
        ranks.get(waiting).tell("broken");
        messages[waiting] = null;
      }
    }
    if (episode.fault().passesDeadline() && struck && !released && onlyVictimIsLeft()) {
      released = true;
      victim().resume();
      victim().tell("go");
    }
  }

  private boolean onlyVictimIsLeft() {
    for (int rank = 0; rank < ranks.size(); rank++) {
      if (rank != episode.victim() && outcomes[rank] == null) {
        return false;
      }
    }
    return true;
  }
}
