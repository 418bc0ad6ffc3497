// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.AutoTable;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Settings;
import org.sparkallreduce.exchange.Exchange;

class AutoTableInUseTest {
  private static Settings settings(String table) {
    return Ranks.settings().withAutoTable(AutoTable.parse("test", table.replace("; ", "\n")));
  }

  /** Unregistered memory is what tells the schedules apart: only some need it registered. */
  @ParameterizedTest
  @CsvSource({
    "host 16 * load-reduce-store, 1",
    "host 16 * staged-write, 0",
    "host 16 65536 staged-write; host 16 * load-reduce-store, 0",
    "host 16 65535 staged-write; host 16 * load-reduce-store, 1",
    "host 1 * staged-write; host 2 * load-reduce-store, 1"
  })
  void autoTakesTheScheduleOfTheFirstRowThatIsNotExceeded(String table, long fellBack) {
    List<Long> unregistered =
        Ranks.run(
            2,
            settings(table),
            communicator -> {
              try (Arena plain = Arena.ofConfined()) {
                MemorySegment memory = plain.allocate(65_536, 64);
                communicator.allReduce(memory, memory, DataType.FLOAT32, ReduceOp.SUM);
              }
              return communicator.statistics().unregistered();
            });
    assertThat(unregistered).containsOnly(fellBack);
  }

  @Test
  void ranksWithDifferentTablesAreRefusedAndNamed() throws Exception {
    UUID session = UUID.randomUUID();
    Exchange exchange = Ranks.exchange(2);
    List<Settings> settings =
        List.of(settings("host 16 * one-shot"), settings("host 16 * direct-write"));
    try (ExecutorService threads = Executors.newFixedThreadPool(2)) {
      var ranks = new ArrayList<Future<Communicator>>();
      for (int rank = 0; rank < 2; rank++) {
        RankIdentity identity = Ranks.identity(rank, 2, session);
        Settings own = settings.get(rank);
        ranks.add(threads.submit(() -> Communicator.open(Ranks.LIBRARY, own, identity, exchange)));
      }
      for (Future<Communicator> rank : ranks) {
        assertThat(failure(rank))
            .isInstanceOf(AllReduceException.Setup.class)
            .hasMessageContaining("The ranks differ in table for auto: rank 0")
            .hasMessageContaining("rank 1");
      }
    }
  }

  private static Throwable failure(Future<Communicator> rank) throws InterruptedException {
    try {
      rank.get().close();
      throw new AssertionError("it opened");
    } catch (ExecutionException e) {
      return e.getCause();
    }
  }
}
