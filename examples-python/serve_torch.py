"""warpmem serves PyTorch: tensors made under a torch.cuda.MemPool are in memory of the library, by whatever is installed there.

Two functions of libwarpmem.so are all that PyTorch needs, and no Python runs in an allocation. A MemPool keeps PyTorch's own cache
in front of them: it asks for segments, takes a NULL for out of memory, and works in captures. As the allocator of everything
(torch.cuda.memory.change_current_allocator, before PyTorch has allocated) the same object serves tensors one by one, but then
PyTorch looks at no NULL and its memory statistics are gone.
"""

import torch

from warpmem_ctypes import LIBRARY, address_of, lib, must, pointer_info


def torch_pool():
    """A MemPool and what it stands on, which has to be kept as long as the pool in PyTorch before 2.11."""
    plug = torch.cuda.memory.CUDAPluggableAllocator(LIBRARY, "warp_torch_alloc", "warp_torch_free")
    plug.allocator().set_record_stream_fn(address_of(lib.warp_torch_record_stream))
    return torch.cuda.MemPool(plug.allocator()), plug


def main():
    must(lib.warp_init(None, None))
    pool, plug = torch_pool()
    with torch.cuda.use_mem_pool(pool):
        tensor = torch.full((1000, 1000), 7.0, device="cuda")
    info = pointer_info(tensor.data_ptr())
    print(f"a segment of {info.size} bytes for a tensor of {tensor.nbytes}")
    assert info.is_owned and info.size >= tensor.nbytes
    assert tensor.sum().item() == 7_000_000

    # A graph with memory of the pool.
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool.id):
        doubled = tensor * 2
    for _ in range(3):
        graph.replay()
    assert doubled.sum().item() == 14_000_000 and pointer_info(doubled.data_ptr()).is_owned
    del tensor, doubled, graph, pool
    torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
