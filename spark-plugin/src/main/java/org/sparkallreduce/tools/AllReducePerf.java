// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import java.io.IOException;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Schedule;
import org.sparkallreduce.tools.Job.Placement;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.IVersionProvider;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;

/** What bin/allreduce-perf starts: measures collectives in the manner of rccl-tests. */
@Command(
    name = "allreduce-perf",
    mixinStandardHelpOptions = true,
    versionProvider = AllReducePerf.Version.class,
    sortOptions = false,
    usageHelpWidth = 100,
    description = {
      "Measures collectives of spark-allreduce, as its Java callers see them, and checks their"
          + " results. Flags and table are those of rccl-tests.",
      ""
    },
    footer = {
      "",
      "Sizes are bytes, or KiB, MiB, GiB with K, M, G. Lists have commas; 'all' is everything.",
      "Exit code: 0 all is well, 1 wrong results, 2 wrong usage, 3 the run could not be finished."
    })
public final class AllReducePerf implements Callable<Integer> {
  private static final int WRONG_RESULTS = 1;
  private static final int NOT_FINISHED = 3;
  private static final int MAX_RANKS = 16;
  private static final String STANDARD_OUTPUT = "-";

  @Spec private @Nullable CommandSpec spec;

  @Option(
      names = {"-b", "--minbytes"},
      paramLabel = "SIZE",
      defaultValue = "8",
      description = "smallest size (default: ${DEFAULT-VALUE})")
  private String least = "";

  @Option(
      names = {"-e", "--maxbytes"},
      paramLabel = "SIZE",
      defaultValue = "64M",
      description = "largest size (default: ${DEFAULT-VALUE})")
  private String most = "";

  @Option(
      names = {"-f", "--stepfactor"},
      paramLabel = "N",
      defaultValue = "2",
      description = "each size is so many times the last (default: ${DEFAULT-VALUE})")
  private int factor;

  @Option(
      names = {"-i", "--stepbytes"},
      paramLabel = "SIZE",
      description = "each size is so much more than the last, instead of -f")
  private @Nullable String step;

  @Option(
      names = {"-n", "--iters"},
      paramLabel = "N",
      description = "timed calls per size (default: 10,000 for small ones to 10 for large ones)")
  private @Nullable Integer iterations;

  @Option(
      names = {"-w", "--warmup_iters"},
      paramLabel = "N",
      description =
          "calls before those, and no others (default: a tenth of -n, at least 5, behind as many as"
              + " the JIT compiler needs)")
  private @Nullable Integer warmup;

  @Option(
      names = {"-c", "--check"},
      paramLabel = "N",
      defaultValue = "1",
      description =
          "calls per size whose elements are all checked; 0: none (default:" + " ${DEFAULT-VALUE})")
  private int checks;

  @Option(
      names = {"-d", "--datatype"},
      paramLabel = "LIST",
      defaultValue = "float",
      description = "double, float, half, bfloat16, int32, int64 (default: ${DEFAULT-VALUE})")
  private String types = "";

  @Option(
      names = {"-o", "--op"},
      paramLabel = "LIST",
      defaultValue = "sum",
      description = "sum, prod, min, max, avg (default: ${DEFAULT-VALUE})")
  private String ops = "";

  @Option(
      names = {"-r", "--root"},
      paramLabel = "RANK",
      defaultValue = "0",
      description = "root of a broadcast (default: ${DEFAULT-VALUE})")
  private int root;

  @Option(
      names = "--collective",
      paramLabel = "LIST",
      defaultValue = "all-reduce",
      description =
          "all-reduce, reduce-scatter, all-gather, broadcast (default:" + " ${DEFAULT-VALUE})")
  private String collectives = "";

  @Option(
      names = "--schedule",
      paramLabel = "LIST",
      defaultValue = "auto",
      description =
          "of all-reduce: auto, one-shot, two-shot-read, staged-write, direct-write,"
              + " load-reduce-store, low-latency (to 16 bytes) (default: ${DEFAULT-VALUE})")
  private String schedules = "";

  @Option(
      names = "--backend",
      paramLabel = "NAME",
      defaultValue = "host",
      description = "host; there is no other yet")
  private String backend = "";

  @Option(
      names = "--ranks",
      paramLabel = "N",
      split = ",",
      defaultValue = "2",
      description = "how many ranks; with --tune a list (default: ${DEFAULT-VALUE})")
  private List<Integer> ranks = List.of();

  @Option(
      names = "--in-place",
      paramLabel = "WHICH",
      defaultValue = "both",
      description = "yes, no or both (default: ${DEFAULT-VALUE})")
  private String inPlace = "";

  @Option(
      names = "--unregistered",
      description = "heap arrays instead of registered buffers: they are copied in and out")
  private boolean unregistered;

