// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.faults;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Random;
import java.util.SplittableRandom;
import java.util.UUID;
import java.util.stream.Collectors;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Schedule;

/**
 * One fault and the program that it strikes, all drawn from seed and index: every process that
 * plays a part in it computes the same.
 *
 * @param plan which faults are drawn
 * @param victim the rank that the fault strikes
 * @param other another rank: the one that is held back, or the one that is struck too
 * @param call the number of the call at which it strikes; {@link #OPENING}: in the opening
 * @param calls what the ranks but the victim call
 * @param kept whether the communicator is kept for the next episode
 * @param detail for what else is to be drawn
 */
record Episode(
    Plan plan,
    long seed,
    int index,
    Fault fault,
    int ranks,
    int victim,
    int other,
    int call,
    List<Call> calls,
    boolean kept,
    long detail) {

  /** Which faults are drawn. */
  enum Plan {
    /** Each of them as often as every other one. */
    CAMPAIGN,
    /** Those that no process ends by, between many programs without any. */
    SOAK,
    /** Each that a GPU can suffer, on the GPU backend. */
    GPU,
    /** Also those that only the simulated driver can suffer. */
    SIMULATED_GPU;

    boolean onGpu() {
      return this == GPU || this == SIMULATED_GPU;
    }
  }

  static final int OPENING = -1;

  /** Communicators of one size only are kept, so that it is known how much memory they map. */
  static final int KEPT_RANKS = 3;

  private static final int CALLS = 5;
  private static final int MOST_RANKS = 4;
  private static final int LARGE = 40_000;

  private static final List<Fault> SOAKING =
      List.of(
          Fault.THROW_BEFORE,
          Fault.ABORT_INSIDE,
          Fault.INTERRUPT_INSIDE,
          Fault.MISMATCH_COUNT,
          Fault.LEAVE_EARLY,
          Fault.DESCRIPTORS_CONNECT,
          Fault.MAPPING_REGISTER,
          Fault.MESSAGE_CUT);

  static Episode of(Plan plan, long seed, int index) {
    List<Fault> deck = deck(plan);
    Collections.shuffle(deck, new Random(seed * 1_000_003 + index / deck.size()));
    return of(plan, seed, index, deck.get(index % deck.size()));
  }

  private static List<Fault> deck(Plan plan) {
    if (plan == Plan.SOAK) {
      var deck = new ArrayList<>(SOAKING);
      deck.addAll(Collections.nCopies(2 * SOAKING.size(), Fault.NONE));
      return deck;
    }
    return Arrays.stream(Fault.values())
        .filter(fault -> fault != Fault.NONE)
        .filter(fault -> plan.onGpu() ? !fault.needsHost() : !fault.needsGpu())
        .filter(fault -> plan == Plan.SIMULATED_GPU || !fault.failsDriver())
        .collect(Collectors.toCollection(ArrayList::new));
  }

  private static Episode of(Plan plan, long seed, int index, Fault fault) {
    var random = new SplittableRandom(seed * 0x9E3779B97F4A7C15L + index).split();
    boolean drawn = random.nextInt(3) == 0 && !fault.needsFreshMemory();
    boolean kept = (drawn || fault == Fault.REPLACED) && !plan.onGpu();
    int ranks = kept ? KEPT_RANKS : 2 + random.nextInt(MOST_RANKS - 1);
    int victim = random.nextInt(ranks);
    int other = (victim + 1 + random.nextInt(ranks - 1)) % ranks;
    boolean opening = fault.point() == Fault.Point.INSIDE && !kept && random.nextInt(4) == 0;
    int call = opening ? OPENING : random.nextInt(CALLS - 1);
    var calls = new ArrayList<Call>();
    for (int i = 0; i < CALLS; i++) {
      Call drawnCall = Call.random(random, ranks);
      calls.add(plan.onGpu() ? drawnCall.onGpu(random) : drawnCall);
    }
    if (!opening) {
      shape(calls, call, fault);
    }
    return new Episode(
        plan,
        seed,
        index,
        fault,
        ranks,
        victim,
        other,
        call,
        List.copyOf(calls),
        kept,
        random.nextLong());
  }

  /** Makes the call that is struck one that the fault can strike. */
  private static void shape(List<Call> calls, int at, Fault fault) {
    Call call = calls.get(at);
    Call struck =
        switch (fault) {
          case MISMATCH_COUNT, MISMATCH_TYPE, MISMATCH_COLLECTIVE ->
              usesBuffers(call) ? call : call.with(Call.Kind.ALL_REDUCE, call.memory());
          case MISMATCH_TOTAL ->
              call.with(Call.Kind.ALL_REDUCE, Call.Memory.HEAP).withCount(LARGE + at);
          case MISMATCH_OP ->
              call.with(
                  call.kind() == Call.Kind.REDUCE_SCATTER ? call.kind() : Call.Kind.ALL_REDUCE,
                  call.memory());
          case MISMATCH_SCHEDULE -> call.with(Call.Kind.ALL_REDUCE, Call.Memory.ARENA);
          case MISMATCH_ROOT -> call.with(Call.Kind.BROADCAST, call.memory());
          case MISMATCH_ORDER -> call.with(Call.Kind.ALL_GATHER, call.memory());
          // A registration begins with a file of the caller's, for which there is no descriptor; so
          // do the simulated driver's allocations for a capture.
          case KILL_STARVED ->
              (usesBuffers(call) ? call : call.with(Call.Kind.BARRIER, call.memory()))
                  .with(Call.Mode.EAGER);
          case DESCRIPTORS_REGISTER, MAPPING_REGISTER ->
              call.with(Call.Kind.REGISTRATION, call.memory());
          case DRIVER_COPY, DRIVER_LAUNCH, DRIVER_LOST ->
              onDevice(call, Call.Mode.EAGER).withCount(call.count() + 1);
          case THROW_INSIDE -> onDevice(call, one(call.seed()));
          default -> fault.needsReplay() ? onDevice(call, Call.Mode.REPLAYED) : call;
        };
    if (fault.isMismatch() && !fault.needsReplay()) {
      struck = struck.with(Call.Mode.EAGER);
    }
    calls.set(at, struck);
    if (fault == Fault.MISMATCH_ORDER) {
      calls.set(
          at + 1,
          calls
              .get(at + 1)
              .with(Call.Kind.REDUCE_SCATTER, Call.Memory.NATIVE)
              .with(Call.Mode.EAGER));
    }
    if (fault == Fault.MISMATCH_REPLAYS) {
      // Low latency has signals of its own, which no other schedule looks at.
      Call first = struck.withSchedule(Schedule.DIRECT_WRITE);
      calls.set(at, first);
      calls.set(at + 1, first.withCount(first.count() + 1));
    }
  }

  /** An all-reduce of registered buffers. */
  private static Call onDevice(Call call, Call.Mode mode) {
    return call.with(Call.Kind.ALL_REDUCE, Call.Memory.ARENA).with(mode);
  }

  private static Call.Mode one(long seed) {
    return (seed & 1) == 0 ? Call.Mode.ENQUEUED : Call.Mode.REPLAYED;
  }

  private static boolean usesBuffers(Call call) {
    return call.kind() != Call.Kind.BARRIER && call.kind() != Call.Kind.REGISTRATION;
  }

  /** What {@code rank} calls: the victim of a mismatch something else than the others. */
  List<Call> program(int rank) {
    if (rank != victim || !fault.isMismatch() || fault == Fault.MISMATCH_REPLAYS) {
      return calls;
    }
    var program = new ArrayList<>(calls);
    program.set(call, struck());
    if (fault == Fault.MISMATCH_ORDER) {
      program.set(call + 1, calls.get(call));
    }
    return program;
  }

  private Call struck() {
    Call right = calls.get(call);
    int distance = (int) (detail & 0xff);
    return switch (fault) {
      case MISMATCH_COUNT, MISMATCH_TOTAL -> right.withCount(right.count() + 1 + distance);
      case MISMATCH_TYPE -> right.withType(Call.other(DataType.values(), right.type(), distance));
      case MISMATCH_OP -> right.withOp(Call.other(ReduceOp.values(), right.op(), distance));
      case MISMATCH_SCHEDULE ->
          right.withSchedule(Call.other(Call.SCHEDULES, right.schedule(), distance));
      case MISMATCH_ROOT -> right.withRoot((right.root() + 1 + distance % (ranks - 1)) % ranks);
      case MISMATCH_COLLECTIVE -> right.with(Call.Kind.BARRIER, right.memory());
      case MISMATCH_ORDER -> calls.get(call + 1);
      default -> right;
    };
  }

  /** Both sides' values, as the message of a mismatch must have them. */
  List<String> bothSides() {
    Call right = calls.get(call);
    Call wrong = struck();
    return switch (fault) {
      case MISMATCH_COUNT, MISMATCH_TOTAL ->
          List.of("count " + right.count(), "count " + wrong.count());
      case MISMATCH_TYPE ->
          List.of("data type " + word(right.type()), "data type " + word(wrong.type()));
      case MISMATCH_OP -> List.of("reduce op " + word(right.op()), "reduce op " + word(wrong.op()));
      case MISMATCH_SCHEDULE ->
          List.of("schedule " + word(right.schedule()), "schedule " + word(wrong.schedule()));
      case MISMATCH_ROOT -> List.of("root " + right.root(), "root " + wrong.root());
      case MISMATCH_COLLECTIVE, MISMATCH_ORDER ->
          List.of("collective " + word(right.kind()), "collective " + word(wrong.kind()));
      default -> List.of();
    };
  }

  /** As native code calls it. */
  private static String word(Enum<?> value) {
    if (value == Schedule.TWO_SHOT_READ) {
      return "two-shot read";
    }
    if (value == Schedule.LOAD_REDUCE_STORE) {
      return "load-reduce/store";
    }
    String lower = value.name().toLowerCase(Locale.ROOT);
    boolean spaced = value == Schedule.STAGED_WRITE || value == Schedule.DIRECT_WRITE;
    return lower.replace('_', spaced ? ' ' : '-');
  }

  UUID session() {
    return new UUID(seed, index);
  }

  /** Under which all kept communicators are found: a harder case than the driver's lease book. */
  static UUID lease() {
    return new UUID(0, KEPT_RANKS);
  }

  /** Which of {@code slots} processes play ranks 0, 1, ... */
  List<Integer> slots(int slots) {
    var order = new ArrayList<Integer>();
    for (int slot = 0; slot < slots; slot++) {
      order.add(slot);
    }
    Collections.shuffle(order, new Random(detail ^ seed));
    return order.subList(0, ranks);
  }

  /** How long a rank is held back, where it is for a while only. */
  long delayMillis() {
    return 1L + Math.floorMod(detail >>> 8, 80);
  }

  /** The deadline of a collective: beyond all patience, unless passing it is the fault. */
  long timeoutMillis() {
    return fault.passesDeadline() ? plan.onGpu() ? 900 : 500 : 60_000;
  }

  /** Whether a damaged message comes to all ranks, or to one only. */
  boolean damagedForAll() {
    return (detail & 1) == 0;
  }

  /** For how many segments there is room left in a full /dev/shm. */
  int room() {
    return Math.floorMod(detail >>> 16, ranks);
  }

  @Override
  public String toString() {
    return "fault %d (%s) of seed %d: %d ranks, victim %d, other %d, %s%s"
        .formatted(
            index,
            fault,
            seed,
            ranks,
            victim,
            other,
            call == OPENING ? "in the opening" : "call %d, %s".formatted(call, calls.get(call)),
            kept ? ", kept" : "");
  }
}
