// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.exchange;

import java.nio.ByteBuffer;
import java.util.Optional;
import java.util.UUID;
import java.util.function.UnaryOperator;
import org.sparkallreduce.Backend;
import org.sparkallreduce.ProcessIdentity;
import org.sparkallreduce.Schedule;

/** Messages for the tests. */
final class Hellos {
  private Hellos() {}

  static Hello of(int rank, int worldSize) {
    return new Hello(
        Hello.PROTOCOL,
        rank,
        worldSize,
        new UUID(1, 2),
        "executor-" + rank,
        "host-ä",
        new HostIdentity("boot", 11, 12),
        new ProcessIdentity(1000 + rank, 77, 13),
        rank % 2 == 0 ? Optional.empty() : Optional.of("GPU-" + rank),
        "host 0.1",
        1 << 20,
        1 << 16,
        Schedule.DIRECT_WRITE,
        "2 rows",
        rank % 2 == 0 ? GpuOffer.none(Backend.AUTO, false) : readyGpu(rank),
        rank % 3 == 0 ? Optional.empty() : Optional.of(new Held(new UUID(3, 4), rank - 1, 99)),
        ByteBuffer.wrap(new byte[256]).asReadOnlyBuffer());
  }

  private static GpuOffer readyGpu(int rank) {
    return new GpuOffer(Backend.AUTO, false, "gpu 0.1", "GPU-" + rank, "a GPU " + rank, "");
  }

  /** A message that differs from the usual one in what {@code change} does to its parts. */
  static Hello of(int rank, int worldSize, UnaryOperator<Parts> change) {
    Hello usual = of(rank, worldSize);
    Parts parts =
        change.apply(
            new Parts(
                usual.session(),
                usual.hostIdentity(),
                usual.process(),
                usual.build(),
                usual.arenaBytes(),
                usual.stagingBytes(),
                usual.autoTable(),
                usual.gpu()));
    return new Hello(
        usual.protocol(),
        rank,
        worldSize,
        parts.session,
        usual.executorId(),
        usual.host(),
        parts.host,
        parts.process,
        usual.device(),
        parts.build,
        parts.arenaBytes,
        parts.stagingBytes,
        usual.schedule(),
        parts.autoTable,
        parts.gpu,
        usual.held(),
        usual.handle());
  }

  /** What tests change; each method changes it in place and returns it. */
  static final class Parts {
    private UUID session;
    private HostIdentity host;
    private ProcessIdentity process;
    private String build;
    private long arenaBytes;
    private long stagingBytes;
    private String autoTable;
    private GpuOffer gpu;

    Parts(
        UUID session,
        HostIdentity host,
        ProcessIdentity process,
        String build,
        long arenaBytes,
        long stagingBytes,
        String autoTable,
        GpuOffer gpu) {
      this.session = session;
      this.host = host;
      this.process = process;
      this.build = build;
      this.arenaBytes = arenaBytes;
      this.stagingBytes = stagingBytes;
      this.autoTable = autoTable;
      this.gpu = gpu;
    }

    Parts withSession(UUID other) {
      session = other;
      return this;
    }

    Parts withBootId(String other) {
      host = new HostIdentity(other, host.ipcNamespace(), host.sharedMemoryDevice());
      return this;
    }

    Parts withIpcNamespace(long other) {
      host = new HostIdentity(host.bootId(), other, host.sharedMemoryDevice());
      return this;
    }

    Parts withSharedMemoryDevice(long other) {
      host = new HostIdentity(host.bootId(), host.ipcNamespace(), other);
      return this;
    }

    Parts withPidNamespace(long other) {
      process = new ProcessIdentity(process.pid(), process.startTime(), other);
      return this;
    }

    Parts withBuild(String other) {
      build = other;
      return this;
    }

    Parts withArenaBytes(long other) {
      arenaBytes = other;
      return this;
    }

    Parts withStagingBytes(long other) {
      stagingBytes = other;
      return this;
    }

    Parts withAutoTable(String other) {
      autoTable = other;
      return this;
    }

    Parts withGpu(GpuOffer other) {
      gpu = other;
      return this;
    }
  }
}
