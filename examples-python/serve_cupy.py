"""warpmem serves CuPy, in two ways.

`allocate` is CuPy's allocator as a Python function: it knows CuPy's current stream, and a failure is a MemoryError. The other way
is `c_allocator`, without Python in an allocation, where CuPy names no stream: memory is freed after all work of the GPU. CuPy does
not look at a NULL there.
"""

import weakref

import cupy

from warpmem_ctypes import address_of, lib, must, pointer_info


class _Block:
    """Owns memory for CuPy, which drops it with the last array."""


def allocate(nbytes):
    device = cupy.cuda.Device().id
    block, address = _Block(), 0
    if nbytes != 0:
        # The plug for PyTorch takes a native stream that nobody promises to keep.
        address = lib.warp_torch_alloc(nbytes, device, cupy.cuda.get_current_stream().ptr)
        if not address:
            raise MemoryError(lib.warp_error_get_message().decode())
        weakref.finalize(block, lib.warp_free, address)
    return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(address, nbytes, block, device), 0)


def c_allocator(allocator=0):
    """CuPy's allocator over functions of the library; `allocator` is a warp_allocator, 0 what serves the device."""
    malloc, free = address_of(lib.warp_cupy_malloc), address_of(lib.warp_cupy_free)
    return cupy.cuda.CFunctionAllocator(allocator, malloc, free, lib)


def main():
    must(lib.warp_init(None, None))
    for allocator in (allocate, c_allocator().malloc):
        with cupy.cuda.using_allocator(allocator):  # cupy.cuda.set_allocator(allocator) is for all
            array = cupy.arange(1000, dtype=cupy.int64)
            info = pointer_info(array.data.ptr)
            print(f"a block of {info.size} bytes for an array of {array.nbytes}")
            assert info.is_owned and info.size == array.nbytes and array.sum() == 499500
            address = array.data.ptr
            del array
            assert not pointer_info(address).is_owned


if __name__ == "__main__":
    main()
