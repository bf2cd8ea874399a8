"""Captures and graphs as ctypes meets them: their structs, a graph with memory of its own, what is refused, and blocks that a
finaliser frees on another thread while a capture goes on.

WARPMEM_LIBRARY is the library's file, WARPMEM_LIBCUDA the driver's.
"""

import contextlib
import ctypes
import threading
import unittest
import weakref

from binding import (
    CUDA_DEVICE,
    ILLEGAL_IN_CAPTURE,
    INVALID_ARGUMENT,
    INVALID_HANDLE,
    PINNED,
    SUCCESS,
    UNKNOWN_POINTER,
    AllocOptions,
    Out,
    Pointer,
    Size,
    Statistics,
    load,
    made,
    message,
    must,
    sized,
)

THREAD_LOCAL = 1
NO_ALLOCATIONS = 1
STATE_NONE, STATE_ACTIVE, STATE_PAUSED = 0, 1, 3

SIZE = 4096


class CaptureOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("native_graph", Pointer),
        ("flags", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class CaptureInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("id", ctypes.c_uint64),
        ("origin_stream_id", ctypes.c_uint64),
        ("state", ctypes.c_int32),
        ("mode", ctypes.c_int32),
        ("is_owned", ctypes.c_uint8),
    ]


class GraphInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("device", Pointer),
        ("native_graph", Pointer),
        ("native_exec", Pointer),
        ("id", ctypes.c_uint64),
        ("block_count", ctypes.c_uint64),
        ("is_launched", ctypes.c_uint8),
    ]


class GraphMemory(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, ctypes.c_uint64) for name in ("used", "used_high", "reserved", "reserved_high")
    ]


lib = load(
    {
        "warp_stream_create": [Pointer, Pointer, Out],
        "warp_device_synchronize": [Pointer],
        "warp_alloc_with": [Pointer, Size, ctypes.POINTER(AllocOptions), Out],
        "warp_statistics_get": [Pointer, ctypes.c_int32, ctypes.POINTER(Statistics)],
        "warp_capture_begin": [Pointer, ctypes.c_int32],
        "warp_capture_begin_with": [Pointer, ctypes.c_int32, ctypes.POINTER(CaptureOptions)],
        "warp_capture_end": [Pointer, Out],
        "warp_capture_abandon": [Pointer],
        "warp_capture_pause": [Pointer],
        "warp_capture_resume": [Pointer],
        "warp_capture_query_info": [Pointer, ctypes.POINTER(CaptureInfo)],
        "warp_graph_launch": [Pointer, Pointer],
        "warp_graph_retain": [Pointer, Pointer],
        "warp_graph_release": [Pointer],
        "warp_graph_get_info": [Pointer, ctypes.POINTER(GraphInfo)],
        "warp_graph_query_memory": [Pointer, ctypes.POINTER(GraphMemory)],
        "warp_graph_trim_memory": [Pointer],
    }
)


class Block:
    """Memory that goes with the last reference to it, on whichever thread that is dropped."""

    def __init__(self, ptr, statuses):
        self.ptr = ptr
        weakref.finalize(self, lambda: statuses.append(lib.warp_free(ptr)))


class Captured:
    """What a Python program makes of a capture."""

    def __init__(self, stream):
        self.stream = stream
        self.graph = None

    def __enter__(self):
        must(lib.warp_capture_begin(self.stream, THREAD_LOCAL))
        return self

    def __exit__(self, error, *_):
        if error is None:
            self.graph = made(lib.warp_capture_end, self.stream)
        else:
            must(lib.warp_capture_abandon(self.stream))


