// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.dataset;

import java.io.Serializable;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.spark.ml.functions;
import org.apache.spark.ml.linalg.SQLDataTypes;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.communicator.Communicator;

/**
 * The one-shot reductions: each rank folds its rows into one vector, in float64, and the ranks
 * all-reduce those.
 *
 * <p>Faults of the data are counted on all ranks and returned, not thrown there: the answer is the
 * same on a second try, so Spark should not make one.
 */
final class ElementWise implements RankFunction<Row, ElementWise.@Nullable Outcome> {
  private static final long serialVersionUID = 1L;

  /** What was found in the column; {@code values} are meaningless if anything is wrong with it. */
  @SuppressWarnings("ArrayRecordComponent") // handed on once, never compared
  record Outcome(
      long rows, long nullRows, long nullElements, long shortest, long longest, double[] values)
      implements Serializable {}

  private final ReduceOp op;

  ElementWise(ReduceOp op) {
    this.op = op;
  }

  static double[] reduce(Dataset<Row> rows, String column, ReduceOp op, int ranks) {
    Dataset<Row> vectors = rows.select(asDoubles(rows, column));
    @Nullable Outcome outcome = Collectives.run(vectors, ranks, new ElementWise(op)).getFirst();
    if (outcome == null) {
      throw new IllegalStateException("rank 0 returned nothing");
    }
    return check(outcome, column);
  }

  /** The column as array of double: exact for vectors, float and int, rounded for long. */
  private static Column asDoubles(Dataset<Row> rows, String column) {
    Column chosen = rows.col(column);
    DataType type = rows.select(chosen).schema().apply(0).dataType();
    if (type.equals(SQLDataTypes.VectorType())) {
      return functions.vector_to_array(chosen, "float64");
    }
    if (type instanceof ArrayType array) {
      DataType element = array.elementType();
      if (element instanceof DoubleType
          || element instanceof FloatType
          || element instanceof IntegerType
          || element instanceof LongType) {
        return chosen.cast("array<double>");
      }
    }
    throw new AllReduceException.Usage(
        ("Column %s is of type %s. Element-wise reductions take arrays of double, float, int or"
                + " bigint, and ML vectors.")
            .formatted(column, type.catalogString()));
  }

  static double[] check(Outcome outcome, String column) {
    if (outcome.nullRows() > 0) {
      throw new AllReduceException.Usage(
          "Column %s is null in %d of %d rows. Leave these out first: rows.na().drop(\"any\", ...)."
              .formatted(column, outcome.nullRows(), outcome.rows()));
    }
    if (outcome.nullElements() > 0) {
      throw new AllReduceException.Usage(
          "The vectors of column %s hold %d null elements. Replace or filter them first."
              .formatted(column, outcome.nullElements()));
    }
    if (outcome.rows() == 0) {
      throw new AllReduceException.Usage(
          "The Dataset has no rows, so column %s has no length to reduce.".formatted(column));
    }
    if (outcome.shortest() != outcome.longest()) {
      throw new AllReduceException.Usage(
          ("The vectors of column %s have between %d and %d elements; an element-wise reduction"
                  + " needs the same number in all rows.")
              .formatted(column, outcome.shortest(), outcome.longest()));
    }
    return outcome.values();
  }

  @Override
  public @Nullable Outcome call(RankContext context, Iterator<Row> rows) {
    var fold = new Fold(op);
    while (rows.hasNext()) {
      fold.add(rows.next());
    }
    Communicator communicator = context.communicator();
    long[] counts = {fold.rows, fold.nullRows, fold.nullElements};
    communicator.allReduce(counts, ReduceOp.SUM);
    long[] lengths = {-fold.shortest, fold.longest};
    communicator.allReduce(lengths, ReduceOp.MAX);

    boolean sound = counts[0] > 0 && counts[1] + counts[2] == 0 && -lengths[0] == lengths[1];
    double[] values = {};
    if (sound) {
      values = fold.vector(Math.toIntExact(lengths[1]));
      communicator.allReduce(values, op == ReduceOp.AVERAGE ? ReduceOp.SUM : op);
    }
    if (context.rank() != 0) {
      return null;
    }
    if (op == ReduceOp.AVERAGE) {
      for (int i = 0; i < values.length; i++) {
        values[i] /= counts[0];
      }
    }
    return new Outcome(counts[0], counts[1], counts[2], -lengths[0], lengths[1], values);
  }

  /** One rank's rows, combined in their order. */
  private static final class Fold {
    private final ReduceOp op;
    private double @Nullable [] vector;
    private long rows;
    private long nullRows;
    private long nullElements;
    private long shortest = Long.MAX_VALUE;
    private long longest;

    Fold(ReduceOp op) {
      this.op = op;
    }

    void add(Row row) {
      rows++;
      if (row.isNullAt(0)) {
        nullRows++;
        return;
      }
      scala.collection.Seq<@Nullable Double> elements = row.getSeq(0);
      int length = elements.length();
      shortest = Math.min(shortest, length);
      longest = Math.max(longest, length);
      double[] into = vector(length);
      if (into.length != length) {
        return; // ragged: the driver will say so
      }
      scala.collection.Iterator<@Nullable Double> iterator = elements.iterator();
      for (int i = 0; i < length; i++) {
        Double element = iterator.next();
        if (element == null) {
          nullElements++;
        } else {
          into[i] = combine(into[i], element);
        }
      }
    }

    /** The combined vector; if there was no row yet, the neutral one of {@code length} elements. */
    double[] vector(int length) {
      double[] known = vector;
      if (known == null) {
        known = new double[length];
        Arrays.fill(known, neutral());
        vector = known;
      }
      return known;
    }

    private double neutral() {
      return switch (op) {
        case SUM, AVERAGE -> 0;
        case PRODUCT -> 1;
        case MIN -> Double.POSITIVE_INFINITY;
        case MAX -> Double.NEGATIVE_INFINITY;
      };
    }

    private double combine(double a, double b) {
      return switch (op) {
        case SUM, AVERAGE -> a + b;
        case PRODUCT -> a * b;
        case MIN -> Math.min(a, b);
        case MAX -> Math.max(a, b);
      };
    }
  }
}
