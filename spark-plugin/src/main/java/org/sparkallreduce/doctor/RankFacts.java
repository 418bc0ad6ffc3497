// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.doctor;

import java.io.Serializable;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.ProcessIdentity;
import org.sparkallreduce.exchange.HostIdentity;

/**
 * What one rank of the doctor's job says.
 *
 * @param device the address of its GPU; empty: none
 * @param pluginFailure why the plugin's executor part cannot serve ranks; null if it can
 * @param trialFailure why the trial all-reduce failed here; null if it did not
 */
record RankFacts(
    int rank,
    String host,
    String executorId,
    ProcessIdentity process,
    HostIdentity hostIdentity,
    String device,
    @Nullable String pluginFailure,
    @Nullable String trialFailure,
    MachineFacts machine)
    implements Serializable {}
