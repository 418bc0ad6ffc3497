import org.apache.spark.sql.*;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.dataset.*;

public class FirstProgram {
  public static void main(String[] args) {
    SparkSession spark = SparkSession.builder().getOrCreate();
    RankFunction<Long, Double> mean =
        (context, rows) -> {
          double[] sums = new double[2]; // of the numbers, and how many there are
          for (; rows.hasNext(); sums[1]++) sums[0] += rows.next();
          context.communicator().allReduce(sums, ReduceOp.SUM); // now the same on all ranks
          return sums[0] / sums[1];
        };
    var means = Collectives.run(spark.range(1_000_000), 2, mean);
    System.out.println("Both ranks know the mean: " + means);
    spark.stop();
  }
}
