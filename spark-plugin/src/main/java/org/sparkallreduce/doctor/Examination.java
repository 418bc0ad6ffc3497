// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.doctor;

import java.io.Serializable;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import org.apache.spark.BarrierTaskContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.resource.ResourceInformation;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.ProcessIdentity;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.communicator.LocalNode;
import org.sparkallreduce.dataset.RankContext;
import org.sparkallreduce.exchange.HostIdentity;
import org.sparkallreduce.exchange.NudgedExchange;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;

/** What each task of the doctor's job does. Its one row is the {@link RankFacts} as bytes. */
final class Examination extends AbstractFunction1<Iterator<Integer>, Iterator<byte[]>>
    implements Serializable {
  private static final long serialVersionUID = 1L;
  private static final String FIT = "fit";

  /** The tasks start together and do nothing before the exchange. */
  private static final Duration PATIENCE = Duration.ofMinutes(1);

  @Override
  public Iterator<byte[]> apply(Iterator<Integer> rows) {
    BarrierTaskContext task = BarrierTaskContext.get();
    String pluginFailure = pluginFailure();
    // Before the exchange, in which ranks would wait for one that cannot come.
    String[] words =
        new NudgedExchange(task, PATIENCE).allGather(pluginFailure == null ? FIT : "unfit");
    String trialFailure = null;
    for (int rank = 0; rank < words.length && trialFailure == null; rank++) {
      trialFailure = words[rank].equals(FIT) ? null : "rank %d cannot take part".formatted(rank);
    }
    if (trialFailure == null) {
      trialFailure = trial();
    }
    var facts =
        new RankFacts(
            task.partitionId(),
            SparkEnv.get().blockManager().blockManagerId().host(),
            SparkEnv.get().executorId(),
            ProcessIdentity.current(),
            HostIdentity.current(),
            device(task.resourcesJMap().get("gpu")),
            pluginFailure,
            trialFailure,
            MachineProbe.look(Optional.empty()));
    return CollectionConverters.asScala(List.of(Doctor.encode(facts))).iterator();
  }

  private static @Nullable String pluginFailure() {
    try {
      var unused = LocalNode.current();
      return null;
    } catch (AllReduceException.Setup e) {
      return e.getMessage();
    }
  }

  private static @Nullable String trial() {
    try {
      RankContext context = RankContext.open();
      double[] values = {context.rank() + 1};
      context.communicator().allReduce(values, ReduceOp.SUM);
      double expected = context.size() * (context.size() + 1) / 2.0;
      return values[0] == expected
          ? null
          : "the sum is %s instead of %s".formatted(values[0], expected);
    } catch (AllReduceException e) {
      return e.getMessage();
    }
  }

  private static String device(@Nullable ResourceInformation gpu) {
    return gpu == null || gpu.addresses().length == 0 ? "" : gpu.addresses()[0];
  }
}
