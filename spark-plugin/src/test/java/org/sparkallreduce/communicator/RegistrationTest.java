// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.channels.FileChannel;
import java.nio.channels.FileChannel.MapMode;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Settings;

/** Memory that another library allocated, as a file that both map. */
class RegistrationTest {
  private final Settings settings = Ranks.settings();
  @TempDir Path folder;

  private Path file(int rank, long bytes) throws IOException {
    Path path = folder.resolve("foreign-" + rank);
    try (var file = new RandomAccessFile(path.toFile(), "rw")) {
      file.setLength(bytes);
    }
    return path;
  }

  @Test
  void resultsAppearInTheOtherLibrarysOwnMapping() {
    Ranks.run(
        3,
        settings,
        communicator -> {
          Path path = file(communicator.rank(), 3 * 4096);
          try (Arena arena = Arena.ofConfined();
              FileChannel channel =
                  FileChannel.open(path, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            MemorySegment theirs = channel.map(MapMode.READ_WRITE, 0, 3 * 4096, arena);
            theirs.setAtIndex(JAVA_FLOAT, 1024, communicator.rank() + 1);
            RegisteredBuffer buffer = communicator.register(path, 4096, 2048, DataType.FLOAT32);
            communicator.allReduce(buffer, ReduceOp.SUM);
            assertThat(theirs.getAtIndex(JAVA_FLOAT, 1024)).isEqualTo(6f);
            assertThat(theirs.getAtIndex(JAVA_FLOAT, 1025)).isEqualTo(0f);
            assertThat(communicator.statistics().unregistered()).isZero();
            communicator.deregister(buffer);
            assertThatThrownBy(() -> buffer.segment().getAtIndex(JAVA_FLOAT, 0))
                .isInstanceOf(IllegalStateException.class);
          }
          return 0;
        });
  }

  @Test
  void aFileThatDoesNotServeIsAnErrorOnAllRanksAndTheCommunicatorLivesOn() {
    Ranks.run(
        2,
        settings,
        communicator -> {
          Path path = file(communicator.rank(), communicator.rank() == 0 ? 4096 : 100);
          assertThatThrownBy(() -> communicator.register(path, 0, 1024, DataType.FLOAT32))
              .isInstanceOf(AllReduceException.Resource.class)
              .hasMessageContaining("rank 1")
              .hasMessageContaining("too few");
          communicator.barrier();
          return 0;
        });
  }

  @Test
  void onlyWhatWasRegisteredCanBeDeregistered() {
    Ranks.run(
        1,
        settings,
        communicator -> {
          RegisteredBuffer own = communicator.allocate(DataType.FLOAT32, 4);
          assertThatThrownBy(() -> communicator.deregister(own))
              .isInstanceOf(AllReduceException.Usage.class)
              .hasMessageContaining("register returned");
          RegisteredBuffer foreign = communicator.register(file(0, 4096), 0, 16, DataType.FLOAT32);
          communicator.deregister(foreign);
          assertThatThrownBy(() -> communicator.deregister(foreign))
              .isInstanceOf(AllReduceException.Usage.class);
          assertThatThrownBy(() -> communicator.register(file(0, 4096), 3, 4, DataType.INT32))
              .isInstanceOf(AllReduceException.Usage.class)
              .hasMessageContaining("offset 3");
          return 0;
        });
  }

  @Test
  void theRegistrationsEndWithTheCommunicator() {
    var buffers =
        Ranks.run(
            2,
            settings,
            communicator ->
                communicator.register(file(communicator.rank(), 4096), 0, 4, DataType.FLOAT32));

    assertThat(buffers)
        .allSatisfy(
            buffer ->
                assertThatThrownBy(() -> buffer.segment().getAtIndex(JAVA_FLOAT, 0))
                    .isInstanceOf(IllegalStateException.class));
  }

  @Test
  void aBufferWhoseDeregistrationFailedEndsWithTheCommunicatorToo() {
    var buffers =
        Ranks.run(
            1,
            settings,
            communicator -> {
              RegisteredBuffer buffer =
                  communicator.register(file(0, 4096), 0, 4, DataType.FLOAT32);
              communicator.abort("before the deregistration");
              assertThatThrownBy(() -> communicator.deregister(buffer))
                  .isInstanceOf(AllReduceException.Aborted.class);
              return buffer;
            });

    assertThatThrownBy(() -> buffers.getFirst().segment().getAtIndex(JAVA_FLOAT, 0))
        .isInstanceOf(IllegalStateException.class);
  }
}
