// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.doctor;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.sparkallreduce.Settings;

/** Judges one machine. */
final class MachineChecks {
  private static final int JAVA = 25;
  private static final long FEW_FILES = 1024;

  private final MachineFacts facts;
  private final Settings settings;
  private final int ranks;
  private final List<Finding> findings = new ArrayList<>();

  private MachineChecks(MachineFacts facts, Settings settings, int ranks) {
    this.facts = facts;
    this.settings = settings;
    this.ranks = ranks;
  }

  /**
   * @param ranks how many ranks this machine is to have
   */
  static List<Finding> of(MachineFacts facts, Settings settings, int ranks) {
    var checks = new MachineChecks(facts, settings, ranks);
    checks.java();
    checks.platform();
    checks.nativeLibrary();
    checks.sharedMemory();
    checks.proc();
    checks.limits();
    checks.cores();
    checks.gpus();
    return checks.findings;
  }

  /** The shared memory of one rank. */
  static long segmentBytes(Settings settings) {
    return settings.arenaBytes() + 2 * settings.stagingBytes() + (8 << 10);
  }

  static String megabytes(long bytes) {
    return String.format(Locale.ROOT, "%.0f MiB", bytes / (double) (1 << 20));
  }

  private void java() {
    if (facts.javaFeature() < JAVA) {
      problem(
          "Java",
          "this is Java %s, and %d or newer is needed".formatted(facts.javaVersion(), JAVA),
          "install a JDK %d and set JAVA_HOME for driver and executors (spark.executorEnv.JAVA_HOME)"
              .formatted(JAVA));
    } else {
      ok("Java", facts.javaVersion());
    }
  }

  private void platform() {
    String machine = facts.system() + " on " + facts.architecture();
    boolean x86 = List.of("amd64", "x86_64").contains(facts.architecture());
    if (facts.system().equals("Linux") && x86) {
      ok("platform", machine);
    } else {
      problem("platform", machine + " has no native library in the jar", "use Linux on x86-64");
    }
  }

  private void nativeLibrary() {
    if (facts.nativeBuild() != null) {
      ok("native library", facts.nativeBuild());
    } else {
      problem(
          "native library",
          String.valueOf(facts.nativeFailure()),
          "as the message says; the folder is set with spark.allreduce.native.directory");
    }
  }

  private void sharedMemory() {
    MachineFacts.SharedMemory memory = facts.sharedMemory();
    if (memory == null) {
      problem("/dev/shm", "it does not exist", "mount a tmpfs there");
      return;
    }
    long needed = segmentBytes(settings) * ranks;
    String sizes =
        "%s, %s free; %d ranks of %s need %s"
            .formatted(
                megabytes(memory.totalBytes()),
                megabytes(memory.freeBytes()),
                ranks,
                megabytes(segmentBytes(settings)),
                megabytes(needed));
    if (!memory.writable() || memory.options().contains("ro")) {
      problem("/dev/shm", "this user cannot write there", "mount it rw, with mode 1777");
    } else if (memory.freeBytes() < needed) {
      problem(
          "/dev/shm",
          sizes,
          "a larger one (docker: --shm-size, Kubernetes: emptyDir with medium Memory), or smaller"
              + " spark.allreduce.arena.size and spark.allreduce.staging.size");
    } else {
      ok("/dev/shm", sizes + "; mounted " + String.join(",", memory.options()));
    }
    if (memory.deadSegments() > 0) {
      warning(
          "leftovers",
          "%d segments in /dev/shm belong to processes that have ended"
              .formatted(memory.deadSegments()),
          "the next executor of the same user removes its own; or delete /dev/shm/spark-allreduce-*"
              + " while no application runs");
    }
  }

  private void proc() {
    if (!facts.procReadable()) {
      problem("/proc", "it is not mounted", "mount it: a dead peer is noticed through it");
    } else if (facts.hidepid().isEmpty() || facts.hidepid().equals("0")) {
      ok("/proc", "mounted, without hidepid");
    } else {
      note(
          "/proc",
          "hidepid=%s: other users' processes are hidden, which is no harm: ranks are of one user"
              .formatted(facts.hidepid()));
    }
  }

  private void limits() {
    MachineFacts.Limits limits = facts.limits();
    if (limits.openFiles() < FEW_FILES) {
      warning(
          "open files",
          "the limit is %d; Spark's shuffles need more".formatted(limits.openFiles()),
          "raise it: ulimit -n 65536");
    } else {
      ok("open files", "the limit is " + limits.openFiles());
    }
    if (limits.fileBytes() < segmentBytes(settings)) {
      problem(
          "file size",
          "files, and so segments, can have %s only".formatted(megabytes(limits.fileBytes())),
          "raise it: ulimit -f unlimited");
    }
    if (limits.addressSpaceBytes() != Long.MAX_VALUE) {
      warning(
          "address space",
          "it is limited to %s, and each rank maps the segments of all"
              .formatted(megabytes(limits.addressSpaceBytes())),
          "lift the limit: ulimit -v unlimited");
    }
    if (limits.containerBytes() / 2 < segmentBytes(settings) * ranks) {
      warning(
          "container memory",
          "the limit is %s, and shared memory counts to it: %s for %d ranks"
              .formatted(
                  megabytes(limits.containerBytes()),
                  megabytes(segmentBytes(settings) * ranks),
                  ranks),
          "raise the limit, or make arena and staging smaller");
    }
  }

  private void cores() {
    String what = "%d for %d ranks".formatted(facts.cores(), ranks);
    if (facts.cores() < ranks) {
      warning(
          "cores", what + ": each barrier costs a change of process", "fewer ranks, or more cores");
    } else {
      ok("cores", what);
    }
  }

  private void gpus() {
    MachineFacts.Gpus gpus = facts.gpus();
    String backend =
        "whether ranks can use GPUs together, with IPC and peer access, is checked when they open"
            + " their communicator (spark.allreduce.backend), not here";
    if (gpus.devices().isEmpty()) {
      note("GPU", "no device; " + backend);
    } else {
      String drivers =
          gpus.drivers().isEmpty()
              ? "no driver library (libcuda, libamdhip64)"
              : "driver " + String.join(", ", gpus.drivers());
      note("GPU", "%s, %s; %s".formatted(String.join(", ", gpus.devices()), drivers, backend));
    }
  }

  private void ok(String subject, String what) {
    findings.add(Finding.ok(subject, facts.host(), what));
  }

  private void note(String subject, String what) {
    findings.add(Finding.note(subject, facts.host(), what));
  }

  private void warning(String subject, String what, String cure) {
    findings.add(Finding.warning(subject, facts.host(), what, cure));
  }

  private void problem(String subject, String what, String cure) {
    findings.add(Finding.problem(subject, facts.host(), what, cure));
  }
}
