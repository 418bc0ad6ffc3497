// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.exchange;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.BarrierTaskContext;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaSparkContext;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction1;

/** One barrier stage of local mode: a body for each task, all in this JVM. */
final class BarrierStage extends AbstractFunction1<Iterator<Integer>, Iterator<String>>
    implements Serializable {
  private static final long serialVersionUID = 1L;

  /** What one task does. */
  @FunctionalInterface
  interface Body extends Serializable {
    String run(BarrierTaskContext context) throws Exception;
  }

  private final Body body;

  private BarrierStage(Body body) {
    this.body = body;
  }

  /** What the tasks returned, in the order of partitions. */
  static List<String> run(SparkContext spark, int tasks, Body body) {
    var numbers = new ArrayList<Integer>();
    for (int task = 0; task < tasks; task++) {
      numbers.add(task);
    }
    return new JavaSparkContext(spark)
        .parallelize(numbers, tasks)
        .rdd()
        .barrier()
        .mapPartitions(new BarrierStage(body), false, ClassTag$.MODULE$.apply(String.class))
        .toJavaRDD()
        .collect();
  }

  @Override
  public Iterator<String> apply(Iterator<Integer> rows) {
    try {
      return CollectionConverters.asScala(List.of(body.run(BarrierTaskContext.get()))).iterator();
    } catch (Exception e) {
      throw Unchecked.rethrow(e);
    }
  }
}
