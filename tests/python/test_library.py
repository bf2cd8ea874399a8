"""The library as a Python program meets it: loaded by ctypes, started, asked, forked, and left alone at exit.

WARPMEM_LIBRARY is the library's file, WARPMEM_LIBCUDA the driver's.
"""

import ctypes
import os
import subprocess
import sys
import textwrap
import threading
import unittest

from binding import FORKED, INVALID_ARGUMENT, LIBRARY, NO_SUCH_DEVICE, SHUT_DOWN, SUCCESS, UNKNOWN_POINTER

LOG_ERROR = 1
LOG_DEBUG = 4

Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p)


class InitOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("driver_path", ctypes.c_char_p),
        ("flags", ctypes.c_uint32),
        ("log_level", ctypes.c_int32),
        ("log", Callback),
        ("log_user", ctypes.c_void_p),
    ]


class Error(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("status", ctypes.c_int32),
        ("driver_code", ctypes.c_int32),
        ("message", ctypes.c_char * 1024),
    ]


def load():
    library = ctypes.CDLL(LIBRARY)
    library.warp_device_get.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)]
    library.warp_alloc.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(ctypes.c_void_p)]
    library.warp_free.argtypes = [ctypes.c_void_p]
    library.warp_log_set_callback.argtypes = [Callback, ctypes.c_void_p, ctypes.c_int32]
    library.warp_init.argtypes = [ctypes.POINTER(InitOptions), ctypes.POINTER(ctypes.c_uint8)]
    library.warp_library_get_report.argtypes = [
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.POINTER(ctypes.c_size_t),
    ]
    library.warp_error_get_last.argtypes = [ctypes.POINTER(Error)]
    library.warp_error_get_message.restype = ctypes.c_char_p
    library.warp_version_get_string.restype = ctypes.c_char_p
    library.warp_status_get_name.restype = ctypes.c_char_p
    return library


def device(library, alias):
    found = ctypes.c_void_p()
    status = library.warp_device_get(alias, ctypes.byref(found))
    return status, found


def alloc(library, alias, size):
    status, found = device(library, alias)
    block = ctypes.c_void_p(1)
    if status == SUCCESS:
        status = library.warp_alloc(found, size, ctypes.byref(block))
    return status, block


def report(library):
    needed = ctypes.c_size_t()
    library.warp_library_get_report(None, 0, ctypes.byref(needed))
    buffer = ctypes.create_string_buffer(needed.value)
    status = library.warp_library_get_report(buffer, len(buffer), None)
    return status, buffer.value.decode()