class Captures(unittest.TestCase):
    def setUp(self):
        must(lib.warp_init(None, None))
        self.addCleanup(lambda: must(lib.warp_shutdown()))
        self.gpu = made(lib.warp_device_get, b"cuda:0")
        self.cpu = made(lib.warp_device_get, b"cpu")
        self.stream = made(lib.warp_stream_create, self.gpu, None)
        self.addCleanup(self.nothing_is_left)

    def nothing_is_left(self):
        must(lib.warp_stream_synchronize(self.stream))
        must(lib.warp_stream_release(self.stream))
        # The first finds the graphs that have ended, whose blocks are freed on a stream; the second comes after that.
        for _ in range(2):
            must(lib.warp_device_synchronize(self.gpu))
            must(lib.warp_graph_trim_memory(self.gpu))
        held = sized(GraphMemory)
        must(lib.warp_graph_query_memory(self.gpu, held))
        self.assertEqual((held.used, held.reserved), (0, 0))
        for device in (self.gpu, self.cpu):
            counts = sized(Statistics)
            must(lib.warp_statistics_get(device, 0, counts))
            self.assertEqual(counts.live_blocks, 0)

    def allocate(self, stream=None, kind=0, device=None):
        options = sized(AllocOptions, stream=stream, kind=kind)
        return made(lib.warp_alloc_with, device or self.gpu, SIZE, options)

    def fill(self, ptr, byte):
        must(lib.warp_memory_fill(ptr, SIZE, byte, 1, self.stream))

    def read(self, ptr):
        host = (ctypes.c_ubyte * SIZE)()
        must(lib.warp_memory_copy(ctypes.addressof(host), ptr, SIZE, self.stream))
        must(lib.warp_stream_synchronize(self.stream))
        return bytes(host)

    def state(self):
        info = sized(CaptureInfo)
        must(lib.warp_capture_query_info(self.stream, info))
        return info

    def about(self, graph):
        info = sized(GraphInfo)
        must(lib.warp_graph_get_info(graph, info))
        return info

    def refused(self, status, words, expected=ILLEGAL_IN_CAPTURE):
        self.assertEqual(status, expected)
        self.assertIn(words, message())

    def test_the_structs_are_those_of_the_header(self):
        with Captured(self.stream) as capture:
            during = self.state()
            self.assertEqual((during.state, during.mode, during.is_owned), (STATE_ACTIVE, THREAD_LOCAL, 1))
            self.assertNotEqual((during.id, during.origin_stream_id), (0, 0))
            block = self.allocate(self.stream)
        self.assertEqual((self.state().state, self.state().id), (STATE_NONE, 0))
        info = self.about(capture.graph)
        self.assertEqual((info.device, info.id, info.block_count, info.is_launched), (self.gpu, during.id, 1, 0))
        self.assertIsNotNone(info.native_graph)
        self.assertIsNone(info.native_exec)
        must(lib.warp_graph_launch(capture.graph, self.stream))
        self.assertEqual(self.about(capture.graph).is_launched, 1)
        self.assertIsNotNone(self.about(capture.graph).native_exec)
        held = sized(GraphMemory)
        must(lib.warp_graph_query_memory(self.gpu, held))
        self.assertGreaterEqual(held.used, SIZE)
        self.assertGreaterEqual(held.reserved, held.used)
        self.assertGreaterEqual(held.used_high, held.used)
        must(lib.warp_free(block))
        must(lib.warp_graph_release(capture.graph))
        options = sized(CaptureOptions, flags=NO_ALLOCATIONS)
        must(lib.warp_capture_begin_with(self.stream, THREAD_LOCAL, options))
        out = Pointer()
        self.refused(lib.warp_alloc_with(self.gpu, SIZE, sized(AllocOptions, stream=self.stream), out), "part of another")
        must(lib.warp_capture_abandon(self.stream))

    def test_a_graph_runs_on_what_its_input_is_by_then(self):
        source = self.allocate(kind=PINNED, device=self.cpu)
        with Captured(self.stream) as capture:
            scratch, result = self.allocate(self.stream), self.allocate(self.stream)
            must(lib.warp_memory_copy(scratch, source, SIZE, self.stream))
            must(lib.warp_memory_copy(result, scratch, SIZE, self.stream))
            must(lib.warp_free(scratch))
        self.refused(lib.warp_memory_fill(result, SIZE, b"x", 1, self.stream), "has not been launched", INVALID_ARGUMENT)
        for byte in range(3):
            ctypes.memset(source, byte, SIZE)
            must(lib.warp_graph_launch(capture.graph, self.stream))
            self.assertEqual(self.read(result), bytes([byte]) * SIZE)
        # The graph keeps what it reads; the caller's block outlives the graph.
        must(lib.warp_free(source))
        must(lib.warp_graph_launch(capture.graph, self.stream))
        must(lib.warp_graph_release(capture.graph))
        self.assertEqual(lib.warp_graph_launch(capture.graph, self.stream), INVALID_HANDLE)
        self.assertEqual(self.read(result), b"\2" * SIZE)
        must(lib.warp_free(result))

    def test_what_is_refused_says_the_way_out_and_the_capture_goes_on(self):
        with Captured(self.stream) as capture:
            out = Pointer()
            plain = sized(AllocOptions, stream=self.stream, kind=CUDA_DEVICE)
            self.refused(lib.warp_alloc_with(self.gpu, SIZE, plain, out), "ask for WARP_MEMORY_CUDA_MEMPOOL")
            pinned = sized(AllocOptions, kind=PINNED)
            self.refused(lib.warp_alloc_with(self.cpu, SIZE, pinned, out), "before the capture begins")
            self.refused(lib.warp_stream_synchronize(self.stream), "after it ends")
            self.refused(lib.warp_stream_release(self.stream), "end the capture or give it up")
            self.assertIsNone(out.value)
            self.assertEqual(self.state().state, STATE_ACTIVE)
            must(lib.warp_capture_pause(self.stream))
            self.assertEqual(self.state().state, STATE_PAUSED)
            block = made(lib.warp_alloc_with, self.gpu, SIZE, plain)
            must(lib.warp_capture_resume(self.stream))
            self.fill(block, b"\5")
        must(lib.warp_graph_launch(capture.graph, self.stream))
        self.assertEqual(self.read(block), b"\5" * SIZE)
        must(lib.warp_free(block))
        must(lib.warp_graph_release(capture.graph))

    def test_an_exception_gives_the_capture_up(self):
        with contextlib.suppress(KeyError), Captured(self.stream):
            block = self.allocate(self.stream)
            self.fill(block, b"\1")
            raise KeyError
        self.assertEqual(self.state().state, STATE_NONE)
        # It never comes into being, and is still the caller's to free.
        self.refused(lib.warp_memory_fill(block, SIZE, b"x", 1, self.stream), "given up", INVALID_ARGUMENT)
        must(lib.warp_free(block))

    def test_a_finaliser_frees_on_another_thread_during_a_capture(self):
        statuses = []
        other = made(lib.warp_stream_create, self.gpu, None)
        # On the stream that will be captured, on one that will not, and not of a GPU.
        garbage = [Block(self.allocate(self.stream), statuses), Block(self.allocate(other), statuses)]
        garbage.append(Block(self.allocate(kind=PINNED, device=self.cpu), statuses))
        with Captured(self.stream) as capture:
            for _ in range(3):
                garbage.append(Block(self.allocate(self.stream), statuses))
                self.fill(garbage[-1].ptr, b"\1")
            thread = threading.Thread(target=garbage.clear)
            thread.start()
            thread.join()
            self.assertEqual(statuses, [SUCCESS] * 6)
            self.assertEqual(self.state().state, STATE_ACTIVE)
            result = self.allocate(self.stream)
            self.fill(result, b"\2")
        # What the capture allocated is freed in the graph.
        self.assertEqual(self.about(capture.graph).block_count, 1)
        for _ in range(3):
            must(lib.warp_graph_launch(capture.graph, self.stream))
        self.assertEqual(self.read(result), b"\2" * SIZE)
        must(lib.warp_free(result))
        must(lib.warp_graph_release(capture.graph))
        must(lib.warp_stream_release(other))

    def test_a_graph_keeps_what_it_is_told_of(self):
        block = self.allocate(self.stream)
        self.fill(block, b"\3")
        with Captured(self.stream) as capture:
            result = self.allocate(self.stream)
            must(lib.warp_memory_copy(result, block, SIZE, self.stream))
        must(lib.warp_graph_retain(capture.graph, block + 100))
        self.refused(lib.warp_graph_retain(capture.graph, 4096), "no live block", UNKNOWN_POINTER)
        must(lib.warp_free(block))
        must(lib.warp_graph_launch(capture.graph, self.stream))
        self.assertEqual(self.read(result), b"\3" * SIZE)
        must(lib.warp_graph_release(capture.graph))
        must(lib.warp_free(result))


if __name__ == "__main__":
    unittest.main()
