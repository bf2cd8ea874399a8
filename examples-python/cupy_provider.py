"""A CuPy memory pool serves warpmem: one pool for CuPy's arrays and for blocks of the library."""

import cupy

from allocator import Allocator, alloc, free
from warpmem_ctypes import STREAM_ORDERED, NativeStream, lib, made, must


def _stream(native, device):
    if hasattr(cupy.cuda.Stream, "from_external"):  # since CuPy 14
        return cupy.cuda.Stream.from_external(NativeStream(native))
    return cupy.cuda.ExternalStream(native or 0, device)


class CupyProvider:
    """The pool keeps what is freed for the same stream, so frees may come while work there goes on: STREAM_ORDERED."""

    ALIGNMENT = 512

    def __init__(self, pool=None):
        self.pool = pool or cupy.get_default_memory_pool()
        self.blocks = {}

    def allocate(self, request):
        if request.alignment > self.ALIGNMENT:
            raise ValueError(f"CuPy aligns to {self.ALIGNMENT} bytes, not to {request.alignment}")
        with cupy.cuda.Device(request.ordinal), _stream(request.native_stream, request.ordinal):
            memory = self.pool.malloc(request.size)  # cupy.cuda.memory.OutOfMemoryError is a MemoryError
        # CuPy's memory lives as long as its object.
        self.blocks[memory.ptr] = memory, request.size
        return memory.ptr

    def deallocate(self, address, request):
        memory, size = self.blocks.pop(address, (None, 0))
        if memory is None:
            raise RuntimeError(f"{address:#x} was not allocated here")
        if size != request.size:
            self.blocks[address] = memory, size
            raise ValueError(f"{address:#x} has {size} bytes, not {request.size}")


def cupy_allocator(pool=None):
    return Allocator(CupyProvider(pool), "cupy", flags=STREAM_ORDERED)


def main():
    must(lib.warp_init(None, None))
    gpu = made(lib.warp_device_get, b"cuda:0")
    pool = cupy.cuda.MemoryPool()
    with cupy_allocator(pool) as allocator:
        must(lib.warp_allocator_set_for_device(gpu, allocator.handle))
        block = alloc(gpu, 1 << 20)
        print(f"CuPy's pool counts {pool.used_bytes()} bytes")
        assert pool.used_bytes() == 1 << 20
        must(lib.warp_memory_fill(block, 1 << 20, b"\7", 1, None))
        free(block)
        must(lib.warp_allocator_set_for_device(gpu, None))
    assert pool.used_bytes() == 0 and not allocator.is_alive


if __name__ == "__main__":
    main()
