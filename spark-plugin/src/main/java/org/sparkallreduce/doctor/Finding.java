// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.doctor;

import java.util.Locale;

/**
 * One thing that was looked at.
 *
 * @param subject what was looked at: "Java", "/dev/shm", a setting...
 * @param where on which host, or "Spark"
 * @param what was found
 * @param cure what to do about it; empty if nothing
 */
public record Finding(Severity severity, String subject, String where, String what, String cure) {

  static Finding ok(String subject, String where, String what) {
    return new Finding(Severity.OK, subject, where, what, "");
  }

  static Finding note(String subject, String where, String what) {
    return new Finding(Severity.NOTE, subject, where, what, "");
  }

  static Finding warning(String subject, String where, String what, String cure) {
    return new Finding(Severity.WARNING, subject, where, what, cure);
  }

  static Finding problem(String subject, String where, String what, String cure) {
    return new Finding(Severity.PROBLEM, subject, where, what, cure);
  }

  /** One line, and a second one for the cure. */
  String text() {
    String line = "%-8s %s: %s".formatted(severity.name().toLowerCase(Locale.ROOT), subject, what);
    return cure.isEmpty() ? line : line + "%n         cure: %s".formatted(cure);
  }
}
