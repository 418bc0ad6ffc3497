# Licensed under the Apache License, Version 2.0. See LICENSE.
"""Runs the AMD code objects in an instruction-set emulator, one process per rank, and compares the bits.

    TINYGRAD=<checkout of the public repository tinygrad/tinygrad> CC=clang-19 \
        python3 emulate_amd.py <folder of kernels.gfx942.co, kernels.gfx950.co> [architecture ...]

What it shows: the machine code computes the reference bits and its protocol ends. What it does not: caches
(write-back and invalidate are no-ops there), weak memory ordering, time. float32 subnormals are flushed by
the emulator, so the inputs have none. Needs Python 3.11 and numpy; the emulator is no part of this project.
"""
import ctypes
import importlib.util
import mmap
import os
import struct
import sys
import time

import numpy as np

sys.path.insert(0, os.environ["TINYGRAD"])
os.environ.setdefault("CC", "clang-19")

# kernels/layout.hpp
MAX_RANKS, MAX_BLOCKS, THREADS, LOW_LATENCY_BLOCKS = 16, 128, 512, 16
PAD_BYTES = (128 + 2 * 4 * MAX_BLOCKS + 8 * MAX_BLOCKS * MAX_RANKS + 2 * 4 * MAX_BLOCKS * MAX_RANKS + 32 * MAX_RANKS
             + 2 * 8 * LOW_LATENCY_BLOCKS * MAX_RANKS
             + 2 * 8 * MAX_RANKS * LOW_LATENCY_BLOCKS * THREADS * 2)
LAUNCH = struct.Struct("<16Q Q 66Q QQQQ 3Q Q 3Q 12I")

TYPES = {"float64": np.float64, "float32": np.float32, "float16": np.float16, "bfloat16": None,
         "int32": np.int32, "int64": np.int64}
SCHEDULES = ("one-shot", "two-shot read", "staged write", "direct write", "load-reduce/store",
             "low-latency")


class CodeObject:
    """An ELF code object at its virtual addresses; `symbols` maps a name to (address, size)."""

    def __init__(self, path):
        with open(path, "rb") as file:
            image = file.read()
        program_offset, section_offset = struct.unpack_from("<QQ", image, 32)
        program_size, programs, section_size, sections, _ = struct.unpack_from("<HHHHH", image, 54)
        loads = []
        for i in range(programs):
            kind, _, offset, address, _, in_file, in_memory, _ = struct.unpack_from(
                "<IIQQQQQQ", image, program_offset + i * program_size)
            if kind == 1:
                loads.append((offset, address, in_file, in_memory))
        size = (max(a + m for _, a, _, m in loads) + 0xFFFF) & ~0xFFFF
        self.memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        for offset, address, in_file, _ in loads:
            self.memory[address:address + in_file] = image[offset:offset + in_file]
        headers = [struct.unpack_from("<IIQQQQIIQQ", image, section_offset + i * section_size)
                   for i in range(sections)]
        self.symbols = {}
        for table in (h for h in headers if h[1] in (2, 11)):
            names = headers[table[6]][4]
            for entry in range(table[4], table[4] + table[5], 24):
                name, _, _, _, value, length = struct.unpack_from("<IBBHQQ", image, entry)
                text = image[names + name:image.index(b"\0", names + name)].decode()
                self.symbols[text] = (value, length)

    def launch(self, name, kernarg, blocks):
        descriptor, _ = self.symbols[name + ".kd"]
        _, scratch, kernarg_size = struct.unpack_from("<III", self.memory, descriptor)
        entry = descriptor + struct.unpack_from("<q", self.memory, descriptor + 16)[0]
        rsrc2, = struct.unpack_from("<I", self.memory, descriptor + 52)
        properties, preload = struct.unpack_from("<HH", self.memory, descriptor + 56)
        scratch = max(scratch, 4096)  # a call's stack is not in the fixed size
        kernarg += b"\0" * (-len(kernarg) % 8)
        kernarg += struct.pack("<IIIHHHHHH", blocks, 1, 1, THREADS, 1, 1, 0, 0, 0) + b"\0" * 16
        kernarg += struct.pack("<QQQH", 0, 0, 0, 1)
        kernarg = kernarg.ljust(max(kernarg_size, len(kernarg)) + 256, b"\0")
        arguments = ctypes.create_string_buffer(kernarg, len(kernarg))
        packet = ctypes.create_string_buffer(struct.pack(
            "<HHHHHHIIIIIQQQQ", 0, 1, THREADS, 1, 1, 0, blocks * THREADS, 1, 1, 0, 0,
            self.base + entry, ctypes.addressof(arguments), 0, 0), 64)

        def words(buffer):
            return [ctypes.addressof(buffer) & 0xFFFFFFFF, ctypes.addressof(buffer) >> 32]

        scalars = [[0] * 4, words(packet), [0, 0], words(arguments), [0, 0], [0, 0], [scratch]]
        user = [v for bit, values in enumerate(scalars) if properties >> bit & 1 for v in values]
        user += struct.unpack_from(f"<{preload & 0x7F}I", kernarg, (preload >> 7) * 4)
        emulator()(self.base + entry, self.symbols[name][1], blocks, 1, 1, THREADS, 1, 1,
                   ctypes.addressof(arguments), rsrc2, scratch, "cdna", user)


