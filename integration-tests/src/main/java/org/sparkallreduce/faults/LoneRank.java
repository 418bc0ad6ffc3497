// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.util.ArrayList;
import java.util.SplittableRandom;
import java.util.UUID;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.communicator.Communicator;
import org.sparkallreduce.communicator.RankIdentity;

/** A communicator of one rank: what a process can do by itself. */
final class LoneRank {
  private final Worker worker;
  private final int rank;

  /**
   * A lone rank.
   *
   * @param rank whose GPU it uses
   */
  LoneRank(Worker worker, int rank) {
    this.worker = worker;
    this.rank = rank;
  }

  private Communicator open() {
    var identity =
        new RankIdentity(0, 1, new UUID(0, 0), worker.executor, "host", worker.device(rank));
    return Communicator.open(
        worker.library, worker.settings(60_000, "0s"), identity, hello -> new String[] {hello});
  }

  /** Makes that call, and checks its result. */
  void run(Call call, GpuDriver.Context context) throws Buffers.WrongResult {
    try (Communicator alone = open();
        Buffers buffers = DeviceBuffers.of(call.withCount(7), alone, context)) {
      buffers.run(Buffers.NO_HOOKS);
    }
  }

  /** With calls of every kind: what this process loads and opens lazily is there then. */
  void warmUp() {
    if (worker.gpu.isEmpty()) {
      warmUp(null);
      return;
    }
    try (GpuDriver.Context context = worker.context(rank)) {
      warmUp(context);
    }
  }

  private void warmUp(GpuDriver.@Nullable Context context) {
    var all = new ArrayList<Buffers>();
    try (Communicator alone = open()) {
      var random = new SplittableRandom(1);
      for (Call.Kind kind : Call.Kind.values()) {
        for (Call.Memory memory : Call.Memory.values()) {
          Call each = Call.random(random, 1).with(kind, memory).withCount(3);
          all.add(DeviceBuffers.of(each, alone, context));
          all.getLast().run(Buffers.NO_HOOKS);
        }
      }
      alone.abort("the end of the warm-up");
      try {
        alone.barrier();
      } catch (AllReduceException.Aborted first) {
        RankProgram.checkRefusesFurtherUse(alone, first);
      }
    } catch (Buffers.WrongResult e) {
      throw new IllegalStateException(e);
    }
    all.forEach(Buffers::close);
  }
}
