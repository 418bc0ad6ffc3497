// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.ffm;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.UUID;
import org.junit.jupiter.api.Test;
import org.sparkallreduce.AutoTable.Row;
import org.sparkallreduce.Backend;
import org.sparkallreduce.Schedule;
import org.sparkallreduce.ffm.NativeCommunicator.Options;

class NativeCommunicatorTest {
  private final NativeLibrary library = NativeLibrary.load(Optional.empty());

  @Test
  void aTableForAutoIsCheckedRowByRow() throws NativeFailure {
    var row = new Row(Backend.HOST, 16, Long.MAX_VALUE, Schedule.TWO_SHOT_READ);
    try (var communicator = NativeCommunicator.create(library, options())) {
      assertThat(
              communicator.setAutoTable(
                  List.of(new Row(Backend.HOST, 2, 512, Schedule.ONE_SHOT), row)))
          .isEqualTo(Status.OK);
      assertThat(
              communicator.setAutoTable(
                  List.of(row, new Row(Backend.HOST, 16, 512, Schedule.AUTO))))
          .isEqualTo(Status.INVALID_ARGUMENT);
      assertThat(library.lastFailure().message()).contains("row 1", "schedule 0");
      assertThat(
              communicator.setAutoTable(
                  Collections.nCopies(NativeCommunicator.MAX_AUTO_ROWS + 1, row)))
          .isEqualTo(Status.INVALID_ARGUMENT);
      assertThat(communicator.setAutoTable(List.of())).isEqualTo(Status.OK);
    }
  }

  private static Options options() {
    return new Options(0, 1, UUID.randomUUID(), 1L << 16, 1L << 16, 0);
  }
}
