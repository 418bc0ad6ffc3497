// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.bench;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

/**
 * Measures allreduce-perf and the all-reduce of MPI libraries in turn, round by round, so that what
 * the machine does meanwhile meets all of them; prints Markdown tables and writes a JSON document.
 * It judges nothing. bin/bench-mpi starts it.
 *
 * <p>Arguments: the tool, the JSON file, the rounds, the numbers of ranks, the largest size, and
 * then for each library its name, and the words of its command up to the program's arguments, where
 * %RANKS% stands for their number; each library ends with a semicolon as a word of its own.
 */
public final class MpiBench {
  private static final String OURS = "spark-allreduce";
  private static final String LIMIT = "memcpy";
  private static final long LIMIT_SECONDS = 300;
  private static final ObjectMapper JSON = new ObjectMapper();

  /** An MPI library and how its program is started. */
  private record Library(String name, List<String> command) {}

  /** Microseconds by what was measured, and by bytes: one sample a round. */
  private static final class Samples {
    private final Map<String, Map<Long, List<Double>>> all = new LinkedHashMap<>();

    void add(String what, long bytes, double micros) {
      all.computeIfAbsent(what, _ -> new TreeMap<>())
          .computeIfAbsent(bytes, _ -> new ArrayList<>())
          .add(micros);
    }

    double[] sorted(String what, long bytes) {
      return all.get(what).get(bytes).stream().mapToDouble(d -> d).sorted().toArray();
    }

    double median(String what, long bytes) {
      double[] sorted = sorted(what, bytes);
      return sorted[sorted.length / 2];
    }

    List<Long> sizes() {
      return List.copyOf(all.get(OURS).keySet());
    }
  }

  private final Path tool;
  private final String largest;
  private final List<Library> libraries;
  private final Map<String, String> versions = new LinkedHashMap<>();

  private MpiBench(Path tool, String largest, List<Library> libraries) {
    this.tool = tool;
    this.largest = largest;
    this.libraries = libraries;
  }

  public static void main(String[] arguments) throws IOException, InterruptedException {
    Path json = Path.of(arguments[1]);
    int rounds = Integer.parseInt(arguments[2]);
    var bench =
        new MpiBench(
            Path.of(arguments[0]),
            arguments[4],
            libraries(Arrays.asList(arguments).subList(5, arguments.length)));
    var document = JsonNodeFactory.instance.objectNode();
    var tables = document.putArray("tables");
    for (String ranks : arguments[3].split(",", -1)) {
      tables.add(bench.measure(Integer.parseInt(ranks), rounds));
    }
    bench.versions.forEach(document.putObject("versions")::put);
    var commands = document.putObject("commands");
    bench.libraries.forEach(library -> commands.put(library.name(), shown(library)));
    Files.writeString(json, JSON.writerWithDefaultPrettyPrinter().writeValueAsString(document));
    bench.printCommands();
  }

  private static List<Library> libraries(List<String> words) {
    var libraries = new ArrayList<Library>();
    int start = 0;
    for (int i = 0; i < words.size(); i++) {
      if (words.get(i).equals(";")) {
        libraries.add(new Library(words.get(start), List.copyOf(words.subList(start + 1, i))));
        start = i + 1;
      }
    }
    return libraries;
  }

  private ObjectNode measure(int ranks, int rounds) throws IOException, InterruptedException {
    var samples = new Samples();
    for (int round = 1; round <= rounds; round++) {
      System.err.printf("%d ranks, round %d of %d%n", ranks, round, rounds);
      List<String> cases = ours(ranks, samples);
      for (Library library : libraries) {
        theirs(library, ranks, cases, samples);
      }
    }
    print(ranks, rounds, samples);
    return document(ranks, rounds, samples);
  }

  /** Runs our tool; returns what the others are to measure: bytes:warmup:iterations. */
  private List<String> ours(int ranks, Samples samples) throws IOException, InterruptedException {
    JsonNode run =
        JSON.readTree(
            run(
                List.of(
                    tool.toString(),
                    "--ranks",
                    Integer.toString(ranks),
                    "-e",
                    largest,
                    "--in-place",
                    "no",
                    "--memcpy",
                    "--json")));
    versions.put(
        OURS, run.get("nativeBuild").asText() + ", called from Java " + run.get("java").asText());
    var cases = new ArrayList<String>();
    for (JsonNode row : run.get("results")) {
      long bytes = row.get("bytes").asLong();
      samples.add(OURS, bytes, row.get("outOfPlace").get("timeUs").asDouble());
      samples.add(LIMIT, bytes, row.get("memcpyUs").asDouble());
      cases.add("%d:%s:%s".formatted(bytes, row.get("warmup"), row.get("iterations")));
    }
    return cases;
  }

