# Licensed under the Apache License, Version 2.0. See LICENSE.
"""Runs the AMD code objects in an instruction-set emulator and compares every bit with the host backend.

    TINYGRAD=<checkout of github.com/tinygrad/tinygrad> CC=clang python3 native/tests/gpu/emulate_amd.py \
        <build folder> [--architecture gfx942] [--report docs/amd-emulation.md] [--part 1/4] [--rows FILE]

In pieces: --part 1/4 runs every fourth case, --rows collects what ran in a file, and the report is about all in it.

The build folder is CMake's, with the tests and the GPU backend built. What is launched comes from
gpu/plan.cpp, what is expected from the host backend. Needs Python 3.11 and numpy. amd_emulator.py says
what the emulator stands in for; the report's head says what a run shows and what not.
"""
import argparse
import concurrent.futures
import ctypes
import dataclasses
import glob
import hashlib
import json
import mmap
import os
import subprocess
import sys
import time

import numpy as np

import amd_emulator

# spark_allreduce.h, kernels/layout.hpp
MAX_RANKS, HANDLE_BYTES, PATIENCE = 16, 256, 60_000_000_000
TYPES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int32": 4, "int64": 8}
OPS = ("sum", "product", "min", "max", "average")
SCHEDULES = {"one-shot": 1, "two-shot read": 2, "staged write": 3, "direct write": 4,
             "load-reduce/store": 5, "low-latency": 6}
COLLECTIVES = {"all-reduce": 3, "reduce-scatter": 4, "all-gather": 5, "broadcast": 6}
DEADLINE, MISMATCH, ABORT_SEEN = 1, 2, 3
STAGING_BYTES = 65536


@dataclasses.dataclass(frozen=True)
class Case:
    """One collective, with `blocks` whole blocks of each rank."""
    ranks: int
    collective: str
    schedule: str
    type: str
    op: str
    count: int
    blocks: int = 1
    in_place: bool = False
    registered: bool = True
    unaligned: bool = False
    captured: bool = False  # the addresses are in a table in device memory, as in graph mode
    staging: int = STAGING_BYTES

    @property
    def in_count(self):
        return self.count * (self.ranks if self.collective == "reduce-scatter" else 1)

    @property
    def out_count(self):
        return self.count * (self.ranks if self.collective == "all-gather" else 1)

    @property
    def kernel(self):
        return self.schedule if self.collective == "all-reduce" else self.collective


class Asked(ctypes.Structure):
    """emulator_plan.cpp."""
    _fields_ = ([(name, ctypes.c_uint64 * MAX_RANKS) for name in ("pad", "staging", "input", "output")]
                + [(name, ctypes.c_uint64) for name in (
                    "outcome", "host_abort", "table", "staging_bytes", "count", "timeout_ticks")]
                + [(name, ctypes.c_uint32) for name in (
                    "rank", "world", "blocks", "collective", "type", "op", "schedule", "root",
                    "in_place", "registered")])


class Options(ctypes.Structure):
    """sar_options."""
    _fields_ = ([(name, ctypes.c_uint32) for name in (
        "struct_bytes", "rank", "world_size", "first_epoch")]
        + [(name, ctypes.c_uint64) for name in (
            "session_high", "session_low", "arena_bytes", "staging_bytes", "spin_ns")])


