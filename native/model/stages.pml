/* Licensed under the Apache License, Version 2.0. See LICENSE.
 *
 * A communicator that outlives its stages, and registrations in them (docs/protocol.md, "Leases and
 * renumbering", "Registration of foreign memory"), checked by SPIN: N ranks play STAGES stages one
 * after the other. Whatever the interleaving,
 *
 *   - without a fault nobody takes a peer for lost that has left the last stage, or comes late to the
 *     next one; also if an executor closes, between two stages, what it kept;
 *   - all ranks find the same about a registration, and what they read belongs to it;
 *   - if a rank fails, the others end, and the next stage goes well.
 *
 * Arrivals and steps are those of collectives.pml, as numbers that only grow. Each of the macros
 * below takes one part away, and SPIN must find the fault then (check.sh).
 */
#ifndef N
#define N 2
#endif
#ifndef STAGES
#define STAGES 2
#endif
#define COMMUNICATORS (STAGES + 1) /* number 0: none */
#define REGISTRATIONS 2            /* in each stage */

#ifdef ONE_ANNOUNCEMENT
#define ANNOUNCEMENT(number) 0
#else
#define ANNOUNCEMENT(number) ((number) % 2)
#endif

/* What the ranks of a communicator share. */
#define PRESENT 1
#define DETACHED 2
#define CLOSED 3
#define at(rank) (comm * N + (rank))
#define announced_at(rank, number) ((comm * N + (rank)) * 2 + ANNOUNCEMENT(number))
byte presence[COMMUNICATORS * N];
byte sequence[COMMUNICATORS * N];
byte epoch[COMMUNICATORS * N];
byte announced[COMMUNICATORS * N * 2]; /* the number of the registration */
bool unopened[COMMUNICATORS * N * 2];
bool unmapped[COMMUNICATORS * N * 2];
bool aborted[COMMUNICATORS];

/* What Spark does: the exchange, and that a stage begins when the former one has ended. */
byte said[STAGES * N]; /* 1: nothing is held, 2: it is attached */
byte ended[STAGES];
bool failed_stage[STAGES];

/* What the ranks found out about each registration: 1: it is good, 2: it is not. */
byte found[STAGES * REGISTRATIONS];

/* What may go wrong: chosen first. */
byte unlucky = N, unlucky_with = 0; /* cannot open its file (0), or cannot map a peer's (1) */
byte leaver = N, leaves = 0;        /* fails in that stage */
byte closer = N;                    /* closes what it kept behind the first stage */

/* The arrival is looked at first; then whether the peer has left; then again at the arrival. */
inline wait_for(peer, arrived) {
  if
  :: arrived
  :: !(arrived) ->
    (arrived) || presence[at(peer)] >= DETACHED || aborted[comm];
    if
    :: presence[at(peer)] < DETACHED && !aborted[comm]
    :: presence[at(peer)] >= DETACHED || aborted[comm] ->
#ifdef NO_SECOND_LOOK
      goto failed
#else
      if
      :: arrived
      :: !(arrived) -> goto failed
      fi
#endif
    fi
  fi
}

inline arrive() {
  sequence[at(me)] = sequence[at(me)] + 1;
  for (p : 0 .. N - 1) {
    wait_for(p, sequence[at(p)] >= sequence[at(me)])
  }
  true
}

inline step() {
  epoch[at(me)] = epoch[at(me)] + 1;
#ifndef NO_STEP
  for (p : 0 .. N - 1) {
    wait_for(p, epoch[at(p)] >= epoch[at(me)])
  }
#endif
  true
}

/* All ranks come to the same. */
inline agree(good) {
  if
  :: found[stage * REGISTRATIONS + number - 1] == 0 ->
    found[stage * REGISTRATIONS + number - 1] = (good -> 1 : 2)
  :: else ->
    assert(found[stage * REGISTRATIONS + number - 1] == (good -> 1 : 2))
  fi
}

inline register_file() {
  d_step {
    announced[announced_at(me, number)] = stage * REGISTRATIONS + number;
    unopened[announced_at(me, number)] = (me == unlucky && unlucky_with == 0 && number == 1);
    unmapped[announced_at(me, number)] = false
  };
  arrive();
  d_step {
    good = true;
    for (p : 0 .. N - 1) {
      assert(announced[announced_at(p, number)] == stage * REGISTRATIONS + number);
      good = good && !unopened[announced_at(p, number)]
    };
    p = 0
  };
  if
  :: good ->
    unmapped[announced_at(me, number)] = (me == unlucky && unlucky_with == 1 && number == 1);
    step();
    d_step {
      for (p : 0 .. N - 1) {
        assert(announced[announced_at(p, number)] == stage * REGISTRATIONS + number);
        good = good && !unmapped[announced_at(p, number)]
      };
      p = 0;
      agree(good)
    }
  :: else -> d_step { agree(good) }
  fi
}

inline open_communicator() {
#ifndef LATE_ATTACH
  if
  :: held -> presence[at(me)] = PRESENT
  :: else
  fi;
#endif
  said[stage * N + me] = (held -> 2 : 1);
  for (p : 0 .. N - 1) {
    said[stage * N + p] != 0
  };
  true;
  d_step {
#ifdef HELD_ALONE
    good = held;
#else
    good = true;
    for (p : 0 .. N - 1) {
      good = good && said[stage * N + p] == 2
    };
#endif
    p = 0
  };
  if
  :: good ->
#ifdef LATE_ATTACH
    presence[at(me)] = PRESENT
#else
    true
#endif
  :: else ->
    if
    :: held -> presence[at(me)] = CLOSED
    :: else
    fi;
    comm++;
    presence[at(me)] = PRESENT;
    step()
  fi
}

proctype Rank(byte me) {
  byte stage = 0, comm = 0, number, p;
  bool held = false, good;
  do
  :: stage == STAGES -> break
  :: else ->
    open_communicator();
    number = 1;
    do
    :: number > REGISTRATIONS -> break
    :: else ->
      register_file();
      if
      :: me == leaver && stage == leaves -> goto failed
      :: else
      fi;
      number++
    od;
    presence[at(me)] = DETACHED;
    held = true;
    goto end_of_stage;
failed:
    true;
    d_step {
      assert(leaver < N); /* nobody is taken for lost without a fault */
      aborted[comm] = true;
      failed_stage[stage] = true
    };
    presence[at(me)] = CLOSED;
    held = false;
end_of_stage:
    ended[stage] = ended[stage] + 1;
    ended[stage] == N;
    d_step {
      /* The lease of a stage that failed is not used again. */
      held = held && !failed_stage[stage];
      p = 0;
      number = 0;
      good = false
    };
    if
    :: held && me == closer && stage == 0 ->
      presence[at(me)] = CLOSED;
      held = false
    :: else
    fi;
    stage++
  od
}

init {
  byte i;
  atomic {
    if
    :: true
    :: unlucky = N - 1; unlucky_with = 0
    :: unlucky = N - 1; unlucky_with = 1
    :: leaver = N - 1; select(leaves : 0 .. STAGES - 1)
    :: closer = N - 1
    fi;
    for (i : 0 .. N - 1) {
      run Rank(i)
    }
  }
}
