// Licensed under the Apache License, Version 2.0. See LICENSE.
/** Programs that measure the plugin on a cluster. */
@NullMarked
package org.sparkallreduce.bench;

import org.jspecify.annotations.NullMarked;
