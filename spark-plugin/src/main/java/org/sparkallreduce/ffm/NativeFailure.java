// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.ffm;

/** A native object could not be created. */
public final class NativeFailure extends Exception {
  private static final long serialVersionUID = 1L;

  private final transient Failure failure;

  NativeFailure(Failure failure) {
    super(failure.message());
    this.failure = failure;
  }

  public Failure failure() {
    return failure;
  }
}
