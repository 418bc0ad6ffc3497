// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.ffm;

import static java.nio.file.attribute.PosixFilePermissions.asFileAttribute;
import static java.nio.file.attribute.PosixFilePermissions.fromString;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.ProcessIdentity;

/**
 * The private folder into which a process unpacks the native library. Its name says whose it is, so
 * that what a killed process left can be told from what is in use.
 */
final class UnpackFolder {
  private static final String PREFIX = "spark-allreduce-native-";

  /** Anybody can make such a folder in /tmp: its numbers must be numbers. */
  private static final Pattern NAME =
      Pattern.compile(PREFIX + "(\\d{1,18})-(\\d{1,18})-(\\d{1,18})-.*");

  private UnpackFolder() {}

  static Path create(Path parent) {
    ProcessIdentity self = ProcessIdentity.current();
    String prefix =
        "%s%d-%d-%d-".formatted(PREFIX, self.pidNamespace(), self.pid(), self.startTime());
    try {
      return Files.createTempDirectory(parent, prefix, asFileAttribute(fromString("rwx------")));
    } catch (IOException e) {
      throw new AllReduceException.Setup(
          "Cannot create a folder for the native library in %s (%s). Set".formatted(parent, e)
              + " spark.allreduce.native.directory to an existing folder on each host that this"
              + " user may write to.",
          e);
    }
  }

  /** Deletes the folder and the library in it; what cannot be deleted is left to the next start. */
  static void delete(Path folder) {
    try (DirectoryStream<Path> files = Files.newDirectoryStream(folder)) {
      for (Path file : files) {
        Files.deleteIfExists(file);
      }
      Files.deleteIfExists(folder);
    } catch (IOException e) {
      // Another process is removing the same leftover, or the disk is failing: nothing depends on
      // it.
    }
  }

  /** Deletes the folders of processes that ended between unpacking and deleting. */
  static void removeLeftovers(Path parent) {
    try (DirectoryStream<Path> folders = Files.newDirectoryStream(parent, PREFIX + "*")) {
      for (Path folder : folders) {
        Matcher name = NAME.matcher(folder.getFileName().toString());
        if (name.matches() && owner(name).isDead() && isOurs(folder)) {
          delete(folder);
        }
      }
    } catch (IOException e) {
      // The folder cannot be listed: then create() says so, with the cure.
    }
  }

  private static ProcessIdentity owner(Matcher name) {
    return new ProcessIdentity(
        Long.parseLong(name.group(2)),
        Long.parseLong(name.group(3)),
        Long.parseLong(name.group(1)));
  }

  private static boolean isOurs(Path folder) throws IOException {
    return Files.isDirectory(folder, LinkOption.NOFOLLOW_LINKS)
        && Files.getOwner(folder, LinkOption.NOFOLLOW_LINKS)
            .equals(Files.getOwner(Path.of("/proc/self")));
  }
}
