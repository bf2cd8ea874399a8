"""Copies as a newcomer meets them by ctypes: slices, transposed matrices and picked rows go from any device to any other; what a
copy would do is asked before it is done; many are made by one call. Compared with plain lists.

WARPMEM_LIBRARY is the library's file, WARPMEM_LIBCUDA the driver's.
"""

import array
import ctypes
import itertools
import unittest
import weakref

from binding import (
    CUDA_DEVICE,
    CUDA_MANAGED,
    CUDA_MEMPOOL,
    HOST,
    INVALID_ARGUMENT,
    INVALID_HANDLE,
    NOT_SUPPORTED,
    PINNED,
    SIZE_MISMATCH,
    SUCCESS,
    UNKNOWN,
    ArrayInfo,
    ArrayOptions,
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

INT = 0
PATHS = [
    "none",
    "host",
    "host threads",
    "device",
    "pinned",
    "pageable",
    "pageable pipelined",
    "peer",
    "peer staged",
    "peer pipelined",
    "managed",
]
Shape = ctypes.POINTER(ctypes.c_int64)
Axes = ctypes.POINTER(ctypes.c_int32)


class CopyRequest(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("dest", Pointer),
        ("src", Pointer),
        ("size", Size),
        ("dest_array", Pointer),
        ("src_array", Pointer),
        ("dest_indexed", Pointer),
        ("src_indexed", Pointer),
        ("dest_offset", Size),
        ("src_offset", Size),
        ("count", Size),
    ]


class CopyInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("device", Pointer),
        ("size", Size),
        ("staging", Size),
        ("path", ctypes.c_int32),
        ("method", ctypes.c_int32),
        ("is_async", ctypes.c_uint8),
    ]


Request, Stream = ctypes.POINTER(CopyRequest), Pointer

lib = load(
    {
        "warp_array_empty": [Pointer, Dtype, ctypes.c_int32, Shape, Pointer, Out],
        "warp_array_get_info": [Pointer, ctypes.POINTER(ArrayInfo)],
        "warp_array_get_shape": [Pointer, ctypes.c_int32, Shape, Shape],
        "warp_array_slice": [Pointer, ctypes.c_int32, Shape, Shape, Shape, Out],
        "warp_array_transpose": [Pointer, ctypes.c_int32, Axes, Out],
        "warp_array_release": [Pointer],
        "warp_array_copy": [Pointer, Pointer, Size, Size, Size, Stream],
        "warp_array_fill": [Pointer, Pointer, Size, Stream],
        "warp_array_clone": [Pointer, Pointer, Pointer, Out],
        "warp_array_to_device": [Pointer, Pointer, Pointer, Out],
        "warp_array_contiguous": [Pointer, Pointer, Out],
        "warp_device_synchronize": [Pointer],
        "warp_statistics_get": [Pointer, ctypes.c_int32, ctypes.POINTER(Statistics)],
        "warp_stream_create": [Pointer, Pointer, Out],
        "warp_indexed_array_create": [Pointer, Out, ctypes.c_size_t, Out],
        "warp_indexed_array_release": [Pointer],
        "warp_indexed_array_gather": [Pointer, Pointer, Stream],
        "warp_indexed_array_scatter": [Pointer, Pointer, Stream],
        "warp_indexed_array_copy": [Pointer, Pointer, Stream],
        "warp_indexed_array_fill": [Pointer, Pointer, Size, Stream],
        "warp_indexed_array_clone": [Pointer, Pointer, Pointer, Out],
        "warp_copy_get_path": [Request, Stream, ctypes.POINTER(CopyInfo)],
        "warp_copy_run": [Request, Stream],
        "warp_copy_run_batch": [Request, ctypes.c_size_t, ctypes.c_size_t, Stream, ctypes.POINTER(ctypes.c_size_t)],
        "warp_copy_set_threads": [ctypes.c_uint32],
        "warp_copy_get_threads": [ctypes.POINTER(ctypes.c_uint32)],
    }
)


