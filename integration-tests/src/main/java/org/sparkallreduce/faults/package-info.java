// Licensed under the Apache License, Version 2.0. See LICENSE.
/**
 * The fault campaign: ranks in processes of their own run random programs of collectives, and
 * everything that can go wrong is made to.
 */
@NullMarked
package org.sparkallreduce.faults;

import org.jspecify.annotations.NullMarked;
