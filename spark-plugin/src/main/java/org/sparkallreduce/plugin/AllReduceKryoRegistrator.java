// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.plugin;

import com.esotericsoftware.kryo.Kryo;
import org.apache.spark.serializer.KryoRegistrator;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Schedule;

/**
 * For {@code spark.kryo.registrator}, where {@code spark.kryo.registrationRequired} is true. What
 * our own jobs put on Spark's data path ({@code byte[]}) is known to Spark; this adds arrays that
 * rank functions commonly take as rows, and the vocabulary of this library.
 */
public final class AllReduceKryoRegistrator implements KryoRegistrator {
  @Override
  public void registerClasses(Kryo kryo) {
    for (Class<?> type :
        new Class<?>[] {
          double[][].class,
          float[][].class,
          int[][].class,
          long[][].class,
          Object[].class,
          DataType.class,
          ReduceOp.class,
          Schedule.class
        }) {
      kryo.register(type);
    }
  }
}
