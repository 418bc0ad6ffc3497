// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.ffm;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemoryLayout.PathElement;
import java.lang.foreign.StructLayout;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.sparkallreduce.AutoTable;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Schedule;

/** Java repeats numbers of the C header; here the library is asked for each of them. */
class AbiTest {
  private final Map<String, Long> constants = NativeLibrary.load(Optional.empty()).constants();

  @Test
  void limitsAndVersionAreThoseOfTheHeader() {
    assertThat(constants)
        .containsEntry("SAR_ABI_VERSION", (long) Abi.ABI_VERSION)
        .containsEntry("SAR_MAX_RANKS", (long) Abi.MAX_RANKS)
        .containsEntry("SAR_MAX_AUTO_ROWS", (long) Abi.MAX_AUTO_ROWS)
        .containsEntry("SAR_MAX_AUTO_ROWS", (long) AutoTable.MAX_ROWS)
        .containsEntry("SAR_HANDLE_BYTES", (long) Abi.HANDLE_BYTES);
  }

  @Test
  void enumerationsHaveTheCodesOfTheHeader() {
    var expected = new LinkedHashMap<String, Long>();
    for (DataType type : DataType.values()) {
      expected.put("SAR_" + type.name(), (long) type.code());
    }
    for (ReduceOp op : ReduceOp.values()) {
      expected.put("SAR_" + op.name(), (long) op.code());
    }
    for (Schedule schedule : Schedule.values()) {
      expected.put("SAR_" + schedule.name(), (long) schedule.code());
    }
    for (Status status : Status.values()) {
      expected.put("SAR_" + status.name(), (long) status.code());
    }

    assertThat(constants).containsAllEntriesOf(expected);
  }

  @Test
  void structuresHaveTheSizesAndOffsetsOfTheHeader() {
    for (StructLayout struct :
        new StructLayout[] {Abi.OPTIONS, Abi.FAILURE, Abi.STATISTICS, Abi.AUTO_ROW}) {
      String name = struct.name().orElseThrow();
      assertThat(constants).containsEntry("sizeof(" + name + ")", struct.byteSize());
      for (MemoryLayout member : struct.memberLayouts()) {
        String field = member.name().orElseThrow();
        if (field.equals("reserved")) {
          continue;
        }
        long offset = struct.byteOffset(PathElement.groupElement(field));
        assertThat(constants).containsEntry(name + "." + field, offset);
      }
    }
  }
}
