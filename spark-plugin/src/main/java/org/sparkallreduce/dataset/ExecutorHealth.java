// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.dataset;

import java.io.Serializable;
import org.jspecify.annotations.Nullable;

/**
 * Told to the driver by each executor when it starts.
 *
 * @param build version and native build, for the driver's log
 * @param failure why the executor cannot take part; null if it can
 */
public record ExecutorHealth(String executorId, String host, String build, @Nullable String failure)
    implements Serializable {}
