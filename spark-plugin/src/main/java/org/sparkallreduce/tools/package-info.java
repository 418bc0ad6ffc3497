// Licensed under the Apache License, Version 2.0. See LICENSE.

/** Programs for people: what bin/allreduce-perf starts. Nothing else depends on them. */
@NullMarked
package org.sparkallreduce.tools;

import org.jspecify.annotations.NullMarked;
