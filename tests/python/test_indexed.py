"""Indexed arrays as ctypes meets them: the struct, items that are seen through indices, what is refused, and memory that the
garbage collector gives back in whatever order.

WARPMEM_LIBRARY is the library's file, WARPMEM_LIBCUDA the driver's.
"""

import ctypes
import itertools
import unittest
import weakref

from binding import (
    INVALID_ARGUMENT,
    INVALID_HANDLE,
    SUCCESS,
    UNKNOWN,
    ArrayInfo,
    Dtype,
    Out,
    Pointer,
    Size,
    Statistics,
    gpus,
    load,
    made,
    message,
    must,
    sized,
)

INT, FLOAT = 0, 2


class IndexedInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("data", Pointer),
        ("device", Pointer),
        ("count", Size),
        ("dtype", Dtype),
        ("rank", ctypes.c_int32),
        ("indexed_dimensions", ctypes.c_uint32),
    ]


Shape = ctypes.POINTER(ctypes.c_int64)

lib = load(
    {
        "warp_array_empty": [Pointer, Dtype, ctypes.c_int32, Shape, Pointer, Out],
        "warp_array_get_info": [Pointer, ctypes.POINTER(ArrayInfo)],
        "warp_array_release": [Pointer],
        "warp_device_synchronize": [Pointer],
        "warp_statistics_get": [Pointer, ctypes.c_int32, ctypes.POINTER(Statistics)],
        "warp_indexed_array_create": [Pointer, Out, ctypes.c_size_t, Out],
        "warp_indexed_array_release": [Pointer],
        "warp_indexed_array_get_info": [Pointer, ctypes.POINTER(IndexedInfo)],
        "warp_indexed_array_get_shape": [Pointer, Shape, ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t)],
        "warp_indexed_array_get_data": [Pointer, Out],
        "warp_indexed_array_get_index": [Pointer, ctypes.c_size_t, Out],
    }
)


class Array:
    """int32 or float32 items in rows; its memory goes with the object."""

    def __init__(self, device, shape, items, code=INT):
        dims = (ctypes.c_int64 * len(shape))(*shape)
        self.handle = made(lib.warp_array_empty, device, Dtype(code, 32, 1, 0), len(shape), dims, None)
        self.release = weakref.finalize(self, lambda handle: must(lib.warp_array_release(handle)), self.handle)
        if items:
            values = (ctypes.c_int32 * len(items))(*items)
            must(lib.warp_memory_copy(data_of(self.handle), values, ctypes.sizeof(values), None))
            must(lib.warp_device_synchronize(device))


class Indexed:
    def __init__(self, data, *indices):
        self.handle = made(lib.warp_indexed_array_create, data.handle, pointers(indices), len(indices))
        self.release = weakref.finalize(self, lambda handle: must(lib.warp_indexed_array_release(handle)), self.handle)

    def shape(self):
        dims, rank = (ctypes.c_int64 * 32)(), ctypes.c_size_t()
        must(lib.warp_indexed_array_get_shape(self.handle, dims, 32, ctypes.byref(rank)))
        return tuple(dims[: rank.value])

    def tolist(self):
        """The items in row order, as a kernel would gather them."""
        data = made(lib.warp_indexed_array_get_data, self.handle)
        items = read(data)
        must(lib.warp_array_release(data))
        places = []
        for dimension, extent in enumerate(self.shape()):
            index = made(lib.warp_indexed_array_get_index, self.handle, dimension)
            places.append(range(extent) if index is None else read(index))
            must(lib.warp_array_release(index))
        return items, list(itertools.product(*places))


def pointers(arrays):
    return (Pointer * len(arrays))(*(array and array.handle for array in arrays))


def info_of(handle):
    info = sized(ArrayInfo)
    must(lib.warp_array_get_info(handle, ctypes.byref(info)))
    return info


def data_of(handle):
    return info_of(handle).data


def read(handle):
    info = info_of(handle)
    items = (ctypes.c_int32 * info.count)()
    must(lib.warp_memory_copy(items, info.data, info.size, None))
    must(lib.warp_device_synchronize(info.device))
    return list(items)


