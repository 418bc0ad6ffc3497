/* Licensed under the Apache License, Version 2.0. See LICENSE.
 *
 * The signalling protocol of the host backend (docs/protocol.md), checked by SPIN: N ranks make
 * CALLS collectives, each of them of any kind. Whatever the interleaving,
 *
 *   - nobody reads data of another call than its own (assertions at each read), so nothing is
 *     overwritten before it was read;
 *   - every rank ends (SPIN's invalid end states): also if any thread aborts at any time, if a rank
 *     dies at any time, and if one rank calls something else than the others;
 *   - a collective that ranks disagree about ends well on none of them.
 *
 * Each of the macros NO_..., ONE_... and EQUAL_EPOCH takes one part of the protocol away, and SPIN
 * must find the fault then (check.sh).
 */
#ifndef N
#define N 2
#endif
#ifndef CALLS
#define CALLS 3
#endif
#ifndef KINDS
#define KINDS 4 /* 3: without the chunks */
#endif

/* Epochs wrap at 2^32 in the code; here soon. A rank has passed another's epoch if it is ahead by
 * less than half of the circle. */
#define MODULUS 4
#define passed(theirs, mine) (((theirs + MODULUS - mine) % MODULUS) < MODULUS / 2)

/* Kinds of collectives, by what they share. */
#define ONE_SHOT 0 /* own pull half filled early; arrival; all pull halves read */
#define STAGED 1   /* peers' push halves filled early; arrival; pull halves written; step; read */
#define IN_PLACE 2 /* arrival; all inputs read, all outputs written; step (load-reduce/store) */
#define CHUNKS 3   /* one-shot in three chunks: each but the first is filled, then a step, then read */

#ifdef ONE_HALF
#define HALF(round) 0
#else
#define HALF(round) ((round) % 2)
#endif
#ifdef ONE_CALL_LINE
#define LINE(call) 0
#else
#define LINE(call) ((call) % 2)
#endif

/* What is shared. Data are the number of the call that wrote them. A rank writes, and reads, the
 * data of a phase in one step: only flags publish them, so partial ones add nothing but states. */
byte sequence[N * 2];         /* call lines: number of the call, stored last */
byte line_kind[N * 2];        /* and what it is */
byte epoch[N];                /* step lines */
byte push[N * N * 2];         /* owner, source, half */
byte pull[N * N * 2];         /* owner, slice, half */
byte input[N], output[N * N]; /* registered memory: owner; owner, slice */
bool aborted[N];
bool dead[N];

#define call_at(rank, call) ((rank) * 2 + LINE(call))
#define push_at(owner, source, round) (((owner) * N + (source)) * 2 + HALF(round))
#define pull_at(owner, slice, round) (((owner) * N + (slice)) * 2 + HALF(round))

/* What the program of the ranks is, and what may go wrong: chosen first. */
byte kind[CALLS + 1];
byte deviant = N, deviates_at = 0;  /* one rank makes another call */
bool may_fail_once = false;         /* one rank may die or fail */

#ifdef NO_ABORT_LOOK
#define abort_seen(peer) false
#else
#define abort_seen(peer) (aborted[me] || aborted[peer])
#endif
#ifdef NO_DEATH_LOOK
#define death_seen(peer) false
#else
#define death_seen(peer) dead[peer]
#endif

/* Anywhere in a program: a death, or a failure of its own, after which it tells the others. */
inline may_fail() {
  if
  :: atomic { may_fail_once -> may_fail_once = false; dead[me] = true; goto ended }
  :: atomic { may_fail_once -> may_fail_once = false; goto failed }
  :: true
  fi
}

/* A wait looks at the arrival first, and again before a peer counts as lost. */
inline wait_for(peer, arrived) {
  if
  :: arrived
  :: !(arrived) && (abort_seen(peer) || death_seen(peer)) -> goto failed
  fi
}

inline arrive(call, what) {
  may_fail();
  line_kind[call_at(me, call)] = what;
  sequence[call_at(me, call)] = call;
#ifndef NO_ARRIVAL
  for (p : 0 .. N - 1) {
    wait_for(p, sequence[call_at(p, call)] == call)
  }
#endif
  /* All have arrived: compare all call lines. */
  true;
  d_step {
    mismatch = false;
    for (p : 0 .. N - 1) {
      assert(sequence[call_at(p, call)] == call);
      mismatch = mismatch || line_kind[call_at(p, call)] != line_kind[call_at(0, call)]
    };
    p = 0
  }
  if
  :: mismatch -> goto failed
  :: else
  fi
}

