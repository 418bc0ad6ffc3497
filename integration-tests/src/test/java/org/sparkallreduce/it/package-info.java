// Licensed under the Apache License, Version 2.0. See LICENSE.

/** Tests with executors that are processes of their own, from the packaged jars. */
@NullMarked
package org.sparkallreduce.it;

import org.jspecify.annotations.NullMarked;
