// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.exchange;

import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.ProcessIdentity;

/**
 * What two processes must have in common to share memory. The host's name says nothing about that:
 * containers of one machine have different names and may share, or the other way round.
 *
 * @param bootId the running kernel
 * @param ipcNamespace the inode of the IPC namespace
 * @param sharedMemoryDevice the device number of the file system on /dev/shm
 */
public record HostIdentity(String bootId, long ipcNamespace, long sharedMemoryDevice)
    implements Serializable {

  private static volatile @Nullable HostIdentity own;

  /**
   * That of this process; read until it could be, once: a process that is out of descriptors for a
   * moment must not be without an identity for ever.
   */
  public static HostIdentity current() {
    HostIdentity known = own;
    if (known == null) {
      known = read();
      own = known;
    }
    return known;
  }

  private static HostIdentity read() {
    try {
      return new HostIdentity(
          Files.readString(Path.of("/proc/sys/kernel/random/boot_id")).strip(),
          ProcessIdentity.namespace("ipc"),
          ((Number) Files.getAttribute(Path.of("/dev/shm"), "unix:dev")).longValue());
    } catch (IOException e) {
      throw new UncheckedIOException("Cannot tell which host this is", e);
    }
  }
}
