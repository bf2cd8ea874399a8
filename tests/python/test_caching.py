"""The caching allocator as ctypes meets it: the default of every GPU by one call, page-locked memory, own caches and their limits,
arrays of threads, and what is measured.

WARPMEM_LIBRARY is the library's file, WARPMEM_LIBCUDA the driver's.
"""

import ctypes
import threading
import unittest

from binding import (
    CUDA_DEVICE,
    DOUBLE_FREE,
    INTERIOR_POINTER,
    INVALID_ARGUMENT,
    OUT_OF_MEMORY,
    PINNED,
    SIZE_MISMATCH,
    UNKNOWN,
    AllocOptions,
    Out,
    Pointer,
    PointerInfo,
    Size,
    gpus,
    load,
    made,
    message,
    must,
    sized,
)

MIB = 1 << 20


class Options(AllocOptions):
    """With the fields that allocators need, where AllocOptions ends before them."""

    _fields_ = [] if any(name == "allocator" for name, *_ in AllocOptions._fields_) else [("allocator", Pointer)]


class FreeOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("size", Size), ("alignment", Size), ("stream", Pointer)]


class CachingOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("limit", Size), ("keep", Size), ("name", ctypes.c_char_p)]


class CachingInfo(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, Size)
        for name in (
            "reserved_bytes peak_reserved_bytes live_bytes live_blocks used_bytes free_bytes at_hand_bytes largest_free_bytes "
            "chunks served_at_hand served_by_cutting growths"
        ).split()
    ]


lib = load(
    {
        "warp_alloc": [Pointer, Size, Out],
        "warp_alloc_with": [Pointer, Size, ctypes.POINTER(Options), Out],
        "warp_free_with": [Pointer, ctypes.POINTER(FreeOptions)],
        "warp_stream_create": [Pointer, Pointer, Out],
        "warp_pointer_get_info": [Pointer, ctypes.POINTER(PointerInfo)],
        "warp_allocator_get_builtin": [ctypes.c_int32, Out],
        "warp_allocator_release": [Pointer],
        "warp_allocator_trim": [Pointer, Pointer, ctypes.POINTER(Size)],
        "warp_allocator_get_caching": [ctypes.c_int32, Out],
        "warp_allocator_create_caching": [Pointer, ctypes.POINTER(CachingOptions), Out],
        "warp_allocator_set_caching_for_all": [ctypes.c_uint8],
        "warp_allocator_caching_measure": [Pointer, Pointer, ctypes.POINTER(CachingInfo)],
    }
)


def block(device, size, allocator=None, stream=None):
    options = sized(Options, allocator=allocator, stream=stream)
    return made(lambda *rest: lib.warp_alloc_with(device, size, ctypes.byref(options), *rest))


def measured(allocator, device=None):
    info = sized(CachingInfo)
    must(lib.warp_allocator_caching_measure(allocator, device, ctypes.byref(info)))
    return info


def own_cache(kind, **options):
    below = made(lib.warp_allocator_get_builtin, kind)
    options = sized(CachingOptions, **options)
    return made(lambda *rest: lib.warp_allocator_create_caching(below, ctypes.byref(options), *rest))


class Caching(unittest.TestCase):
    def setUp(self):
        must(lib.warp_init(None, None))
        self.addCleanup(lambda: must(lib.warp_shutdown()))
        self.cpu = made(lib.warp_device_get, b"cpu")
        self.gpu, *_ = gpus(1)

    def test_one_call_has_every_gpu_served(self):
        must(lib.warp_allocator_set_caching_for_all(1))
        cache = made(lib.warp_allocator_get_caching, UNKNOWN)
        first = made(lib.warp_alloc, self.gpu, 3 * MIB)
        must(lib.warp_free(first))
        self.assertEqual(made(lib.warp_alloc, self.gpu, 3 * MIB), first, "what was freed on a stream serves it again")
        info = measured(cache, self.gpu)
        self.assertEqual((info.live_bytes, info.live_blocks, info.growths), (3 * MIB, 1, 1))
        must(lib.warp_free(first))
        self.assertEqual(lib.warp_free(first), DOUBLE_FREE)
        freed = Size()
        must(lib.warp_allocator_trim(cache, self.gpu, ctypes.byref(freed)))
        self.assertEqual(freed.value, info.reserved_bytes)
        must(lib.warp_allocator_set_caching_for_all(0))

    def test_a_block_is_known_as_it_was_asked_for(self):
        cache = own_cache(CUDA_DEVICE, name=b"python")
        ptr = block(self.gpu, 1000, cache)
        info = sized(PointerInfo)
        must(lib.warp_pointer_get_info(ptr + 999, ctypes.byref(info)))
        self.assertEqual((info.base, info.size, info.kind, info.is_owned), (ptr, 1000, CUDA_DEVICE, 1))
        must(lib.warp_pointer_get_info(ptr + 1000, ctypes.byref(info)))
        self.assertEqual(info.is_owned, 0, "what is behind the block is nobody's")
        self.assertEqual(lib.warp_free(ptr + 8), INTERIOR_POINTER)
        wrong = sized(FreeOptions, size=1024)
        self.assertEqual(lib.warp_free_with(ptr, ctypes.byref(wrong)), SIZE_MISMATCH)
        self.assertIn("1000", message())
        right = sized(FreeOptions, size=1000)
        must(lib.warp_free_with(ptr, ctypes.byref(right)))
        must(lib.warp_allocator_release(cache))

    def test_a_limit_is_kept_and_told(self):
        cache = own_cache(CUDA_DEVICE, limit=8 * MIB)
        kept = block(self.gpu, 6 * MIB, cache)
        options = sized(Options, allocator=cache)
        out = Pointer()
        status = lib.warp_alloc_with(self.gpu, 4 * MIB, ctypes.byref(options), ctypes.byref(out))
        self.assertEqual((status, out.value), (OUT_OF_MEMORY, None))
        self.assertIn(str(8 * MIB), message())
        must(lib.warp_allocator_release(cache))
        must(lib.warp_free(kept))

    def test_page_locked_memory_is_cached_for_the_cpu(self):
        cache = made(lib.warp_allocator_get_caching, PINNED)
        first = block(self.cpu, MIB, cache)
        ctypes.memset(first, 7, MIB)
        must(lib.warp_free(first))
        second = block(self.cpu, MIB, cache)
        self.assertEqual(first, second)
        ctypes.memset(second, 8, MIB)
        must(lib.warp_free(second))

    def test_threads_have_blocks_of_their_own(self):
        cache = own_cache(PINNED)
        wrong = []

        def work(number):
            for turn in range(200):
                size = 64 << (turn + number) % 8
                ptr = block(self.cpu, size, cache)
                ctypes.memset(ptr, number, size)
                if ctypes.string_at(ptr, size) != bytes([number]) * size:
                    wrong.append((number, turn))
                must(lib.warp_free(ptr))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        info = measured(cache)
        self.assertEqual((info.live_blocks, info.used_bytes), (0, 0))
        self.assertGreaterEqual(info.served_at_hand + info.served_by_cutting, 1600)
        must(lib.warp_allocator_release(cache))

    def test_other_allocators_are_not_measured(self):
        info = sized(CachingInfo)
        other = made(lib.warp_allocator_get_builtin, CUDA_DEVICE)
        self.assertEqual(lib.warp_allocator_caching_measure(other, None, ctypes.byref(info)), INVALID_ARGUMENT)
        self.assertIn("no caching allocator", message())


if __name__ == "__main__":
    unittest.main()