def emulator(cache=[]):
    """The entry point, without the limit on a wave's instructions and with cache operations as no-ops."""
    if not cache:
        spec = importlib.util.find_spec("test.mockgpu.amd.emu")
        with open(spec.origin) as file:
            source = file.read()
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        exec(compile(source.replace("range(1_000_000)", "range(1 << 60)"), spec.origin, "exec"),
             module.__dict__)
        from tinygrad.uop.ops import UOp
        import tinygrad.runtime.autogen.amd.cdna.ins as cdna
        access = module._INST_HANDLERS[cdna.MUBUF]
        module._INST_HANDLERS[cdna.MUBUF] = lambda inst, ctx: (
            UOp.sink(*ctx.inc_pc()) if inst.op.name in ("BUFFER_WBL2", "BUFFER_INV")
            else access(inst, ctx))
        # It has no clock either: ticks() keeps whatever was in the register, and no deadline is set.
        scalar = module._INST_HANDLERS[cdna.SMEM]
        module._INST_HANDLERS[cdna.SMEM] = lambda inst, ctx: (
            UOp.sink(*ctx.inc_pc()) if inst.op.name == "S_MEMREALTIME" else scalar(inst, ctx))
        cache.append(module.run_asm)
    return cache[0]


def to_wide(type_name, bits):
    if type_name == "bfloat16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    values = bits.view(TYPES[type_name])
    return values.astype(np.float32) if type_name == "float16" else values


def to_bits(type_name, wide):
    if type_name == "bfloat16":
        word = wide.astype(np.float32).view(np.uint32)
        return ((word + 0x7FFF + (word >> 16 & 1)) >> 16).astype(np.uint16)
    return wide.astype(TYPES[type_name]).view(f"u{np.dtype(TYPES[type_name]).itemsize}")


def inputs(type_name, count, ranks):
    random = np.random.default_rng(7)
    if type_name.startswith("int"):
        return [to_bits(type_name, random.integers(-2**31, 2**31, count).astype(TYPES[type_name]))
                for _ in range(ranks)]
    return [to_bits(type_name, (random.random(count) * 4 - 2).astype(
        np.float64 if type_name == "float64" else np.float32)) for _ in range(ranks)]


def expected(type_name, values):
    total = to_wide(type_name, values[0])
    with np.errstate(over="ignore"):
        for value in values[1:]:
            total = total + to_wide(type_name, value)
    return to_bits(type_name, total)


class Memory:
    """One mapping that all ranks see at the same address."""

    def __init__(self, size):
        self.map = mmap.mmap(-1, size)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.used = 0

    def take(self, size):
        address = self.base + self.used
        self.used += (size + 255) & ~255
        return address

    def at(self, address, size):
        return memoryview(self.map)[address - self.base:address - self.base + size]


