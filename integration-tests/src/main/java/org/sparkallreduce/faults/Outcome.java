// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

/**
 * What became of one rank.
 *
 * @param kind {@link #ENDED}, {@link #WRONG}, or the class of the exception
 * @param call during which call it was thrown
 * @param entered when that call began, by the system's monotonic clock
 * @param thrown when the exception came
 * @param message of the exception, or what was wrong
 */
record Outcome(String kind, int call, long entered, long thrown, String message) {
  static final String ENDED = "ended";
  static final String WRONG = "wrong";

  static Outcome ended() {
    return new Outcome(ENDED, 0, 0, 0, "");
  }

  static Outcome wrong(String message) {
    return new Outcome(WRONG, 0, 0, 0, message);
  }

  String line() {
    return "%s %d %d %d %s".formatted(kind, call, entered, thrown, Worker.encode(message));
  }

  /** From the words of {@code outcome LINE}. */
  static Outcome parse(String[] words) {
    return new Outcome(
        words[1],
        Integer.parseInt(words[2]),
        Long.parseLong(words[3]),
        Long.parseLong(words[4]),
        Worker.decode(words[5]));
  }

  @Override
  public String toString() {
    return switch (kind) {
      case ENDED -> "ended well";
      case WRONG -> "WRONG: " + message;
      default -> "%s in call %d: %s".formatted(kind, call, message);
    };
  }
}
