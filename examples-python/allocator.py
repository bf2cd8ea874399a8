"""An allocator in Python: what it takes that exceptions, threads, the collector and the end of the interpreter do no harm.

`Allocator` has the library call the two methods of a provider:

    allocate(request)             gives an address; MemoryError is out of memory, any other exception a failure
    deallocate(address, request)  takes it back

Both are called on any thread, and inside of each other's: an allocation may collect garbage, and with it free a block. A lock
that is not reentrant would wait for itself there, so the state of a provider is best a dict, changed in one operation.

Run as a program it finds leaks: it remembers which line asked for each block.
"""

import atexit
import ctypes
import itertools
import operator
import sys
import threading

from warpmem_ctypes import (
    ALLOCATOR_FAILED,
    CUDA_DEVICE,
    HOST,
    HOST_MEMORY,
    OUT_OF_MEMORY,
    RETRY,
    STREAM_ORDERED,
    SUCCESS,
    AllocateCallback,
    AllocatorVtable,
    AllocOptions,
    DeallocateCallback,
    DestroyCallback,
    Pointer,
    WarpError,
    error_of,
    lib,
    made,
    must,
    sized,
)

# The allocators that the library may still call, by their numbers, from their making to their destruction: longer than any
# reference in Python, since blocks keep an allocator alive. The functions that the library calls are made once and never go.
_living = {}
_numbers = itertools.count(1)
_thread = threading.local()


def _failed(error):
    """Keeps an exception for the Python code that made the call, and gives the status for the library. What ctypes makes of one
    that leaves a callback is noise."""
    raised = getattr(_thread, "raised", None)
    if raised is None:  # not inside of call(): a thread of other code's, for one
        sys.excepthook(type(error), error, error.__traceback__)
    else:
        raised.append(error)
    return OUT_OF_MEMORY if isinstance(error, MemoryError) else ALLOCATOR_FAILED


@AllocateCallback
def _allocate(number, request, out):
    try:
        request = request[0]
        raised = getattr(_thread, "raised", None)
        if raised and request.flags & RETRY:  # the library trimmed and asks once more: the first try is forgotten
            raised[:] = [error for error in raised if not isinstance(error, MemoryError)]
        address = operator.index(_living[number].provider.allocate(request))
        if not 0 < address < 1 << 64:
            raise ValueError(f"an allocator in Python gave {address} for {request.size} bytes, which is no address")
        out[0] = address
        return SUCCESS
    except BaseException as error:  # KeyboardInterrupt too
        return _failed(error)


@DeallocateCallback
def _deallocate(number, address, request):
    try:
        _living[number].provider.deallocate(address, request[0])
        return SUCCESS
    except BaseException as error:
        return _failed(error)


@DestroyCallback
def _destroy(number):
    _living.pop(number, None)


@atexit.register
def _stop():
    """Blocks may outlive the interpreter; from here on their frees call no Python. Waits for calls on other threads."""
    for allocator in list(_living.values()):
        lib.warp_allocator_stop(allocator.handle)


def call(function, *arguments):
    """Calls the library. What providers raised meanwhile on this thread is raised, whatever the status says; else a failure is a
    WarpError."""
    outer, _thread.raised = getattr(_thread, "raised", None), []
    try:
        failure = error_of(function(*arguments))
    finally:
        raised, _thread.raised = _thread.raised, outer
    if raised:
        # A KeyboardInterrupt before anything else.
        raise min(raised, key=lambda error: isinstance(error, Exception)) from failure
    if failure is not None:
        raise failure


def alloc(device, size, **options):
    """Allocates as warp_alloc_with() does."""
    block = Pointer()
    try:
        call(lib.warp_alloc_with, device, size, ctypes.byref(sized(AllocOptions, **options)), ctypes.byref(block))
    except BaseException:
        lib.warp_free(block)  # NULL, unless what was raised is of another block's free
        raise
    return block.value


def free(address):
    call(lib.warp_free, address)


class Allocator:
    """A provider as an allocator of the library; `handle` is its warp_allocator."""

    def __init__(self, provider, name, kind=0, flags=0):
        self.provider, self.number = provider, next(_numbers)
        vtable = sized(AllocatorVtable, name=name.encode(), kind=kind, flags=flags)
        vtable.allocate, vtable.deallocate, vtable.destroy = _allocate, _deallocate, _destroy
        _living[self.number] = self
        try:
            self.handle = made(lib.warp_allocator_create, ctypes.byref(vtable), self.number)
        except BaseException:
            del _living[self.number]
            raise
        self._is_closed = False

    def close(self):
        """Nothing new can be had under the handle, unless it is installed. Blocks stay good, and come back here."""
        if not self._is_closed:
            self._is_closed = True
            call(lib.warp_allocator_release, self.handle)

    @property
    def is_alive(self):
        return self.number in _living

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class OverBudget(MemoryError):
    pass


class LeakFinder:
    """Stands on a built-in allocator, and knows which line asked for each block."""

    def __init__(self, kind, budget):
        self.below, self.budget = made(lib.warp_allocator_get_builtin, kind), budget
        self.blocks = {}

    def allocate(self, request):
        if sum(size for size, _ in list(self.blocks.values())) + request.size > self.budget:
            raise OverBudget(f"{request.size} bytes are above the budget of {self.budget}")
        frame = sys._getframe()
        while frame.f_back and frame.f_code.co_filename == __file__ and frame.f_code.co_name != "main":
            frame = frame.f_back
        address = made(lib.warp_allocator_allocate, self.below, ctypes.byref(request))
        self.blocks[address] = request.size, f"{frame.f_code.co_name}, line {frame.f_lineno}"
        return address

    def deallocate(self, address, request):
        del self.blocks[address]
        must(lib.warp_allocator_deallocate(self.below, address, ctypes.byref(request)))


def main():
    must(lib.warp_init(None, None))
    try:
        device, kind, flags = made(lib.warp_device_get, b"cuda:0"), CUDA_DEVICE, STREAM_ORDERED
    except WarpError:
        device, kind, flags = made(lib.warp_device_get, b"cpu"), HOST, HOST_MEMORY

    finder = LeakFinder(kind, budget=1 << 20)
    with Allocator(finder, "leak finder", kind, flags) as allocator:
        first = alloc(device, 1000, allocator=allocator.handle)
        if kind != HOST:  # the CPU's memory has to name it
            must(lib.warp_allocator_set_for_device(device, allocator.handle))
        blocks = [alloc(device, 100 * number, allocator=allocator.handle) for number in (1, 2, 3)]
        try:
            alloc(device, 2 << 20, allocator=allocator.handle)
        except OverBudget as error:
            print(f"{error}; the library says: {error.__cause__}")
        else:
            raise SystemExit("nothing was raised")
        if kind != HOST:
            must(lib.warp_allocator_set_for_device(device, None))

    # On another thread, after its handle is gone.
    thread = threading.Thread(target=lambda: [free(block) for block in blocks])
    thread.start()
    thread.join()
    for size, where in finder.blocks.values():
        print(f"a leak of {size} bytes: {where}")
    assert [size for size, _ in finder.blocks.values()] == [1000] and allocator.is_alive
    free(first)
    assert not finder.blocks and not allocator.is_alive
    print("destroyed with its last block")

    with Allocator(finder, "leak finder", kind, flags) as allocator:
        alloc(device, 500, allocator=allocator.handle)
    # The interpreter may end with the block alive.


if __name__ == "__main__":
    main()
