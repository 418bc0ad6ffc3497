// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.dataset;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Optional;
import java.util.UUID;
import org.apache.spark.BarrierTaskContext;
import org.apache.spark.SparkEnv;
import org.jspecify.annotations.Nullable;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction1;

/**
 * The body of one task of the barrier stage. Its one row is the rank's result as bytes, in Java
 * serialization like Spark's closures: so any Serializable passes, whatever spark.serializer is,
 * and the only class on Spark's data path is {@code byte[]}.
 */
final class RankTask<T, R extends @Nullable Object>
    extends AbstractFunction1<Iterator<T>, Iterator<byte[]>> implements Serializable {
  private static final long serialVersionUID = 1L;

  /** What one rank returned. */
  record Result(int rank, @Nullable Object value) implements Serializable {}

  private final UUID run;
  private final UUID lease;
  private final List<String> localDevices;
  private final TaskStatistics statistics;
  private final RankFunction<T, R> function;

  RankTask(
      UUID run,
      UUID lease,
      List<String> localDevices,
      TaskStatistics statistics,
      RankFunction<T, R> function) {
    this.run = run;
    this.lease = lease;
    this.localDevices = localDevices;
    this.statistics = statistics;
    this.function = function;
  }

  @Override
  public Iterator<byte[]> apply(Iterator<T> rows) {
    RankContext context =
        RankContext.open(
            BarrierTaskContext.get(), run, Optional.of(lease), localDevices, statistics::add);
    try {
      R value = function.call(context, CollectionConverters.asJava(rows));
      byte[] bytes = encode(new Result(context.rank(), value));
      return CollectionConverters.asScala(List.of(bytes)).iterator();
    } catch (Exception e) {
      throw unchecked(e);
    }
  }

  private static byte[] encode(Result result) {
    ByteBuffer bytes =
        SparkEnv.get()
            .closureSerializer()
            .newInstance()
            .serialize(result, ClassTag$.MODULE$.apply(Result.class));
    byte[] copy = new byte[bytes.remaining()];
    bytes.get(copy);
    return copy;
  }

  static Result decode(byte[] bytes) {
    return SparkEnv.get()
        .closureSerializer()
        .newInstance()
        .deserialize(
            ByteBuffer.wrap(bytes),
            Thread.currentThread().getContextClassLoader(),
            ClassTag$.MODULE$.apply(Result.class));
  }

  /** Spark is to see what the user threw, checked or not; Function1 declares nothing. */
  @SuppressWarnings({"unchecked", "TypeParameterUnusedInFormals"})
  private static <E extends Exception> E unchecked(Exception exception) throws E {
    throw (E) exception;
  }
}
