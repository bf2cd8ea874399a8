"""What the examples use of libwarpmem.so, declared once for ctypes.

WARPMEM_LIBRARY is the library's file; without it the loader looks for libwarpmem.so.
"""

import ctypes
import os

SUCCESS, INVALID_HANDLE, NO_SUCH_DEVICE, UNKNOWN_POINTER = 0, 4, 5, 8
OUT_OF_MEMORY, ALLOCATOR_FAILED = 101, 103

HOST, PINNED, CUDA_DEVICE, CUDA_MEMPOOL, CUDA_MANAGED = 1, 2, 3, 4, 5

IN_CAPTURE, RETRY, IDLE, DEVICE_LOST = 1, 2, 4, 8  # in flags of a request
STREAM_ORDERED, MANAGES_CONTEXT, HOST_MEMORY = 1, 2, 4  # in flags of a vtable

Pointer, Size, Status = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int32
Out = ctypes.POINTER(Pointer)


class AllocRequest(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("size", Size),
        ("alignment", Size),
        ("device", Pointer),
        ("stream", Pointer),
        ("native_context", Pointer),
        ("native_stream", Pointer),
        ("stream_id", Size),
        ("tag", ctypes.c_char_p),
        ("ordinal", ctypes.c_int32),
        ("kind", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


Request = ctypes.POINTER(AllocRequest)
AllocateCallback = ctypes.CFUNCTYPE(Status, Pointer, Request, Out)
DeallocateCallback = ctypes.CFUNCTYPE(Status, Pointer, Pointer, Request)
DestroyCallback = ctypes.CFUNCTYPE(None, Pointer)


class AllocatorVtable(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("kind", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
        ("allocate", AllocateCallback),
        ("deallocate", DeallocateCallback),
        ("destroy", DestroyCallback),
        ("trim", Pointer),
        ("get_statistics", Pointer),
        ("record_stream", Pointer),
        ("export_ipc", Pointer),
    ]


class AllocOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("alignment", Size),
        ("tag", ctypes.c_char_p),
        ("stream", Pointer),
        ("kind", ctypes.c_int32),
        ("mempool", Pointer),
        ("allocator", Pointer),
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
        ("allocator", Pointer),
    ]


def sized(struct, **fields):
    return struct(struct_size=ctypes.sizeof(struct), **fields)


LIBRARY = os.environ.get("WARPMEM_LIBRARY", "libwarpmem.so")

# A bare int is passed as 32 bits: every function that is called has its types here.
FUNCTIONS = {
    "warp_init": [Pointer, Pointer],
    "warp_shutdown": [],
    "warp_device_get": [ctypes.c_char_p, Out],
    "warp_device_synchronize": [Pointer],
    "warp_stream_wrap": [Pointer, Pointer, Out],
    "warp_stream_release": [Pointer],
    "warp_stream_synchronize": [Pointer],
    "warp_alloc_with": [Pointer, Size, ctypes.POINTER(AllocOptions), Out],
    "warp_free": [Pointer],
    "warp_memory_fill": [Pointer, Size, ctypes.c_char_p, Size, Pointer],
    "warp_memory_copy": [Pointer, Pointer, Size, Pointer],
    "warp_pointer_get_info": [Pointer, ctypes.POINTER(PointerInfo)],
    "warp_allocator_create": [ctypes.POINTER(AllocatorVtable), Pointer, Out],
    "warp_allocator_release": [Pointer],
    "warp_allocator_stop": [Pointer],
    "warp_allocator_get_builtin": [ctypes.c_int32, Out],
    "warp_allocator_get_for_device": [Pointer, Out],
    "warp_allocator_set_for_device": [Pointer, Pointer],
    "warp_allocator_set_for_all": [Pointer],
    "warp_allocator_measure": [Pointer, ctypes.POINTER(Size), ctypes.POINTER(Size)],
    "warp_allocator_allocate": [Pointer, Request, Out],
    "warp_allocator_deallocate": [Pointer, Pointer, Request],
}


def load():
    library = ctypes.CDLL(LIBRARY)
    for name, arguments in FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, Status
    for name in ("warp_error_get_message", "warp_status_get_name"):
        getattr(library, name).restype = ctypes.c_char_p
    # For frameworks that take plain functions.
    library.warp_torch_alloc.argtypes = [ctypes.c_size_t, ctypes.c_int, Pointer]
    library.warp_torch_alloc.restype = Pointer
    library.warp_torch_free.argtypes = [Pointer, ctypes.c_size_t, ctypes.c_int, Pointer]
    library.warp_torch_free.restype = None
    library.warp_torch_record_stream.argtypes = [Pointer, Pointer]
    library.warp_torch_record_stream.restype = None
    library.warp_cupy_malloc.argtypes = [Pointer, ctypes.c_size_t, ctypes.c_int]
    library.warp_cupy_malloc.restype = Pointer
    library.warp_cupy_free.argtypes = [Pointer, Pointer, ctypes.c_int]
    library.warp_cupy_free.restype = None
    return library


lib = load()


class WarpError(RuntimeError):
    """A status that is not success, with the library's message."""

    def __init__(self, status):
        super().__init__(lib.warp_error_get_message().decode())
        self.status = status


class WarpMemoryError(WarpError, MemoryError):
    """WARP_ERROR_OUT_OF_MEMORY."""


def error_of(status):
    """The calling thread's last failure as an exception; None for success."""
    if status == SUCCESS:
        return None
    return (WarpMemoryError if status == OUT_OF_MEMORY else WarpError)(status)


def must(status):
    if status != SUCCESS:
        raise error_of(status)


def made(function, *arguments):
    """What a function makes and gives through its last parameter."""
    out = Pointer()
    must(function(*arguments, ctypes.byref(out)))
    return out.value


def address_of(function):
    """For frameworks that take a function of the library by its address."""
    return ctypes.cast(function, Pointer).value


class NativeStream:
    """A stream by its number, in the protocol that CuPy, RMM and cuda.core share."""

    def __init__(self, native):
        self.native = native or 0  # ctypes gives NULL as None

    def __cuda_stream__(self):
        return 0, self.native


def pointer_info(address):
    info = sized(PointerInfo)
    must(lib.warp_pointer_get_info(address, ctypes.byref(info)))
    return info
