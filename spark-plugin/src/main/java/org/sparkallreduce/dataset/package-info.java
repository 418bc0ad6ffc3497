// Licensed under the Apache License, Version 2.0. See LICENSE.

/** What a Spark program calls: one-shot reductions, and functions that run once per rank. */
@NullMarked
package org.sparkallreduce.dataset;

import org.jspecify.annotations.NullMarked;
