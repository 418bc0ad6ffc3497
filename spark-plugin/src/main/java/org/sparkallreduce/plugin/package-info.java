// Licensed under the Apache License, Version 2.0. See LICENSE.

/** What Spark loads: the driver and executor parts, and the Kryo registrator. */
@NullMarked
package org.sparkallreduce.plugin;

import org.jspecify.annotations.NullMarked;
