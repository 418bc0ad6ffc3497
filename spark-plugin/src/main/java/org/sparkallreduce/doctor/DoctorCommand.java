// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.doctor;

import java.io.IOException;
import java.io.PrintWriter;
import java.util.Map;
import java.util.concurrent.Callable;
import org.apache.spark.SparkConf;
import org.apache.spark.sql.SparkSession;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.AllReduceException;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Spec;

/** What bin/doctor runs, and the class for spark-submit. Exit code 1: there is a problem. */
@Command(
    name = "doctor",
    mixinStandardHelpOptions = true,
    versionProvider = DoctorCommand.Version.class,
    description =
        "Says why all-reduce does not work on this machine (or, with --spark, on a cluster), and"
            + " what to do about it. Exit code 0: no problem; 1: problems; 2: wrong arguments.")
public final class DoctorCommand implements Callable<Integer> {
  /** The version of the jar. */
  static final class Version implements CommandLine.IVersionProvider {
    @Override
    public String[] getVersion() {
      String version = DoctorCommand.class.getPackage().getImplementationVersion();
      return new String[] {version == null ? "(not packaged)" : version};
    }
  }

  @Option(
      names = "--spark",
      description = "Look at the application's cluster, in one job; for use under spark-submit.")
  private boolean spark;

  @Option(names = "--json", description = "Print JSON instead of text.")
  private boolean json;

  @Option(
      names = "--ranks",
      description =
          "For how many ranks; by default 2 on a machine, and one for each executor on a cluster.")
  private @Nullable Integer ranks;

  @Option(
      names = "--conf",
      description =
          "A setting, such as spark.allreduce.arena.size=1g, as the cluster will have it.")
  private Map<String, String> settings = Map.of();

  @Spec private CommandSpec spec;

  DoctorCommand() {}

  public static void main(String[] arguments) {
    System.exit(new CommandLine(new DoctorCommand()).execute(arguments));
  }

  @Override
  public Integer call() throws IOException {
    if (ranks != null && (ranks < 1 || ranks > 16)) {
      throw new CommandLine.ParameterException(spec.commandLine(), "--ranks must be 1 to 16");
    }
    Report report = spark ? cluster() : machine();
    PrintWriter out = spec.commandLine().getOut();
    out.println(json ? report.json() : report.text());
    out.flush();
    return report.healthy() ? 0 : 1;
  }

  private Report machine() {
    var conf = new SparkConf(false);
    settings.forEach(conf::set);
    try {
      return Doctor.machine(conf, ranks == null ? 2 : ranks);
    } catch (AllReduceException.Setup e) {
      throw new CommandLine.ParameterException(spec.commandLine(), e.getMessage(), e);
    }
  }

  private Report cluster() throws IOException {
    try (SparkSession session = SparkSession.builder().appName("all-reduce doctor").getOrCreate()) {
      return ranks == null ? Doctor.run(session) : Doctor.run(session, ranks);
    }
  }
}
