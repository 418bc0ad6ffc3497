# Licensed under the Apache License, Version 2.0. See LICENSE.
"""Executes AMD code objects, instruction by instruction, with the emulator of a tinygrad checkout.

The variable TINYGRAD names a checkout of the public repository tinygrad/tinygrad, CC a clang for its use.
All waves of all ranks run in this one process, taken in turn by a seeded random scheduler, so a run can be
repeated exactly. Stand-ins for what the emulator lacks: cache write-back and invalidate are no-ops (it has
no caches), s_sleep ends a wave's turn, s_memrealtime counts the instructions executed so far;
calls (s_getpc, s_setpc, s_swappc) and the one compare-and-swap are done here, in Python.
float32 subnormals are kept, as the kernels' descriptors ask; the emulator's own entry point flushes them.
"""
import ctypes
import itertools
import mmap
import os
import random
import struct
import subprocess
import sys

TINYGRAD = os.environ.get("TINYGRAD", "")
if not os.path.exists(os.path.join(TINYGRAD, "test/mockgpu/amd/emu.py")):
    sys.exit("set TINYGRAD to a checkout of github.com/tinygrad/tinygrad")
sys.path.insert(0, TINYGRAD)
os.environ.setdefault("CC", "clang")

from test.mockgpu.amd import emu  # noqa: E402
from tinygrad.device import Buffer  # noqa: E402
from tinygrad.device import BufferSpec  # noqa: E402
from tinygrad.dtype import dtypes  # noqa: E402
from tinygrad.renderer.amd import decode_inst  # noqa: E402

WAVE_LANES = 64


def emulator_commit():
    """The checkout's commit, or None where it has no git history."""
    found = subprocess.run(["git", "-C", TINYGRAD, "rev-parse", "HEAD"], capture_output=True, text=True)
    return found.stdout.strip() or None


class DidNotEnd(Exception):
    """The kernels went on for more instructions than any right run needs."""


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
        self.decoded = {}

    def decode(self, address):
        """(how the scheduler treats it, function, buffers, size, instruction) of the instruction there."""
        found = self.decoded.get(address)
        if found is None:
            inst = decode_inst(ctypes.string_at(address, 16), "cdna")
            name = inst.op.name if hasattr(inst, "op") else ""
            if name in ("BUFFER_WBL2", "BUFFER_INV", "BUFFER_INVL2", "BUFFER_WBINVL1_VOL"):
                found = ("skip", None, (), inst.size(), inst)
            elif name == "S_SLEEP":
                found = ("sleep", None, (), inst.size(), inst)
            elif name == "S_MEMREALTIME":
                found = ("clock", None, (), inst.size(), inst)
            elif name in ("S_GETPC_B64", "S_SETPC_B64", "S_SWAPPC_B64",
                          "GLOBAL_ATOMIC_CMPSWAP"):
                found = (name, None, (), inst.size(), inst)
            else:
                (program, runtime), inst = emu._decode_at(address, "cdna")
                found = ("barrier" if name == "S_BARRIER" else "run", runtime.fxn,
                         tuple(program.arg.globals), inst.size(), inst)
            self.decoded[address] = found
        return found