def numbers(values, of=ctypes.c_int64):
    return (of * len(values))(*values)


def ones_at_a_time(shape):
    """The places of an array, in row order."""
    return itertools.product(*map(range, shape))


class Array:
    """int32 items on a device, or a view of some. Its memory goes with the last object that sees it."""

    def __init__(self, handle):
        self.handle = handle
        self.release = weakref.finalize(self, lambda: must(lib.warp_array_release(handle)))

    @classmethod
    def counting(cls, device, shape, kind=UNKNOWN, first=0):
        self = cls.empty(device, shape, kind)
        info = self.info()
        values = numbers(range(first, first + info.count), ctypes.c_int32)
        must(lib.warp_memory_copy(info.data, values, ctypes.sizeof(values), None))
        synchronize()
        return self

    @classmethod
    def empty(cls, device, shape, kind=UNKNOWN):
        options = sized(ArrayOptions, kind=kind)
        return cls(made(lib.warp_array_empty, device, Dtype(INT, 32, 1, 0), len(shape), numbers(shape), ctypes.byref(options)))

    def info(self):
        info = sized(ArrayInfo)
        must(lib.warp_array_get_info(self.handle, ctypes.byref(info)))
        return info

    def shape(self):
        dims = (ctypes.c_int64 * 32)()
        must(lib.warp_array_get_shape(self.handle, 32, dims, None))
        return tuple(dims[: self.info().rank])

    def __getitem__(self, slices):
        shape = self.shape()
        slices = slices if isinstance(slices, tuple) else (slices,)
        cut = [part.indices(extent) for part, extent in zip(slices, shape)]
        start, stop, step = zip(*cut)
        return Array(made(lib.warp_array_slice, self.handle, len(cut), numbers(start), numbers(stop), numbers(step)))

    @property
    def T(self):
        return Array(made(lib.warp_array_transpose, self.handle, 0, None))

    def to(self, device):
        return Array(made(lib.warp_array_to_device, self.handle, device, None))

    def contiguous(self):
        return Array(made(lib.warp_array_contiguous, self.handle, None))

    def tolist(self):
        """All items in row order, read by way of rows on the CPU."""
        rows = self.to(made(lib.warp_device_get, b"cpu")).contiguous()
        synchronize()
        info = rows.info()
        assert info.is_contiguous
        return list((ctypes.c_int32 * info.count).from_address(info.data)) if info.count else []

    def copy_from(self, source, dest_offset=0, src_offset=0, count=0, stream=None):
        must(lib.warp_array_copy(self.handle, source.handle, dest_offset, src_offset, count, stream))
        synchronize()


class Indexed:
    def __init__(self, data, *indices):
        handles = (Pointer * len(indices))(*(index and index.handle for index in indices))
        self.handle = handle = made(lib.warp_indexed_array_create, data.handle, handles, len(indices))
        self.release = weakref.finalize(self, lambda: must(lib.warp_indexed_array_release(handle)))


def request(**fields):
    return sized(CopyRequest, **fields)


def arrays(dest, source, **fields):
    wanted = request(dest_array=dest.handle, src_array=source.handle, **fields)
    # A request has handles, which are good for as long as somebody keeps what they are of.
    wanted.keeps = dest, source
    return wanted


def path_of(wanted, stream=None):
    info = sized(CopyInfo)
    must(lib.warp_copy_get_path(ctypes.byref(wanted), stream, ctypes.byref(info)))
    return info


def synchronize():
    for gpu in gpus():
        must(lib.warp_device_synchronize(gpu))


def live_bytes(device):
    counts = sized(Statistics)
    must(lib.warp_statistics_get(device, UNKNOWN, ctypes.byref(counts)))
    return counts.live_bytes


