"""RMM's resource of the GPU serves warpmem, whichever resource that is at the time."""

import rmm.mr
from rmm.pylibrmm.stream import Stream

from allocator import Allocator, alloc, free
from warpmem_ctypes import DEVICE_LOST, IN_CAPTURE, STREAM_ORDERED, NativeStream, lib, made, must


class RmmProvider:
    """Deallocations of RMM come in the order of the stream that they name: STREAM_ORDERED. That would let it serve captures too,
    but some resources of RMM would allocate in the graph then, and count that as their own."""

    ALIGNMENT = 256

    def __init__(self):
        self.blocks = {}

    def allocate(self, request):
        if request.alignment > self.ALIGNMENT:
            raise ValueError(f"RMM aligns to {self.ALIGNMENT} bytes, not to {request.alignment}")
        if request.flags & IN_CAPTURE:
            raise RuntimeError("RMM serves no captures; allocate before, or name WARP_MEMORY_CUDA_MEMPOOL")
        # The device's context is current here. What is set later does not matter to this block.
        resource = rmm.mr.get_per_device_resource(request.ordinal)
        address = resource.allocate(request.size, Stream(NativeStream(request.native_stream)))
        self.blocks[address] = resource, request.size
        return address

    def deallocate(self, address, request):
        resource, size = self.blocks.pop(address, (None, 0))
        if resource is None:
            raise RuntimeError(f"{address:#x} was not allocated here")
        if size != request.size:
            self.blocks[address] = resource, size
            raise ValueError(f"{address:#x} has {size} bytes, not {request.size}")
        if not request.flags & DEVICE_LOST:
            # Without a stream no work uses the block any more, and the default one will do.
            resource.deallocate(address, size, Stream(NativeStream(request.native_stream)))


def rmm_allocator():
    return Allocator(RmmProvider(), "rmm", flags=STREAM_ORDERED)


def main():
    must(lib.warp_init(None, None))
    gpu = made(lib.warp_device_get, b"cuda:0")
    resource = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaAsyncMemoryResource())
    rmm.mr.set_per_device_resource(0, resource)
    with rmm_allocator() as allocator:
        must(lib.warp_allocator_set_for_device(gpu, allocator.handle))
        block = alloc(gpu, 1 << 20)
        print(f"RMM counts {resource.allocation_counts.current_bytes} bytes")
        assert resource.allocation_counts.current_bytes == 1 << 20
        must(lib.warp_memory_fill(block, 1 << 20, b"\7", 1, None))
        free(block)
        must(lib.warp_allocator_set_for_device(gpu, None))
    assert resource.allocation_counts.current_bytes == 0 and not allocator.is_alive


if __name__ == "__main__":
    main()