class HostBackend:
    """The host backend with every rank on a thread of this process: what is right."""

    def __init__(self, library, ranks):
        self.library, self.ranks = library, ranks
        library.sar_last_error.restype = ctypes.c_char_p
        self.pool = concurrent.futures.ThreadPoolExecutor(ranks)
        self.comms = [ctypes.c_void_p() for _ in range(ranks)]
        handles = ctypes.create_string_buffer(ranks * HANDLE_BYTES)
        for rank, comm in enumerate(self.comms):
            options = Options(ctypes.sizeof(Options), rank, ranks, 0, os.getpid(), ranks, 65536, 65536,
                              20000)
            self.must(library.sar_comm_create(ctypes.byref(options), ctypes.byref(comm)))
            self.must(library.sar_comm_handle(
                comm, ctypes.byref(handles, rank * HANDLE_BYTES)))
        self.each(lambda rank: library.sar_comm_connect(
            self.comms[rank], handles, ctypes.c_int64(PATIENCE)))

    def must(self, status):
        if status != 0:
            raise RuntimeError(self.library.sar_last_error().decode())

    def each(self, body):
        # The thread that failed knows why.
        list(self.pool.map(lambda rank: self.must(body(rank)), range(self.ranks)))

    def results(self, case, values):
        size = TYPES[case.type]
        outs = [ctypes.create_string_buffer(case.out_count * size) for _ in values]
        count, patience = ctypes.c_uint64(case.count), ctypes.c_int64(PATIENCE)
        type_, op = list(TYPES).index(case.type), OPS.index(case.op)
        call = getattr(self.library, "sar_" + case.collective.replace("-", "_"))
        more = {"all-reduce": (op, 0), "reduce-scatter": (op,), "all-gather": (),
                "broadcast": (case.ranks - 1,)}[case.collective]
        self.each(lambda rank: call(self.comms[rank], values[rank], outs[rank], count, type_, *more,
                                    patience))
        return [out.raw for out in outs]


class World:
    """The device memory of some ranks: all in this process, so addresses are the same for all."""

    def __init__(self, plan, code, host):
        self.plan, self.code, self.host, self.ranks = plan, code, host, host.ranks
        self.map = mmap.mmap(-1, self.ranks * (plan.emulator_pad_bytes() + STAGING_BYTES + (1 << 19)))
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.used = 0
        self.pads = [self.take(plan.emulator_pad_bytes()) for _ in range(self.ranks)]
        self.stagings = [self.take(STAGING_BYTES) for _ in range(self.ranks)]
        self.outcomes = [self.take(256) for _ in range(self.ranks)]
        self.aborts = [self.take(64) for _ in range(self.ranks)]
        self.tables = [self.take(1024) for _ in range(self.ranks)]
        self.buffers = self.used

    def take(self, bytes_):
        address = self.base + self.used
        self.used += (bytes_ + 511) & ~255
        return address

    def at(self, address, bytes_):
        return memoryview(self.map)[address - self.base:address - self.base + bytes_]

    def place(self, case, values):
        """Puts the inputs into memory, poisons the outputs; (input, output) addresses of all ranks."""
        self.used = self.buffers
        size, ins, outs = TYPES[case.type], [], []
        for rank in range(self.ranks):
            offset = size if case.unaligned else 0
            whole = self.take(max(case.in_count, case.out_count) * size + 64) + offset
            ins.append(whole)
            outs.append(self.take(case.out_count * size + 64) + offset)
            if case.in_place:
                outs[rank] = whole
                if case.collective == "reduce-scatter":
                    outs[rank] = whole + rank * case.count * size
                if case.collective == "all-gather":
                    ins[rank] = whole + rank * case.count * size
        for rank in range(self.ranks):
            poisoned = self.at(outs[rank] - 8, case.out_count * size + 16)
            if not case.in_place:
                poisoned[:] = b"\xee" * len(poisoned)
            self.at(ins[rank], len(values[rank]))[:] = values[rank]
        return ins, outs

    def asked(self, case, rank, ins, outs, timeout):
        asked = Asked(outcome=self.outcomes[rank], host_abort=self.aborts[rank],
                      table=self.tables[rank] if case.captured else 0, staging_bytes=case.staging,
                      count=case.count, timeout_ticks=timeout, rank=rank, world=self.ranks,
                      blocks=case.blocks, collective=COLLECTIVES[case.collective],
                      type=list(TYPES).index(case.type), op=OPS.index(case.op),
                      schedule=SCHEDULES.get(case.schedule, 0),
                      root=self.ranks - 1 if case.collective == "broadcast" else 0,
                      in_place=case.in_place and case.collective == "all-reduce",
                      registered=case.registered)
        for q in range(self.ranks):
            asked.pad[q], asked.staging[q] = self.pads[q], self.stagings[q]
            asked.input[q], asked.output[q] = ins[q], outs[q]
        return asked

    def run(self, cases, ins, outs, seed, timeout=(1 << 64) - 1):
        """One case for each rank, None: that rank stays away. All launches of each, until all end."""
        done = [0] * self.ranks
        while True:
            launches = []
            for rank, case in enumerate(cases):
                if case is None:
                    continue
                launch = ctypes.create_string_buffer(self.plan.emulator_launch_bytes())
                blocks, threads, low_latency = (ctypes.c_uint32() for _ in range(3))
                done[rank] = self.plan.emulator_plan(
                    ctypes.byref(self.asked(case, rank, ins, outs, timeout)),
                    ctypes.c_uint64(done[rank]), launch, ctypes.byref(blocks),
                    ctypes.byref(threads), ctypes.byref(low_latency))
                upto = next(n for n in (2, 4, 8, 16) if self.ranks <= n)
                kind = "low_latency" if low_latency.value else "collective"
                launches.append((f"sar_{kind}_{case.type}_{upto}", launch.raw, blocks.value,
                                 threads.value))
            case = next(c for c in cases if c is not None)
            amd_emulator.run(self.code, launches, seed)
            if done[cases.index(case)] >= case.count or self.outcome(cases.index(case))[0] != 0:
                return

    def outcome(self, rank):
        """(state, fault, step, peer, missing) of layout.hpp's Outcome."""
        return tuple(np.frombuffer(self.at(self.outcomes[rank], 20), np.uint32).tolist())

    def check(self, case, seed):
        """None if the bits of all ranks are the host backend's, else what is wrong."""
        values = inputs(case, seed)
        ins, outs = self.place(case, values)
        wanted = self.host.results(case, values)
        self.run([case] * self.ranks, ins, outs, seed)
        size = case.out_count * TYPES[case.type]
        for rank in range(self.ranks):
            if self.outcome(rank)[0] != 0:
                return f"rank {rank} gave up: {self.outcome(rank)}"
            if bytes(self.at(outs[rank], size)) != wanted[rank]:
                return f"rank {rank} has other bits than the host backend"
            around = self.at(outs[rank] - 8, 8), self.at(outs[rank] + size, 8)
            if not case.in_place and any(bytes(a) != b"\xee" * 8 for a in around):
                return f"rank {rank}'s kernel wrote beside its output"
        return None


