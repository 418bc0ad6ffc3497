// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.exchange;

import java.nio.ByteBuffer;
import java.util.Optional;
import java.util.UUID;
import java.util.function.UnaryOperator;
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
        rank % 3 == 0 ? Optional.empty() : Optional.of(new Held(new UUID(3, 4), rank - 1, 99)),
        ByteBuffer.wrap(new byte[256]).asReadOnlyBuffer());
  }

  /** A message that differs from the usual one in what {@code change} does to its parts. */
  static Hello of(int rank, int worldSize, UnaryOperator<Parts> change) {
    Parts parts =
        change.apply(new Parts(new UUID(1, 2), "boot", 12, "host 0.1", 1 << 20, 1 << 16, "2 rows"));
    Hello usual = of(rank, worldSize);
    return new Hello(
        usual.protocol(),
        rank,
        worldSize,
        parts.session(),
        usual.executorId(),
        usual.host(),
        new HostIdentity(parts.bootId(), 11, parts.sharedMemoryDevice()),
        usual.process(),
        usual.device(),
        parts.backend(),
        parts.arenaBytes(),
        parts.stagingBytes(),
        usual.schedule(),
        parts.autoTable(),
        usual.held(),
        usual.handle());
  }

  record Parts(
      UUID session,
      String bootId,
      long sharedMemoryDevice,
      String backend,
      long arenaBytes,
      long stagingBytes,
      String autoTable) {
    Parts withSession(UUID other) {
      return new Parts(
          other, bootId, sharedMemoryDevice, backend, arenaBytes, stagingBytes, autoTable);
    }

    Parts withBootId(String other) {
      return new Parts(
          session, other, sharedMemoryDevice, backend, arenaBytes, stagingBytes, autoTable);
    }

    Parts withSharedMemoryDevice(long other) {
      return new Parts(session, bootId, other, backend, arenaBytes, stagingBytes, autoTable);
    }

    Parts withBackend(String other) {
      return new Parts(
          session, bootId, sharedMemoryDevice, other, arenaBytes, stagingBytes, autoTable);
    }

    Parts withArenaBytes(long other) {
      return new Parts(
          session, bootId, sharedMemoryDevice, backend, other, stagingBytes, autoTable);
    }

    Parts withStagingBytes(long other) {
      return new Parts(session, bootId, sharedMemoryDevice, backend, arenaBytes, other, autoTable);
    }

    Parts withAutoTable(String other) {
      return new Parts(
          session, bootId, sharedMemoryDevice, backend, arenaBytes, stagingBytes, other);
    }
  }
}
