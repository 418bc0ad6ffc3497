// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.time.Duration;
import org.apache.spark.SparkConf;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class SettingsTest {
  private final SparkConf conf = new SparkConf(false);

  @Test
  void everySettingHasADefaultThatIsValid() {
    Settings settings = Settings.from(conf);

    assertThat(settings.timeout()).isEqualTo(Duration.ofMinutes(5));
    assertThat(settings.schedule()).isEqualTo(Schedule.AUTO);
    assertThat(settings.arenaBytes()).isEqualTo(64L << 20);
    assertThat(settings.stagingBytes()).isEqualTo(12L << 20);
    assertThat(settings.spin()).isEqualTo(Duration.ofNanos(50_000));
    assertThat(settings.nativeDirectory()).isEmpty();
  }

  @Test
  void valuesAreReadInTheSyntaxOfSpark() {
    conf.set("spark.allreduce.timeout", "2min")
        .set("spark.allreduce.schedule", "direct-write")
        .set("spark.allreduce.arena.size", "1g")
        .set("spark.allreduce.native.directory", "/opt/native");
    Settings settings = Settings.from(conf);

    assertThat(settings.timeout()).isEqualTo(Duration.ofMinutes(2));
    assertThat(settings.schedule()).isEqualTo(Schedule.DIRECT_WRITE);
    assertThat(settings.arenaBytes()).isEqualTo(1L << 30);
    assertThat(settings.nativeDirectory()).contains("/opt/native");
  }

  @ParameterizedTest
  @CsvSource({
    "spark.allreduce.timeout, soon, duration",
    "spark.allreduce.timeout, 0s, at least 1ms",
    "spark.allreduce.timeout, -5s, at least 1ms",
    "spark.allreduce.schedule, fastest, load-reduce-store",
    "spark.allreduce.arena.size, 1k, at least 65536 bytes",
    "spark.allreduce.staging.size, much, size",
    "spark.allreduce.wait.spin, -1us, at least 0ms"
  })
  void aValueThatCannotBeReadIsNamedWithWhatWouldDo(String key, String value, String substance) {
    conf.set(key, value);

    assertThatThrownBy(() -> Settings.from(conf))
        .isInstanceOf(AllReduceException.Setup.class)
        .hasMessageContaining(key)
        .hasMessageContaining("\"" + value + "\"")
        .hasMessageContaining(substance)
        .hasMessageContaining("default");
  }

  @Test
  void anUnknownSettingIsRefusedAndTheKnownOnesAreListed() {
    conf.set("spark.allreduce.time-out", "10s");

    assertThatThrownBy(() -> Settings.from(conf))
        .isInstanceOf(AllReduceException.Setup.class)
        .hasMessageContaining("spark.allreduce.time-out")
        .hasMessageContaining("spark.allreduce.timeout");
  }
}
