"""PyTorch's caching allocator serves warpmem: one cache for tensors and for blocks of the library."""

import torch

from allocator import Allocator, alloc, free
from warpmem_ctypes import DEVICE_LOST, STREAM_ORDERED, lib, made, must


class TorchProvider:
    """The cache keeps what is freed for the same stream, so frees may come while work there goes on: STREAM_ORDERED. Of other
    streams that used a block the library takes care, by waiting. Size 0 never comes here."""

    ALIGNMENT = 512

    def __init__(self):
        self.sizes = {}

    def allocate(self, request):
        if request.alignment > self.ALIGNMENT:
            raise ValueError(f"PyTorch aligns to {self.ALIGNMENT} bytes, not to {request.alignment}")
        try:
            # The native stream as a number; torch.cuda.ExternalStream(number) would make it the current one as well.
            address = torch.cuda.caching_allocator_alloc(request.size, request.ordinal, request.native_stream or 0)
        except torch.cuda.OutOfMemoryError as error:  # no MemoryError
            raise MemoryError(str(error)) from error
        self.sizes[address] = request.size
        return address

    def deallocate(self, address, request):
        size = self.sizes.pop(address, None)
        if size is None:
            raise RuntimeError(f"{address:#x} was not allocated here")
        if size != request.size:
            self.sizes[address] = size
            raise ValueError(f"{address:#x} has {size} bytes, not {request.size}")
        if not request.flags & DEVICE_LOST:
            torch.cuda.caching_allocator_delete(address)


def torch_allocator():
    return Allocator(TorchProvider(), "torch", flags=STREAM_ORDERED)


def main():
    must(lib.warp_init(None, None))
    gpu = made(lib.warp_device_get, b"cuda:0")
    before = torch.cuda.memory_allocated(0)
    with torch_allocator() as allocator:
        must(lib.warp_allocator_set_for_all(allocator.handle))
        block = alloc(gpu, 1 << 20)
        print(f"PyTorch counts {torch.cuda.memory_allocated(0) - before} bytes more")
        assert torch.cuda.memory_allocated(0) - before >= 1 << 20
        must(lib.warp_memory_fill(block, 1 << 20, b"\7", 1, None))
        free(block)
        must(lib.warp_allocator_set_for_all(None))
    assert torch.cuda.memory_allocated(0) == before and not allocator.is_alive


if __name__ == "__main__":
    main()