def run(body, **environment):
    """Runs a program in a fresh interpreter; what it wrote and its exit status."""
    start = f"import sys\nsys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})\n"
    start += "from test_library import *\nlibrary = load()\n"
    return subprocess.run(
        [sys.executable, "-B", "-c", start + textwrap.dedent(body)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


class Library(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.library = load()
        cls.started = cls.library.warp_init(None, None)

    @classmethod
    def tearDownClass(cls):
        cls.library.warp_shutdown()

    def test_it_starts_and_reports(self):
        self.assertEqual(self.started, SUCCESS)
        status, text = report(self.library)
        self.assertEqual(status, SUCCESS)
        version = self.library.warp_version_get_string().decode()
        lines = text.splitlines()
        self.assertEqual(lines[0], f"warpmem {version} initialized:")
        self.assertTrue(lines[1].startswith("   CUDA Driver "), lines[1])
        self.assertEqual(lines[2], "   Devices:")
        self.assertTrue(lines[3].startswith('     "cpu"      : "'), lines[3])
        self.assertTrue(lines[4].startswith('     "cuda:0"   : "'), lines[4])

    def test_memory_is_allocated_and_freed(self):
        for alias in (b"cpu", b"cuda:0"):
            status, block = alloc(self.library, alias, 1 << 20)
            self.assertEqual(status, SUCCESS)
            self.assertNotIn(block.value, (None, 1))
            self.assertEqual(self.library.warp_free(block), SUCCESS)
        status, block = alloc(self.library, b"cpu", 256)
        ctypes.memset(block, 7, 256)
        self.assertEqual(ctypes.string_at(block, 256), b"\7" * 256)
        self.assertEqual(self.library.warp_free(block), SUCCESS)

    def test_a_failure_is_kept_for_its_thread(self):
        status, found = device(self.library, "kein Gerät".encode())
        self.assertEqual(status, NO_SUCH_DEVICE)
        self.assertIsNone(found.value)
        error = Error(struct_size=ctypes.sizeof(Error))
        self.assertEqual(self.library.warp_error_get_last(ctypes.byref(error)), SUCCESS)
        self.assertEqual(error.status, NO_SUCH_DEVICE)
        self.assertEqual(error.driver_code, 0)
        self.assertIn("kein Gerät", error.message.decode())
        self.assertEqual(self.library.warp_error_get_message(), error.message)
        seen = []

        def elsewhere():
            seen.append(self.library.warp_error_get_message())
            seen.append(self.library.warp_free(ctypes.c_void_p(4096)))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        self.assertEqual(seen, [b"", UNKNOWN_POINTER])
        self.assertEqual(self.library.warp_error_get_message(), error.message)
        self.assertEqual(self.library.warp_status_get_name(NO_SUCH_DEVICE), b"WARP_ERROR_NO_SUCH_DEVICE")

    def test_the_struct_sizes_are_those_of_the_header(self):
        error = Error(struct_size=ctypes.sizeof(Error) - 8)
        self.assertEqual(self.library.warp_error_get_last(ctypes.byref(error)), INVALID_ARGUMENT)
        options = InitOptions(struct_size=ctypes.sizeof(InitOptions))
        ignored = ctypes.c_uint8(9)
        self.assertEqual(
            self.library.warp_init(ctypes.byref(options), ctypes.byref(ignored)), SUCCESS
        )
        self.assertEqual(ignored.value, 1)
        self.assertEqual(self.library.warp_shutdown(), SUCCESS)

    def test_a_second_load_is_the_same_library(self):
        ids = []
        for library in (self.library, load()):
            number = ctypes.c_uint64()
            self.assertEqual(library.warp_library_get_instance_id(ctypes.byref(number)), SUCCESS)
            ids.append(number.value)
        self.assertEqual(ids[0], ids[1])
        self.assertNotEqual(ids[0], 0)

    def test_a_forked_child_has_the_cpu(self):
        status, block = alloc(self.library, b"cuda:0", 4096)
        self.assertEqual(status, SUCCESS)
        child = os.fork()
        if child == 0:
            # Nothing of the test runner may run in here.
            failed = 1
            try:
                status, own = alloc(self.library, b"cpu", 4096)
                worked = status == SUCCESS and self.library.warp_free(own) == SUCCESS
                refused = alloc(self.library, b"cuda:0", 64)[0] == FORKED
                freed = self.library.warp_free(block) == SUCCESS
                failed = 0 if worked and refused and freed else 2
            finally:
                os._exit(failed)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual(self.library.warp_free(block), SUCCESS)


class Processes(unittest.TestCase):
    """What needs an interpreter of its own."""

    def check(self, body, **environment):
        finished = run(body, **environment)
        self.assertEqual(finished.stderr, "")
        self.assertEqual(finished.returncode, 0, finished.stdout)
        return finished.stdout

    @unittest.skipUnless("WARPMEM_LIBCUDA" in os.environ, "only the simulated driver can be told to fail")
    def test_messages_come_through_a_callback(self):
        said = self.check(
            """
            heard = []
            listen = Callback(lambda user, level, message: heard.append((user, level, message)))
            options = InitOptions(struct_size=ctypes.sizeof(InitOptions), log=listen, log_user=77)
            assert library.warp_init(ctypes.byref(options), None) == SUCCESS
            assert len(heard) == 1, heard
            assert heard[0][:2] == (77, LOG_ERROR), heard
            assert b"cuDeviceGetName" in heard[0][2], heard
            assert library.warp_log_set_callback(Callback(), None, 0) == SUCCESS
            """,
            WARPSIM_FAIL="cuDeviceGetName:1:999",
        )
        self.assertEqual(said, "")

    def test_without_a_driver_there_is_the_cpu(self):
        said = self.check(
            """
            assert library.warp_init(None, None) == SUCCESS
            status, block = alloc(library, b"cpu", 64)
            assert status == SUCCESS and library.warp_free(block) == SUCCESS
            assert device(library, b"cuda:0")[0] == NO_SUCH_DEVICE
            assert b"/nonexistent" in library.warp_error_get_message()
            print(report(library)[1].splitlines()[1])
            """,
            WARPMEM_LIBCUDA="/nonexistent/libcuda.so.1",
        )
        self.assertTrue(said.startswith("   CUDA driver not found (/nonexistent/libcuda.so.1"), said)

    def test_the_interpreter_may_end_with_everything_alive(self):
        said = self.check(
            """
            import atexit, weakref
            assert library.warp_init(None, None) == SUCCESS

            class Block:
                def __init__(self, alias):
                    status, self.address = alloc(library, alias, 4096)
                    assert status == SUCCESS

                def __del__(self):
                    assert library.warp_free(self.address) == SUCCESS

            other = b"cuda:1" if device(library, b"cuda:1")[0] == SUCCESS else b"cuda:0"
            blocks = [Block(b"cuda:0"), Block(b"cpu"), Block(other)]
            cycle = [Block(b"cuda:0")]
            cycle.append(cycle)
            status, leaked = alloc(library, b"cuda:0", 64)
            freed, kept = alloc(library, b"cuda:0", 64)[1], Block(other)
            atexit.register(lambda: library.warp_free(freed))
            weakref.finalize(kept, library.warp_free, alloc(library, b"cpu", 64)[1])
            listen = Callback(lambda user, level, message: print("called at exit", message))
            assert library.warp_log_set_callback(listen, None, LOG_DEBUG) == SUCCESS
            """
        )
        self.assertEqual(said, "")

    def test_a_shutdown_before_the_blocks_are_collected(self):
        said = self.check(
            """
            import atexit
            assert library.warp_init(None, None) == SUCCESS
            blocks = [alloc(library, alias, 4096)[1] for alias in (b"cuda:0", b"cpu")]

            def free():
                print([library.warp_free(block) for block in blocks], device(library, b"cpu")[0])

            # Handlers run in the reverse order.
            atexit.register(free)
            atexit.register(library.warp_shutdown)
            """
        )
        self.assertEqual(said, f"[0, 0] {SHUT_DOWN}\n")

    def test_children_of_a_pool_of_processes(self):
        said = self.check(
            """
            import multiprocessing
            assert library.warp_init(None, None) == SUCCESS
            block = alloc(library, b"cuda:0", 64)[1]

            def work(number):
                status, own = alloc(library, b"cpu", 64 * (number + 1))
                return status, library.warp_free(own), alloc(library, b"cuda:0", 64)[0]

            with multiprocessing.get_context("fork").Pool(4) as pool:
                results = pool.map(work, range(40))
            assert results == [(SUCCESS, SUCCESS, FORKED)] * 40, results
            assert library.warp_free(block) == SUCCESS
            """
        )
        self.assertEqual(said, "")


if __name__ == "__main__":
    unittest.main()
