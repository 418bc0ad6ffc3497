// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import java.io.Serializable;
import java.util.List;
import org.apache.spark.BarrierTaskContext;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.resource.ResourceProfile;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction1;

/** A barrier stage of the user's own, without Collectives. */
final class OwnStage extends AbstractFunction1<Iterator<Integer>, Iterator<Integer>>
    implements Serializable {
  private static final long serialVersionUID = 1L;

  /** What one task does. */
  @FunctionalInterface
  interface Body extends Serializable {
    void run(BarrierTaskContext task) throws Exception;
  }

  private final Body body;

  private OwnStage(Body body) {
    this.body = body;
  }

  static void run(SparkContext spark, int tasks, Body body) {
    stage(spark, tasks, body).count();
  }

  /** As above, with resources of the stage's own. */
  static void run(SparkContext spark, int tasks, ResourceProfile resources, Body body) {
    stage(spark, tasks, body).withResources(resources).count();
  }

  private static RDD<Integer> stage(SparkContext spark, int tasks, Body body) {
    return JavaSparkContext.fromSparkContext(spark)
        .parallelize(List.of(0, 1), tasks)
        .rdd()
        .barrier()
        .mapPartitions(new OwnStage(body), false, ClassTag$.MODULE$.apply(Integer.class));
  }

  @Override
  public Iterator<Integer> apply(Iterator<Integer> rows) {
    try {
      body.run(BarrierTaskContext.get());
    } catch (RuntimeException e) {
      throw e;
    } catch (Exception e) {
      throw new IllegalStateException(e);
    }
    return CollectionConverters.asScala(List.<Integer>of()).iterator();
  }
}
