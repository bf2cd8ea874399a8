"""Memory pools as ctypes meets them: the names of the Python package that they stand for, on and off, thresholds, pools of one's
own, threads.

WARPMEM_LIBRARY is the library's file, WARPMEM_LIBCUDA the driver's.
"""

import contextlib
import ctypes
import threading
import unittest

from binding import (
    CUDA_DEVICE,
    CUDA_MEMPOOL,
    INVALID_ARGUMENT,
    INVALID_HANDLE,
    OUT_OF_MEMORY,
    AllocOptions,
    BoolOut,
    Out,
    Pointer,
    PointerInfo,
    Size,
    asked,
    gpus,
    load,
    made,
    message,
    must,
    sized,
)

MIB = 1 << 20


class MempoolOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("max_size", Size),
        ("release_threshold", Size),
        ("handle_types", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class MempoolInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("device", Pointer),
        ("native", Pointer),
        ("max_size", Size),
        ("handle_types", ctypes.c_uint32),
        ("is_owned", ctypes.c_uint8),
        ("is_device_pool", ctypes.c_uint8),
    ]


class MempoolMemory(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("used", Size),
        ("used_high", Size),
        ("reserved", Size),
        ("reserved_high", Size),
    ]


Bytes = ctypes.POINTER(Size)

lib = load(
    {
        "warp_device_synchronize": [Pointer],
        "warp_alloc": [Pointer, Size, Out],
        "warp_alloc_with": [Pointer, Size, ctypes.POINTER(AllocOptions), Out],
        "warp_pointer_get_info": [Pointer, ctypes.POINTER(PointerInfo)],
        "warp_scope_begin_mempool": [Pointer, ctypes.c_uint8, Out],
        "warp_scope_end": [Pointer],
        "warp_mempool_is_supported": [Pointer, BoolOut],
        "warp_mempool_is_enabled": [Pointer, BoolOut],
        "warp_mempool_set_enabled": [Pointer, ctypes.c_uint8],
        "warp_mempool_set_enabled_for": [Out, ctypes.c_size_t, ctypes.c_uint8],
        "warp_mempool_get": [Pointer, Out],
        "warp_mempool_create": [Pointer, ctypes.POINTER(MempoolOptions), Out],
        "warp_mempool_release": [Pointer],
        "warp_mempool_use": [Pointer, Pointer],
        "warp_mempool_get_info": [Pointer, ctypes.POINTER(MempoolInfo)],
        "warp_mempool_query_memory": [Pointer, ctypes.POINTER(MempoolMemory)],
        "warp_mempool_query_memory_of_device": [Pointer, ctypes.POINTER(MempoolMemory)],
        "warp_mempool_trim": [Pointer, Size],
        "warp_mempool_set_release_threshold_of_device": [Pointer, Size],
        "warp_mempool_set_release_fraction_of_device": [Pointer, ctypes.c_double],
        "warp_mempool_query_release_threshold_of_device": [Pointer, Bytes],
    }
)


def is_mempool_supported(device):
    return asked(lib.warp_mempool_is_supported, device)


def is_mempool_enabled(device):
    return asked(lib.warp_mempool_is_enabled, device)


def get_mempool_release_threshold(device):
    out = Size(9)
    must(lib.warp_mempool_query_release_threshold_of_device(device, ctypes.byref(out)))
    return out.value


def memory_of(device):
    held = sized(MempoolMemory)
    must(lib.warp_mempool_query_memory_of_device(device, ctypes.byref(held)))
    return held


def kind_of(block):
    info = sized(PointerInfo)
    must(lib.warp_pointer_get_info(block, ctypes.byref(info)))
    return info.kind


@contextlib.contextmanager
def scoped_mempool(device, enabled):
    scope = made(lib.warp_scope_begin_mempool, device, enabled)
    try:
        yield
    finally:
        must(lib.warp_scope_end(scope))


