// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.spark.SparkConf;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.sparkallreduce.AutoTable.Row;

class AutoTableTest {
  @TempDir private Path folder;

  @Test
  void rowsAreReadWithCommentsAround() {
    AutoTable table =
        AutoTable.parse(
            "t", "# head\n\nhost 2 4096 one-shot # small\n  host  16  *  LOAD_REDUCE_STORE\n");
    assertThat(table.rows())
        .containsExactly(
            new Row(Backend.HOST, 2, 4096, Schedule.ONE_SHOT),
            new Row(Backend.HOST, 16, Long.MAX_VALUE, Schedule.LOAD_REDUCE_STORE));
    assertThat(table.text()).isEqualTo("host 2 4096 one-shot\nhost 16 * load-reduce-store\n");
    assertThat(AutoTable.parse("again", table.text())).isEqualTo(table);
  }

  @Test
  void eachBackendHasRowsOfItsOwn() {
    var gpu = new Row(Backend.GPU, 16, 4096, Schedule.LOW_LATENCY);
    AutoTable table = AutoTable.parse("t", "host 16 * one-shot\ngpu 16 4096 low-latency\n");
    assertThat(table.rows(Backend.GPU)).containsExactly(gpu);
    assertThat(table.rows(Backend.HOST)).hasSize(1);
    assertThat(table.text()).endsWith("gpu 16 4096 low-latency\n");
    assertThat(AutoTable.packed().rows(Backend.GPU).getFirst())
        .isEqualTo(new Row(Backend.GPU, 16, 32_768, Schedule.LOW_LATENCY));
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "host 2 4096 | it has 3 words",
        "tpu 2 4096 one-shot | the backend must be host or gpu",
        "host 0 4096 one-shot | 1 to 16",
        "host 17 4096 one-shot | 1 to 16",
        "host 2 -1 one-shot | a number, or *",
        "host 2 4K one-shot | a number, or *",
        "host 2 4096 auto | two-shot-read",
        "host 2 4096 ring | two-shot-read",
        "host 1 512 direct-write | never reached, since \"host 16 1024 one-shot\""
      })
  void aWrongLineIsNamedWithItsNumberAndWhatIsWrong(String line, String explanation) {
    assertThatThrownBy(
            () -> AutoTable.parse("my.txt", "# one\nhost 16 1024 one-shot\n" + line + "\n"))
        .isInstanceOf(AllReduceException.Setup.class)
        .hasMessageContaining("Line 3 of the table for auto, my.txt, is \"" + line + "\"")
        .hasMessageContaining(explanation);
  }

  @Test
  void aTableHasRowsButNotTooMany() {
    assertThatThrownBy(() -> AutoTable.parse("t", "# nothing\n")).hasMessageContaining("no rows");
    String many =
        IntStream.rangeClosed(1, 65)
            .mapToObj("host 16 %d one-shot\n"::formatted)
            .collect(Collectors.joining());
    assertThatThrownBy(() -> AutoTable.parse("t", many))
        .hasMessageContaining("Line 65", "at most 64");
  }

  @Test
  void theTableInTheJarIsThatOfConfAndServesEveryWorldSize() throws Exception {
    String conf = Files.readString(Path.of("../conf/auto-table.txt"));
    assertThat(AutoTable.packed()).isEqualTo(AutoTable.parse("conf", conf));
    for (Backend backend : new Backend[] {Backend.HOST, Backend.GPU}) {
      Row last = AutoTable.packed().rows(backend).getLast();
      assertThat(last.worldSize()).isEqualTo(16);
      assertThat(last.bytes()).isEqualTo(Long.MAX_VALUE);
    }
  }

  @Test
  void theSettingNamesAFileOfTheDriver() throws Exception {
    Path file = Files.writeString(folder.resolve("mine.txt"), "host 16 * direct-write\n");
    var conf = new SparkConf(false).set("spark.allreduce.auto.table", file.toString());
    Settings settings = Settings.from(conf);
    assertThat(settings.autoTable()).isEqualTo(AutoTable.packed());
    assertThat(settings.readAutoTable().autoTable().rows())
        .containsExactly(new Row(Backend.HOST, 16, Long.MAX_VALUE, Schedule.DIRECT_WRITE));

    Files.delete(file);
    assertThatThrownBy(settings::readAutoTable)
        .isInstanceOf(AllReduceException.Setup.class)
        .hasMessageContaining(file.toString())
        .hasMessageContaining("spark.allreduce.auto.table");
  }

  @Test
  void differentTablesHaveDifferentFingerprints() {
    var one = AutoTable.parse("t", "host 16 * one-shot");
    var other = AutoTable.parse("t", "host 16 * direct-write");
    assertThat(one.fingerprint()).startsWith("1 rows, SHA-256 ");
    assertThat(one.fingerprint()).isNotEqualTo(other.fingerprint());
  }
}
