// Licensed under the Apache License, Version 2.0. See LICENSE.

/**
 * Looks at machines, Spark and a cluster's ranks, and says what will not work and how to cure it.
 */
@NullMarked
package org.sparkallreduce.doctor;

import org.jspecify.annotations.NullMarked;
