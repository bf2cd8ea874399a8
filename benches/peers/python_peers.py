"""The allocators of CuPy and NVIDIA Warp, as a Python program calls them: pairs, and the recorded traces.

    python_peers.py [LOG ...]

Prints the lines of JSON that the other benchmarks print; a library that is not here is named. What a call costs in the
interpreter is in the figures. Each library has an interpreter of its own, and 60 seconds.
"""

import gc
import importlib.util
import json
import subprocess
import sys
import time

SIZES = (256, 65536, 1 << 20, 16 << 20, 256 << 20)
PAIRS, PAIR_ROUNDS, TRACE_ROUNDS = 200, 51, 7


def report(bench, library, case, unit, values):
    ordered = sorted(values)

    def quantile(share):
        return ordered[int(share * (len(ordered) - 1) + 0.5)]

    row = {"bench": bench, "library": library, "case": case, "unit": unit, "median": quantile(0.5), "p99": quantile(0.99)}
    row.update(low=quantile(0.25), high=quantile(0.75), rounds=len(ordered))
    print(json.dumps(row), flush=True)


def read_log(path):
    """The steps of a log of allocations: an address and a size, or an address and nothing for a free."""
    steps, live, peak, sizes = [], 0, 0, {}
    with open(path, encoding="utf-8") as lines:
        if not next(lines).startswith("warpmem-allocation-log 1"):
            raise ValueError(f"{path} is no log of allocations")
        next(lines)
        for line in lines:
            _, _, action, pointer, size = line.split(",", 5)[:5]
            if action == "allocate":
                steps.append((pointer, int(size)))
                sizes[pointer] = int(size)
                live += int(size)
                peak = max(peak, live)
            elif action == "deallocate":
                steps.append((pointer, None))
                live -= sizes.pop(pointer)
    return steps, peak


def pairs(bench, library, sizes, allocate, release, wait):
    for size in sizes:
        values = []
        for turn in range(-2, PAIR_ROUNDS):
            start = time.perf_counter_ns()
            for _ in range(PAIRS):
                release(allocate(size), size)
            took = (time.perf_counter_ns() - start) / PAIRS
            wait()
            if turn >= 0:
                values.append(took)
        report(bench, library, f"{size} bytes", "ns", values)


def replay(steps, allocate, release):
    live = {}
    start = time.perf_counter_ns()
    for pointer, size in steps:
        if size is None:
            release(*live.pop(pointer))
        else:
            live[pointer] = (allocate(size), size)
    took = (time.perf_counter_ns() - start) / len(steps)
    for block in live.values():
        release(*block)
    return took


def traces(library, logs, allocate, release, wait, reset, reserved):
    cold, warm, peaks = [], [], []
    for log in logs:
        steps, peak = read_log(log)
        for _ in range(TRACE_ROUNDS):
            reset()
            for values in (cold, warm):
                values.append(replay(steps, allocate, release))
                gc.collect()
                wait()
            if reserved:
                peaks.append(reserved() / peak)
        reset()
    if cold:
        report("trace", library, "cold", "ns/operation", cold)
        report("trace", library, "warm", "ns/operation", warm)
    if peaks:
        report("trace", library, "peak reserved / peak live", "times", peaks)


def cupy(logs):
    import cupy

    pool, pinned = cupy.cuda.MemoryPool(), cupy.cuda.PinnedMemoryPool()
    stream = cupy.cuda.Stream(non_blocking=True)

    def release(block, size):
        """The last reference goes when the call returns."""

    with stream:
        pairs("pairs", "CuPy", SIZES, pool.malloc, release, stream.synchronize)
        # It gives nothing back while it has enough, so what it holds at the end is the most that it held.
        traces("CuPy", logs, pool.malloc, release, stream.synchronize, pool.free_all_blocks, pool.total_bytes)
        pairs("pinned", "CuPy", (4096, 65536, 1 << 20, 16 << 20), pinned.malloc, release, stream.synchronize)


def warp(logs):
    import warp

    warp.config.quiet = True
    warp.init()
    device = warp.get_device("cuda:0")
    warp.set_mempool_release_threshold(device, 1.0)
    allocator = device.get_allocator()
    allocate = getattr(allocator, "allocate", None) or allocator.alloc
    release = getattr(allocator, "deallocate", None) or allocator.free
    with warp.ScopedStream(warp.Stream(device)):
        pairs("pairs", "Warp", SIZES, allocate, release, lambda: warp.synchronize_stream(device))
        traces("Warp", logs, allocate, release, lambda: warp.synchronize_stream(device), lambda: None, None)


LIBRARIES = {"CuPy": ("cupy", cupy), "Warp": ("warp", warp)}


def main(words):
    if len(words) > 2 and words[1] == "--library":
        LIBRARIES[words[2]][1](words[3:])
        return
    for name, (module, _) in LIBRARIES.items():
        reason = None
        if importlib.util.find_spec(module) is None:
            reason = f"Python has no package {module}"
        else:
            command = [sys.executable, "-B", __file__, "--library", name, *words[1:]]
            try:
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
                print("".join(line + "\n" for line in done.stdout.splitlines() if line.startswith('{"bench"')), end="")
                if done.returncode != 0:
                    reason = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
            except subprocess.TimeoutExpired as late:
                said = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
                print("".join(line + "\n" for line in said.splitlines() if line.startswith('{"bench"')), end="")
                reason = "it took more than 60 seconds"
        if reason:
            print(json.dumps({"absent": name, "reason": reason}), flush=True)


main(sys.argv)
