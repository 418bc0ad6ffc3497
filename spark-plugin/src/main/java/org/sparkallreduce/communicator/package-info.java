// Licensed under the Apache License, Version 2.0. See LICENSE.

/** Communicators: the ranks of one session, and the collectives they call. */
@NullMarked
package org.sparkallreduce.communicator;

import org.jspecify.annotations.NullMarked;
