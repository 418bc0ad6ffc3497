// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The message sizes of a run: from, to, and how one follows the other. */
final class Sizes {
  private static final Pattern SYNTAX = Pattern.compile("(\\d{1,18})([kKmMgG]?)(i?[bB])?");

  private Sizes() {}

  /**
   * Reads a size: a number of bytes, or of KiB, MiB or GiB with K, M or G behind it.
   *
   * @throws IllegalArgumentException if it is none
   */
  static long parse(String text) {
    Matcher size = SYNTAX.matcher(text.strip());
    if (!size.matches()) {
      throw new IllegalArgumentException(
          "\"%s\" is not a size; write bytes, or K, M, G behind a number: 8, 32K, 64M"
              .formatted(text));
    }
    int shift =
        switch (size.group(2)) {
          case "k", "K" -> 10;
          case "m", "M" -> 20;
          case "g", "G" -> 30;
          default -> 0;
        };
    long number = Long.parseLong(size.group(1));
    if (number > Long.MAX_VALUE >> shift) {
      throw new IllegalArgumentException("\"%s\" is more than any memory".formatted(text));
    }
    return number << shift;
  }

  /** Bytes as a person writes them: 512, 32K, 64M. */
  static String shortText(long bytes) {
    for (int shift = 30; shift > 0; shift -= 10) {
      if (bytes >= 1L << shift && bytes % (1L << shift) == 0) {
        return (bytes >> shift) + "_KMG".substring(shift / 10, shift / 10 + 1);
      }
    }
    return Long.toString(bytes);
  }

  /** {@code least}, times {@code factor}, and so on up to {@code most}. */
  static List<Long> byFactor(long least, long most, int factor) {
    requireOrder(least, most);
    if (factor < 2) {
      throw new IllegalArgumentException("the step factor must be at least 2, not " + factor);
    }
    if (least == 0) {
      throw new IllegalArgumentException("a factor leads nowhere from 0 bytes; use a step (-i)");
    }
    var sizes = new ArrayList<Long>();
    for (long size = least; size <= most; size *= factor) {
      sizes.add(size);
      if (size > most / factor) {
        break;
      }
    }
    return sizes;
  }

  /** {@code least}, plus {@code step}, and so on up to {@code most}. */
  static List<Long> byStep(long least, long most, long step) {
    requireOrder(least, most);
    if (step < 1 || (most - least) / step > 100_000) {
      throw new IllegalArgumentException(
          "a step of %d bytes from %d to %d makes no sensible number of sizes"
              .formatted(step, least, most));
    }
    var sizes = new ArrayList<Long>();
    for (long size = least; size <= most; size += step) {
      sizes.add(size);
    }
    return sizes;
  }

  private static void requireOrder(long least, long most) {
    if (least > most) {
      throw new IllegalArgumentException(
          "the smallest size (%d) is above the largest (%d)".formatted(least, most));
    }
  }
}
