// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import java.io.IOException;
import java.io.Serializable;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.ml.linalg.SQLDataTypes;
import org.apache.spark.ml.linalg.Vectors;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.StructType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.dataset.Collectives;

/** Uses both levels of the API; {@link SubmitIT} submits it with Kryo as the serializer. */
public final class KryoProgram {
  record Answer(int rank, double sum) implements Serializable {}

  private KryoProgram() {}

  public static void main(String[] arguments) throws IOException {
    try (SparkSession spark = SparkSession.builder().getOrCreate()) {
      JavaRDD<double[]> rows =
          JavaSparkContext.fromSparkContext(spark.sparkContext())
              .parallelize(List.of(new double[] {1}, new double[] {2}));
      List<Answer> answers =
          Collectives.run(
              rows,
              2,
              (context, mine) -> {
                double[] sum = {0};
                mine.forEachRemaining(row -> sum[0] += row[0]);
                context.communicator().allReduce(sum, ReduceOp.SUM);
                return new Answer(context.rank(), sum[0]);
              });
      System.out.println("in-stage: " + answers);

      Dataset<Row> vectors =
          spark.createDataFrame(
              List.of(
                  RowFactory.create(Vectors.dense(1, 2)), RowFactory.create(Vectors.dense(3, 4))),
              new StructType().add("v", SQLDataTypes.VectorType()));
      System.out.println("one-shot: " + Arrays.toString(Collectives.sum(vectors, "v")));
    }
  }
}
