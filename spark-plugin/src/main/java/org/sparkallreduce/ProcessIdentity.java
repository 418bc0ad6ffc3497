// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce;

import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;

/**
 * Which process this is, in a way that no later process can repeat: process ids are reused, start
 * times are not.
 *
 * @param pid process id in its PID namespace
 * @param startTime clock ticks from the start of the system to that of the process
 * @param pidNamespace the inode of the PID namespace in which {@code pid} means something
 */
public record ProcessIdentity(long pid, long startTime, long pidNamespace) implements Serializable {

  private static final class Own {
    static final ProcessIdentity IDENTITY = read();

    private static ProcessIdentity read() {
      long pid = ProcessHandle.current().pid();
      try {
        return new ProcessIdentity(pid, startTime(pid), namespace("pid"));
      } catch (IOException e) {
        throw new UncheckedIOException("Cannot read the start time of this process", e);
      }
    }
  }

  /** This process; read once. */
  public static ProcessIdentity current() {
    return Own.IDENTITY;
  }

  /** The inode of one of this process's namespaces: "pid", "ipc"... */
  public static long namespace(String kind) {
    try {
      String link = Files.readSymbolicLink(Path.of("/proc/self/ns", kind)).toString();
      return Long.parseLong(link.substring(link.indexOf('[') + 1, link.indexOf(']')));
    } catch (IOException e) {
      throw new UncheckedIOException("Cannot read the " + kind + " namespace of this process", e);
    }
  }

  /** True only if that process provably no longer runs: same namespace, and gone or another one. */
  public boolean isDead() {
    if (pidNamespace != current().pidNamespace) {
      return false;
    }
    try {
      return startTime(pid) != startTime;
    } catch (NoSuchFileException e) {
      return true;
    } catch (IOException e) {
      return false; // there may be no descriptor to read it with: that proves nothing
    }
  }

  private static long startTime(long pid) throws IOException {
    String stat = Files.readString(Path.of("/proc", Long.toString(pid), "stat"));
    // The command's name stands in parentheses and may hold anything, spaces and parentheses too.
    String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ", -1);
    return Long.parseLong(fields[19]);
  }
}
