// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.demo;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.zip.GZIPInputStream;

/** Hand-written digits: 8 x 8 pixels, scaled to 0..1, then the digit. */
final class Digits {
  static final int PIXELS = 64;
  static final int CLASSES = 10;

  private Digits() {}

  static List<double[]> load() {
    try (InputStream file = Digits.class.getResourceAsStream("digits.csv.gz")) {
      if (file == null) {
        throw new IllegalStateException("digits.csv.gz is missing from the jar");
      }
      var lines =
          new BufferedReader(
              new InputStreamReader(new GZIPInputStream(file), StandardCharsets.UTF_8));
      return lines.lines().map(Digits::parse).toList();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static double[] parse(String line) {
    double[] row = Arrays.stream(line.split(",", -1)).mapToDouble(Double::parseDouble).toArray();
    for (int i = 0; i < PIXELS; i++) {
      row[i] /= 16;
    }
    return row;
  }
}