def launch_bytes(schedule, rank, ranks, count, size, memory):
    """What gpu/plan.cpp fills in; one block, everything in one chunk."""
    pads, ins, outs, slots, results, outcomes = memory
    per_line = 64 // size
    slice_ = (-(-count // ranks) + per_line - 1) // per_line * per_line
    mine = max(0, min(slice_, count - rank * slice_))
    step = slice_ * size
    words = {"scatter_to": [0] * 16, "source": [0] * 16, "target": [0] * 16, "gather": [0] * 16}
    scatter = gather = targets = reduce_count = middle = last = 0
    for q in range(ranks):
        turned = (rank + q) % ranks
        if schedule in ("staged write", "direct write"):
            words["scatter_to"][q] = slots[q] + rank * step
            words["source"][q] = slots[rank] + q * step
            scatter = ranks
        else:
            words["source"][q] = ins[q] + (0 if schedule == "one-shot" else rank * step)
        if schedule == "staged write":
            words["target"][q] = results[turned] + rank * step
            words["gather"][q] = results[rank] + q * step
        if schedule in ("direct write", "load-reduce/store"):
            words["target"][q] = outs[turned] + rank * step
        if schedule == "two-shot read":
            words["gather"][q] = results[q]
    reduce_count, targets = mine, ranks
    if schedule == "one-shot":
        reduce_count, targets = count, 1
        words["target"][0] = outs[rank]
    if schedule == "two-shot read":
        targets, middle, gather = 1, 1, ranks
        words["target"][0] = results[rank]
    if schedule == "staged write":
        gather, last = ranks, 1
    timeout = (1 << 64) - 1
    return LAUNCH.pack(
        *(pads + [0] * (16 - ranks)), 0, ins[rank], outs[rank], *words["scatter_to"],
        *words["source"], *words["target"], *words["gather"], outcomes[rank], outcomes[rank] + 256,
        timeout, count, slice_, slice_, count, reduce_count, slice_, slice_, count,
        0x33, 1, 0x1234567, rank, ranks, 1, 0, scatter, targets, gather, middle, last)


def run(code, architecture, schedule, type_name, ranks, count):
    values = inputs(type_name, count, ranks)
    want = expected(type_name, values)
    size = want.dtype.itemsize
    bytes_ = count * size
    memory = Memory(ranks * (PAD_BYTES + 6 * (bytes_ + 64 * ranks) + 8192) + (1 << 16))
    pads = [memory.take(PAD_BYTES) for _ in range(ranks)]
    ins = [memory.take(bytes_) for _ in range(ranks)]
    outs = [memory.take(bytes_) for _ in range(ranks)]
    slots = [memory.take(bytes_ + 64 * ranks) for _ in range(ranks)]
    results = [memory.take(bytes_ + 64 * ranks) for _ in range(ranks)]
    outcomes = [memory.take(1024) for _ in range(ranks)]
    for rank in range(ranks):
        memory.at(ins[rank], bytes_)[:] = values[rank].tobytes()
        memory.at(outs[rank], bytes_)[:] = b"\xee" * bytes_
    upto = 2 if ranks <= 2 else 4 if ranks <= 4 else 8
    kind = "low_latency" if schedule == "low-latency" else "collective"
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            argument = launch_bytes(schedule, rank, ranks, count, size,
                                    (pads, ins, outs, slots, results, outcomes))
            code.launch(f"sar_{kind}_{type_name}_{upto}", argument, 1)
            os._exit(0)
        children.append(child)
    started = time.time()
    waiting = set(children)
    while waiting and time.time() - started < 600:
        child, _ = os.waitpid(-1, os.WNOHANG)
        waiting.discard(child)
        time.sleep(0.02)
    for child in waiting:
        os.kill(child, 9)
        os.waitpid(child, 0)
    wrong = sum(bytes(memory.at(out, bytes_)) != want.tobytes() for out in outs)
    state = "did not end" if waiting else "right" if wrong == 0 else f"{wrong} ranks wrong"
    print(f"{architecture} {schedule:18} {type_name:9} {ranks} ranks {count:5} elements "
          f"{time.time() - started:6.1f} s  {state}", flush=True)
    return state == "right"


def main():
    folder, architectures = sys.argv[1], sys.argv[2:] or ["gfx942", "gfx950"]
    only = os.environ.get("SAR_EMULATE_RANKS", "2,4,8")
    ok = 0
    bad = 0
    for architecture in architectures:
        code = CodeObject(os.path.join(folder, f"kernels.{architecture}.co"))
        for ranks in map(int, only.split(",")):
            for schedule in SCHEDULES:
                for type_name in TYPES:
                    if run(code, architecture, schedule, type_name, ranks, 301):
                        ok += 1
                    else:
                        bad += 1
    print(f"{ok} right, {bad} not")
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
