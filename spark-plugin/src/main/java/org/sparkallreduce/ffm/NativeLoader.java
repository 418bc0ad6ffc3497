// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.ffm;

import static java.nio.charset.StandardCharsets.US_ASCII;
import static java.nio.file.attribute.PosixFilePermissions.asFileAttribute;
import static java.nio.file.attribute.PosixFilePermissions.fromString;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.SymbolLookup;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.Locale;
import java.util.Optional;
import org.sparkallreduce.AllReduceException;

/**
 * Brings the native library from the jar into the process. It is written to a folder of its own
 * (0700), so that any number of processes may start at once, checked against the checksum recorded
 * at build time, loaded, and deleted again: the mapping keeps it alive, and a killed process leaves
 * nothing behind once it is loaded. What was left by a process killed before that is removed by the
 * next one.
 */
final class NativeLoader {
  private static final String RESOURCES = "/org/sparkallreduce/native/linux-x86_64/";

  /** The backend in shared memory. */
  static final String HOST = "libspark_allreduce_host.so";

  /** The backend on GPUs. It loads on any machine; without a driver its calls say so. */
  static final String GPU = "libspark_allreduce_gpu.so";

  private NativeLoader() {}

  static SymbolLookup load(String name, Optional<String> directory) {
    requirePlatform(System.getProperty("os.name"), System.getProperty("os.arch"));
    Path parent = Path.of(directory.orElse(System.getProperty("java.io.tmpdir")));
    byte[] library = resource(name);
    String checksum = new String(resource(name + ".sha256"), US_ASCII);
    verify(library, checksum, "the jar");
    UnpackFolder.removeLeftovers(parent);
    Path folder = UnpackFolder.create(parent);
    try {
      Path file = folder.resolve(name);
      write(file, library, checksum);
      return open(file);
    } finally {
      UnpackFolder.delete(folder);
    }
  }

  static void requirePlatform(String system, String architecture) {
    String machine = architecture.toLowerCase(Locale.ROOT);
    boolean x86 = machine.equals("amd64") || machine.equals("x86_64");
    if (!system.equals("Linux") || !x86) {
      throw new AllReduceException.Setup(
          "spark-allreduce has a native library for Linux on x86-64 only, but this is %s on %s. Run"
                  .formatted(system, architecture)
              + " the driver and the executors on Linux x86-64.");
    }
  }

  private static byte[] resource(String name) {
    try (InputStream in = NativeLoader.class.getResourceAsStream(RESOURCES + name)) {
      if (in == null) {
        throw new AllReduceException.Setup(
            "The jar of spark-allreduce lacks %s%s: it was not built whole. Build it with"
                    .formatted(RESOURCES, name)
                + " 'mvn package' on Linux x86-64.");
      }
      return in.readAllBytes();
    } catch (IOException e) {
      throw new UncheckedIOException("Cannot read " + RESOURCES + name + " from the jar", e);
    }
  }

  private static void write(Path file, byte[] library, String checksum) {
    byte[] written;
    try {
      Files.createFile(file, asFileAttribute(fromString("rwx------")));
      Files.write(file, library);
      written = Files.readAllBytes(file);
    } catch (IOException e) {
      throw new AllReduceException.Setup(
          "Cannot unpack the native library to %s (%s). Free space there, or set"
                  .formatted(file.getParent(), e)
              + " spark.allreduce.native.directory to a folder that can be written.",
          e);
    }
    verify(written, checksum, file.toString());
  }

  static void verify(byte[] library, String checksum, String where) {
    String actual = sha256(library);
    String expected = checksum.strip().split("\\s+", 2)[0];
    if (!actual.equals(expected)) {
      throw new AllReduceException.Setup(
          "The native library in %s is damaged: its SHA-256 is %s and should be %s. Copy the jar again,"
                  .formatted(where, actual, expected)
              + " and check the disk of the folder.");
    }
  }

  /** Loads a library from where it is. */
  static SymbolLookup open(Path file) {
    try {
      return SymbolLookup.libraryLookup(file, Arena.global());
    } catch (IllegalArgumentException e) {
      throw new AllReduceException.Setup(
          "Cannot load the native library from %s: %s".formatted(file.getParent(), reason(file)),
          e);
    }
  }

  private static String reason(Path file) {
    if (MountOptions.of(file).contains("noexec")) {
      return "the file system of this folder is mounted noexec. Set"
          + " spark.allreduce.native.directory to a folder on each host that allows"
          + " execution.";
    }
    // The foreign function API keeps the loader's own words to itself; the older call has them.
    try {
      System.load(file.toString());
      return "the system gave no reason.";
    } catch (UnsatisfiedLinkError e) {
      return e.getMessage();
    }
  }

  private static String sha256(byte[] bytes) {
    try {
      return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
    } catch (NoSuchAlgorithmException e) {
      throw new AssertionError("every Java has SHA-256", e);
    }
  }
}