class Mempools(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        must(lib.warp_init(None, None))
        cls.addClassCleanup(lambda: must(lib.warp_shutdown()))
        cls.cpu = made(lib.warp_device_get, b"cpu")
        cls.gpu, *_ = gpus(1)
        if not is_mempool_supported(cls.gpu):
            raise unittest.SkipTest("needs memory pools")

    def test_the_cpu_has_none(self):
        self.assertFalse(is_mempool_supported(self.cpu))
        self.assertFalse(is_mempool_enabled(self.cpu))
        self.assertEqual(lib.warp_mempool_set_enabled(self.cpu, 1), INVALID_ARGUMENT)
        must(lib.warp_mempool_set_enabled(self.cpu, 0))
        self.assertEqual(lib.warp_mempool_set_release_threshold_of_device(self.cpu, 1), INVALID_ARGUMENT)
        self.assertIn("cpu", message())

    def test_a_scope_is_left_as_it_was_entered(self):
        with scoped_mempool(self.gpu, False):
            self.assertFalse(is_mempool_enabled(self.gpu))
            plain = made(lib.warp_alloc, self.gpu, 100)
            with self.assertRaises(KeyError):
                with scoped_mempool(self.gpu, True):
                    pooled = made(lib.warp_alloc, self.gpu, 100)
                    raise KeyError
            self.assertFalse(is_mempool_enabled(self.gpu))
            seen = []
            thread = threading.Thread(target=lambda: seen.append(is_mempool_enabled(self.gpu)))
            thread.start()
            thread.join()
            self.assertEqual(seen, [True])
        self.assertTrue(is_mempool_enabled(self.gpu))
        self.assertEqual((kind_of(plain), kind_of(pooled)), (CUDA_DEVICE, CUDA_MEMPOOL))
        must(lib.warp_free(plain))
        must(lib.warp_free(pooled))

    def test_the_threshold_is_a_number_or_a_part(self):
        for bytes_ in (0, 42000, 2**64 - 1):
            must(lib.warp_mempool_set_release_threshold_of_device(self.gpu, bytes_))
            self.assertEqual(get_mempool_release_threshold(self.gpu), bytes_)
        must(lib.warp_mempool_set_release_fraction_of_device(self.gpu, 1.0))
        total = get_mempool_release_threshold(self.gpu)
        must(lib.warp_mempool_set_release_fraction_of_device(self.gpu, 0.5))
        self.assertEqual(get_mempool_release_threshold(self.gpu), int(0.5 * total))
        for bad in (float("nan"), -0.5, 1.5):
            self.assertEqual(lib.warp_mempool_set_release_fraction_of_device(self.gpu, bad), INVALID_ARGUMENT)
        must(lib.warp_mempool_set_release_threshold_of_device(self.gpu, 0))

    def test_the_high_mark_does_not_fall(self):
        block = made(lib.warp_alloc, self.gpu, 5 * MIB)
        held = memory_of(self.gpu)
        self.assertGreaterEqual(held.used, 5 * MIB)
        self.assertGreaterEqual(held.used_high, held.used)
        must(lib.warp_free(block))
        after = memory_of(self.gpu)
        self.assertEqual(after.used, held.used - 5 * MIB)
        self.assertGreaterEqual(after.used_high, held.used_high)

    def test_a_pool_of_ones_own(self):
        options = sized(MempoolOptions, max_size=64 * MIB, release_threshold=2**64 - 1)
        pool = made(lib.warp_mempool_create, self.gpu, ctypes.byref(options))
        info = sized(MempoolInfo)
        must(lib.warp_mempool_get_info(pool, ctypes.byref(info)))
        self.assertEqual((info.device, info.max_size, info.is_owned), (self.gpu, 64 * MIB, 1))
        must(lib.warp_mempool_use(self.gpu, pool))
        self.assertEqual(made(lib.warp_mempool_get, self.gpu), pool)
        block = made(lib.warp_alloc, self.gpu, 40 * MIB)
        out = Pointer()
        self.assertEqual(lib.warp_alloc(self.gpu, 40 * MIB, ctypes.byref(out)), OUT_OF_MEMORY)
        self.assertIn(str(64 * MIB), message())
        must(lib.warp_free(block))
        must(lib.warp_device_synchronize(self.gpu))
        self.assertGreaterEqual(memory_of(self.gpu).reserved, 40 * MIB)
        must(lib.warp_mempool_trim(pool, 0))
        self.assertEqual(memory_of(self.gpu).reserved, 0)
        must(lib.warp_mempool_use(self.gpu, None))
        named = sized(AllocOptions, mempool=pool)
        kept = made(lib.warp_alloc_with, self.gpu, 1000, ctypes.byref(named))
        must(lib.warp_mempool_release(pool))
        self.assertEqual(lib.warp_mempool_release(pool), INVALID_HANDLE)
        self.assertEqual(kind_of(kept), CUDA_MEMPOOL)
        must(lib.warp_free(kept))
        own = made(lib.warp_mempool_get, self.gpu)
        self.assertEqual(lib.warp_mempool_release(own), INVALID_ARGUMENT)

    def test_several_at_once(self):
        both = (Pointer * 2)(self.gpu, self.cpu)
        must(lib.warp_mempool_set_enabled_for(both, 2, 0))
        self.assertFalse(is_mempool_enabled(self.gpu))
        self.assertEqual(lib.warp_mempool_set_enabled_for(both, 2, 1), INVALID_ARGUMENT)
        self.assertFalse(is_mempool_enabled(self.gpu))
        must(lib.warp_mempool_set_enabled_for(None, 0, 1))
        self.assertTrue(is_mempool_enabled(self.gpu))


if __name__ == "__main__":
    unittest.main()
