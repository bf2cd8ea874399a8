"""What the tests share of the library as ctypes meets it: its status numbers, the structs of more than one chapter, and how a
file of tests loads it.

    lib = load({"warp_alloc": [Pointer, Size, Out]})
    block = made(lib.warp_alloc, made(lib.warp_device_get, b"cpu"), 64)
    must(lib.warp_free(block))

WARPMEM_LIBRARY is the library's file, WARPMEM_LIBCUDA the driver's.
"""

import ctypes
import os
import unittest

SUCCESS = 0
SHUT_DOWN = 2
INVALID_ARGUMENT = 3
INVALID_HANDLE = 4
NO_SUCH_DEVICE = 5
SIZE_OVERFLOW = 6
BAD_ALIGNMENT = 7
UNKNOWN_POINTER = 8
INTERIOR_POINTER = 9
DOUBLE_FREE = 10
SIZE_MISMATCH = 11
ILLEGAL_IN_CAPTURE = 13
SCOPE_ORDER = 15
BUSY = 16
FORKED = 17
NOT_SUPPORTED = 100
OUT_OF_MEMORY = 101

UNKNOWN, HOST, PINNED, CUDA_DEVICE, CUDA_MEMPOOL, CUDA_MANAGED = range(6)

LIBRARY = os.environ["WARPMEM_LIBRARY"]

Pointer = ctypes.c_void_p
Size = ctypes.c_uint64
Status = ctypes.c_int32
Out = ctypes.POINTER(Pointer)
BoolOut = ctypes.POINTER(ctypes.c_uint8)

# What is called in each file that loads the library here.
COMMON = {
    "warp_init": [Pointer, Pointer],
    "warp_shutdown": [],
    "warp_device_get": [ctypes.c_char_p, Out],
    "warp_stream_release": [Pointer],
    "warp_stream_synchronize": [Pointer],
    "warp_free": [Pointer],
    "warp_memory_fill": [Pointer, Size, Pointer, Size, Pointer],
    "warp_memory_copy": [Pointer, Pointer, Size, Pointer],
}


class Dtype(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("item_size", ctypes.c_uint32),
    ]


class AllocOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("alignment", Size),
        ("tag", ctypes.c_char_p),
        ("stream", Pointer),
        ("kind", ctypes.c_int32),
        ("mempool", Pointer),
    ]


class PointerInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("base", Pointer),
        ("size", Size),
        ("alignment", Size),
        ("device", Pointer),
        ("tag", ctypes.c_char_p),
        ("stream_id", Size),
        ("context_id", Size),
        ("ordinal", ctypes.c_int32),
        ("kind", ctypes.c_int32),
        ("rule", ctypes.c_int32),
        ("is_owned", ctypes.c_uint8),
        ("is_lost", ctypes.c_uint8),
    ]


class ArrayOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("alignment", Size),
        ("tag", ctypes.c_char_p),
        ("stream", Pointer),
        ("kind", ctypes.c_int32),
        ("mempool", Pointer),
        ("allocator", Pointer),
    ]


class ArrayInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("data", Pointer),
        ("device", Pointer),
        ("count", Size),
        ("size", Size),
        ("capacity", Size),
        ("dtype", Dtype),
        ("rank", ctypes.c_int32),
        ("kind", ctypes.c_int32),
        ("rule", ctypes.c_int32),
        ("is_contiguous", ctypes.c_uint8),
        ("is_view", ctypes.c_uint8),
        ("is_owned", ctypes.c_uint8),
        ("has_deleter", ctypes.c_uint8),
    ]


class Statistics(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("live_bytes", Size),
        ("peak_bytes", Size),
        ("live_blocks", Size),
        ("allocations", Size),
        ("frees", Size),
        ("stale_blocks", Size),
    ]


def load(declarations):
    """The one library, with declarations that no other file of tests sees; each function's name and its arguments' types."""
    lib = ctypes.CDLL(LIBRARY)
    for name, arguments in {**COMMON, **declarations}.items():
        function = getattr(lib, name)
        function.argtypes = arguments
        function.restype = Status
    lib.warp_error_get_message.argtypes = []
    lib.warp_error_get_message.restype = ctypes.c_char_p
    return lib


_lib = load({"warp_device_get_cuda_count": [ctypes.POINTER(ctypes.c_size_t)]})


def message():
    """Of the calling thread's last failure, whichever file made the call."""
    return _lib.warp_error_get_message().decode()


def must(status):
    if status != SUCCESS:
        raise RuntimeError(message())


def made(function, *arguments):
    out = Pointer()
    must(function(*arguments, ctypes.byref(out)))
    return out.value


def asked(function, *arguments):
    """The answer of a function that says yes or no."""
    out = ctypes.c_uint8(9)
    must(function(*arguments, ctypes.byref(out)))
    return bool(out.value)


def gpus(needed=0):
    """The GPUs that there are, of the library that was started. What needs more of them is skipped: never on two simulated ones,
    where `cargo xtask test` takes that for a failure."""
    count = ctypes.c_size_t()
    must(_lib.warp_device_get_cuda_count(ctypes.byref(count)))
    if count.value < needed:
        raise unittest.SkipTest("needs a GPU" if needed == 1 else "needs two GPUs")
    return [made(_lib.warp_device_get, b"cuda:%d" % number) for number in range(count.value)]


def sized(struct, **fields):
    return struct(struct_size=ctypes.sizeof(struct), **fields)