  @Option(
      names = "--memcpy",
      description = "measure the limit too: all ranks copy as many bytes with memcpy at once")
  private boolean memcpy;

  @Option(
      names = "--spark",
      description =
          "ranks are tasks of a barrier stage, by default on a local cluster, instead of"
              + " processes of this tool")
  private boolean spark;

  @Option(
      names = "--conf",
      paramLabel = "KEY=VALUE",
      description = "a setting, such as spark.allreduce.wait.spin=0us")
  private Map<String, String> settings = new LinkedHashMap<>();

  @Option(
      names = "--json",
      paramLabel = "FILE",
      arity = "0..1",
      fallbackValue = STANDARD_OUTPUT,
      description = "write a JSON document, to a file or instead of the table")
  private @Nullable String json;

  @Option(
      names = "--svg",
      paramLabel = "FILE",
      description = "draw time and bus bandwidth over size; implies --memcpy")
  private @Nullable Path svg;

  @Option(
      names = "--tune",
      paramLabel = "FILE",
      description =
          "measure all schedules for --ranks, and write the table that"
              + " spark.allreduce.auto.table takes")
  private @Nullable Path tune;

  private final PrintStream out;

  /** Of the jar. */
  static final class Version implements IVersionProvider {
    @Override
    public String[] getVersion() {
      return new String[] {"allreduce-perf of spark-allreduce " + RunInfo.of("").version()};
    }
  }

  AllReducePerf(PrintStream out) {
    this.out = out;
  }

  public static void main(String[] arguments) {
    System.exit(execute(System.out, arguments));
  }

  static int execute(PrintStream out, String... arguments) {
    var command = new CommandLine(new AllReducePerf(out));
    command.setOut(new PrintWriter(out, true, StandardCharsets.UTF_8));
    command.setExecutionExceptionHandler(
        (e, _, _) -> {
          if (e instanceof ToolException || e instanceof AllReduceException) {
            System.err.println("allreduce-perf: " + e.getMessage());
          } else {
            e.printStackTrace();
          }
          return NOT_FINISHED;
        });
    return command.execute(arguments);
  }

  @Override
  public Integer call() throws IOException {
    checkOptions();
    return tune == null ? measure() : tune(tune);
  }

  private int measure() throws IOException {
    int size = ranks.getFirst();
    Job job = job(size);
    var results = new Results(size, job);
    run(job, size).measure(job, size, results);
    String document = PerfJson.document(results.info, job, results.ranks, results.all);
    if (STANDARD_OUTPUT.equals(json)) {
      out.print(document);
    } else {
      out.print(results.table.foot(results.all));
      if (json != null) {
        Files.writeString(Path.of(json), document);
      }
    }
    if (svg != null) {
      Files.writeString(svg, PerfSvg.draw(results.info, job, size, results.all));
    }
    out.flush();
    return results.all.stream().anyMatch(measured -> measured.wrong() > 0) ? WRONG_RESULTS : 0;
  }

  private Run run(Job job, int size) {
    var all = new LinkedHashMap<String, String>();
    long arena = 2 * job.largestBuffer(size) + RankMeasurement.ARENA_SLACK;
    all.put("spark.allreduce.arena.size", Math.max(arena, 1 << 20) + "b");
    all.putAll(settings);
    return spark ? new SparkRun(all) : new ProcessRun(all);
  }

  /** Prints lines as they come. */
  private final class Results implements Run.Listener {
    private final Job job;
    private final RunInfo info = RunInfo.of(spark ? "spark" : "processes");
    private final PerfTable table;
    private final Progress progress;
    private final List<Measured> all = new ArrayList<>();
    private List<RankInfo> ranks = List.of();

    Results(int size, Job job) {
      this.job = job;
      this.table = new PerfTable(job, size);
      this.progress = new Progress(job.cases().size());
    }

    @Override
    public void started(List<RankInfo> started) {
      ranks = started;
      print(PerfTable.head(info, job, started, sizesText()));
    }

    @Override
    public void measured(Measured measured) {
      all.add(measured);
      print(table.row(measured));
      progress.show(all.size());
    }

    @Override
    public void waiting() {
      progress.show(all.size());
    }

    private void print(String text) {
      if (!STANDARD_OUTPUT.equals(json)) {
        out.print(text);
        out.flush();
      }
    }
  }

  private String sizesText() {
    return "minBytes %d maxBytes %d step: %s warmup iters: %s iters: %s"
        .formatted(
            Sizes.parse(least),
            Sizes.parse(most),
            step == null ? factor + "(factor)" : Sizes.parse(step) + "(bytes)",
            warmup == null ? "by size" : warmup.toString(),
            iterations == null ? "by size" : iterations.toString());
  }

