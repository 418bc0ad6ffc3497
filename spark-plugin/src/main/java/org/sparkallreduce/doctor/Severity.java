// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.doctor;

/** How bad a finding is, in rising order. */
public enum Severity {
  /** As it should be. */
  OK,
  /** Worth knowing; nothing to do. */
  NOTE,
  /** It works, but slowly, or not in every case. */
  WARNING,
  /** All-reduce does not work like this. */
  PROBLEM
}