def live_bytes(device):
    counts = sized(Statistics)
    must(lib.warp_statistics_get(device, UNKNOWN, ctypes.byref(counts)))
    return counts.live_bytes


class IndexedArrays(unittest.TestCase):
    def setUp(self):
        must(lib.warp_init(None, None))
        self.addCleanup(lambda: must(lib.warp_shutdown()))
        self.devices = [made(lib.warp_device_get, b"cpu")] + gpus(1)[:2]

    def tearDown(self):
        for device in self.devices:
            self.assertEqual(live_bytes(device), 0)

    def test_items_are_seen_through_the_indices(self):
        for device in self.devices:
            data = Array(device, (3, 4), range(12))
            rows = Array(device, (5,), [2, 0, 0, 1, 2])
            indexed = Indexed(data, rows, None)
            self.assertEqual(indexed.shape(), (5, 4))
            items, places = indexed.tolist()
            seen = [items[4 * row + column] for row, column in places]
            self.assertEqual(seen, [4 * row + column for row in (2, 0, 0, 1, 2) for column in range(4)])
            info = sized(IndexedInfo)
            must(lib.warp_indexed_array_get_info(indexed.handle, ctypes.byref(info)))
            self.assertEqual((info.count, info.rank, info.indexed_dimensions), (20, 2, 1))
            self.assertEqual((info.data, info.device), (data_of(data.handle), device))
            self.assertEqual((info.dtype.code, info.dtype.bits, info.dtype.item_size), (INT, 32, 4))

    def test_the_parts_may_be_dropped_in_any_order(self):
        for device in self.devices:
            for order in itertools.permutations(range(3)):
                data, index = Array(device, (4,), [5, 6, 7, 8]), Array(device, (2,), [3, 1])
                everything = [data, index, Indexed(data, index)]
                del data, index
                for at in order:
                    if everything[2] is not None:
                        self.assertEqual(everything[2].tolist(), ([5, 6, 7, 8], [(3,), (1,)]))
                        self.assertEqual(live_bytes(device), 24)
                    everything[at] = None
                self.assertEqual(live_bytes(device), 0)

    def refused(self, status, words, of, *indices):
        out = Pointer(1)
        got = lib.warp_indexed_array_create(of.handle, pointers(indices), len(indices), ctypes.byref(out))
        self.assertEqual((got, out.value), (status, None))
        self.assertIn(words, message())

    def test_what_does_not_fit_is_refused_in_words(self):
        (cpu, first, *_), refused = self.devices, self.refused
        data, index = Array(first, (3, 4), []), Array(first, (2,), [])
        refused(INVALID_ARGUMENT, "2 dimensions", data, index)
        refused(INVALID_ARGUMENT, "2 dimensions", data, index, None, None)
        refused(INVALID_ARGUMENT, "float32", data, None, Array(first, (2,), [], FLOAT))
        refused(INVALID_ARGUMENT, 'is on "cpu", and the data is on "cuda:0"', data, Array(cpu, (2,), []), None)
        refused(INVALID_ARGUMENT, "of dimension 1 has 2 dimensions", data, None, data)
        index.release()
        refused(INVALID_HANDLE, "stale", data, index, None)

    def test_an_index_of_another_gpu_is_refused(self):
        first, second, *_ = gpus(2)
        data, index = Array(first, (3, 4), []), Array(second, (2,), [])
        self.refused(INVALID_ARGUMENT, 'is on "cuda:1", and the data is on "cuda:0"', data, index, None)

    def test_one_is_given_back_once(self):
        data = Array(self.devices[0], (3,), [1, 2, 3])
        indexed = Indexed(data, None)
        indexed.release()
        self.assertEqual(lib.warp_indexed_array_release(indexed.handle), INVALID_HANDLE)
        self.assertEqual(lib.warp_indexed_array_release(None), SUCCESS)


if __name__ == "__main__":
    unittest.main()
