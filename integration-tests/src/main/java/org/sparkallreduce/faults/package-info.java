// Licensed under the Apache License, Version 2.0. See LICENSE.
/**
 * The fault campaign: ranks in processes of their own run random programs of collectives, and
 * everything that can go wrong is made to; so is it to jobs on a local cluster. And the soak, which
 * runs such programs for long and looks whether anything grows.
 */
@NullMarked
package org.sparkallreduce.faults;

import org.jspecify.annotations.NullMarked;
