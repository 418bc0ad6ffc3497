// Licensed under the Apache License, Version 2.0. See LICENSE.

/** How the ranks of a barrier stage tell each other what they need before they share memory. */
@NullMarked
package org.sparkallreduce.exchange;

import org.jspecify.annotations.NullMarked;
