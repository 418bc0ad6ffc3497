// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.dataset;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatExceptionOfType;
import static org.assertj.core.api.Assertions.assertThatNullPointerException;
import static org.assertj.core.api.Assertions.within;

import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.ml.linalg.SQLDataTypes;
import org.apache.spark.ml.linalg.Vector;
import org.apache.spark.ml.linalg.Vectors;
import org.apache.spark.ml.stat.Summarizer;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.communicator.Activity;
import org.sparkallreduce.communicator.LocalNode;
import scala.Function1;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;

/** Ranks as tasks of one JVM: Spark's local mode, which is also how users debug their programs. */
class CollectivesTest {
  private static final int SLOTS = 3;
  private static SparkSession spark;

  @BeforeAll
  static void start() {
    spark =
        SparkSession.builder()
            .master("local[" + SLOTS + "]")
            .config("spark.plugins", "org.sparkallreduce.plugin.AllReducePlugin")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "localhost")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.allreduce.timeout", "20s")
            .config("spark.allreduce.arena.size", "4m")
            .getOrCreate();
  }

  @AfterAll
  static void stop() {
    spark.stop();
  }

  private static Dataset<Long> numbers(int count) {
    return spark.range(count).as(Encoders.LONG());
  }

  private static Dataset<Row> column(DataType type, Object... values) {
    List<Row> rows = Arrays.stream(values).map(RowFactory::create).toList();
    return spark.createDataFrame(rows, new StructType().add("features", type));
  }

  private static long total(Iterator<Long> rows) {
    long sum = 0;
    while (rows.hasNext()) {
      sum += rows.next();
    }
    return sum;
  }

  @Test
  void everyRankGetsTheSameSumAndResultsComeInTheOrderOfRanks() {
    List<List<Long>> results =
        Collectives.run(
            numbers(1000),
            SLOTS,
            (context, rows) -> {
              long[] sum = {total(rows)};
              context.communicator().allReduce(sum, ReduceOp.SUM);
              return new ArrayList<>(List.of((long) context.rank(), (long) context.size(), sum[0]));
            });
    assertThat(results)
        .containsExactly(
            List.of(0L, 3L, 499_500L), List.of(1L, 3L, 499_500L), List.of(2L, 3L, 499_500L));
  }

  record Answer(int rank, List<String> notes) implements Serializable {}

  @Test
  void recordsUnmodifiableListsAndNullAreResults() {
    List<@Nullable Answer> results =
        Collectives.run(
            numbers(3),
            2,
            (context, _) ->
                context.rank() == 0 ? null : new Answer(context.rank(), List.of("a", "b")));
    assertThat(results).containsExactly(null, new Answer(1, List.of("a", "b")));
  }

  @Test
  void ranksWithoutRowsTakePart() {
    for (Dataset<Long> rows : List.of(numbers(1), numbers(0), numbers(9).limit(0))) {
      List<Double> results =
          Collectives.run(
              rows,
              SLOTS,
              (context, iterator) -> {
                double[] one = {1};
                context.communicator().allReduce(one, ReduceOp.SUM);
                return one[0];
              });
      assertThat(results).containsExactly(3.0, 3.0, 3.0);
    }
  }

  @Test
  void aJavaRddOfAnyPartitioningIsSpreadOverTheRanks() {
    var rdd =
        JavaSparkContext.fromSparkContext(spark.sparkContext())
            .parallelize(IntStream.range(0, 100).boxed().toList(), 7)
            .coalesce(1);
    List<Boolean> results = Collectives.run(rdd, 2, (context, rows) -> rows.hasNext());
    assertThat(results).containsExactly(true, true);
  }

  @Test
  void anAdaptivePlanKeepsTheNumberOfRanks() {
    var grouped = numbers(100).groupBy(functions.col("id").mod(5)).count();
    List<Integer> sizes = Collectives.run(grouped, SLOTS, (context, _) -> context.size());
    assertThat(sizes).containsExactly(3, 3, 3);
  }

  @Test
  void theFirstFailureSurfacesWithItsRankAndNotThePeersFollowUp() {
    assertThatExceptionOfType(AllReduceException.RankFailed.class)
        .isThrownBy(
            () ->
                Collectives.run(
                    numbers(9),
                    SLOTS,
                    (context, _) -> {
                      if (context.rank() == 1) {
                        throw new IOException("the disk of rank one");
                      }
                      context.communicator().barrier();
                      return 0;
                    }))
        .satisfies(e -> assertThat(e.rank()).isEqualTo(1))
        .withMessageContaining("Rank 1 (executor driver on ")
        .withMessageContaining("java.io.IOException: the disk of rank one")
        .withMessageContaining("CollectivesTest");
  }

  @Test
  void anErrorInTheRowsIsTheRanksFailure() {
    Dataset<Long> poisoned =
        numbers(9)
            .map(
                (org.apache.spark.api.java.function.MapFunction<Long, Long>)
                    n -> {
                      if (n == 4) {
                        throw new IllegalArgumentException("row four");
                      }
                      return n;
                    },
                Encoders.LONG());
    assertThatExceptionOfType(Exception.class)
        .isThrownBy(() -> Collectives.run(poisoned, 2, (_, rows) -> total(rows)))
        .withStackTraceContaining("row four");
  }

  @Test
  void aResultThatCannotBeSentIsTheRanksFailure() {
    assertThatExceptionOfType(AllReduceException.RankFailed.class)
        .isThrownBy(() -> Collectives.run(numbers(2), 1, (_, _) -> new Object()))
        .withMessageContaining("NotSerializableException: java.lang.Object");
  }

  @Test
  void aTaskCannotSubmit() {
    assertThatExceptionOfType(AllReduceException.Setup.class)
        .isThrownBy(
            () ->
                Collectives.run(
                    numbers(2), 1, (_, _) -> Collectives.run(spark.range(2), 1, (_, _) -> 0)))
        .withMessageContaining("only the driver can");
  }

  @Test
  void anOrdinaryStageIsRefused() {
    var rdd = JavaSparkContext.fromSparkContext(spark.sparkContext()).parallelize(List.of(1, 2), 2);
    List<String> messages =
        rdd.map(
                _ -> {
                  try {
                    return "rank " + RankContext.open().rank();
                  } catch (AllReduceException.Setup e) {
                    return e.getMessage();
                  }
                })
            .collect();
    assertThat(messages)
        .hasSize(2)
        .allSatisfy(
            message -> assertThat(message).contains("ordinary stage").contains("rdd.barrier()"));
  }

  @Test
  void aBarrierStageOfTheUsersOwnCanJoin() {
    var rdd = JavaSparkContext.fromSparkContext(spark.sparkContext()).parallelize(List.of(1, 2), 2);
    RDD<Long> sums =
        rdd.rdd()
            .barrier()
            .mapPartitions(
                (Function1<scala.collection.Iterator<Integer>, scala.collection.Iterator<Long>>
                        & Serializable)
                    _ -> {
                      RankContext context = RankContext.open();
                      long[] sum = {context.rank() + 1};
                      context.communicator().allReduce(sum, ReduceOp.SUM);
                      assertThatExceptionOfType(AllReduceException.Usage.class)
                          .isThrownBy(RankContext::open)
                          .withMessageContaining("has opened its context already");
                      return CollectionConverters.asScala(List.of(sum[0])).iterator();
                    },
                false,
                ClassTag$.MODULE$.apply(Long.class));
    assertThat(sums.toJavaRDD().collect()).containsExactly(3L, 3L);
  }

  @Test
  void aFunctionThatClosesItsCommunicatorItselfHarmsNobody() {
    List<Integer> results =
        Collectives.run(
            numbers(4),
            2,
            (context, _) -> {
              context.communicator().barrier();
              context.communicator().close();
              return context.rank();
            });
    assertThat(results).containsExactly(0, 1);
  }

  @Test
  void metricsCountWhatTheRanksOfAStageDid() {
    Activity activity = LocalNode.current().activity();
    long collectives = activity.collectives();
    long bytes = activity.bytes();
    long nanos = activity.totalNanos();
    var unused =
        Collectives.run(
            numbers(4),
            2,
            (context, _) -> {
              context.communicator().allReduce(new double[100], ReduceOp.SUM);
              context.communicator().barrier();
              return 0;
            });
    assertThat(activity.collectives() - collectives).isEqualTo(4);
    assertThat(activity.bytes() - bytes).isEqualTo(2 * 800);
    assertThat(activity.totalNanos()).isGreaterThan(nanos);
    assertThat(activity.last().collectives()).as("of this stage alone").isEqualTo(2);
  }

  @ParameterizedTest
  @ValueSource(ints = {-1, 0, 17})
  void worldSizesOutsideOfOneToSixteenAreRefused(int ranks) {
    assertThatExceptionOfType(AllReduceException.Setup.class)
        .isThrownBy(() -> Collectives.run(numbers(2), ranks, (_, _) -> 0))
        .withMessageContaining(ranks + " ranks")
        .withMessageContaining("1 to 16");
  }

  @Test
  void moreRanksThanLocalModeHasSlotsAreRefusedWithoutWaiting() {
    assertThatExceptionOfType(AllReduceException.Setup.class)
        .isThrownBy(() -> Collectives.run(numbers(9), 5, (_, _) -> 0))
        .withMessageContaining("needs 5 task slots")
        .withMessageContaining("local mode has 3")
        .withMessageContaining("at most 3 ranks")
        .withMessageContaining("local[5]")
        .withNoCause(); // Spark was not asked
  }

  @Test
  void aFunctionThatIsNullIsNoticedOnTheDriver() {
    assertThatNullPointerException()
        .isThrownBy(() -> Collectives.run(numbers(2), 2, nothing()))
        .withMessage("function");
    assertThatNullPointerException()
        .isThrownBy(() -> Collectives.run(numbers(2).javaRDD(), 2, nothing()))
        .withMessage("function");
  }

  @SuppressWarnings("NullAway") // what a caller from Scala may pass
  private static <T> RankFunction<T, Integer> nothing() {
    return null;
  }

  @Test
  void checkInterruptedEndsACancelledRank() throws Exception {
    var job =
        Thread.ofPlatform()
            .start(
                () -> {
                  spark.sparkContext().setJobGroup("doomed", "cancelled by the test", false);
                  assertThatExceptionOfType(AllReduceException.Aborted.class)
                      .isThrownBy(
                          () ->
                              Collectives.run(
                                  numbers(2),
                                  2,
                                  (context, _) -> {
                                    while (true) {
                                      context.checkInterrupted();
                                      Thread.onSpinWait();
                                    }
                                  }))
                      .withMessageContaining("cancelled");
                });
    org.awaitility.Awaitility.await()
        .until(() -> spark.sparkContext().statusTracker().getActiveJobIds().length > 0);
    spark.sparkContext().cancelJobGroup("doomed");
    assertThat(job.join(java.time.Duration.ofMinutes(1))).isTrue();
    org.awaitility.Awaitility.await()
        .untilAsserted(
            () ->
                assertThat(
                        Arrays.stream(spark.sparkContext().statusTracker().getExecutorInfos())
                            .mapToInt(info -> info.numRunningTasks())
                            .sum())
                    .isZero());
  }

  // One-shot reductions.

  private static Vector dense(double... values) {
    return Vectors.dense(values);
  }

  private static Dataset<Row> vectors() {
    return column(
        SQLDataTypes.VectorType(),
        dense(1.5, -2, 0),
        Vectors.sparse(3, new int[] {1}, new double[] {4}),
        dense(-0.25, 3, 1e10),
        dense(2, 0, -7.5),
        Vectors.sparse(3, new int[] {0, 2}, new double[] {-9, 1}));
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 3})
  void vectorColumnsGiveTheSameValuesAsSummarizer(int ranks) {
    Dataset<Row> rows = vectors();
    Row expected =
        rows.select(
                Summarizer.sum(functions.col("features")),
                Summarizer.mean(functions.col("features")),
                Summarizer.min(functions.col("features")),
                Summarizer.max(functions.col("features")))
            .first();
    double[][] actual = {
      Collectives.sum(rows, "features", ranks),
      Collectives.average(rows, "features", ranks),
      Collectives.min(rows, "features", ranks),
      Collectives.max(rows, "features", ranks)
    };
    for (int i = 0; i < actual.length; i++) {
      double[] wanted = ((Vector) expected.get(i)).toArray();
      assertThat(actual[i]).hasSameSizeAs(wanted);
      for (int j = 0; j < wanted.length; j++) {
        assertThat(actual[i][j]).isCloseTo(wanted[j], within(1e-14 * Math.abs(wanted[j])));
      }
    }
  }

  @Test
  void arraysOfAllNumericTypesAreReduced() {
    for (Map.Entry<DataType, Object[]> entry :
        Map.<DataType, Object[]>of(
                DataTypes.DoubleType,
                new Object[] {List.of(1.0, 2.0), List.of(3.0, 5.0), List.of(-4.0, 0.5)},
                DataTypes.FloatType,
                new Object[] {List.of(1f, 2f), List.of(3f, 5f), List.of(-4f, 0.5f)})
            .entrySet()) {
      Dataset<Row> rows = column(DataTypes.createArrayType(entry.getKey()), entry.getValue());
      assertThat(Collectives.sum(rows, "features", 2)).containsExactly(0, 7.5);
      assertThat(Collectives.product(rows, "features", 2)).containsExactly(-12, 5);
      assertThat(Collectives.min(rows, "features", 2)).containsExactly(-4, 0.5);
      assertThat(Collectives.max(rows, "features", 2)).containsExactly(3, 5);
    }
    Dataset<Row> ints =
        column(DataTypes.createArrayType(DataTypes.IntegerType), List.of(1, 7), List.of(2, -9));
    assertThat(Collectives.average(ints, "features", 2)).containsExactly(1.5, -1);
    Dataset<Row> longs =
        column(DataTypes.createArrayType(DataTypes.LongType), List.of(1L << 40), List.of(3L));
    assertThat(Collectives.sum(longs, "features")).containsExactly((1L << 40) + 3);
  }

  @Test
  void ranksWithoutRowsDoNotChangeAReduction() {
    Dataset<Row> one = column(SQLDataTypes.VectorType(), dense(-3, 4));
    assertThat(Collectives.sum(one, "features", 3)).containsExactly(-3, 4);
    assertThat(Collectives.product(one, "features", 3)).containsExactly(-3, 4);
    assertThat(Collectives.min(one, "features", 3)).containsExactly(-3, 4);
    assertThat(Collectives.max(one, "features", 3)).containsExactly(-3, 4);
    assertThat(Collectives.average(one, "features", 3)).containsExactly(-3, 4);
  }

  @Test
  void aNanMakesItsElementNan() {
    Dataset<Row> rows = column(SQLDataTypes.VectorType(), dense(Double.NaN, 1), dense(2, 2));
    assertThat(Collectives.max(rows, "features", 2)).containsExactly(Double.NaN, 2);
  }

  @Test
  void faultsOfTheDataAreReportedOnce() {
    DataType array = DataTypes.createArrayType(DataTypes.DoubleType);
    assertRefused(column(array, List.of(1.0), null, List.of(2.0)), "null in 1 of 3 rows");
    assertRefused(column(array, Arrays.asList(1.0, null), List.of(1.0, 2.0)), "1 null elements");
    assertRefused(column(array, List.of(1.0), List.of(1.0, 2.0, 3.0)), "between 1 and 3 elements");
    assertRefused(column(array), "no rows");
    assertRefused(column(DataTypes.StringType, "text"), "is of type string");
  }

  private static void assertRefused(Dataset<Row> rows, String part) {
    assertThatExceptionOfType(AllReduceException.Usage.class)
        .isThrownBy(() -> Collectives.sum(rows, "features", 2))
        .withMessageContaining("features")
        .withMessageContaining(part);
  }
}
