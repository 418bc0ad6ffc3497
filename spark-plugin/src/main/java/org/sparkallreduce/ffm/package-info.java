// Licensed under the Apache License, Version 2.0. See LICENSE.

/** The binding of the native library: loading, signatures, structures, status codes. */
@NullMarked
package org.sparkallreduce.ffm;

import org.jspecify.annotations.NullMarked;
