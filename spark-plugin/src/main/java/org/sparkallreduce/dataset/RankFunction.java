// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.dataset;

import java.io.Serializable;
import java.util.Iterator;
import org.jspecify.annotations.Nullable;

/**
 * What each rank runs, once, inside of the barrier stage. As with every Spark task, it may be run
 * again when an executor is lost, then on all ranks from the start.
 *
 * @param <T> the rows
 * @param <R> what the rank returns to the driver: Serializable, or null
 */
@FunctionalInterface
public interface RankFunction<T, R extends @Nullable Object> extends Serializable {
  R call(RankContext context, Iterator<T> rows) throws Exception;
}
