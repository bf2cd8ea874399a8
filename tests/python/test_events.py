"""Streams, events and scopes as ctypes meets them: their structs, an order made by events, scopes as `with` and in threads.

WARPMEM_LIBRARY is the library's file, WARPMEM_LIBCUDA the driver's.
"""

import contextlib
import ctypes
import threading
import unittest

from binding import INVALID_ARGUMENT, INVALID_HANDLE, SCOPE_ORDER, Out, Pointer, Size, load, made, must, sized

NON_BLOCKING = 1
TIMING = 1
BLOCKING_SYNC = 2


class StreamOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("flags", ctypes.c_uint32), ("priority", ctypes.c_int32)]


class StreamInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("device", Pointer),
        ("native", Pointer),
        ("id", ctypes.c_uint64),
        ("priority", ctypes.c_int32),
        ("is_non_blocking", ctypes.c_uint8),
        ("is_owned", ctypes.c_uint8),
        ("is_untracked", ctypes.c_uint8),
    ]


class EventOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("flags", ctypes.c_uint32), ("reserved", ctypes.c_uint32)]


class EventInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("device", Pointer),
        ("native", Pointer),
        ("flags", ctypes.c_uint32),
        ("is_owned", ctypes.c_uint8),
    ]


lib = load(
    {
        "warp_stream_create": [Pointer, ctypes.POINTER(StreamOptions), Out],
        "warp_stream_get_info": [Pointer, ctypes.POINTER(StreamInfo)],
        "warp_stream_get_current": [Pointer, Out],
        "warp_stream_wait_event": [Pointer, Pointer],
        "warp_stream_wait_stream": [Pointer, Pointer],
        "warp_event_create": [Pointer, ctypes.POINTER(EventOptions), Out],
        "warp_event_release": [Pointer],
        "warp_event_get_info": [Pointer, ctypes.POINTER(EventInfo)],
        "warp_event_record": [Pointer, Pointer],
        "warp_event_query_done": [Pointer, ctypes.POINTER(ctypes.c_uint8)],
        "warp_event_synchronize": [Pointer],
        "warp_event_measure_elapsed": [Pointer, Pointer, ctypes.POINTER(ctypes.c_float)],
        "warp_scope_begin_stream": [Pointer, Pointer, Out],
        "warp_scope_begin_device": [Pointer, Out],
        "warp_scope_end": [Pointer],
        "warp_alloc": [Pointer, Size, Out],
    }
)


@contextlib.contextmanager
def scope(begin, *arguments):
    """What a Python program makes of a scope."""
    handle = made(begin, *arguments)
    try:
        yield handle
    finally:
        must(lib.warp_scope_end(handle))


class Events(unittest.TestCase):
    def setUp(self):
        must(lib.warp_init(None, None))
        self.addCleanup(lambda: must(lib.warp_shutdown()))
        self.gpu = made(lib.warp_device_get, b"cuda:0")
        self.cpu = made(lib.warp_device_get, b"cpu")

    def stream(self):
        return made(lib.warp_stream_create, self.gpu, sized(StreamOptions, flags=NON_BLOCKING))

    def event(self, device, flags=TIMING):
        return made(lib.warp_event_create, device, sized(EventOptions, flags=flags))

    def current(self):
        return made(lib.warp_stream_get_current, self.gpu)

    def test_the_structs_are_those_of_the_header(self):
        event = self.event(self.gpu, TIMING | BLOCKING_SYNC)
        info = sized(EventInfo)
        must(lib.warp_event_get_info(event, info))
        self.assertEqual((info.device, info.flags, info.is_owned), (self.gpu, TIMING | BLOCKING_SYNC, 1))
        self.assertIsNotNone(info.native)
        about = sized(StreamInfo)
        must(lib.warp_stream_get_info(self.stream(), about))
        self.assertEqual((about.is_non_blocking, about.is_owned, about.is_untracked), (1, 1, 0))
        must(lib.warp_event_release(event))
        self.assertEqual(lib.warp_event_release(event), INVALID_HANDLE)

    def test_streams_in_order(self):
        load, compute = self.stream(), self.stream()
        begun, loaded = self.event(self.gpu), self.event(self.gpu)
        block, copy = made(lib.warp_alloc, self.gpu, 4096), made(lib.warp_alloc, self.gpu, 4096)
        must(lib.warp_stream_wait_stream(load, self.current()))
        must(lib.warp_event_record(begun, load))
        must(lib.warp_memory_fill(block, 4096, b"\7", 1, load))
        must(lib.warp_event_record(loaded, load))
        must(lib.warp_stream_wait_event(compute, loaded))
        must(lib.warp_memory_copy(copy, block, 4096, compute))
        host = (ctypes.c_ubyte * 4096)()
        must(lib.warp_memory_copy(ctypes.addressof(host), copy, 4096, compute))
        must(lib.warp_stream_synchronize(compute))
        self.assertEqual(bytes(host), b"\7" * 4096)
        milliseconds = ctypes.c_float(-1)
        must(lib.warp_event_measure_elapsed(begun, loaded, milliseconds))
        self.assertGreaterEqual(milliseconds.value, 0)
        done = ctypes.c_uint8()
        must(lib.warp_event_query_done(loaded, done))
        self.assertEqual(done.value, 1)
        self.assertEqual(lib.warp_event_record(loaded, made(lib.warp_stream_get_current, self.cpu)), INVALID_ARGUMENT)
        for handle in (block, copy):
            must(lib.warp_free(handle))

    def test_scopes_nest_as_with_statements_do(self):
        standard, a, b = self.current(), self.stream(), self.stream()
        with scope(lib.warp_scope_begin_stream, self.gpu, a) as outer:
            with scope(lib.warp_scope_begin_stream, self.gpu, b):
                self.assertEqual(self.current(), b)
                self.assertEqual(lib.warp_scope_end(outer), SCOPE_ORDER)
            self.assertEqual(self.current(), a)
            with contextlib.suppress(KeyError), scope(lib.warp_scope_begin_device, self.cpu):
                raise KeyError
        self.assertEqual(self.current(), standard)

    def test_a_thread_begins_without_scopes(self):
        seen = []

        def look():
            seen.append(self.current())
            seen.append(lib.warp_scope_end(outer))

        standard = self.current()
        with scope(lib.warp_scope_begin_stream, self.gpu, self.stream()) as outer:
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()
        self.assertEqual(seen, [standard, SCOPE_ORDER])


if __name__ == "__main__":
    unittest.main()
