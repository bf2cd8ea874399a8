"""warpmem serves RMM: a CallbackMemoryResource over the library. RMM calls Python for each block; for speed let RMM use the pool
that the library uses (rmm.mr.CudaAsyncViewMemoryResource)."""

import rmm.mr
from cuda.bindings import runtime
from rmm.pylibrmm.stream import Stream

from warpmem_ctypes import lib, must, pointer_info


def _allocate(size, stream):
    status, device = runtime.cudaGetDevice()
    assert status == runtime.cudaError_t.cudaSuccess
    # The plug for PyTorch takes a native stream that nobody promises to keep.
    address = lib.warp_torch_alloc(size, device, stream.__cuda_stream__()[1])
    if not address and size:
        raise MemoryError(lib.warp_error_get_message().decode())  # std::bad_alloc in RMM
    return address or 0


def _deallocate(address, size, stream):
    # RMM may free on another stream than it allocated on: the free comes after both.
    lib.warp_torch_record_stream(address, stream.__cuda_stream__()[1])
    lib.warp_torch_free(address, size, 0, None)


def rmm_resource():
    return rmm.mr.CallbackMemoryResource(_allocate, _deallocate)


def main():
    must(lib.warp_init(None, None))
    rmm.mr.set_current_device_resource(rmm_resource())
    stream = Stream()
    buffer = rmm.DeviceBuffer.to_device(bytes(range(200)), stream=stream)
    info = pointer_info(buffer.ptr)
    print(f"a block of {info.size} bytes for a buffer of {buffer.size}")
    assert info.is_owned and info.size == 200 and buffer.tobytes(stream) == bytes(range(200))
    address = buffer.ptr
    del buffer
    assert not pointer_info(address).is_owned


if __name__ == "__main__":
    main()
