import java.util.List;
import org.apache.spark.sql.*;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.dataset.Collectives;

public class FirstProgram {
  public static void main(String[] args) {
    SparkSession spark = SparkSession.builder().getOrCreate();
    Dataset<Long> numbers = spark.range(1_000_000);
    List<Double> means =
        Collectives.run(
            numbers,
            2,
            (context, rows) -> {
              double[] sums = new double[2]; // of the numbers, and how many there are
              for (; rows.hasNext(); sums[1]++) sums[0] += rows.next();
              context.communicator().allReduce(sums, ReduceOp.SUM); // now the same on all ranks
              return sums[0] / sums[1];
            });
    System.out.println("Both ranks know the mean: " + means);
    spark.stop();
  }
}