def inputs(case, seed):
    """Numbers near 1, whose sums round, and one in sixteen of any bits: subnormal, infinite, NaN."""
    random, result = np.random.default_rng(seed), []
    size, count = TYPES[case.type], case.in_count
    for _ in range(case.ranks):
        bits = random.integers(0, 256, count * size, np.uint8).view(f"u{size}")
        if not case.type.startswith("int"):
            near = (random.random(count) * 6 - 3).astype(np.float64 if size == 8 else np.float32)
            near = {"float16": lambda: near.astype(np.float16).view(np.uint16),
                    "bfloat16": lambda: (near.view(np.uint32) >> 16).astype(np.uint16)}.get(
                        case.type, lambda: near.view(f"u{size}"))()
            bits = np.where(random.integers(0, 16, count) == 0, bits, near)
        result.append(bits.tobytes())
    return result


def all_cases():
    """Every schedule, collective and type with 2, 4 and 8 ranks; then every operation, two blocks."""
    turn = 0
    for ranks in (2, 4, 8):
        for type_, size in TYPES.items():
            for schedule in SCHEDULES:
                turn += 1
                most = min(64, 1000 // size) * (2 if size == 2 else 1)
                count = most - turn % 4 if schedule == "low-latency" else 1000 // size - turn % 7
                yield Case(ranks, "all-reduce", schedule, type_, OPS[turn % 5], count,
                           in_place=turn % 2 == 1, registered=turn % 4 != 0, unaligned=turn % 5 == 2)
            for collective in ("reduce-scatter", "all-gather", "broadcast"):
                turn += 1
                yield Case(ranks, collective, "-", type_, OPS[turn % 5], 500 // size - turn % 3,
                           in_place=turn % 2 == 1, registered=turn % 4 != 0, unaligned=turn % 5 == 2)
    for type_ in TYPES:
        for op in OPS:
            yield Case(2, "all-reduce", "load-reduce/store", type_, op, 1000 // TYPES[type_])
    for schedule in SCHEDULES:
        yield Case(2, "all-reduce", schedule, "float32", "sum", 1021, blocks=2)
    # One element, so all slices but the first are empty; the last slice empty; addresses from a table.
    for ranks in (2, 4, 8):
        for schedule in SCHEDULES:
            yield Case(ranks, "all-reduce", schedule, "float32", "sum", 1)
    for schedule in SCHEDULES:
        yield Case(4, "all-reduce", schedule, "float32", "sum", 40)
        yield Case(4, "all-reduce", schedule, "bfloat16", "max", 70, registered=False)
        yield Case(4, "all-reduce", schedule, "float32", "sum", 250, captured=True)
    # Several launches, one for each chunk that fits into the staging buffer.
    for schedule in ("one-shot", "two-shot read", "staged write", "direct write"):
        yield Case(2, "all-reduce", schedule, "float32", "sum", 1000, registered=schedule != "one-shot",
                   staging=2048)
    for collective in ("reduce-scatter", "all-gather", "broadcast"):
        yield Case(2, collective, "-", "float32", "sum", 500, registered=False, staging=2048)


def faults(plan, code, host, schedule):
    """A missing rank, a mismatch, an abort: (name, what is wrong or None)."""
    good = Case(host.ranks, "all-reduce", schedule, "float32", "sum", 100)
    values = inputs(good, 1)

    def outcomes(cases, timeout=(1 << 64) - 1, aborted=False):
        world = World(plan, code, host)
        ins, outs = world.place(good, values)
        if aborted:
            for word in world.aborts:
                world.at(word, 4)[:] = b"\1\0\0\0"
        world.run(cases, ins, outs, 1, timeout)
        untouched = all(bytes(world.at(out, 400)) == b"\xee" * 400 for out in outs)
        return [world.outcome(rank) for rank in range(host.ranks)], untouched

    found, untouched = outcomes([good, None], timeout=20000)
    yield f"{schedule}, a missing rank", None if untouched and found[0][:2] == (1, DEADLINE) and found[0][4] == 2 else found
    found, untouched = outcomes([good, dataclasses.replace(good, op="max")])
    kinds = [fault for _, fault, *_ in found]
    yield f"{schedule}, different calls", None if untouched and MISMATCH in kinds and set(kinds) <= {MISMATCH, ABORT_SEEN} else found
    found, untouched = outcomes([good, None], aborted=True)
    yield f"{schedule}, an abort by the host", None if untouched and found[0][:2] == (1, ABORT_SEEN) else found


def run_architecture(architecture, build, plan, library, note, part):
    path = os.path.join(build, "../kernels", f"kernels.{architecture}.co")
    code, wrong, worlds = amd_emulator.CodeObject(path), [], {}
    hosts = {ranks: HostBackend(library, ranks) for ranks in (2, 4, 8)}
    for seed, case in list(enumerate(all_cases()))[part[0] - 1::part[1]]:
        started = time.time()
        try:
            world = worlds.setdefault(case.ranks, World(plan, code, hosts[case.ranks]))
            problem = world.check(case, seed)
        except Exception as error:  # the emulator lacks an instruction, or the kernels did not end
            problem, worlds = f"{type(error).__name__}: {error}", {}
        seconds = time.time() - started
        print(f"{architecture} {seed:3} {seconds:6.1f} s {problem or 'right'}: {case}", flush=True)
        note((architecture, case, problem, seconds))
        if problem:
            wrong.append(case)
            worlds.pop(case.ranks, None)  # its pads may be in any state
    for schedule in ("direct write", "low-latency") if part[0] == 1 else ():
        for name, problem in faults(plan, code, hosts[2], schedule):
            print(f"{architecture} fault: {name}: {problem or 'right'}", flush=True)
            note((architecture, name, problem, 0))
            wrong += [name] * (problem is not None)
    return wrong


HEAD = """# AMD code objects in an emulator

Written by `native/tests/gpu/emulate_amd.py --report`; do not edit. No AMD GPU took part.

**What a run shows.** The machine code that the GPU library embeds, executed instruction by instruction, stores
the bits that the host backend computes for the same inputs (one in sixteen of them subnormal, infinite or
NaN), touches nothing beside its outputs, and its protocol ends. The launches come from `gpu/plan.cpp`. All ranks
run in one process, whose waves a seeded random scheduler takes in turn.

**What it does not show.** Caches and weak memory ordering (write-back and invalidate are no-ops), anything about
time, IPC, the driver. Stand-ins for what the emulator lacks are listed in `amd_emulator.py`: the clock counts
instructions; calls and one compare-and-swap are done in Python.

"""


def write_report(path, rows, build):
    """What ran, on which commits, what did not come out right."""
    here = os.path.dirname(os.path.abspath(__file__))
    ours = subprocess.run(["git", "-C", here, "log", "-1", "--format=%h", "--", "../../kernels",
                           "../../gpu/plan.cpp"], capture_output=True, text=True).stdout.strip()
    architectures = sorted({row[0] for row in rows})
    text = HEAD + f"Kernels and plan of commit {ours}; tinygrad {amd_emulator.emulator_commit()}.\n\n"
    for architecture in architectures:
        with open(os.path.join(build, "../kernels", f"kernels.{architecture}.co"), "rb") as file:
            text += f"- {architecture}: code object with SHA-256 {hashlib.sha256(file.read()).hexdigest()[:16]}...\n"
    text += ("\nRight cases of all that ran, over the six data types, in and out of place, registered or not, aligned or "
             "not,\nof one element, with an empty slice, in chunks through staging, with addresses from a capture's table:\n")
    cases = [row for row in rows if isinstance(row[1], Case)]
    groups = [("2 ranks", lambda c: c.ranks == 2), ("4 ranks", lambda c: c.ranks == 4),
              ("8 ranks", lambda c: c.ranks == 8)]
    for architecture in architectures:
        text += f"\n| {architecture} | " + " | ".join(name for name, _ in groups) + " |\n|---|---|---|---|\n"
        for kernel in [*SCHEDULES, "reduce-scatter", "all-gather", "broadcast"]:
            cells = []
            for _, inside in groups:
                mine = [row for row in cases if row[0] == architecture and row[1].kernel == kernel
                        and inside(row[1])]
                cells.append(f"{sum(row[2] is None for row in mine)} of {len(mine)}")
            text += f"| {kernel} | " + " | ".join(cells) + " |\n"
    text += "\nFaults, 2 ranks: " + "; ".join(
        f"{architecture}, {name}: {'as it should be' if problem is None else problem}"
        for architecture, name, problem, _ in rows if not isinstance(name, Case)) + ".\n"
    wrong = [row for row in cases if row[2] is not None]
    text += "\nNot right: none.\n" if not wrong else "\nNot right:\n"
    for architecture, case, problem, _ in wrong:
        text += f"- {architecture}, {case}: {problem}\n"
    text += "\nNot run: gfx90a, world sizes other than 2, 4 and 8, more than two blocks.\n"
    with open(path, "w") as file:
        file.write(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--architecture", action="append")
    parser.add_argument("--report")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--rows")
    arguments = parser.parse_args()
    plan = ctypes.CDLL(glob.glob(os.path.join(arguments.build, "**/libemulator_plan.so"), recursive=True)[0])
    plan.emulator_plan.restype = ctypes.c_uint64
    library = ctypes.CDLL(os.path.join(arguments.build, "../lib/libspark_allreduce_host.so"))
    rows, wrong = [], []

    def note(row):
        rows.append(row)
        if arguments.rows:
            with open(arguments.rows, "a") as file:
                file.write(json.dumps(row, default=dataclasses.asdict) + "\n")

    for architecture in arguments.architecture or ["gfx942", "gfx950"]:
        wrong += run_architecture(architecture, arguments.build, plan, library, note,
                                  [int(n) for n in arguments.part.split("/")])
    if arguments.report:
        if arguments.rows:
            with open(arguments.rows) as file:
                rows = [(a, Case(**c) if isinstance(c, dict) else c, p, s) for a, c, p, s in map(json.loads, file)]
        write_report(arguments.report, rows, arguments.build)
    print(f"{len(wrong)} not right")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
