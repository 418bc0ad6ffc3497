// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.AllReduceException;

/**
 * The captures of one rank, and the graphs that came out of them. On the GPU backend the driver
 * records what goes to the stream; on the host a graph is the list of the captured calls.
 */
final class Captures {
  private final LocalRank local;
  private final Set<Graph> graphs = Collections.newSetFromMap(new IdentityHashMap<>());
  private boolean capturing;

  /** On the host backend, what a capture in progress has recorded. */
  private @Nullable List<Runnable> recording;

  Captures(LocalRank local) {
    this.local = local;
  }

  /** Whether a collective is to be {@link #record}ed and not to be run. */
  boolean isRecording() {
    return recording != null;
  }

  void record(Runnable call) {
    if (recording != null) {
      recording.add(call);
    }
  }

  void requireNone(String what) {
    if (capturing) {
      throw new AllReduceException.Usage(
          "%s is called during a capture on rank %d. A captured step calls collectives on registered buffers"
                  .formatted(what, local.rank)
              + " only, and has its buffers before.");
    }
  }

  Graph capture(Runnable step) {
    requireNone("capture");
    begin();
    boolean captured = false;
    try {
      step.run();
      captured = true;
    } finally {
      if (!captured) {
        cancel();
      }
    }
    return end();
  }

  private void begin() {
    local.begin();
    try {
      if (local.gpu == null) {
        recording = new ArrayList<>();
      } else {
        local.check(local.gpu.captureBegin(local.timeoutNanos));
      }
      capturing = true;
    } finally {
      local.leave();
    }
  }

  private void cancel() {
    capturing = false;
    recording = null;
    if (!local.tryBegin()) {
      return; // another thread closes the communicator, which gives the capture up
    }
    try {
      if (local.gpu != null) {
        var unused = local.gpu.captureCancel(); // what the step threw says more
      }
    } finally {
      local.leave();
    }
  }

  private Graph end() {
    local.begin();
    try (Arena call = Arena.ofConfined()) {
      List<Runnable> calls = recording == null ? List.of() : List.copyOf(recording);
      capturing = false;
      recording = null;
      MemorySegment executable = MemorySegment.NULL;
      if (local.gpu != null) {
        MemorySegment result = call.allocate(ValueLayout.ADDRESS);
        local.check(local.gpu.captureEnd(local.timeoutNanos, result));
        executable = result.get(ValueLayout.ADDRESS, 0);
      }
      var graph = new Graph(this, executable, calls);
      graphs.add(graph);
      return graph;
    } finally {
      local.leave();
    }
  }

  void replay(Graph graph) {
    requireNone("replay");
    local.begin();
    try {
      if (!graphs.contains(graph)) {
        throw new AllReduceException.Usage("The graph is closed: capture the step again.");
      }
      if (local.gpu != null) {
        local.check(local.gpu.replay(graph.executable));
        return;
      }
    } finally {
      local.leave();
    }
    graph.calls.forEach(Runnable::run);
  }

  void close(Graph graph) {
    if (!local.isOpen()) {
      return; // the graph was closed with the communicator
    }
    local.begin();
    try {
      if (graphs.remove(graph)) {
        destroy(graph);
      }
    } finally {
      local.leave();
    }
  }

  /** With the communicator, by the thread that ends it. */
  void closeAll() {
    graphs.forEach(this::destroy);
    graphs.clear();
  }

  private void destroy(Graph graph) {
    if (local.gpu != null) {
      local.gpu.destroyGraph(graph.executable);
    }
  }
}
