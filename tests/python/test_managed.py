"""Managed memory and handles for other processes as ctypes meets them: the struct of a handle crosses a pipe as plain bytes.

WARPMEM_LIBRARY is the library's file, WARPMEM_LIBCUDA the driver's.
"""

import ctypes
import os
import unittest

from binding import INVALID_ARGUMENT, AllocOptions, Out, Pointer, Size, asked, gpus, load, made, message, must, sized

MANAGED, PLAIN = 5, 3
SET_READ_MOSTLY, SET_PREFERRED_LOCATION, SET_ACCESSED_BY = 1, 3, 5
NOWHERE = -2
NOT_SUPPORTED = 100
SIZE = 1 << 16


class ManagedState(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("preferred", Pointer),
        ("last_prefetch", Pointer),
        ("preferred_ordinal", ctypes.c_int32),
        ("last_prefetch_ordinal", ctypes.c_int32),
        ("is_read_mostly", ctypes.c_uint8),
    ]


class IpcMemory(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("handle", ctypes.c_uint8 * 64),
        ("offset", Size),
        ("size", Size),
        ("ordinal", ctypes.c_int32),
    ]


lib = load(
    {
        "warp_alloc_with": [Pointer, Size, ctypes.POINTER(AllocOptions), Out],
        "warp_device_synchronize": [Pointer],
        "warp_managed_prefetch": [Pointer, Size, Pointer, Pointer],
        "warp_managed_advise": [Pointer, Size, ctypes.c_int32, Pointer],
        "warp_managed_query_state": [Pointer, Size, ctypes.POINTER(ManagedState)],
        "warp_managed_query_accessed_by": [Pointer, Size, Pointer, ctypes.POINTER(ctypes.c_uint8)],
        "warp_ipc_export": [Pointer, ctypes.POINTER(IpcMemory)],
    }
)


def allocated(device, kind):
    return made(lib.warp_alloc_with, device, SIZE, ctypes.byref(sized(AllocOptions, kind=kind)))


def state_of(address, size=0):
    state = sized(ManagedState)
    must(lib.warp_managed_query_state(address, size, ctypes.byref(state)))
    return state


class TestManaged(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        must(lib.warp_init(None, None))
        cls.addClassCleanup(lambda: must(lib.warp_shutdown()))
        cls.cpu = made(lib.warp_device_get, b"cpu")
        cls.gpu, *_ = gpus(1)

    def setUp(self):
        self.block = allocated(self.gpu, MANAGED)
        self.addCleanup(lambda: must(lib.warp_free(self.block)))

    def test_memory_is_sent_and_the_driver_tells_where_to(self):
        self.assertEqual(state_of(self.block).last_prefetch_ordinal, NOWHERE)
        ctypes.memset(self.block, 7, SIZE)
        for target, ordinal in ((self.gpu, 0), (self.cpu, -1)):
            must(lib.warp_managed_prefetch(self.block, SIZE, target, None))
            state = state_of(self.block)
            self.assertEqual((state.last_prefetch, state.last_prefetch_ordinal), (target, ordinal))
        must(lib.warp_device_synchronize(self.gpu))
        self.assertEqual(ctypes.string_at(self.block, SIZE), b"\7" * SIZE)

    def test_hints_hold_for_what_they_are_given_for(self):
        must(lib.warp_managed_advise(self.block, SIZE // 2, SET_READ_MOSTLY, None))
        must(lib.warp_managed_advise(self.block, 0, SET_PREFERRED_LOCATION, self.cpu))
        must(lib.warp_managed_advise(self.block, 0, SET_ACCESSED_BY, self.gpu))
        state = state_of(self.block)
        self.assertEqual((state.is_read_mostly, state.preferred), (0, self.cpu))
        self.assertEqual(state_of(self.block, SIZE // 2).is_read_mostly, 1)
        self.assertTrue(asked(lib.warp_managed_query_accessed_by, self.block, 0, self.gpu))
        self.assertFalse(asked(lib.warp_managed_query_accessed_by, self.block, 0, self.cpu))

    def test_mistakes_are_told(self):
        self.assertEqual(lib.warp_managed_prefetch(self.block, SIZE + 1, self.gpu, None), INVALID_ARGUMENT)
        self.assertIn("pass the end", message())
        self.assertEqual(lib.warp_managed_advise(self.block, 0, 7, None), INVALID_ARGUMENT)
        plain = allocated(self.gpu, PLAIN)
        self.assertEqual(lib.warp_managed_prefetch(plain, 0, self.gpu, None), INVALID_ARGUMENT)
        self.assertIn("CUDA_DEVICE", message())
        must(lib.warp_free(plain))

    def test_a_handle_crosses_a_pipe(self):
        plain = allocated(self.gpu, PLAIN)
        memory = sized(IpcMemory)
        must(lib.warp_ipc_export(plain + 100, ctypes.byref(memory)))
        self.assertEqual((memory.offset, memory.size, memory.ordinal), (100, SIZE, 0))
        reading, writing = os.pipe()
        os.write(writing, bytes(memory))
        there = IpcMemory.from_buffer_copy(os.read(reading, ctypes.sizeof(IpcMemory)))
        os.close(reading)
        os.close(writing)
        self.assertEqual(bytes(there.handle), bytes(memory.handle))
        self.assertNotEqual(bytes(there.handle), bytes(64))
        self.assertEqual(lib.warp_ipc_export(self.block, ctypes.byref(memory)), NOT_SUPPORTED)
        self.assertIn("WARP_MEMORY_CUDA_DEVICE", message())
        self.assertEqual((memory.size, bytes(memory.handle)), (0, bytes(64)))
        must(lib.warp_free(plain))


if __name__ == "__main__":
    unittest.main()
