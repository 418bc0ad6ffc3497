// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import java.io.Serializable;

/** What the table's head says about a rank. */
record RankInfo(int rank, long pid, String host, String build) implements Serializable {}
