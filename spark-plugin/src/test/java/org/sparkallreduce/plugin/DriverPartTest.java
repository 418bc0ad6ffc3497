// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.plugin;

import static org.assertj.core.api.Assertions.assertThat;

import java.time.Duration;
import org.apache.spark.SparkConf;
import org.junit.jupiter.api.Test;

class DriverPartTest {
  private final SparkConf conf = new SparkConf(false);

  @Test
  void looksForSlotsEverySecondUntilTheTimeout() {
    DriverPart.hastenSlotCheck(conf, Duration.ofSeconds(30));
    assertThat(conf.get(DriverPart.SLOT_CHECK_INTERVAL)).isEqualTo("1s");
    assertThat(conf.get(DriverPart.SLOT_CHECK_FAILURES)).isEqualTo("30");
  }

  @Test
  void keepsTheUsersIntervalAndFitsTheRoundsToIt() {
    conf.set(DriverPart.SLOT_CHECK_INTERVAL, "4s");
    DriverPart.hastenSlotCheck(conf, Duration.ofSeconds(30));
    assertThat(conf.get(DriverPart.SLOT_CHECK_INTERVAL)).isEqualTo("4s");
    assertThat(conf.get(DriverPart.SLOT_CHECK_FAILURES)).isEqualTo("8");
  }

  @Test
  void keepsTheUsersRounds() {
    conf.set(DriverPart.SLOT_CHECK_FAILURES, "2");
    DriverPart.hastenSlotCheck(conf, Duration.ofSeconds(30));
    assertThat(conf.get(DriverPart.SLOT_CHECK_FAILURES)).isEqualTo("2");
  }
}
