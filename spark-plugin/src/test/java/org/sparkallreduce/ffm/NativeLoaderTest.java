// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.ffm;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatCode;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assumptions.assumeThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.JavaProcess;
import org.sparkallreduce.ProcessIdentity;

class NativeLoaderTest {
  @TempDir Path folder;

  @Test
  void theLibraryOfTheJarLoadsAndSaysWhatItIs() {
    NativeLibrary library = NativeLibrary.load(Optional.of(folder.toString()));

    assertThat(library.buildInfo()).contains("host").contains("x86-64");
  }

  @Test
  void nothingIsLeftInTheFolderOnceTheLibraryIsLoaded() {
    NativeLibrary.load(Optional.of(folder.toString()));

    assertThat(folder).isEmptyDirectory();
  }

  @Test
  void manyProcessesMayUnpackAtOnce() throws Exception {
    List<Process> processes = new ArrayList<>();
    for (int i = 0; i < 6; i++) {
      processes.add(JavaProcess.start(LoadMain.class, folder.toString()));
    }
    for (Process process : processes) {
      String output = new String(process.getInputStream().readAllBytes(), UTF_8);
      assertThat(process.waitFor()).as(output).isZero();
      assertThat(output).contains("host");
    }

    assertThat(folder).isEmptyDirectory();
  }

  /** Loads the library as an executor does. */
  static final class LoadMain {
    public static void main(String[] args) {
      System.out.println(NativeLibrary.load(Optional.of(args[0])).buildInfo());
    }
  }

  @Test
  void whatAKilledProcessLeftIsRemovedAndWhatIsInUseIsNot() throws IOException {
    ProcessIdentity self = ProcessIdentity.current();
    Path dead = leftover(self.pidNamespace(), self.pid(), self.startTime() + 1);
    Path alive = leftover(self.pidNamespace(), self.pid(), self.startTime());
    Path elsewhere = leftover(self.pidNamespace() + 1, self.pid(), self.startTime() + 1);
    Path foreign = Files.createDirectory(folder.resolve("spark-allreduce-native-of-a-user"));

    NativeLibrary.load(Optional.of(folder.toString()));

    assertThat(dead).doesNotExist();
    assertThat(alive).exists();
    assertThat(elsewhere).exists();
    assertThat(foreign).exists();
  }

  private Path leftover(long namespace, long pid, long startTime) throws IOException {
    Path left =
        Files.createDirectory(
            folder.resolve(
                "spark-allreduce-native-%d-%d-%d-1".formatted(namespace, pid, startTime)));
    Files.writeString(left.resolve("libspark_allreduce_host.so"), "half a library");
    return left;
  }

  @Test
  void aFolderWithAnotherUsersNonsenseInItsNameDisturbsNobody() throws IOException {
    Path nonsense =
        Files.createDirectory(
            folder.resolve("spark-allreduce-native-" + "9".repeat(30) + "-1-1-nonsense"));

    NativeLibrary.load(Optional.of(folder.toString()));

    assertThat(nonsense).exists();
  }

  @Test
  void aFolderThatDoesNotExistIsNamedWithTheSetting() {
    assertThatThrownBy(() -> NativeLibrary.load(Optional.of(folder + "/missing")))
        .isInstanceOf(AllReduceException.Setup.class)
        .hasMessageContaining(folder + "/missing")
        .hasMessageContaining("spark.allreduce.native.directory");
  }

  @Test
  void aDamagedLibraryIsRefused() {
    assertThatThrownBy(() -> NativeLoader.verify(new byte[] {1, 2, 3}, "00ff  lib.so\n", "the jar"))
        .isInstanceOf(AllReduceException.Setup.class)
        .hasMessageContaining("the jar is damaged")
        .hasMessageContaining("should be 00ff");
  }

  @Test
  void otherPlatformsAreToldWhatIsSupported() {
    assertThatCode(() -> NativeLoader.requirePlatform("Linux", "amd64")).doesNotThrowAnyException();
    assertThatThrownBy(() -> NativeLoader.requirePlatform("Mac OS X", "aarch64"))
        .isInstanceOf(AllReduceException.Setup.class)
        .hasMessageContaining("Mac OS X on aarch64")
        .hasMessageContaining("Linux x86-64");
  }

  /** In a mount namespace of its own, where this process may mount what it likes. */
  @Test
  void aFolderMountedNoexecIsDiagnosed() throws Exception {
    String mount = "mount -t tmpfs -o noexec tmpfs " + folder;
    var tryMount = List.of("unshare", "--map-root-user", "--mount", "sh", "-c", mount);
    assumeThat(new ProcessBuilder(tryMount).start().waitFor())
        .as("this machine lets a test mount a file system in a namespace of its own")
        .isZero();

    var command = new ArrayList<>(List.of("unshare", "--map-root-user", "--mount", "sh", "-c"));
    command.addAll(List.of(mount + " && exec \"$@\"", "sh"));
    command.addAll(JavaProcess.command(LoadMain.class, folder.toString()));
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    String output = new String(process.getInputStream().readAllBytes(), UTF_8);

    assertThat(process.waitFor()).isEqualTo(1);
    assertThat(output)
        .contains("AllReduceException$Setup", "mounted noexec", "spark.allreduce.native.directory");
  }

  @Test
  void theMountOfAFileIsTheDeepestOneAboveIt() {
    List<String> mounts =
        Stream.of(
                "/dev/vda / ext4 rw,relatime 0 0",
                "tmpfs /tmp tmpfs rw,nosuid,noexec 0 0",
                "tmpfs /tmp/with\\040space tmpfs rw,exec 0 0")
            .toList();

    assertThat(MountOptions.in(mounts, Path.of("/tmp/a/lib.so"))).contains("noexec");
    assertThat(MountOptions.in(mounts, Path.of("/tmp/with space/lib.so"))).doesNotContain("noexec");
    assertThat(MountOptions.in(mounts, Path.of("/tmpfolder/lib.so"))).contains("relatime");
  }
}
