// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.MalformedInputException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;

/**
 * Which schedule {@link Schedule#AUTO} takes: that of the first row whose world size and bytes are
 * not exceeded. As text, it has one row in a line: backend, world size, bytes ({@code *}: any), and
 * schedule. What follows a # is a comment. conf/auto-table.txt is such a table.
 */
public record AutoTable(List<Row> rows) {
  /** Most rows of one backend. */
  public static final int MAX_ROWS = 64;

  private static final int MAX_RANKS = 16;
  private static final String ANY = "*";

  /** For communicators of at most so many ranks, and buffers of at most so many bytes. */
  public record Row(Backend backend, int worldSize, long bytes, Schedule schedule) {
    private String text() {
      return "%s %d %s %s"
          .formatted(
              backend.name().toLowerCase(Locale.ROOT),
              worldSize,
              bytes == Long.MAX_VALUE ? ANY : Long.toString(bytes),
              schedule.text());
    }
  }

  public AutoTable {
    rows = List.copyOf(rows);
  }

  private static final class Packed {
    static final AutoTable TABLE = read();

    private static AutoTable read() {
      try (InputStream in = AutoTable.class.getResourceAsStream("auto-table.txt")) {
        if (in == null) {
          throw new IllegalStateException("the jar lacks auto-table.txt");
        }
        return parse(
            "auto-table.txt in the jar", new String(in.readAllBytes(), StandardCharsets.UTF_8));
      } catch (IOException e) {
        throw new UncheckedIOException("Cannot read auto-table.txt from the jar", e);
      }
    }
  }

  /** What holds on a backend. If there is nothing, the native library has a table of its own. */
  public List<Row> rows(Backend backend) {
    return rows.stream().filter(row -> row.backend() == backend).toList();
  }

  /** The table in the jar, which is conf/auto-table.txt. */
  public static AutoTable packed() {
    return Packed.TABLE;
  }

  /**
   * Reads a table from a file.
   *
   * @throws AllReduceException.Setup if there is none, or it is not a table; the message names the
   *     line
   */
  public static AutoTable read(Path file) {
    try {
      return parse(file.toString(), Files.readString(file));
    } catch (NoSuchFileException e) {
      throw new AllReduceException.Setup(
          "The table for auto, %s, does not exist on this host. Set spark.allreduce.auto.table to a file of the driver's."
              .formatted(file),
          e);
    } catch (MalformedInputException e) {
      throw new AllReduceException.Setup("The table for auto, %s, is not text.".formatted(file), e);
    } catch (IOException e) {
      throw new AllReduceException.Setup(
          "The table for auto, %s, cannot be read: %s".formatted(file, e), e);
    }
  }

  /**
   * Reads a table.
   *
   * @param name of the file, for messages
   */
  public static AutoTable parse(String name, String text) {
    var rows = new ArrayList<Row>();
    int number = 0;
    for (String line : text.lines().toList()) {
      number++;
      String content = line.replaceFirst("#.*", "").strip();
      if (!content.isEmpty()) {
        try {
          rows.add(row(content, rows));
        } catch (IllegalArgumentException e) {
          throw new AllReduceException.Setup(
              "Line %d of the table for auto, %s, is \"%s\": %s. A line is like \"host 4 32768 one-shot\"."
                  .formatted(number, name, content, e.getMessage()),
              e);
        }
      }
    }
    if (rows.isEmpty()) {
      throw new AllReduceException.Setup(
          "The table for auto, %s, has no rows. A row is like \"host 4 32768 one-shot\"."
              .formatted(name));
    }
    return new AutoTable(rows);
  }

  private static Row row(String content, List<Row> before) {
    String[] words = content.split("\\s+", -1);
    if (words.length != 4) {
      throw new IllegalArgumentException(
          "it has %d words, not backend, world size, bytes and schedule".formatted(words.length));
    }
    var row = new Row(backend(words[0]), worldSize(words[1]), bytes(words[2]), schedule(words[3]));
    for (Row earlier : before) {
      if (earlier.backend() == row.backend()
          && earlier.worldSize() >= row.worldSize()
          && earlier.bytes() >= row.bytes()) {
        throw new IllegalArgumentException(
            "it is never reached, since \"%s\" stands before it".formatted(earlier.text()));
      }
    }
    if (before.stream().filter(earlier -> earlier.backend() == row.backend()).count() == MAX_ROWS) {
      throw new IllegalArgumentException(
          "a table has at most %d rows for a backend".formatted(MAX_ROWS));
    }
    return row;
  }

  private static Backend backend(String word) {
    return switch (word) {
      case "host" -> Backend.HOST;
      case "gpu" -> Backend.GPU;
      default -> throw new IllegalArgumentException("the backend must be host or gpu");
    };
  }

  private static int worldSize(String word) {
    if (!word.matches("[1-9]|1[0-6]")) {
      throw new IllegalArgumentException("the world size must be 1 to " + MAX_RANKS);
    }
    return Integer.parseInt(word);
  }

  private static long bytes(String word) {
    if (word.equals(ANY)) {
      return Long.MAX_VALUE;
    }
    if (!word.matches("\\d{1,18}")) {
      throw new IllegalArgumentException("the bytes must be a number, or * for any");
    }
    return Long.parseLong(word);
  }

  private static Schedule schedule(String word) {
    String text = word.toLowerCase(Locale.ROOT).replace('_', '-');
    return Arrays.stream(Schedule.values())
        .filter(schedule -> schedule != Schedule.AUTO && schedule.text().equals(text))
        .findFirst()
        .orElseThrow(
            () ->
                new IllegalArgumentException(
                    "the schedule must be one of "
                        + Arrays.stream(Schedule.values())
                            .filter(schedule -> schedule != Schedule.AUTO)
                            .map(Schedule::text)
                            .collect(Collectors.joining(", "))));
  }

  /** The rows as text, without comments; {@link #parse} reads it. */
  public String text() {
    return rows.stream().map(row -> row.text() + "\n").collect(Collectors.joining());
  }

  /** What tells it from other tables: ranks compare this. */
  public String fingerprint() {
    byte[] text = text().getBytes(StandardCharsets.UTF_8);
    try {
      byte[] digest = MessageDigest.getInstance("SHA-256").digest(text);
      return "%d rows, SHA-256 %s".formatted(rows.size(), HexFormat.of().formatHex(digest, 0, 8));
    } catch (NoSuchAlgorithmException e) {
      throw new AssertionError("every Java has SHA-256", e);
    }
  }
}