inline step() {
  d_step {
    own_epoch = (own_epoch + 1) % MODULUS;
    epoch[me] = own_epoch
  };
#ifndef NO_STEP
  for (p : 0 .. N - 1) {
#ifdef EQUAL_EPOCH
    wait_for(p, epoch[p] == own_epoch)
#else
    wait_for(p, passed(epoch[p], own_epoch))
#endif
  }
#endif
  true
}

inline fill_pull(call) {
  d_step {
    for (p : 0 .. N - 1) {
      pull[pull_at(me, p, pull_round)] = call
    };
    p = 0
  }
}

inline read_pulls(call) {
  d_step {
    for (p : 0 .. N - 1) {
      assert(pull[pull_at(p, me, pull_round)] == call)
    }
    pull_round++;
    p = 0
  }
}

inline one_shot(call) {
  fill_pull(call);
  arrive(call, ONE_SHOT);
  read_pulls(call)
}

/* The chunks of a call write different data, so that one is not taken for another. */
inline chunks(call) {
  fill_pull(call);
  arrive(call, CHUNKS);
  read_pulls(call);
  fill_pull(call + 100);
  step();
  read_pulls(call + 100);
  fill_pull(call + 200);
  step();
  read_pulls(call + 200)
}

inline staged(call) {
  d_step {
    for (p : 0 .. N - 1) {
      push[push_at(p, me, push_round)] = call
    };
    p = 0
  };
  arrive(call, STAGED);
  d_step {
    for (p : 0 .. N - 1) {
      assert(push[push_at(me, p, push_round)] == call)
    };
    p = 0
  };
  d_step {
    for (p : 0 .. N - 1) {
      pull[pull_at(p, me, pull_round)] = call
    };
    p = 0
  };
  may_fail();
  step();
  d_step {
    for (p : 0 .. N - 1) {
      assert(pull[pull_at(me, p, pull_round)] == call)
    }
    push_round++;
    pull_round++;
    p = 0
  }
}

inline in_place(call) {
  input[me] = call;
  arrive(call, IN_PLACE);
  d_step {
    for (p : 0 .. N - 1) {
      assert(input[p] == call);
      output[p * N + me] = call
    };
    p = 0
  };
  step();
  d_step {
    for (p : 0 .. N - 1) {
      assert(output[me * N + p] == call)
    };
    p = 0
  }
}

proctype Rank(byte me) {
  byte call = 1, what, p, own_epoch = MODULUS - 1, push_round, pull_round;
  bool mismatch;
  do
  :: call > CALLS -> break
  :: else ->
    d_step {
      what = kind[call];
      if
      :: me == deviant && call == deviates_at -> what = (what + 1) % KINDS
      :: else
      fi
    };
    if
    :: what == ONE_SHOT -> one_shot(call)
    :: what == STAGED -> staged(call)
    :: what == IN_PLACE -> in_place(call)
    :: what == CHUNKS -> chunks(call)
    fi;
    d_step {
      assert(!(deviant < N && call == deviates_at));
      call++;
      what = 0
    }
  od;
  goto ended;
failed:
  /* The cause goes into every rank's segment, one after the other. */
  p = 0;
  do
  :: p < N -> aborted[p] = true; p++
  :: else -> break
  od;
ended:
  skip
}

/* sar_abort: by any thread, at any time. */
proctype Aborter() {
  byte p;
  for (p : 0 .. N - 1) {
    aborted[p] = true
  }
}

init {
  byte i, what;
  atomic {
    for (i : 1 .. CALLS) {
      select(what : 0 .. KINDS - 1);
      kind[i] = what
    }
    for (i : 0 .. N - 1) {
      epoch[i] = MODULUS - 1 /* so that the first step wraps */
    }
#ifndef NO_FAULTS
    if
    :: true
    :: may_fail_once = true
    :: deviant = N - 1; select(deviates_at : 1 .. CALLS)
    :: run Aborter()
    fi;
#endif
    for (i : 0 .. N - 1) {
      run Rank(i)
    }
  }
}
