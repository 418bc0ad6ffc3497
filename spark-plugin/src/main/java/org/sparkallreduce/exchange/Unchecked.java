// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.exchange;

/** Throws on the caller's thread what Spark threw on another, as it is, checked or not. */
final class Unchecked {
  private Unchecked() {}

  static RuntimeException rethrow(Throwable t) {
    throw Unchecked.<RuntimeException>cast(t);
  }

  @SuppressWarnings({"unchecked", "TypeParameterUnusedInFormals"})
  private static <T extends Throwable> T cast(Throwable t) throws T {
    throw (T) t;
  }
}
