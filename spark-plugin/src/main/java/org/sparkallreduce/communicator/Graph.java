// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.lang.foreign.MemorySegment;
import java.util.List;

/**
 * A step that was captured once, to be run many times: {@link Communicator#capture} makes it. It
 * belongs to its communicator, which closes it if you have not.
 */
public final class Graph implements AutoCloseable {
  private final Captures owner;

  /** On the GPU backend: what the driver made of the capture. */
  final MemorySegment executable;

  /** On the host backend: the calls of the step. */
  final List<Runnable> calls;

  Graph(Captures owner, MemorySegment executable, List<Runnable> calls) {
    this.owner = owner;
    this.executable = executable;
    this.calls = calls;
  }

  /**
   * Runs the step once more. All ranks replay the same graphs in the same order. On the GPU backend
   * the replay is only enqueued, and does not need the host any more: {@link Communicator#waitFor}
   * says how it went. Buffers must live as long as the graph.
   */
  public void replay() {
    owner.replay(this);
  }

  /** Gives back what it holds, when its replays have ended. Idempotent; not collective. */
  @Override
  public void close() {
    owner.close(this);
  }
}
