#!/usr/bin/env python3
"""Runs the driver probes on a driver and compares every line with what a real one answered on H200s.

    compare.py --include DIR_WITH_CUDA_H --driver PATH/libwarpsim.so --out DIR

Lines are compared in order, name by name, so a name that occurs several times is compared each time. What is not
compared is listed with its reason in exceptions.txt; an exception that matches nothing is an error too. One that names an
answer of the hardware (`name = answer`) leaves out what is answered here under the names of those lines.
The last line is `N passed, N failed`; the exit status is 0 when nothing failed.
"""
import argparse
import concurrent.futures
import difflib
import fnmatch
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# source, answers, machine that answered, compiler, flags, arguments
PROBES = [
    ("driver_probe.c", "driver_facts_h200x2.txt", "h200x2", "cc", ["-O0"], []),
    ("driver_probe2.cpp", "driver_facts2_h200x2.txt", "h200x2", "c++", ["-O0", "-std=c++17"], ["facts"]),
    ("driver_probe3.cpp", "driver_facts3_h200x2.txt", "h200x2", "c++",
     ["-O0", "-std=c++17", "-DBUSY_BYTES=(1<<20)"], []),
    ("driver_probe4.cpp", "driver_facts4_h200.txt", "h200", "c++", ["-O0", "-std=c++17"], []),
    ("driver_probe5.cpp", "driver_facts5_h200.txt", "h200", "c++",
     ["-O0", "-std=c++17", "-DBUSY_BYTES=(1<<20)"], []),
    ("driver_probe6.cpp", "driver_facts6_h200.txt", "h200", "c++", ["-O0", "-std=c++17"], []),
    ("driver_probe7.cpp", "driver_facts7_h200.txt", "h200", "c++", ["-O0", "-std=c++17"], []),
    ("driver_probe8.cpp", "driver_facts8_h200.txt", "h200", "c++", ["-O0", "-std=c++17"], []),
    ("driver_probe9.cpp", "driver_facts9_h200x2.txt", "h200x2", "c++",
     ["-O0", "-std=c++17", "-DBUSY_BYTES=(1<<20)"], []),
    ("driver_probe10.cpp", "driver_facts10_h200x2.txt", "h200x2", "c++", ["-O0", "-std=c++17"], []),
    ("driver_probe11.cpp", "driver_facts11_h200x2.txt", "h200x2", "c++", ["-O0", "-std=c++17"], ["facts"]),
    ("driver_probe12.cpp", "driver_facts12_h200x2.txt", "h200x2", "c++",
     ["-O0", "-std=c++17", "-DBUSY_BYTES=(1<<20)"], []),
    ("driver_probe13.cpp", "driver_facts13_h200x2.txt", "h200x2", "c++", ["-O0", "-std=c++17"], []),
    ("driver_probe14.cpp", "driver_facts14_h200x2.txt", "h200x2", "c++", ["-O0", "-std=c++17"], []),
    ("driver_probe15.cpp", "driver_facts15_h200x2.txt", "h200x2", "c++", ["-O0", "-std=c++17"], []),
    ("driver_probe16.cpp", "driver_facts16_h200.txt", "h200", "c++", ["-O0", "-std=c++17"], []),
    ("driver_probe17.cpp", "driver_facts17_h200x2.txt", "h200x2", "c++", ["-O1", "-std=c++17"], []),
]


def name_of(line):
    return line.partition(" = ")[0]


class Exceptions:
    """Patterns of lines that are not compared, and which of them were of use."""

    def __init__(self, path):
        self.patterns = []
        self.used = set()
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if not line or line.startswith("#"):
                continue
            pattern, tab, reason = line.partition("\t")
            if not tab or not reason.strip():
                sys.exit(f"{path}:{number}: an exception is 'pattern<TAB>reason'")
            self.patterns.append((pattern, re.compile(fnmatch.translate(pattern))))

    def match(self, line):
        name = name_of(line)
        hit = False
        for pattern, compiled in self.patterns:
            if compiled.match(name) or compiled.match(line):
                self.used.add(pattern)
                hit = True
        return hit

    def unused(self):
        return [pattern for pattern, _ in self.patterns if pattern not in self.used]


def build(source, compiler, flags, include, libraries, out):
    program = out / pathlib.Path(source).stem
    command = [compiler, *flags, "-w", f"-I{include}", str(HERE / source), "-o", str(program),
               f"-L{libraries}", "-l:libcuda.so.1", "-lpthread"]
    subprocess.run(command, check=True)
    return program


def run(program, arguments, topology, libraries, out):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("WARPSIM_")}
    environment["LD_LIBRARY_PATH"] = str(libraries)
    environment["WARPSIM_TOPOLOGY"] = topology
    result = subprocess.run([str(program), *arguments], env=environment, capture_output=True, text=True, timeout=600)
    (out / f"{program.name}.txt").write_text(result.stdout)
    if result.returncode:
        print(f"{program.name}: exit status {result.returncode}\n{result.stderr}")
    return result.stdout.splitlines(), result.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--include", required=True, help="directory that holds cuda.h of CUDA 13.0")
    parser.add_argument("--driver", required=True, type=pathlib.Path, help="the driver library to ask")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="directory for programs and answers")
    parser.add_argument("--exceptions", type=pathlib.Path, default=HERE / "exceptions.txt")
    options = parser.parse_args()

    libraries = (options.out / "lib").resolve()
    libraries.mkdir(parents=True, exist_ok=True)
    link = libraries / "libcuda.so.1"
    link.unlink(missing_ok=True)
    link.symlink_to(options.driver.resolve(strict=True))
    exceptions = Exceptions(options.exceptions)

    def answers_of(probe):
        source, _, topology, compiler, flags, arguments = probe
        program = build(source, compiler, flags, options.include, libraries, options.out.resolve())
        return run(program, arguments, topology, libraries, options.out)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as at_once:
        # The last has the most to do.
        answered = list(at_once.map(answers_of, reversed(PROBES)))[::-1]

    passed = failed = 0
    for (source, answers, *_), (lines, status) in zip(PROBES, answered):
        failed += status != 0
        told = (HERE / answers).read_text().splitlines()
        wanted = [line for line in told if not exceptions.match(line)]
        left_out = {name_of(line) for line in told} - {name_of(line) for line in wanted}
        got = [line for line in lines if name_of(line) not in left_out and not exceptions.match(line)]
        for kind, a, b, c, d in difflib.SequenceMatcher(None, wanted, got, autojunk=False).get_opcodes():
            if kind == "equal":
                passed += b - a
                continue
            failed += max(b - a, d - c)
            for line in wanted[a:b]:
                print(f"{source}: hardware: {line}")
            for line in got[c:d]:
                print(f"{source}: here:     {line}")
    for pattern in exceptions.unused():
        failed += 1
        print(f"exceptions.txt: nothing matches '{pattern}'")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
