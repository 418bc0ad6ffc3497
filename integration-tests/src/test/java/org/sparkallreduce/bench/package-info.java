// Licensed under the Apache License, Version 2.0. See LICENSE.

/** Benchmarks of JMH, run with {@code bin/bench-calls}. */
@NullMarked
package org.sparkallreduce.bench;

import org.jspecify.annotations.NullMarked;
