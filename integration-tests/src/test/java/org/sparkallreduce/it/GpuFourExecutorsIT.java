// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

class GpuFourExecutorsIT extends GpuExecutors {
  GpuFourExecutorsIT() {
    super(4);
  }
}
