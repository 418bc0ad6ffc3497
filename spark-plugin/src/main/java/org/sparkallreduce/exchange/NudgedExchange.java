// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.exchange;

import java.math.BigDecimal;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import org.apache.spark.BarrierTaskContext;
import org.sparkallreduce.AllReduceException;

/**
 * {@link BarrierTaskContext#allGather} without its second of waiting. Spark's call sleeps for a
 * second before it looks whether the answer has come; an interrupt ends that sleep and has no other
 * effect. So the call runs on a thread of its own, and that thread is nudged, by an interrupt,
 * whenever it is seen to sleep in Spark's code. The task's own thread is never interrupted, and an
 * interrupt that somebody else sends to it stays pending.
 *
 * <p>Only Spark's documented behaviour is relied upon for the result. If a version of Spark waits
 * in another way, it is never seen asleep and hence never interrupted: the exchange is as slow as
 * Spark's own, and right.
 */
public final class NudgedExchange implements Exchange {
  private static final long FIRST_NUDGE_NANOS = TimeUnit.MILLISECONDS.toNanos(1);
  private static final long SLOWEST_NUDGE_NANOS = TimeUnit.MILLISECONDS.toNanos(50);

  private static final int BREAK_ROUNDS = 4;
  private static final Duration BREAK_PATIENCE = Duration.ofSeconds(1);

  private final BarrierTaskContext context;
  private final Duration timeout;

  /**
   * Exchanges through {@code context}.
   *
   * @param timeout how long {@link #allGather} waits for all ranks
   */
  public NudgedExchange(BarrierTaskContext context, Duration timeout) {
    this.context = context;
    this.timeout = timeout;
  }

  @Override
  public String[] allGather(String message) {
    var call = new Call("allGather", () -> context.allGather(message));
    if (call.waitUntilDone(timeout)) {
      return call.result();
    }
    breakSync(call);
    throw new AllReduceException.TimedOut(
        "The exchange of stage %d (attempt %d) did not complete within %s s: rank %d came, but not all of"
                .formatted(
                    context.stageId(),
                    context.stageAttemptNumber(),
                    new BigDecimal(timeout.toMillis())
                        .movePointLeft(3)
                        .stripTrailingZeros()
                        .toPlainString(),
                    context.partitionId())
            + " the other %d did. Look at the executor logs of the other ranks; raise"
                .formatted(context.getTaskInfos().length - 1)
            + " spark.allreduce.timeout if they only need longer to come here.");
  }

  /**
   * Makes Spark answer a call that has waited too long, on this and on all other ranks: a barrier
   * and an allGather within one synchronisation fail both. Otherwise the thread would wait on for
   * as long as the executor lives. Should the allGather complete just now, the barrier would begin
   * a new synchronisation and wait in turn: then the next round breaks that one. A driver that does
   * not answer at all is not asked again and again; its executors end without it.
   */
  private void breakSync(Call stuck) {
    Call pending = stuck;
    for (int round = 0; round < BREAK_ROUNDS && !pending.isDone(); round++) {
      Call breaker =
          round % 2 == 0
              ? new Call("barrier", this::barrier)
              : new Call("allGather", () -> context.allGather(""));
      breaker.waitUntilDone(BREAK_PATIENCE);
      pending.waitUntilDone(BREAK_PATIENCE);
      pending = breaker;
    }
  }

  private String[] barrier() {
    context.barrier();
    return new String[0];
  }

  /** One of Spark's blocking calls, on a thread of its own. */
  private final class Call {
    private final CompletableFuture<String[]> answer = new CompletableFuture<>();
    private final Thread waiter = Thread.currentThread();
    private final Thread thread;

    Call(String name, Supplier<String[]> call) {
      thread =
          Thread.ofPlatform()
              .name("spark-allreduce %s of task %d".formatted(name, context.taskAttemptId()))
              .daemon()
              .unstarted(
                  () -> {
                    try {
                      answer.complete(call.get());
                    } catch (Throwable t) {
                      answer.completeExceptionally(t);
                    }
                    LockSupport.unpark(waiter);
                  });
      thread.start();
    }

    boolean isDone() {
      return answer.isDone();
    }

    String[] result() {
      try {
        return answer.resultNow();
      } catch (IllegalStateException e) {
        throw Unchecked.rethrow(answer.exceptionNow());
      }
    }

    /**
     * False if {@code limit} passed first. An interrupt of the calling thread stays pending, and is
     * never taken and given back: Spark's task threads can lose one that they send to themselves
     * while another thread is about to send one.
     */
    @SuppressWarnings("ThreadPriorityCheck") // yielding is a courtesy here, not a means
    boolean waitUntilDone(Duration limit) {
      long start = System.nanoTime();
      long nudged = start;
      while (!answer.isDone()) {
        long now = System.nanoTime();
        long left = limit.toNanos() - (now - start);
        if (left <= 0) {
          return false;
        }
        // Late ranks are waited for with fewer looks; a twentieth more time at most.
        long pause = Math.clamp((now - start) / 20, FIRST_NUDGE_NANOS, SLOWEST_NUDGE_NANOS);
        if (now - nudged >= pause) {
          nudge();
          nudged = now;
        }
        if (Thread.currentThread().isInterrupted()) {
          Thread.yield(); // an interrupted thread cannot park
        } else {
          LockSupport.parkNanos(this, Math.min(pause, left));
        }
      }
      return true;
    }

    /**
     * Interrupts the thread only where that is known to be harmless: asleep, called from Spark's
     * barrier context. If it leaves the sleep just now, the interrupt ends its next one.
     */
    private void nudge() {
      if (thread.getState() == Thread.State.TIMED_WAITING
          && sleepsInSpark(thread.getStackTrace())) {
        thread.interrupt();
      }
    }
  }

  /** The innermost frames are Thread.sleep's, and BarrierTaskContext called it. */
  static boolean sleepsInSpark(StackTraceElement[] stack) {
    int caller = 0;
    while (caller < stack.length
        && stack[caller].getClassName().equals(Thread.class.getName())
        && stack[caller].getMethodName().startsWith("sleep")) {
      caller++;
    }
    return caller > 0
        && caller < stack.length
        && stack[caller].getClassName().equals(BarrierTaskContext.class.getName());
  }
}