class Workgroup:
    """One block of one rank: its waves, and the memory that they share."""

    def __init__(self, code, name, argument, block, blocks, threads):
        descriptor, _ = code.symbols[name + ".kd"]
        lds, scratch, argument_bytes = struct.unpack_from("<III", code.memory, descriptor)
        entry = code.base + descriptor + struct.unpack_from("<q", code.memory, descriptor + 16)[0]
        rsrc1, rsrc2 = struct.unpack_from("<II", code.memory, descriptor + 48)
        if rsrc1 >> 16 & 3 != 3:
            raise ValueError(f"{name} asks for float32 subnormals to be flushed")
        properties, preload = struct.unpack_from("<HH", code.memory, descriptor + 56)
        scratch = max(scratch, 4096)  # a call's stack is not in the fixed size
        argument += b"\0" * (-len(argument) % 8)
        argument += struct.pack("<IIIHHHHHH", blocks, 1, 1, threads, 1, 1, 0, 0, 0) + b"\0" * 16
        argument += struct.pack("<QQQH", 0, 0, 0, 1)
        argument = argument.ljust(max(argument_bytes, len(argument)) + 256, b"\0")
        arguments = ctypes.create_string_buffer(argument, len(argument))
        packet = ctypes.create_string_buffer(struct.pack(
            "<HHHHHHIIIIIQQQQ", 0, 1, threads, 1, 1, 0, blocks * threads, 1, 1, 0, 0, entry,
            ctypes.addressof(arguments), 0, 0), 64)

        def words(buffer):
            return [ctypes.addressof(buffer) & 0xFFFFFFFF, ctypes.addressof(buffer) >> 32]

        scalars = [[0] * 4, words(packet), [0, 0], words(arguments), [0, 0], [0, 0], [scratch]]
        user = [v for bit, values in enumerate(scalars) if properties >> bit & 1 for v in values]
        user += struct.unpack_from(f"<{preload & 0x7F}I", argument, (preload >> 7) * 4)
        everything = Buffer("CPU", 1 << 40, dtypes.uint32,
                            options=BufferSpec(external_ptr=0)).ensure_allocated()
        local = Buffer("CPU", max(lds // 4, 1), dtypes.uint32).ensure_allocated()
        self.keep = [arguments, packet, everything, local]
        self.running, self.at_barrier = [], []
        for first in range(0, threads, WAVE_LANES):
            state = emu._init_wave(entry, first, threads, threads, 1, 1, ctypes.addressof(arguments),
                                   rsrc2, scratch, "cdna", block, 0, 0, user, WAVE_LANES)
            stack = Buffer("CPU", scratch * WAVE_LANES, dtypes.uint8).ensure_allocated()
            self.keep.append(stack)
            self.running.append((state, [ctypes.c_uint64(b._buf.va_addr) for b in (
                state.sgpr_buf, state.vgpr_buf, everything, local, stack, state.accvgpr_buf)]))


def read_pair(state, register):
    return state._read_sgpr(register) | state._read_sgpr(register + 1) << 32


def write_pair(state, register, value):
    state._write_sgpr(register, value)
    state._write_sgpr(register + 1, value >> 32)


def compare_and_swap(state, inst):
    """32 bits, address in vector registers."""
    if inst.saddr.offset != 127:
        raise NotImplementedError("compare-and-swap with a scalar address")
    offset = inst.offset - (inst.offset >> 12 << 13)
    address, data, result = inst.addr.offset - 256, inst.data.offset - 256, inst.vdst.offset - 256
    active = read_pair(state, 126)
    for lane in (lane for lane in range(WAVE_LANES) if active >> lane & 1):
        word = ctypes.c_uint32.from_address(offset + (
            state._read_vgpr(address, lane) | state._read_vgpr(address + 1, lane) << 32))
        old, new = word.value, state._read_vgpr(data, lane)
        if old == state._read_vgpr(data + 1, lane):
            word.value = new
        state._write_vgpr(result, lane, old)


def run(code, launches, seed, most_instructions=30_000_000):
    """Runs `launches`, (kernel name, argument, blocks, threads) for each rank, together until all end."""
    groups = [Workgroup(code, name, argument, block, blocks, threads)
              for name, argument, blocks, threads in launches for block in range(blocks)]
    choose = random.Random(seed)
    executed = itertools.count()
    clock = 0
    while True:
        groups = [g for g in groups if g.running or g.at_barrier]
        if not groups:
            return clock
        group = choose.choice(groups)
        if not group.running:  # all waves that have not ended are here
            group.running, group.at_barrier = group.at_barrier, []
        turn = choose.randrange(len(group.running))
        state, buffers = group.running[turn]
        for _ in range(choose.randrange(1, 400)):
            pc = state.pc
            if pc == emu.ENDPGM_PC:
                group.running.pop(turn)
                break
            treat, function, used, size, inst = code.decode(pc)
            clock = next(executed)
            if treat == "run" or treat == "barrier":
                function(*[buffers[i] for i in used])
                if treat == "barrier":
                    group.at_barrier.append(group.running.pop(turn))
                    break
                continue
            state.pc = pc + size
            if treat == "sleep":
                break
            if treat == "clock":
                write_pair(state, inst.sdata.offset, clock)
            elif treat == "S_GETPC_B64":
                write_pair(state, inst.sdst.offset, pc + size)
            elif treat in ("S_SETPC_B64", "S_SWAPPC_B64"):
                target = read_pair(state, inst.ssrc0.offset)
                if treat == "S_SWAPPC_B64":
                    write_pair(state, inst.sdst.offset, pc + size)
                state.pc = target
            elif treat == "GLOBAL_ATOMIC_CMPSWAP":
                compare_and_swap(state, inst)
        if clock > most_instructions:
            raise DidNotEnd(f"after {clock} instructions")
