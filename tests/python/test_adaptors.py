"""Allocators that stand on others as ctypes meets them: budgets, accounts, lists of what is out, logs, Python as what is asked when
memory runs out, and stacks of them under arrays of threads.

WARPMEM_LIBRARY is the library's file, WARPMEM_LIBCUDA the driver's.
"""

import ctypes
import os
import tempfile
import threading
import unittest

from binding import (
    CUDA_DEVICE,
    CUDA_MANAGED,
    CUDA_MEMPOOL,
    HOST,
    INVALID_ARGUMENT,
    INVALID_HANDLE,
    OUT_OF_MEMORY,
    PINNED,
    SUCCESS,
    AllocOptions,
    Out,
    Pointer,
    Size,
    gpus,
    load,
    made,
    message,
    must,
    sized,
)

ALLOCATOR_FAILED = 103
KINDS = (HOST, PINNED, CUDA_DEVICE, CUDA_MEMPOOL, CUDA_MANAGED)


class Options(AllocOptions):
    """With the fields that allocators need, where AllocOptions ends before them."""

    _fields_ = [] if any(name == "allocator" for name, *_ in AllocOptions._fields_) else [("allocator", Pointer)]


class Request(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("size", Size),
        ("alignment", Size),
        ("device", Pointer),
        ("stream", Pointer),
        ("native_context", Pointer),
        ("native_stream", Pointer),
        ("stream_id", Size),
        ("tag", ctypes.c_char_p),
        ("ordinal", ctypes.c_int32),
        ("kind", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class Account(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, Size)
        for name in "live_bytes peak_bytes live_blocks peak_blocks total_bytes total_blocks failures reserved_bytes".split()
    ]


class Tracked(ctypes.Structure):
    _fields_ = [
        ("ptr", Pointer),
        ("size", Size),
        ("device", Pointer),
        ("stream_id", Size),
        ("tag", ctypes.c_char_p),
        ("time_ns", Size),
        ("thread", Size),
        ("caller_count", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("callers", Pointer * 16),
    ]


Again = ctypes.CFUNCTYPE(ctypes.c_int32, Pointer, ctypes.POINTER(Request), ctypes.c_int32, ctypes.c_uint32)
Destroy = ctypes.CFUNCTYPE(None, Pointer)
Bytes = ctypes.POINTER(Size)
Count = ctypes.POINTER(ctypes.c_size_t)

lib = load(
    {
        "warp_device_synchronize": [Pointer],
        "warp_alloc_with": [Pointer, Size, ctypes.POINTER(Options), Out],
        "warp_allocator_get_builtin": [ctypes.c_int32, Out],
        "warp_allocator_release": [Pointer],
        "warp_allocator_get_statistics": [Pointer, ctypes.POINTER(Account)],
        "warp_allocator_create_limit": [Pointer, Size, Out],
        "warp_allocator_limit_set": [Pointer, Size],
        "warp_allocator_limit_get": [Pointer, Bytes, Bytes],
        "warp_allocator_create_statistics": [Pointer, Out],
        "warp_allocator_statistics_push": [Pointer],
        "warp_allocator_statistics_pop": [Pointer, ctypes.POINTER(Account)],
        "warp_allocator_create_tracking": [Pointer, ctypes.c_uint32, Out],
        "warp_allocator_tracking_report": [Pointer, ctypes.c_char_p, ctypes.c_size_t, Count],
        "warp_allocator_tracking_list": [Pointer, ctypes.POINTER(Tracked), ctypes.c_size_t, ctypes.c_size_t, Count],
        "warp_allocator_create_logging": [Pointer, ctypes.c_char_p, Out],
        "warp_allocator_logging_flush": [Pointer],
        "warp_allocator_create_failure_callback": [Pointer, Again, Destroy, Pointer, Out],
        "warp_allocator_create_aligned": [Pointer, Size, Out],
        "warp_allocator_create_fallback": [Pointer, Pointer, Out],
    }
)


def builtin(kind):
    return made(lib.warp_allocator_get_builtin, kind)


def alloc(allocator, device, size, tag=None):
    options = sized(Options, allocator=allocator, tag=tag)
    out = Pointer()
    return lib.warp_alloc_with(device, size, ctypes.byref(options), ctypes.byref(out)), out.value


def block(allocator, device, size, tag=None):
    status, ptr = alloc(allocator, device, size, tag)
    must(status)
    return ptr


def used(limit):
    out = Size()
    must(lib.warp_allocator_limit_get(limit, None, ctypes.byref(out)))
    return out.value


def account(function, allocator):
    out = sized(Account)
    must(function(allocator, ctypes.byref(out)))
    return out


def report(tracking):
    needed = ctypes.c_size_t()
    must(lib.warp_allocator_tracking_report(tracking, None, 0, ctypes.byref(needed)))
    text = ctypes.create_string_buffer(needed.value)
    must(lib.warp_allocator_tracking_report(tracking, text, needed.value, None))
    return text.value.decode()


def listed(tracking):
    count = ctypes.c_size_t()
    must(lib.warp_allocator_tracking_list(tracking, None, 0, 0, ctypes.byref(count)))
    blocks = (Tracked * count.value)()
    must(lib.warp_allocator_tracking_list(tracking, blocks, ctypes.sizeof(Tracked), count.value, None))
    return list(blocks)


class Adaptors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        must(lib.warp_init(None, None))
        cls.cpu = made(lib.warp_device_get, b"cpu")
        cls.gpu = next(iter(gpus()), None)

    @classmethod
    def tearDownClass(cls):
        must(lib.warp_shutdown())

    def places(self):
        """Each kind of memory that there is, with a device of it."""
        for kind in KINDS:
            device = self.cpu if kind in (HOST, PINNED) else self.gpu
            if kind == HOST or self.gpu is not None:
                with self.subTest(kind=kind):
                    yield builtin(kind), device

    def test_a_limit_is_a_budget(self):
        for base, device in self.places():
            limit = made(lib.warp_allocator_create_limit, base, 1000)
            first = block(limit, device, 900)
            self.assertEqual(used(limit), 900)
            status, ptr = alloc(limit, device, 101)
            self.assertEqual((status, ptr), (OUT_OF_MEMORY, None))
            self.assertIn("1000 bytes", message())
            must(lib.warp_allocator_limit_set(limit, 1001))
            must(lib.warp_free(block(limit, device, 101)))
            must(lib.warp_free(first))
            self.assertEqual(used(limit), 0)
            must(lib.warp_allocator_release(limit))

    def test_measurements_nest(self):
        for base, device in self.places():
            statistics = made(lib.warp_allocator_create_statistics, base)
            out = sized(Account)
            self.assertEqual(lib.warp_allocator_statistics_pop(statistics, ctypes.byref(out)), INVALID_ARGUMENT)
            kept = block(statistics, device, 100)
            must(lib.warp_allocator_statistics_push(statistics))
            must(lib.warp_free(block(statistics, device, 50)))
            inner = account(lib.warp_allocator_statistics_pop, statistics)
            self.assertEqual((inner.live_bytes, inner.peak_bytes, inner.total_bytes, inner.total_blocks), (0, 50, 50, 1))
            whole = account(lib.warp_allocator_get_statistics, statistics)
            self.assertEqual((whole.live_bytes, whole.peak_bytes, whole.total_blocks, whole.peak_blocks), (100, 150, 2, 2))
            must(lib.warp_free(kept))
            must(lib.warp_allocator_release(statistics))

    def test_what_is_out_is_known(self):
        for base, device in self.places():
            tracking = made(lib.warp_allocator_create_tracking, base, 1)
            large, small = block(tracking, device, 5000, "größer".encode()), block(tracking, device, 10, b"small")
            self.assertEqual({one.ptr: (one.size, one.tag.decode()) for one in listed(tracking)},
                             {large: (5000, "größer"), small: (10, "small")})
            self.assertTrue(all(one.device == device and one.caller_count > 0 for one in listed(tracking)))
            lines = report(tracking).splitlines()
            self.assertEqual(lines[:2], ["2 blocks, 5010 bytes, are out", '"größer": 1 block, 5000 bytes'])
            self.assertTrue(any("ctypes" in line or "ffi" in line for line in lines), lines)
            must(lib.warp_free(large))
            must(lib.warp_free(small))
            self.assertEqual(listed(tracking), [])
            must(lib.warp_allocator_release(tracking))

    def test_a_log_is_a_text_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run ü.log")
            logging = made(lib.warp_allocator_create_logging, builtin(HOST), path.encode())
            must(lib.warp_free(block(logging, self.cpu, 100, 'a "tag",\n'.encode())))
            must(lib.warp_allocator_logging_flush(logging))
            with open(path, encoding="utf-8") as file:
                lines = file.read().splitlines()
            self.assertEqual(lines[0], "warpmem-allocation-log 1")
            columns = lines[1].split(",")
            calls = [dict(zip(columns, line.replace('"a \\"tag\\",\\n"', "TAG").split(","))) for line in lines[2:]]
            self.assertEqual([(call["action"], call["size"], call["device"], call["tag"], call["status"]) for call in calls],
                             [("allocate", "100", "-1", "TAG", "0"), ("deallocate", "100", "-1", "TAG", "0")])
            self.assertEqual(calls[0]["pointer"], calls[1]["pointer"])
            must(lib.warp_allocator_release(logging))
            out = Pointer(1)
            self.assertEqual(lib.warp_allocator_create_logging(builtin(HOST), folder.encode(), ctypes.byref(out)),
                             INVALID_ARGUMENT)
            self.assertIn(folder, message())
            self.assertIsNone(out.value)

    def test_python_makes_room(self):
        asked, ended, cache = [], [], []

        def make_room(_user, request, status, attempt):
            asked.append((request.contents.size, status, attempt))
            if not cache:
                return 0
            must(lib.warp_free(cache.pop()))
            return 1

        callback, destroy = Again(make_room), Destroy(lambda user: ended.append(user))
        limit = made(lib.warp_allocator_create_limit, builtin(HOST), 1000)
        adaptor = made(lib.warp_allocator_create_failure_callback, limit, callback, destroy, 77)
        cache += [block(adaptor, self.cpu, 400), block(adaptor, self.cpu, 400)]
        ptr = block(adaptor, self.cpu, 900)
        self.assertEqual(asked, [(900, OUT_OF_MEMORY, 1), (900, OUT_OF_MEMORY, 2)])
        status, _ = alloc(adaptor, self.cpu, 200)
        # The library itself asks once more.
        self.assertEqual((status, len(asked)), (OUT_OF_MEMORY, 4))
        must(lib.warp_allocator_release(adaptor))
        must(lib.warp_allocator_release(limit))
        self.assertEqual(ended, [])
        must(lib.warp_free(ptr))
        self.assertEqual(ended, [77])

    def test_blocks_are_aligned(self):
        for base, device in self.places():
            aligned = made(lib.warp_allocator_create_aligned, base, 1 << 16)
            blocks = [block(aligned, device, 1 + 1000 * i) for i in range(10)]
            self.assertEqual([ptr % (1 << 16) for ptr in blocks], [0] * 10)
            for ptr in blocks:
                must(lib.warp_free(ptr))
            must(lib.warp_allocator_release(aligned))

    def test_a_second_allocator_serves_what_the_first_cannot(self):
        small = made(lib.warp_allocator_create_limit, builtin(HOST), 100)
        fallback = made(lib.warp_allocator_create_fallback, small, builtin(HOST))
        first, second = block(fallback, self.cpu, 100), block(fallback, self.cpu, 5000)
        self.assertEqual(used(small), 100)
        must(lib.warp_free(second))
        must(lib.warp_free(first))
        self.assertEqual(used(small), 0)
        must(lib.warp_allocator_release(fallback))
        must(lib.warp_allocator_release(small))
        self.assertEqual(lib.warp_allocator_limit_set(small, 5), INVALID_HANDLE)

    def test_threads_share_a_stack(self):
        for base, device in self.places():
            limit = made(lib.warp_allocator_create_limit, base, 1 << 20)
            aligned = made(lib.warp_allocator_create_aligned, limit, 4096)
            statistics = made(lib.warp_allocator_create_statistics, aligned)
            tracking = made(lib.warp_allocator_create_tracking, statistics, 0)
            failures = []

            def work(number):
                for i in range(50):
                    status, ptr = alloc(tracking, device, 1 + (number * 131 + i * 17) % 3000, b"thread %d" % number)
                    if status != SUCCESS or ptr % 4096 or lib.warp_free(ptr) != SUCCESS:
                        failures.append((status, ptr, message()))

            threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            must(lib.warp_device_synchronize(device))
            self.assertEqual(failures, [])
            self.assertEqual((used(limit), listed(tracking)), (0, []))
            self.assertEqual(account(lib.warp_allocator_get_statistics, statistics).total_blocks, 400)
            for adaptor in (limit, tracking, aligned, statistics):
                must(lib.warp_allocator_release(adaptor))

    def test_what_is_none_is_refused(self):
        out = Pointer(1)
        for bad in (None, 12345, self.cpu):
            self.assertEqual(lib.warp_allocator_create_statistics(bad, ctypes.byref(out)), INVALID_HANDLE)
            self.assertIsNone(out.value)
        self.assertEqual(lib.warp_allocator_limit_set(builtin(HOST), 1), INVALID_ARGUMENT)
        self.assertIn("no limit allocator", message())
        full = made(lib.warp_allocator_create_logging, builtin(HOST), b"/dev/full")
        must(lib.warp_free(block(full, self.cpu, 10)))
        self.assertEqual(lib.warp_allocator_logging_flush(full), ALLOCATOR_FAILED)
        must(lib.warp_allocator_release(full))


if __name__ == "__main__":
    unittest.main()
