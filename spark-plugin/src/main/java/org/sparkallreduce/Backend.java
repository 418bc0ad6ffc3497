// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce;

/** Where the buffers of a communicator are, and what reduces them. */
public enum Backend {
  /** As a setting only: {@link #GPU} if every rank has a device, and otherwise {@link #HOST}. */
  AUTO,
  /** Device memory, and kernels on each rank's GPU. */
  GPU,
  /** Shared memory of the host, and its processors. */
  HOST
}
