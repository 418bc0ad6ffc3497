// Licensed under the Apache License, Version 2.0. See LICENSE.

/**
 * The vocabulary that all parts share: data types, reduce operations, schedules, settings, errors.
 */
@NullMarked
package org.sparkallreduce;

import org.jspecify.annotations.NullMarked;
