// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.ffm;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemoryLayout.PathElement;
import java.lang.foreign.StructLayout;
import java.lang.invoke.VarHandle;

/**
 * The numbers of {@code spark_allreduce.h} that Java repeats. A test compares each of them with
 * what the library itself says ({@code sar_constants}).
 */
final class Abi {
  static final int ABI_VERSION = 3;
  static final int MAX_RANKS = 16;
  static final int HANDLE_BYTES = 256;
  static final int STATE_OPEN = 1;
  static final int STATE_ABORTED = 3;
  static final int MAX_AUTO_ROWS = 64;

  static final StructLayout OPTIONS =
      MemoryLayout.structLayout(
              JAVA_INT.withName("struct_bytes"),
              JAVA_INT.withName("rank"),
              JAVA_INT.withName("world_size"),
              JAVA_INT.withName("first_epoch"),
              JAVA_LONG.withName("session_high"),
              JAVA_LONG.withName("session_low"),
              JAVA_LONG.withName("arena_bytes"),
              JAVA_LONG.withName("staging_bytes"),
              JAVA_LONG.withName("spin_ns"))
          .withName("sar_options");

  static final StructLayout FAILURE =
      MemoryLayout.structLayout(
              JAVA_INT.withName("status"),
              JAVA_INT.withName("collective"),
              JAVA_LONG.withName("sequence"),
              JAVA_INT.withName("origin_rank"),
              JAVA_INT.withName("culprit_rank"),
              JAVA_INT.withName("missing_ranks"),
              JAVA_INT.withName("dead_ranks"),
              JAVA_INT.withName("step"),
              JAVA_INT.withName("reserved"),
              JAVA_LONG.withName("waited_ns"))
          .withName("sar_failure");

  static final StructLayout STATISTICS =
      MemoryLayout.structLayout(
              JAVA_LONG.withName("collectives"),
              JAVA_LONG.withName("bytes"),
              JAVA_LONG.withName("wait_ns"),
              JAVA_LONG.withName("total_ns"),
              JAVA_LONG.withName("unregistered"),
              MemoryLayout.sequenceLayout(MAX_RANKS, JAVA_LONG).withName("peer_wait_ns"))
          .withName("sar_statistics");

  static final StructLayout AUTO_ROW =
      MemoryLayout.structLayout(
              JAVA_INT.withName("world_size"),
              JAVA_INT.withName("schedule"),
              JAVA_LONG.withName("bytes"))
          .withName("sar_auto_row");

  static final StructLayout GPU_FACTS =
      MemoryLayout.structLayout(
              JAVA_INT.withName("vendor"),
              JAVA_INT.withName("driver_version"),
              JAVA_LONG.withName("memory_bytes"),
              MemoryLayout.sequenceLayout(96, JAVA_BYTE).withName("name"),
              MemoryLayout.sequenceLayout(48, JAVA_BYTE).withName("uuid"),
              MemoryLayout.sequenceLayout(32, JAVA_BYTE).withName("bus_id"))
          .withName("sar_gpu_facts");

  private Abi() {}

  /** A field of one of the structures above, as a handle that takes (segment). */
  static VarHandle field(StructLayout layout, String name) {
    return layout.varHandle(PathElement.groupElement(name)).withInvokeExactBehavior();
  }
}
