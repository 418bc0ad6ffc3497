// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** A file that leaves room in /dev/shm for some segments and no more; gone when it is closed. */
final class Filler implements AutoCloseable {
  /** A worker's segment, generously: arena, staging twice, headers. */
  private static final long SEGMENT = (8 << 20) + (256 << 10);

  private static final Path FILE = Path.of("/dev/shm/filler");
  private static final int BLOCK = 1 << 16;

  private Filler() {}

  /** Whether /dev/shm is a file system of this campaign's own, which it may fill. */
  static boolean isPrivate() {
    return Boolean.getBoolean("faults.private");
  }

  /** Fills it, if that is the episode's fault. */
  static Filler of(Episode episode) {
    if (episode.fault() == Fault.MEMORY_FULL) {
      fill(SEGMENT * episode.room() + SEGMENT / 2);
    }
    return new Filler();
  }

  private static void fill(long room) {
    try (OutputStream file = Files.newOutputStream(FILE)) {
      byte[] block = new byte[BLOCK];
      while (Files.getFileStore(FILE).getUsableSpace() - BLOCK >= room) {
        file.write(block);
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  @Override
  public void close() {
    try {
      Files.deleteIfExists(FILE);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
