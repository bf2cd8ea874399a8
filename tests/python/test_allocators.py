"""Allocators in Python: the example that shows how, and what becomes of those that do it otherwise. Exceptions, threads, the
collector, the end of the interpreter, forks.

WARPMEM_LIBRARY is the library's file, WARPMEM_LIBCUDA the driver's.
"""

import contextlib
import ctypes
import gc
import io
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import unittest
import warnings
import weakref

# In the repository, and in the kit for machines with a GPU.
HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = next(
    folder for folder in (HERE.parent / "examples-python", HERE.parents[1] / "examples-python") if folder.is_dir()
)
sys.path.append(str(EXAMPLES))

import allocator as example
from allocator import Allocator, alloc, call, free
from binding import FORKED, INVALID_HANDLE, OUT_OF_MEMORY, SUCCESS, gpus
from warpmem_ctypes import (
    ALLOCATOR_FAILED,
    HOST,
    HOST_MEMORY,
    LIBRARY,
    RETRY,
    STREAM_ORDERED,
    AllocateCallback,
    AllocatorVtable,
    AllocOptions,
    AllocRequest,
    DeallocateCallback,
    DestroyCallback,
    Out,
    Pointer,
    Size,
    WarpError,
    lib,
    made,
    must,
    pointer_info,
    sized,
)


class AllocatorInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("kind", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
        ("references", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("failed_deallocations", Size),
        ("sort", ctypes.c_char * 32),
        ("name", ctypes.c_char * 64),
    ]


lib.warp_allocator_get_info.argtypes = [Pointer, ctypes.POINTER(AllocatorInfo)]
lib.warp_stream_create.argtypes = [Pointer, Pointer, Out]
lib.warp_capture_begin.argtypes = [Pointer, ctypes.c_int32]
lib.warp_capture_end.argtypes = [Pointer, Out]
lib.warp_graph_release.argtypes = [Pointer]


def info_of(handle):
    info = sized(AllocatorInfo)
    must(lib.warp_allocator_get_info(handle, ctypes.byref(info)))
    return info


def measured(handle):
    blocks = Size(9)
    must(lib.warp_allocator_measure(handle, ctypes.byref(blocks), None))
    return blocks.value


class Passing:
    """Passes on what it is asked, and lets a test come between."""

    def __init__(self, kind=HOST):
        self.below = made(lib.warp_allocator_get_builtin, kind)
        self.live, self.calls = {}, []
        self.before_allocate = self.before_deallocate = lambda request: None

    def allocate(self, request):
        self.calls.append((request.size, request.flags))
        given = self.before_allocate(request)
        if given is not None:
            return given
        address = made(lib.warp_allocator_allocate, self.below, ctypes.byref(request))
        self.live[address] = request.size
        return address

    def deallocate(self, address, request):
        assert self.live.pop(address) == request.size
        must(lib.warp_allocator_deallocate(self.below, address, ctypes.byref(request)))
        self.before_deallocate(request)


def program(body, timeout=60):
    """Runs a program in a fresh interpreter, which tells where its threads are when it hangs."""
    start = f"""
        import faulthandler, sys
        faulthandler.dump_traceback_later({timeout - 10}, exit=True)
        sys.path[:0] = {[str(HERE), str(EXAMPLES)]!r}
        from test_allocators import *
        # Newer Pythons say that threads, which a driver may have too, and forks do not go together.
        warnings.simplefilter("ignore", DeprecationWarning)
        must(lib.warp_init(None, None))
        cpu = made(lib.warp_device_get, b"cpu")
    """
    return subprocess.run(
        [sys.executable, "-B", "-c", textwrap.dedent(start) + textwrap.dedent(body)],
        capture_output=True,
        text=True,
        timeout=timeout,
    )


class Started(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        must(lib.warp_init(None, None))
        cls.cpu = made(lib.warp_device_get, b"cpu")

    @classmethod
    def tearDownClass(cls):
        must(lib.warp_shutdown())

    @contextlib.contextmanager
    def passing(self):
        """An allocator of the CPU's; nothing of it is left afterwards."""
        provider = Passing()
        with Allocator(provider, "passing", HOST, HOST_MEMORY) as allocator:
            yield provider, allocator
            self.assertEqual(measured(allocator.handle), 0)
        self.assertEqual(provider.live, {})
        self.assertFalse(allocator.is_alive)

    @contextlib.contextmanager
    def unraisable(self):
        """What is raised where nobody can catch it."""
        seen, former = [], sys.unraisablehook
        sys.unraisablehook = lambda raised: seen.append(raised.exc_type)
        try:
            yield seen
        finally:
            sys.unraisablehook = former


class Exceptions(Started):
    def test_they_are_carried_to_who_asked(self):
        for kind in (ValueError, OSError, KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration):
            with self.subTest(kind.__name__), self.passing() as (provider, allocator):

                def fail(request):
                    raise kind("of the test")

                kept = alloc(self.cpu, 64, allocator=allocator.handle)
                provider.before_allocate = fail
                with self.assertRaisesRegex(kind, "of the test") as caught:
                    alloc(self.cpu, 100, allocator=allocator.handle)
                self.assertEqual(caught.exception.__cause__.status, ALLOCATOR_FAILED)
                self.assertEqual([size for size, _ in provider.calls], [64, 100])
                provider.before_allocate = lambda request: None
                free(alloc(self.cpu, 100, allocator=allocator.handle))
                free(kept)

    def test_a_signal_in_a_callback_is_a_keyboard_interrupt(self):
        former = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with self.passing() as (provider, allocator):
                provider.before_allocate = lambda request: signal.raise_signal(signal.SIGINT)
                with self.assertRaises(KeyboardInterrupt):
                    alloc(self.cpu, 100, allocator=allocator.handle)
                provider.before_allocate = lambda request: None
                block = alloc(self.cpu, 100, allocator=allocator.handle)
                provider.before_deallocate = lambda request: signal.raise_signal(signal.SIGINT)
                with self.assertRaises(KeyboardInterrupt):
                    free(block)
                self.assertFalse(pointer_info(block).is_owned)
        finally:
            signal.signal(signal.SIGINT, former)

    def test_out_of_memory_is_asked_about_twice(self):
        with self.passing() as (provider, allocator):

            def fail(request):
                raise MemoryError(f"try {len(provider.calls)}")

            provider.before_allocate = fail
            with self.assertRaisesRegex(MemoryError, "try 2") as caught:
                alloc(self.cpu, 100, allocator=allocator.handle)
            self.assertEqual(caught.exception.__cause__.status, OUT_OF_MEMORY)
            self.assertEqual(provider.calls, [(100, 0), (100, RETRY)])
            # What the second try gives is kept, and the first is forgotten.
            provider.before_allocate = lambda request: None if request.flags & RETRY else fail(request)
            block = alloc(self.cpu, 100, allocator=allocator.handle)
            self.assertEqual(provider.live, {block: 100})
            free(block)

    def test_the_library_below_may_be_what_failed(self):
        with self.passing() as (provider, allocator):
            with self.assertRaisesRegex(MemoryError, "out of host memory") as caught:
                alloc(self.cpu, 1 << 60, allocator=allocator.handle)
            self.assertEqual(caught.exception.__cause__.status, OUT_OF_MEMORY)

    def test_one_of_a_free_is_raised_and_the_block_is_gone(self):
        with self.passing() as (provider, allocator):

            def fail(request):
                raise LookupError("of the test")

            block = alloc(self.cpu, 100, allocator=allocator.handle)
            provider.before_deallocate = fail
            with self.assertRaisesRegex(LookupError, "of the test") as caught:
                free(block)
            self.assertEqual(caught.exception.__cause__.status, ALLOCATOR_FAILED)
            self.assertEqual(info_of(allocator.handle).failed_deallocations, 1)
            self.assertFalse(pointer_info(block).is_owned)

    def test_what_is_no_address(self):
        for given in ("address", 1.5, [], b"\0" * 8, object(), 0, -64, 2**64, 2**70):
            with self.subTest(repr(given)), self.passing() as (provider, allocator):
                provider.before_allocate = lambda request: given
                with self.assertRaises((TypeError, ValueError)):
                    alloc(self.cpu, 100, allocator=allocator.handle)

    def test_an_address_that_is_not_aligned_comes_back(self):
        with self.passing() as (provider, allocator):
            provider.before_allocate = lambda request: 4097
            given_back = []
            provider.deallocate = lambda address, request: given_back.append((address, request.size))
            with self.assertRaisesRegex(WarpError, "not aligned to 64") as caught:
                alloc(self.cpu, 100, allocator=allocator.handle)
            self.assertEqual(caught.exception.status, ALLOCATOR_FAILED)
            self.assertEqual(given_back, [(4097, 100)])


class Raw(Started):
    """Callbacks without the care of the example."""

    def raw(self, allocate, deallocate):
        self.gone = []
        vtable = sized(AllocatorVtable, kind=HOST, flags=HOST_MEMORY, name=b"raw")
        self.callbacks = AllocateCallback(allocate), DeallocateCallback(deallocate), DestroyCallback(self.gone.append)
        vtable.allocate, vtable.deallocate, vtable.destroy = self.callbacks
        return made(lib.warp_allocator_create, ctypes.byref(vtable), 77)

    def refused(self, handle):
        out = Pointer(1)
        options = sized(AllocOptions, allocator=handle)
        self.assertEqual(lib.warp_alloc_with(self.cpu, 100, ctypes.byref(options), ctypes.byref(out)), ALLOCATOR_FAILED)
        self.assertIsNone(out.value)
        self.assertEqual(measured(handle), 0)

    def release(self, handle):
        must(lib.warp_allocator_release(handle))
        self.assertEqual(self.gone, [77])

    def test_the_status_of_one_that_raises_is_noise(self):
        def allocate(user, request, out):
            raise ValueError

        handle = self.raw(allocate, lambda *_: 0)
        with self.unraisable() as seen:
            for _ in range(100):
                self.refused(handle)
        self.assertEqual(seen, [ValueError] * 100)
        self.release(handle)

    def test_success_without_an_address_is_none(self):
        for given in (None, 0):

            def allocate(user, request, out):
                out[0] = given
                return SUCCESS

            handle = self.raw(allocate, lambda *_: 0)
            self.refused(handle)
            self.release(handle)

    def test_results_of_a_wrong_type(self):
        for result in (None, "0", 1.5, object()):
            handle = self.raw(lambda user, request, out: result, lambda *_: 0)
            with self.unraisable():
                self.refused(handle)
            self.release(handle)

    def test_a_deallocation_that_raises_leaves_no_block(self):
        below = made(lib.warp_allocator_get_builtin, HOST)
        given = []

        def allocate(user, request, out):
            status = lib.warp_allocator_allocate(below, request, out)
            given.append(out[0])
            return status

        def deallocate(user, address, request):
            raise ValueError

        handle = self.raw(allocate, deallocate)
        block = made(lib.warp_alloc_with, self.cpu, 100, ctypes.byref(sized(AllocOptions, allocator=handle)))
        with self.unraisable() as seen:
            self.assertIn(lib.warp_free(block), (SUCCESS, ALLOCATOR_FAILED))
        self.assertEqual(seen, [ValueError])
        self.assertEqual(measured(handle), 0)
        self.release(handle)
        for address in given:
            must(lib.warp_allocator_deallocate(below, address, None))


class Lifetimes(Started):
    def test_blocks_keep_it_when_it_is_taken_away(self):
        gpu, *_ = gpus(1)
        before = made(lib.warp_allocator_get_for_device, gpu)
        provider = Passing(info_of(before).kind)
        allocator = Allocator(provider, "passing", flags=STREAM_ORDERED)
        must(lib.warp_allocator_set_for_device(gpu, allocator.handle))
        self.assertEqual(made(lib.warp_allocator_get_for_device, gpu), allocator.handle)
        blocks = [alloc(gpu, 1000 * number) for number in (1, 2, 3)]
        must(lib.warp_allocator_set_for_device(gpu, None))
        self.assertEqual(made(lib.warp_allocator_get_for_device, gpu), before)
        allocator.close()
        number, alive, live = allocator.number, weakref.ref(allocator), provider.live
        del allocator, provider
        gc.collect()
        garbage = [bytearray(100) for _ in range(1000)]
        self.assertEqual(sorted(live.values()), [1000, 2000, 3000])
        for block in blocks:
            free(block)
        del garbage
        gc.collect()
        self.assertEqual(live, {})
        self.assertNotIn(number, example._living)
        self.assertIsNone(alive())

    def test_one_without_a_reference_can_be_stopped(self):
        provider = Passing()
        allocator = Allocator(provider, "passing", HOST, HOST_MEMORY)
        block = alloc(self.cpu, 100, allocator=allocator.handle)
        allocator.close()
        self.assertEqual(lib.warp_allocator_release(allocator.handle), INVALID_HANDLE)
        must(lib.warp_allocator_stop(allocator.handle))
        free(block)
        self.assertFalse(pointer_info(block).is_owned)
        self.assertEqual(provider.live, {block: 100})
        # Never destroyed either.
        self.assertTrue(allocator.is_alive)
        self.assertEqual(lib.warp_allocator_stop(allocator.handle), INVALID_HANDLE)
        must(lib.warp_allocator_deallocate(provider.below, block, None))
        del example._living[allocator.number]

    def test_a_stopped_one_serves_nothing(self):
        provider = Passing()
        allocator = Allocator(provider, "passing", HOST, HOST_MEMORY)
        must(lib.warp_allocator_stop(allocator.handle))
        with self.assertRaisesRegex(WarpError, "stopped"):
            alloc(self.cpu, 100, allocator=allocator.handle)
        self.assertEqual(provider.calls, [])
        allocator.close()
        del example._living[allocator.number]

    def test_garbage_is_collected_inside_of_callbacks(self):
        class Owner:
            def __init__(self, address):
                self.address, self.cycle = address, self

            def __del__(self):
                free(self.address)

        deepest = 0

        def collect(request):
            nonlocal deepest
            before = len(provider.live)
            gc.collect()
            deepest = max(deepest, before - len(provider.live))

        with self.passing() as (provider, allocator):
            for turn in range(50):
                for size in (64, 640, 6400):
                    Owner(alloc(self.cpu, size, allocator=allocator.handle))
                provider.before_allocate = collect
                free(alloc(self.cpu, 100, allocator=allocator.handle))
                provider.before_allocate = lambda request: None
            gc.collect()
        self.assertGreaterEqual(deepest, 1)


class Threads(Started):
    def native_free(self, block):
        """On a thread that Python has never seen."""
        libc = ctypes.CDLL(None)
        libc.pthread_create.argtypes = [ctypes.POINTER(ctypes.c_ulong), Pointer, Pointer, Pointer]
        libc.pthread_join.argtypes = [ctypes.c_ulong, ctypes.POINTER(Pointer)]
        thread, result = ctypes.c_ulong(), Pointer()
        start = ctypes.cast(lib.warp_free, Pointer)
        self.assertEqual(libc.pthread_create(ctypes.byref(thread), None, start, block), 0)
        self.assertEqual(libc.pthread_join(thread, ctypes.byref(result)), 0)
        return (result.value or 0) & 0xFFFFFFFF

    def test_a_thread_of_other_code_frees(self):
        with self.passing() as (provider, allocator):
            threads = []
            provider.before_deallocate = lambda request: threads.append(threading.get_ident())
            for _ in range(20):
                self.assertEqual(self.native_free(alloc(self.cpu, 100, allocator=allocator.handle)), SUCCESS)
            self.assertEqual(len(threads), 20)
            self.assertNotIn(threading.get_ident(), threads)

    def test_what_is_raised_there_is_told(self):
        with self.passing() as (provider, allocator):

            def fail(request):
                raise LookupError("of the test")

            provider.before_deallocate = fail
            block = alloc(self.cpu, 100, allocator=allocator.handle)
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                self.assertEqual(self.native_free(block), ALLOCATOR_FAILED)
            self.assertIn("LookupError: of the test", said.getvalue())
            # And is not raised by a later call.
            provider.before_deallocate = lambda request: None
            free(alloc(self.cpu, 100, allocator=allocator.handle))

    def test_exceptions_stay_on_their_threads(self):
        with self.passing() as (provider, allocator):

            def fail(request):
                raise LookupError(str(request.size))

            provider.before_allocate = fail
            wrong = []

            def work(size):
                for _ in range(200):
                    try:
                        alloc(self.cpu, size, allocator=allocator.handle)
                    except LookupError as error:
                        if str(error) != str(size):
                            wrong.append((size, error))
                    else:
                        wrong.append(size)

            threads = [threading.Thread(target=work, args=(100 + number,)) for number in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [])


class Plugs(Started):
    """The plain functions for frameworks, on a thread that has no context."""

    def setUp(self):
        self.gpu, *_ = gpus(1)

    def check_alloc(self, native):
        block = lib.warp_torch_alloc(1000, 0, native)
        self.assertIsNotNone(block, lib.warp_error_get_message())
        self.assertEqual(pointer_info(block).size, 1000)
        lib.warp_torch_record_stream(block, native)
        lib.warp_torch_free(block, 999, 0, native)
        self.assertIn(b"999", lib.warp_error_get_message())
        self.assertTrue(pointer_info(block).is_owned)
        lib.warp_torch_free(block, 1000, 0, native)
        self.assertFalse(pointer_info(block).is_owned)

    def on_a_fresh_thread(self, function, *arguments):
        failures = []

        def work():
            try:
                function(*arguments)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        for failure in failures:
            raise failure

    def test_of_the_default_streams(self):
        for native in (None, 1, 2):
            with self.subTest(native):
                self.on_a_fresh_thread(self.check_alloc, native)
        self.assertIsNone(lib.warp_torch_alloc(0, 0, None))
        self.assertIsNone(lib.warp_torch_alloc(100, 77, None))
        self.assertIn(b"77", lib.warp_error_get_message())

    def test_for_cupy(self):
        def check():
            block = lib.warp_cupy_malloc(None, 1000, 0)
            self.assertEqual(pointer_info(block).size, 1000)
            lib.warp_cupy_free(None, block, 0)
            self.assertFalse(pointer_info(block).is_owned)
            self.assertIsNone(lib.warp_cupy_malloc(None, 0, 0))

        self.on_a_fresh_thread(check)

    def test_while_a_blocking_stream_is_captured(self):
        stream = made(lib.warp_stream_create, self.gpu, None)
        must(lib.warp_capture_begin(stream, 1))
        try:
            for native in (None, 2):
                self.check_alloc(native)
        finally:
            graph = made(lib.warp_capture_end, stream)
        must(lib.warp_graph_release(graph))
        must(lib.warp_stream_release(stream))


class Processes(unittest.TestCase):
    def check(self, finished, said=""):
        self.assertEqual((finished.returncode, finished.stderr, finished.stdout), (0, "", said))

    def test_a_thread_that_holds_the_interpreter_hinders_nobody(self):
        # PyDLL keeps the interpreter's lock through a call: a lock of the library that a callback is called under, and that
        # such a call waits for, would be the end of both.
        finished = program(
            """
            held = ctypes.PyDLL(LIBRARY)
            for name in ("warp_alloc_with", "warp_free", "warp_pointer_get_info", "warp_allocator_measure",
                         "warp_allocator_create", "warp_allocator_release", "warp_allocator_set_for_all"):
                getattr(held, name).argtypes = getattr(lib, name).argtypes
            provider = Passing()
            allocator = Allocator(provider, "passing", HOST, HOST_MEMORY)
            options = sized(AllocOptions, allocator=allocator.handle)
            stop, turns = threading.Event(), [0] * 9

            def let_go(number):
                while not stop.is_set():
                    blocks = [alloc(cpu, 64 * (number + turn), allocator=allocator.handle) for turn in range(1, 5)]
                    for block in blocks:
                        free(block)
                    turns[number] += 1

            def hold(number):
                while not stop.is_set():
                    block = Pointer()
                    assert held.warp_alloc_with(cpu, 100, ctypes.byref(options), ctypes.byref(block)) == SUCCESS
                    pointer_info(block)
                    assert held.warp_free(block) == SUCCESS
                    other = Allocator(provider, "other", HOST, HOST_MEMORY)
                    assert held.warp_allocator_measure(allocator.handle, None, None) == SUCCESS
                    assert held.warp_allocator_release(other.handle) == SUCCESS
                    held.warp_allocator_set_for_all(None)
                    turns[number] += 1

            def spin(number):
                sleep = ctypes.PyDLL(None).usleep
                while not stop.is_set():
                    sleep(2000)
                    turns[number] += 1

            works = [let_go] * 4 + [hold] * 4 + [spin]
            threads = [threading.Thread(target=work, args=(number,)) for number, work in enumerate(works)]
            for thread in threads:
                thread.start()
            stop.wait(3)
            stop.set()
            for thread in threads:
                thread.join()
            assert min(turns) >= 3, turns
            assert not provider.live and measured(allocator.handle) == 0
            assert len(example._living) == 1
            """
        )
        self.check(finished)

    def test_the_interpreter_ends_with_blocks_alive(self):
        # With a thread in the middle of it, finalisers to come, and an allocator whose handle is gone already.
        for _ in range(20):
            finished = program(
                """
                try:
                    gpu = made(lib.warp_device_get, b"cuda:0")
                except WarpError:
                    gpu = None
                provider = Passing()
                allocator = Allocator(provider, "passing", HOST, HOST_MEMORY)
                class Owner:
                    def __init__(self, device, **options):
                        self.address = alloc(device, 4096, **options)
                    def __del__(self):
                        lib.warp_free(self.address)
                blocks = [Owner(cpu, allocator=allocator.handle) for _ in range(5)]
                blocks[0].cycle = blocks
                finalized = Owner(cpu)
                weakref.finalize(finalized, lib.warp_free, alloc(cpu, 64, allocator=allocator.handle))
                if gpu is not None:
                    other = Passing(info_of(made(lib.warp_allocator_get_for_device, gpu)).kind)
                    of_gpu = Allocator(other, "of the GPU", flags=STREAM_ORDERED)
                    must(lib.warp_allocator_set_for_device(gpu, of_gpu.handle))
                    blocks.append(Owner(gpu))
                    leaked = alloc(gpu, 100)
                    of_gpu.close()
                started = threading.Event()

                def work():
                    try:
                        while True:
                            free(alloc(cpu, 100, allocator=allocator.handle))
                            started.set()
                    except WarpError as error:
                        assert error.status in (ALLOCATOR_FAILED, INVALID_HANDLE), error

                for _ in range(3):
                    threading.Thread(target=work, daemon=True).start()
                started.wait()
                allocator.close()
                """
            )
            self.check(finished)

    @unittest.skipUnless(hasattr(os, "fork"), "needs fork")
    def test_a_forked_child_leaves_it_alone(self):
        finished = program(
            """
            provider = Passing()
            allocator = Allocator(provider, "passing", HOST, HOST_MEMORY)
            block = alloc(cpu, 100, allocator=allocator.handle)
            calls = len(provider.calls)
            # Its thread is not in the child, where the interpreter would wait for it.
            faulthandler.cancel_dump_traceback_later()
            child = os.fork()
            if child == 0:
                out = Pointer()
                options = sized(AllocOptions, allocator=allocator.handle)
                assert lib.warp_alloc_with(cpu, 100, ctypes.byref(options), ctypes.byref(out)) == FORKED
                free(block)
                assert provider.live == {block: 100} and len(provider.calls) == calls
                with Allocator(Passing(), "the child's", HOST, HOST_MEMORY) as own:
                    free(alloc(cpu, 100, allocator=own.handle))
                assert not own.is_alive
                # Ends as a program does, with handlers.
                sys.exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            free(block)
            allocator.close()
            assert not provider.live and not allocator.is_alive
            """
        )
        self.check(finished)

    def test_a_fork_while_callbacks_run(self):
        finished = program(
            """
            provider = Passing()
            allocator = Allocator(provider, "passing", HOST, HOST_MEMORY)
            stop = threading.Event()

            def work():
                while not stop.is_set():
                    free(alloc(cpu, 100, allocator=allocator.handle))

            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            for _ in range(20):
                child = os.fork()
                if child == 0:
                    block = alloc(cpu, 100)
                    free(block)
                    example._stop()
                    os._exit(0)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            stop.set()
            for thread in threads:
                thread.join()
            allocator.close()
            assert not provider.live and not allocator.is_alive
            """
        )
        self.check(finished)

    def test_the_example_runs(self):
        drivers = [{}]
        if "WARPMEM_LIBCUDA" in os.environ:
            drivers.append({"WARPMEM_LIBCUDA": "/nonexistent/libcuda.so.1"})
        for driver in drivers:
            finished = subprocess.run(
                [sys.executable, "-B", EXAMPLES / "allocator.py"],
                env={**os.environ, **driver},
                capture_output=True,
                text=True,
                timeout=60,
            )
            self.assertEqual((finished.returncode, finished.stderr), (0, ""))
            said = finished.stdout.splitlines()
            self.assertRegex(said[0], "^2097152 bytes are above the budget of 1048576; the library says: .*out of memory")
            self.assertRegex(said[1], "^a leak of 1000 bytes: main, line [0-9]+$")
            self.assertEqual(said[2:], ["destroyed with its last block"])


if __name__ == "__main__":
    unittest.main()
