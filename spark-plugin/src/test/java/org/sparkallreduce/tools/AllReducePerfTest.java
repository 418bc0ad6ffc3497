// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class AllReducePerfTest {
  private static final int WRONG_USAGE = 2;

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "-b eight | \"eight\" is not a size",
        "-b 1M -e 1K | above the largest",
        "-d quad | double, float, half, bfloat16, int32, int64",
        "-o xor | sum, prod, min, max, avg",
        "--collective gather | all-reduce, reduce-scatter, all-gather, broadcast",
        "--schedule ring | load-reduce-store",
        "--backend gpu | bin/bench-gpu and native/bench measure GPUs",
        "--json=/no/such/x.json | no folder /no/such",
        "--svg=/no/such/x.svg | no folder /no/such",
        "--tune=/no/such/x.txt | no folder /no/such",
        "--ranks 17 | 1 to 16",
        "--ranks 2,4 | Only --tune",
        "--root 2 | ranks 0 to 1",
        "--in-place maybe | yes, no or both",
        "-n 0 | at least 1",
        "--conf spark.cores.max=2 | without --spark",
        "--tune x --json | --tune writes its table only",
        "--unregistered -b 16G -e 16G | Java array",
        "--nonsense | Unknown option"
      })
  void whatIsWrongInTheArgumentsIsExplained(String arguments, String explanation) {
    var errors = new ByteArrayOutputStream();
    var before = System.err;
    System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
    try {
      assertThat(AllReducePerf.execute(System.out, arguments.split(" ", -1)))
          .isEqualTo(WRONG_USAGE);
    } finally {
      System.setErr(before);
    }
    assertThat(errors.toString(StandardCharsets.UTF_8)).contains(explanation);
  }

  @Test
  void theHelpNamesEveryFlag() {
    var output = new ByteArrayOutputStream();
    assertThat(
            AllReducePerf.execute(new PrintStream(output, true, StandardCharsets.UTF_8), "--help"))
        .isZero();
    assertThat(output.toString(StandardCharsets.UTF_8))
        .contains("-b", "-e", "-f", "-i", "-n", "-w", "-c", "-d", "-o", "-r", "--ranks")
        .contains("Exit code: 0 all is well");
  }
}