  private int tune(Path file) throws IOException {
    List<Integer> worlds = ranks.stream().sorted().distinct().toList();
    var tuner = new Tuner(sizes(), Names.types(types).getFirst(), this::iterations, out);
    String table = tuner.tune(worlds, (job, size) -> run(job, size));
    Files.writeString(file, table);
    out.printf("Wrote %s. Use it with --conf spark.allreduce.auto.table=%s%n", file, file);
    out.flush();
    return 0;
  }

  private void checkOptions() {
    if (!backend.equals("host")) {
      throw usage(
          "\"%s\" cannot be measured here, the host backend only: bin/bench-gpu and native/bench measure GPUs."
              .formatted(backend));
    }
    for (int size : ranks) {
      if (size < 1 || size > MAX_RANKS) {
        throw usage("--ranks must be 1 to %d, not %d.".formatted(MAX_RANKS, size));
      }
    }
    if (tune == null && ranks.size() > 1) {
      throw usage("Only --tune takes several numbers of ranks.");
    }
    if (tune != null && (json != null || svg != null || spark)) {
      throw usage("--tune writes its table only: without --json, --svg and --spark.");
    }
    if (root < 0 || root >= ranks.getFirst()) {
      throw usage("--root must be one of the ranks 0 to %d.".formatted(ranks.getFirst() - 1));
    }
    if (checks < 0 || (iterations != null && iterations < 1) || (warmup != null && warmup < 0)) {
      throw usage("-n must be at least 1, -w and -c at least 0.");
    }
    requireFolder("--json", json == null || json.equals(STANDARD_OUTPUT) ? null : Path.of(json));
    requireFolder("--svg", svg);
    requireFolder("--tune", tune);
    for (String key : settings.keySet()) {
      if (!spark && !key.startsWith("spark.allreduce.")) {
        throw usage("%s has no effect without --spark.".formatted(key));
      }
    }
  }

  /** Before anything is measured, not afterwards. */
  private void requireFolder(String option, @Nullable Path file) {
    Path folder = file == null ? null : file.toAbsolutePath().getParent();
    if (folder != null && !Files.isWritable(folder)) {
      throw usage("%s: there is no folder %s that can be written to.".formatted(option, folder));
    }
  }

  private Job job(int size) {
    var cases = new ArrayList<Case>();
    try {
      for (Collective collective : Names.collectives(collectives)) {
        boolean allReduce = collective == Collective.ALL_REDUCE;
        var kinds = allReduce ? Names.schedules(schedules) : List.of(Schedule.AUTO);
        var reduceOps = collective.reduces() ? Names.ops(ops) : List.of(ReduceOp.SUM);
        for (Schedule schedule : kinds) {
          for (DataType type : Names.types(types)) {
            for (ReduceOp op : reduceOps) {
              for (long bytes : sizes()) {
                if (Case.carries(schedule, bytes)) {
                  cases.add(one(collective, schedule, type, op, bytes, size));
                }
              }
            }
          }
        }
      }
      if (cases.isEmpty()) {
        throw new IllegalArgumentException("no schedule that was asked for carries these sizes");
      }
      return new Job(
          cases, placement(), !unregistered, checks, memcpy || svg != null, warmup == null);
    } catch (IllegalArgumentException e) {
      throw usage(e.getMessage() + ".");
    }
  }

  private Case one(
      Collective collective, Schedule schedule, DataType type, ReduceOp op, long bytes, int size) {
    long count = collective.count(bytes, type.bytes(), size);
    long actual = collective.bytes(count, type.bytes(), size);
    if (unregistered && actual / type.bytes() > Integer.MAX_VALUE - 8) {
      throw new IllegalArgumentException(
          "%d bytes are more than a Java array can hold".formatted(actual));
    }
    int n = iterations(actual, size);
    int w = warmup != null ? warmup : Case.defaultWarmup(n);
    return new Case(collective, schedule, type, op, root, count, w, n);
  }

  private int iterations(long bytes, int size) {
    return iterations != null
        ? iterations
        : Case.defaultIterations(bytes, size, Runtime.getRuntime().availableProcessors());
  }

  private List<Long> sizes() {
    try {
      long from = Sizes.parse(least);
      long to = Sizes.parse(most);
      return step == null
          ? Sizes.byFactor(from, to, factor)
          : Sizes.byStep(from, to, Sizes.parse(step));
    } catch (IllegalArgumentException e) {
      throw usage(e.getMessage() + ".");
    }
  }

  private Placement placement() {
    return switch (inPlace) {
      case "yes" -> Placement.IN_PLACE;
      case "no" -> Placement.OUT_OF_PLACE;
      case "both" -> Placement.BOTH;
      default -> throw usage("--in-place must be yes, no or both, not \"%s\".".formatted(inPlace));
    };
  }

  private ParameterException usage(String message) {
    return new ParameterException(Optional.ofNullable(spec).orElseThrow().commandLine(), message);
  }
}