class Copies(unittest.TestCase):
    def setUp(self):
        must(lib.warp_init(None, None))
        self.addCleanup(lambda: must(lib.warp_shutdown()))
        self.cpu = made(lib.warp_device_get, b"cpu")
        self.devices = [self.cpu] + gpus(1)[:2]
        self.first, self.last = self.devices[1], self.devices[-1]
        self.places = [(self.cpu, HOST), (self.cpu, PINNED)] + [
            (device, kind) for device in self.devices[1:] for kind in (CUDA_DEVICE, CUDA_MEMPOOL, CUDA_MANAGED)
        ]

    def tearDown(self):
        synchronize()
        for device in self.devices:
            self.assertEqual(live_bytes(device), 0)

    def test_slices_and_transposed_matrices_go_anywhere(self):
        for (here, here_kind), (there, there_kind) in itertools.product(self.places, repeat=2):
            matrix = Array.counting(here, (6, 8), here_kind)
            target = Array.counting(there, (9, 7), there_kind, 1000)
            # Every other row and column, backwards; into the columns of a larger matrix.
            target[1:9:2, 0:3].T.copy_from(matrix[5:2:-1, 0:8:2])
            expected = list(range(1000, 1063))
            for row, column in ones_at_a_time((3, 4)):
                expected[7 * (1 + 2 * column) + row] = 8 * (5 - row) + 2 * column
            self.assertEqual(target.tolist(), expected)
            self.assertEqual(matrix.tolist(), list(range(48)))

    def test_a_transposed_matrix_becomes_rows(self):
        for device, kind in self.places:
            matrix = Array.counting(device, (3, 5), kind)
            rows = matrix.T.contiguous()
            self.assertEqual((rows.shape(), rows.info().is_contiguous, rows.info().device), ((5, 3), 1, device))
            self.assertEqual(rows.tolist(), [5 * row + column for column in range(5) for row in range(3)])
            # What has no gaps is not copied.
            self.assertEqual(matrix.contiguous().info().data, matrix.info().data)

    def test_an_array_goes_to_another_device_and_back(self):
        for here, there in itertools.product(self.devices, repeat=2):
            matrix = Array.counting(here, (4, 6))[0:4:3, 1:6:2]
            moved = matrix.to(there)
            self.assertEqual((moved.shape(), moved.info().device), ((2, 3), there))
            self.assertEqual(moved.info().data == matrix.info().data, here == there)
            self.assertEqual(moved.to(here).tolist(), [1, 3, 5, 19, 21, 23])

    def test_parts_of_lines(self):
        for (here, here_kind), (there, there_kind) in itertools.product(self.places, repeat=2):
            source = Array.counting(here, (20,), here_kind)[0:20:2]
            target = Array.counting(there, (8,), there_kind, 100)
            target.copy_from(source, dest_offset=3, src_offset=5, count=4)
            self.assertEqual(target.tolist(), [100, 101, 102, 10, 12, 14, 16, 107])

    def test_rows_are_picked_and_put_back(self):
        picks = [4, 0, 2]
        for device, kind in self.places:
            data = Array.counting(device, (5, 3), kind)
            index = Array.empty(device, (3,))
            must(lib.warp_memory_copy(index.info().data, numbers(picks, ctypes.c_int32), 12, None))
            synchronize()
            picked = Indexed(data, index, None)
            for other, other_kind in self.places:
                rows = Array.empty(other, (3, 3), other_kind)
                must(lib.warp_indexed_array_gather(rows.handle, picked.handle, None))
                synchronize()
                self.assertEqual(rows.tolist(), [3 * row + column for row in picks for column in range(3)])
                changed = Array.counting(other, (3, 3), other_kind, 50)
                must(lib.warp_indexed_array_scatter(picked.handle, changed.handle, None))
                synchronize()
                expected = list(range(15))
                for at, row in enumerate(picks):
                    expected[3 * row : 3 * row + 3] = range(50 + 3 * at, 53 + 3 * at)
                self.assertEqual(data.tolist(), expected)
                must(lib.warp_indexed_array_scatter(picked.handle, rows.handle, None))
                self.assertEqual(data.tolist(), list(range(15)))
                clone = Array(made(lib.warp_indexed_array_clone, picked.handle, other, None))
                self.assertEqual((clone.info().device, clone.shape()), (other, (3, 3)))
                self.assertEqual(clone.tolist(), rows.tolist())
            must(lib.warp_indexed_array_fill(picked.handle, numbers([7], ctypes.c_int32), 4, None))
            self.assertEqual(data.tolist(), [7, 7, 7, 3, 4, 5, 7, 7, 7, 9, 10, 11, 7, 7, 7])

    def test_memory_of_python_is_memory(self):
        values = array.array("i", range(100))
        back = array.array("i", bytes(400))
        block = Array.empty(self.first, (100,))
        wanted = request(dest=block.info().data, src=values.buffer_info()[0], size=400)
        self.assertEqual(PATHS[path_of(wanted).path], "pageable")
        must(lib.warp_copy_run(ctypes.byref(wanted), None))
        # It was read when the call returned.
        values[:] = array.array("i", bytes(400))
        must(lib.warp_copy_run(ctypes.byref(request(dest=back.buffer_info()[0], src=block.info().data, size=400)), None))
        synchronize()
        self.assertEqual(back.tolist(), list(range(100)))

    def told(self, to, to_kind, of, of_kind, gaps=False):
        shape = (4, 6)
        dest = Array.counting(to, shape, to_kind)
        source = Array.counting(of, shape, of_kind)
        before = dest.tolist()
        info = path_of(arrays(dest[0:4, 0:5], source[0:4, 0:5]) if gaps else arrays(dest, source))
        self.assertEqual(info.size, 80 if gaps else 96)
        self.assertEqual(dest.tolist(), before)
        return PATHS[info.path], bool(info.is_async), info.device

    def test_the_way_is_told_before_it_is_taken(self):
        told, cpu, first, last = self.told, self.cpu, self.first, self.last
        self.assertEqual(told(cpu, HOST, cpu, PINNED), ("host", False, cpu))
        self.assertEqual(told(cpu, HOST, cpu, HOST, True), ("host", False, cpu))
        self.assertEqual(told(first, CUDA_DEVICE, cpu, HOST), ("pageable", False, first))
        self.assertEqual(told(first, CUDA_DEVICE, cpu, HOST, True)[:2], ("pageable", False))
        self.assertEqual(told(cpu, HOST, first, CUDA_MEMPOOL), ("pageable", False, first))
        self.assertEqual(told(first, CUDA_DEVICE, cpu, PINNED), ("pinned", True, first))
        self.assertEqual(told(cpu, PINNED, last, CUDA_DEVICE, True), ("pinned", True, last))
        self.assertEqual(told(first, CUDA_DEVICE, first, CUDA_MEMPOOL), ("device", True, first))
        self.assertEqual(told(first, CUDA_DEVICE, first, CUDA_MEMPOOL, True), ("device", True, first))
        self.assertEqual(told(first, CUDA_MANAGED, last, CUDA_DEVICE)[0], "managed")
        nothing = Array.empty(first, (0, 4))
        self.assertEqual(PATHS[path_of(arrays(nothing, nothing)).path], "none")

    def test_the_way_between_two_gpus_is_told(self):
        first, second, *_ = gpus(2)
        self.assertIn(self.told(first, CUDA_MEMPOOL, second, CUDA_MEMPOOL)[0], ("peer", "peer staged"))

    def test_many_by_one_call(self):
        sources = [Array.counting(device, (10,), kind, 100 * at) for at, (device, kind) in enumerate(self.places)]
        targets = [Array.counting(device, (10,), kind, -10) for device, kind in reversed(self.places)]
        wanted = (CopyRequest * len(sources))(
            *(arrays(target[1:10:3], source[0:6:2]) for source, target in zip(sources, targets))
        )
        # The views are no more, and neither are their handles.
        bad = ctypes.c_size_t(99)
        self.assertEqual(
            lib.warp_copy_run_batch(wanted, ctypes.sizeof(CopyRequest), len(wanted), None, ctypes.byref(bad)), INVALID_HANDLE
        )
        self.assertEqual(bad.value, 0)
        views = [(target[1:10:3], source[0:6:2]) for source, target in zip(sources, targets)]
        wanted = (CopyRequest * len(sources))(*(arrays(*pair) for pair in views))
        wanted[2].count = 4
        self.assertEqual(
            lib.warp_copy_run_batch(wanted, ctypes.sizeof(CopyRequest), len(wanted), None, ctypes.byref(bad)), INVALID_ARGUMENT
        )
        self.assertEqual(bad.value, 2)
        synchronize()
        for target in targets:
            self.assertEqual(target.tolist(), list(range(-10, 0)))
        wanted[2].count = 0
        must(lib.warp_copy_run_batch(wanted, ctypes.sizeof(CopyRequest), len(wanted), None, ctypes.byref(bad)))
        self.assertEqual(bad.value, len(wanted))
        synchronize()
        for at, target in enumerate(targets):
            first = 100 * at
            self.assertEqual(target.tolist(), [-10, first, -8, -7, first + 2, -5, -4, first + 4, -2, -1])

    def test_what_does_not_fit_is_refused_in_words(self):
        matrix, line = Array.counting(self.first, (4, 6)), Array.counting(self.last, (24,))

        def refused(status, words, dest, source, **fields):
            self.assertEqual(lib.warp_copy_run(ctypes.byref(arrays(dest, source, **fields)), None), status)
            self.assertIn(words, message())

        refused(SIZE_MISMATCH, "Incompatible array shapes", matrix.T, line)
        refused(NOT_SUPPORTED, "warp_array_slice", matrix.T, line, dest_offset=1, count=2)
        refused(INVALID_ARGUMENT, "the source", matrix, line, src_offset=20, count=5)
        refused(INVALID_ARGUMENT, "the destination", line[0:24:5], matrix, dest_offset=4, count=2)
        refused(INVALID_ARGUMENT, "size", matrix, line, size=4)
        self.assertEqual(matrix.tolist(), list(range(24)))
        self.assertEqual(line.tolist(), list(range(24)))

    def test_a_copy_comes_in_the_order_of_its_stream(self):
        stream = made(lib.warp_stream_create, self.first, None)
        matrix, turned = Array.counting(self.first, (8, 8)), Array.empty(self.first, (8, 8))
        back = Array.empty(self.cpu, (8, 8), PINNED)
        even, across, back_across = matrix[0:8:2, 0:8], matrix.T, back.T
        for round_ in range(5):
            value = numbers([round_], ctypes.c_int32)
            must(lib.warp_array_fill(even.handle, value, 4, stream))
            must(lib.warp_array_copy(turned.handle, across.handle, 0, 0, 0, stream))
            must(lib.warp_array_copy(back_across.handle, turned.handle, 0, 0, 0, stream))
            must(lib.warp_stream_synchronize(stream))
            self.assertEqual(
                back.tolist(), [round_ if row % 2 == 0 else 8 * row + column for row, column in ones_at_a_time((8, 8))]
            )
        must(lib.warp_stream_release(stream))

    def test_copy_threads_are_a_number(self):
        count = ctypes.c_uint32()
        must(lib.warp_copy_get_threads(ctypes.byref(count)))
        usual = count.value
        self.assertLessEqual(usual, 4)
        must(lib.warp_copy_set_threads(0))
        must(lib.warp_copy_get_threads(ctypes.byref(count)))
        self.assertEqual(count.value, 0)
        must(lib.warp_copy_set_threads(usual))
        self.assertEqual(lib.warp_copy_get_threads(None), INVALID_ARGUMENT)
        self.assertEqual(SUCCESS, 0)


if __name__ == "__main__":
    unittest.main()
