// Licensed under the Apache License, Version 2.0. See LICENSE.

/** The demo program that bin/demo submits. */
@NullMarked
package org.sparkallreduce.demo;

import org.jspecify.annotations.NullMarked;
