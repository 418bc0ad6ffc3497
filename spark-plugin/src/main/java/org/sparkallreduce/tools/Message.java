// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import java.io.Serializable;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/** What travels through the pipes between the tool and its rank processes. */
sealed interface Message extends Serializable {
  /** The first one, to a rank: who it is and what to do. */
  record Start(
      int rank, int ranks, UUID session, Map<String, String> settings, String autoTable, Job job)
      implements Message {}

  /** From a rank: its word in the exchange. */
  record Word(String text) implements Message {}

  /** To a rank: the words of all, in rank order. */
  record Words(List<String> texts) implements Message {}

  /** From a rank: it is connected. */
  record Ready(RankInfo rank) implements Message {}

  /** From a rank: one case has ended. */
  record Result(Measured measured) implements Message {}

  /** To a rank: the tool has printed the case, and no longer needs a core for it. */
  record Next() implements Message {}

  /** From a rank, its last: all cases have ended. */
  record Done() implements Message {}

  /** From a rank, its last: it could not go on. */
  record Failed(String why) implements Message {}
}
