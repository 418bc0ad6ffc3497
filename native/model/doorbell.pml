/* Licensed under the Apache License, Version 2.0. See LICENSE.
 *
 * How a rank sleeps until its peers have come (docs/protocol.md, "Waiting"), checked by SPIN: no
 * arrival is missed, so the sleeper always wakes, without its ten-millisecond look at everything,
 * which is not modelled. NO_RECHECK and LATE_DOORBELL each make it fail (check.sh).
 */
#ifndef N
#define N 2
#endif

bool arrived[N];
byte doorbell;
byte waiting_for; /* the rank, plus 1; 0: none */
bool asleep;      /* in the kernel */

/* Rank 0 waits for all others. */
proctype Sleeper() {
  byte peer, seen;
  for (peer : 1 .. N - 1) {
    do
    :: arrived[peer] -> break
    :: else ->
#ifndef LATE_DOORBELL
      seen = doorbell;
#endif
      waiting_for = peer + 1;
#ifdef NO_RECHECK
      if
      :: true ->
#else
      if
      :: arrived[peer]
      :: else ->
#endif
#ifdef LATE_DOORBELL
        seen = doorbell;
#endif
        /* The futex: compares and falls asleep in one step. */
        atomic {
          if
          :: doorbell == seen -> asleep = true
          :: else
          fi
        };
        !asleep
      fi;
      waiting_for = 0
    od
  }
}

proctype Peer(byte me) {
  arrived[me] = true;
  if
  :: waiting_for == me + 1 ->
    doorbell++;
    if
    :: waiting_for != 0 -> asleep = false
    :: else
    fi
  :: else
  fi
}

init {
  byte i;
  atomic {
    run Sleeper();
    for (i : 1 .. N - 1) {
      run Peer(i)
    }
  }
}
