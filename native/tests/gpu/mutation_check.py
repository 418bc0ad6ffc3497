# Licensed under the Apache License, Version 2.0. See LICENSE.
"""Weakens each release and acquire of the kernels in turn and asks ThreadSanitizer whether it notices.

    python3 native/tests/gpu/mutation_check.py <build folder>

Every access of the kernels that orders anything is written as order(kSite, __ATOMIC_...), with a site of
its own in device.hpp; -DSAR_WEAKEN=<site> makes that one relaxed. An access that is not written so is
reported too. Exit code 0: the unchanged kernels are clean, and all are noticed but those that
EXPECTED_UNNOTICED gives a reason for.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

EXPECTED_UNNOTICED = {
    "kOutcomeState": "the host reads the outcome after it has synchronised with the stream, which orders it already",
}
TESTS = "KnownFault.TheLast*:KnownFault.AFast*:KnownFault.TheReady*:KnownFault.ASignal*:Faults.AMissing*"


def sites(kernels):
    with open(os.path.join(kernels, "device.hpp")) as file:
        body = re.search(r"enum Site : int \{(.*?)\};", file.read(), re.S).group(1)
    return [(name, int(number)) for name, number in re.findall(r"(\w+) = (\d+)", body)]


def unnamed(kernels):
    """Lines that order without order(kSite, ...); the definitions in device.hpp and the block barrier apart."""
    found = []
    for path in sorted(glob.glob(os.path.join(kernels, "*.?pp"))):
        with open(path) as file:
            for number, line in enumerate(file, 1):
                code = line.split("//")[0]
                if re.search(r"__ATOMIC_(ACQUIRE|RELEASE|ACQ_REL|SEQ_CST)", code) and \
                        not re.search(r"order\(k\w+,|__builtin_amdgcn_fence", code):
                    found.append(f"{os.path.basename(path)}:{number}: {code.strip()}")
    return found


def reports(native, build, folder, weaken):
    compiler = os.path.join(native, "target/device-compiler/org/bytedeco/llvm/linux-x86_64")
    kernels, test = os.path.join(folder, "kernels.o"), os.path.join(folder, "test")
    here = os.path.join(native, "tests/gpu")
    subprocess.run([os.path.join(native, "kernels/compile.sh"), compiler, "cpu", kernels,
                    os.path.join(here, "cpu_launcher.cpp"), f"-I{native}/include", f"-I{here}",
                    "-DSAR_BLOCK_THREADS=8", "-DSAR_KERNEL_TYPE=1", "-fsanitize=thread",
                    f"-DSAR_WEAKEN={weaken}"], check=True)
    objects = glob.glob(os.path.join(
        build, "tests/gpu/CMakeFiles/kernels_thread_sanitizer_test.dir/**/*.o"), recursive=True)
    subprocess.run(["c++", "-fsanitize=thread", kernels, *objects, "-lgtest", "-lgtest_main",
                    "-lpthread", "-o", test], check=True)
    ran = subprocess.run([test, "--gtest_filter=" + TESTS], capture_output=True, text=True,
                         env={**os.environ, "TSAN_OPTIONS": "exitcode=0"})
    found = ran.stderr.count("WARNING: ThreadSanitizer: data race")
    # A weakened kernel may give wrong bits as well: noticed by the test itself.
    return found, ran.returncode != 0


def main():
    build = os.path.abspath(sys.argv[1])
    native = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
    kernels, bad = os.path.join(native, "kernels"), unnamed(os.path.join(native, "kernels"))
    for line in bad:
        print("not named by order(kSite, ...):", line)
    with tempfile.TemporaryDirectory() as folder:
        for name, number in [("unchanged", 0), *sites(kernels)]:
            races, failed = reports(native, build, folder, number)
            if number == 0:
                verdict, right = ("clean", True) if not races and not failed else ("NOT CLEAN", False)
            elif races or failed:
                verdict, right = "noticed", True
            else:
                reason = EXPECTED_UNNOTICED.get(name)
                verdict, right = f"not noticed: {reason}" if reason else "NOT NOTICED", bool(reason)
            print(f"| {name} | {races} | {'yes' if failed else 'no'} | {verdict} |", flush=True)
            bad += [] if right else [name]
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
