// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

class GpuTwoExecutorsIT extends GpuExecutors {
  GpuTwoExecutorsIT() {
    super(2);
  }
}