  private void theirs(Library library, int ranks, List<String> cases, Samples samples)
      throws IOException, InterruptedException {
    var command = new ArrayList<String>();
    library.command().forEach(w -> command.add(w.replace("%RANKS%", Integer.toString(ranks))));
    command.addAll(cases);
    List<String> lines = run(command).lines().toList();
    versions.put(library.name(), lines.getFirst().replaceAll("\\s+", " "));
    for (String line : lines.subList(1, lines.size())) {
      String[] words = line.split(" ", -1);
      if (words.length != 3 || !words[2].equals("0")) {
        throw new IllegalStateException(library.name() + " says " + line);
      }
      samples.add(library.name(), Long.parseLong(words[0]), Double.parseDouble(words[1]));
    }
    if (lines.size() != cases.size() + 1) {
      throw new IllegalStateException(library.name() + " measured only " + lines);
    }
  }

  /** What a command prints; its errors pass through. */
  private static String run(List<String> command) throws IOException, InterruptedException {
    Process process =
        new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    Thread watch =
        Thread.ofPlatform()
            .daemon()
            .start(
                () -> {
                  try {
                    if (!process.waitFor(LIMIT_SECONDS, TimeUnit.SECONDS)) {
                      process.descendants().forEach(ProcessHandle::destroyForcibly);
                      process.destroyForcibly();
                    }
                  } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                  }
                });
    String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    int code = process.waitFor();
    watch.interrupt();
    if (code != 0) {
      throw new IllegalStateException(
          "%s ended with code %d: %s".formatted(String.join(" ", command), code, output));
    }
    return output;
  }

  private void print(int ranks, int rounds, Samples samples) {
    System.out.printf(
        "%n%d ranks, %d processors; microseconds, median (least to most) of %d rounds%n%n",
        ranks, Runtime.getRuntime().availableProcessors(), rounds);
    var head = new StringBuilder("| bytes | " + OURS + " |");
    var rule = new StringBuilder("|---|---|");
    for (Library library : libraries) {
      head.append(" %s | times faster |".formatted(library.name()));
      rule.append("---|---|");
    }
    System.out.println(head + " memcpy | time / memcpy |\n" + rule + "---|---|");
    for (long bytes : samples.sizes()) {
      double ours = samples.median(OURS, bytes);
      var row = new StringBuilder("| %d | %s |".formatted(bytes, spread(samples, OURS, bytes)));
      for (Library library : libraries) {
        double ratio = samples.median(library.name(), bytes) / ours;
        row.append(" %s | %.2f |".formatted(spread(samples, library.name(), bytes), ratio));
      }
      System.out.printf(
          "%s %s | %.2f |%n",
          row, spread(samples, LIMIT, bytes), ours / samples.median(LIMIT, bytes));
    }
    System.out.println();
  }

  private static String spread(Samples samples, String what, long bytes) {
    double[] sorted = samples.sorted(what, bytes);
    return "%s (%s to %s)"
        .formatted(number(samples.median(what, bytes)), number(sorted[0]), number(last(sorted)));
  }

  private static double last(double[] values) {
    return values[values.length - 1];
  }

  private static String number(double micros) {
    return (micros < 10 ? "%.2f" : micros < 100 ? "%.1f" : "%.0f").formatted(micros);
  }

  private static ObjectNode document(int ranks, int rounds, Samples samples) {
    var table = JsonNodeFactory.instance.objectNode().put("ranks", ranks).put("rounds", rounds);
    var rows = table.putArray("rows");
    for (long bytes : samples.sizes()) {
      var row = rows.addObject().put("bytes", bytes);
      for (String what : samples.all.keySet()) {
        double[] sorted = samples.sorted(what, bytes);
        row.putObject(what)
            .put("medianUs", samples.median(what, bytes))
            .put("leastUs", sorted[0])
            .put("mostUs", last(sorted));
      }
    }
    return table;
  }

  /** The command without the folder of its program. */
  private static String shown(Library library) {
    List<String> words = new ArrayList<>(library.command());
    words.replaceAll(word -> word.startsWith("/") ? Path.of(word).getFileName().toString() : word);
    return String.join(" ", words).replace("%RANKS%", "N");
  }

  private void printCommands() {
    versions.forEach((name, version) -> System.out.printf("- %s: %s%n", name, version));
    libraries.forEach(library -> System.out.printf("- %s: `%s`%n", library.name(), shown(library)));
  }
}
