// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.doctor;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.SparkConf;
import org.sparkallreduce.ProcessIdentity;
import org.sparkallreduce.Settings;
import org.sparkallreduce.doctor.MachineFacts.Gpus;
import org.sparkallreduce.doctor.MachineFacts.Limits;
import org.sparkallreduce.doctor.MachineFacts.SharedMemory;
import org.sparkallreduce.exchange.HostIdentity;

/** A healthy environment, of which each test changes one thing. */
final class Fakes {
  static final Settings SETTINGS = Settings.from(new SparkConf(false)); // 88 MiB per rank
  static final SharedMemory SHARED_MEMORY =
      new SharedMemory(1L << 30, 1L << 30, List.of("rw", "nosuid"), true, 0);
  static final Limits LIMITS = new Limits(65_536, Long.MAX_VALUE, Long.MAX_VALUE, Long.MAX_VALUE);
  static final Gpus NO_GPUS = new Gpus(List.of(), List.of());

  private Fakes() {}

  static MachineFacts machine() {
    return new MachineFacts(
        "h1",
        "spark",
        25,
        "25.0.1+8",
        "Linux",
        "amd64",
        "0.1 host gcc",
        null,
        SHARED_MEMORY,
        4,
        "",
        true,
        LIMITS,
        NO_GPUS);
  }

  static MachineFacts machine(SharedMemory memory) {
    MachineFacts m = machine();
    return new MachineFacts(
        m.host(),
        m.user(),
        m.javaFeature(),
        m.javaVersion(),
        m.system(),
        m.architecture(),
        m.nativeBuild(),
        null,
        memory,
        m.cores(),
        m.hidepid(),
        true,
        m.limits(),
        m.gpus());
  }

  static MachineFacts machine(Limits limits) {
    MachineFacts m = machine();
    return new MachineFacts(
        m.host(),
        m.user(),
        m.javaFeature(),
        m.javaVersion(),
        m.system(),
        m.architecture(),
        m.nativeBuild(),
        null,
        m.sharedMemory(),
        m.cores(),
        m.hidepid(),
        true,
        limits,
        m.gpus());
  }

  static MachineFacts machine(Gpus gpus) {
    MachineFacts m = machine();
    return new MachineFacts(
        m.host(),
        m.user(),
        m.javaFeature(),
        m.javaVersion(),
        m.system(),
        m.architecture(),
        m.nativeBuild(),
        null,
        m.sharedMemory(),
        m.cores(),
        m.hidepid(),
        true,
        m.limits(),
        gpus);
  }

  static MachineFacts machineOf(String user, String build) {
    MachineFacts m = machine();
    return new MachineFacts(
        m.host(),
        user,
        m.javaFeature(),
        m.javaVersion(),
        m.system(),
        m.architecture(),
        build,
        null,
        m.sharedMemory(),
        m.cores(),
        m.hidepid(),
        true,
        m.limits(),
        m.gpus());
  }

  static MachineFacts machineWith(int java, String architecture, String nativeFailure) {
    MachineFacts m = machine();
    return new MachineFacts(
        m.host(),
        m.user(),
        java,
        java + ".0.2",
        m.system(),
        architecture,
        nativeFailure == null ? m.nativeBuild() : null,
        nativeFailure,
        m.sharedMemory(),
        m.cores(),
        m.hidepid(),
        true,
        m.limits(),
        m.gpus());
  }

  static MachineFacts machineWithProc(String hidepid, boolean readable) {
    MachineFacts m = machine();
    return new MachineFacts(
        m.host(),
        m.user(),
        m.javaFeature(),
        m.javaVersion(),
        m.system(),
        m.architecture(),
        m.nativeBuild(),
        null,
        m.sharedMemory(),
        m.cores(),
        hidepid,
        readable,
        m.limits(),
        m.gpus());
  }

  static SparkFacts spark(String... keysAndValues) {
    return spark(false, true, keysAndValues);
  }

  static SparkFacts spark(boolean local, boolean plugin, String... keysAndValues) {
    Map<String, String> conf = new TreeMap<>();
    conf.put("spark.plugins", "org.sparkallreduce.plugin.AllReducePlugin");
    for (int i = 0; i < keysAndValues.length; i += 2) {
      conf.put(keysAndValues[i], keysAndValues[i + 1]);
    }
    return new SparkFacts("4.2.0", "2.13.18", local, plugin, conf);
  }

  static RankFacts rank(int rank, MachineFacts machine) {
    return new RankFacts(
        rank,
        machine.host(),
        Integer.toString(rank),
        new ProcessIdentity(100 + rank, 7, 1),
        new HostIdentity("boot", 2, 3),
        "",
        null,
        null,
        machine);
  }
}
