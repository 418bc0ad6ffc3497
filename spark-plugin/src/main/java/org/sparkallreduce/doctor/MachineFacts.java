// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.doctor;

import java.io.Serializable;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * What one process sees of its machine; {@link MachineProbe} collects it, {@link MachineChecks}
 * judges it.
 *
 * @param javaFeature 25, say
 * @param nativeBuild what the loaded native library says of itself; null if it cannot be loaded
 * @param nativeFailure why it cannot
 * @param sharedMemory null: there is no /dev/shm
 * @param hidepid the option of the mount of /proc; empty: none
 * @param procReadable whether this process finds its own entry in /proc
 */
record MachineFacts(
    String host,
    String user,
    int javaFeature,
    String javaVersion,
    String system,
    String architecture,
    @Nullable String nativeBuild,
    @Nullable String nativeFailure,
    @Nullable SharedMemory sharedMemory,
    int cores,
    String hidepid,
    boolean procReadable,
    Limits limits,
    Gpus gpus)
    implements Serializable {

  /**
   * The file system on /dev/shm.
   *
   * @param deadSegments segments in it whose process has ended
   */
  record SharedMemory(
      long totalBytes, long freeBytes, List<String> options, boolean writable, int deadSegments)
      implements Serializable {}

  /** Limits of the process (ulimit) and of its container; {@code Long.MAX_VALUE}: none. */
  record Limits(long openFiles, long fileBytes, long addressSpaceBytes, long containerBytes)
      implements Serializable {}

  /**
   * What is there of GPUs.
   *
   * @param devices device nodes
   * @param drivers driver libraries
   */
  record Gpus(List<String> devices, List<String> drivers) implements Serializable {}
}
