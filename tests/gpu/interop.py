"""Memory shared with PyTorch, CuPy and RMM on a real GPU, in both directions, by the programs in examples-python.

    interop.py            each framework that can be imported, in an interpreter of its own
    interop.py torch ...  these

Each test is a line; the last is `N passed, N failed`. WARPMEM_LIBRARY is the library's file.
"""

import ctypes
import faulthandler
import gc
import importlib.util
import pathlib
import re
import subprocess
import sys
import threading
import traceback

HERE = pathlib.Path(__file__).resolve().parent
for folder in (HERE.parent / "examples-python", HERE.parents[1] / "examples-python"):
    sys.path.append(str(folder))

FRAMEWORKS = {"torch": ["torch"], "cupy": ["cupy"], "rmm": ["rmm", "cuda.bindings"]}
SIZES = (1, 100, 511, 512, 4096, 1 << 20, (20 << 20) + 3)
TOO_MUCH = 1 << 46
MIB = 1 << 20


def every():
    """Runs each framework in an interpreter of its own, so that a crash or a hang of one is only its failure."""
    passed = failed = 0
    for name, modules in FRAMEWORKS.items():
        try:
            for module in modules:
                if importlib.util.find_spec(module) is None:
                    raise ImportError(f"no module named {module!r}")
        except ImportError as error:
            print(f"{name} left out: {error}", flush=True)
            continue
        try:
            finished = subprocess.run(
                [sys.executable, "-B", __file__, name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=90
            )
            output, status = finished.stdout, finished.returncode
        except subprocess.TimeoutExpired as error:
            output, status = (error.stdout or b"").decode(errors="replace"), "none in 90 seconds"
        counts = re.findall(r"^(\d+) passed, (\d+) failed$", output, re.MULTILINE)
        print(re.sub(r"^\d+ passed, \d+ failed\n", "", output, flags=re.MULTILINE), end="", flush=True)
        ok, bad = map(int, counts[-1]) if counts else (0, 0)
        if not counts or (status != 0) != (bad != 0):
            print(f"FAIL {name}: exit status {status}")
            bad += 1
        passed, failed = passed + ok, failed + bad
    print(f"{passed} passed, {failed} failed")
    return failed


class Torch:
    def __init__(self):
        import serve_torch
        import torch
        import torch_provider

        self.torch, self.serve, self.provide = torch, serve_torch, torch_provider.torch_allocator
        torch.cuda.init()

    def used(self):
        return self.torch.cuda.memory_allocated(0)

    def synchronize(self):
        self.torch.cuda.synchronize()

    def stream(self):
        stream = self.torch.cuda.Stream()
        return stream, stream.cuda_stream

    def view(self, address, size):
        class Raw:
            __cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}

        return self.torch.as_tensor(Raw(), device="cuda:0")

    def read(self, address, size):
        return self.view(address, size).cpu().numpy().tobytes()

    def write(self, address, size, byte):
        self.view(address, size).fill_(byte)
        self.synchronize()


class Cupy:
    def __init__(self):
        import cupy
        import cupy_provider
        import serve_cupy

        self.cupy, self.serve = cupy, serve_cupy
        self.pool = cupy.cuda.MemoryPool()
        self.provide = lambda: cupy_provider.cupy_allocator(self.pool)

    def used(self):
        return self.pool.used_bytes()

    def synchronize(self):
        self.cupy.cuda.Device().synchronize()

    def stream(self):
        stream = self.cupy.cuda.Stream(non_blocking=True)
        return stream, stream.ptr

    def view(self, address, size):
        memory = self.cupy.cuda.UnownedMemory(address, size, None, 0)
        return self.cupy.ndarray((size,), self.cupy.uint8, self.cupy.cuda.MemoryPointer(memory, 0))

    def read(self, address, size):
        return self.cupy.asnumpy(self.view(address, size)).tobytes()

    def write(self, address, size, byte):
        self.view(address, size).fill(byte)
        self.synchronize()


class Rmm:
    def __init__(self):
        import rmm
        import rmm.mr
        import rmm_provider
        import serve_rmm
        from cuda.bindings import runtime
        from rmm.pylibrmm import device_buffer
        from rmm.pylibrmm.stream import Stream

        self.rmm, self.runtime, self.buffers, self.Stream = rmm, runtime, device_buffer, Stream
        self.serve, self.provide = serve_rmm, rmm_provider.rmm_allocator
        self.resource = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaAsyncMemoryResource())
        rmm.mr.set_per_device_resource(0, self.resource)

    def used(self):
        return self.resource.allocation_counts.current_bytes

    def synchronize(self):
        assert self.runtime.cudaDeviceSynchronize()[0] == 0

    def stream(self):
        stream = self.Stream()
        return stream, stream.__cuda_stream__()[1]

    def read(self, address, size):
        host = bytearray(size)
        self.buffers.copy_ptr_to_host(address, host)
        return bytes(host)

    def write(self, address, size, byte):
        self.buffers.copy_host_to_ptr(bytes([byte]) * size, address)
        self.synchronize()


def one(name):
    """The tests of one framework."""
    faulthandler.dump_traceback_later(80, exit=True)
    import allocator as providers
    import warpmem_ctypes as warp
    from allocator import alloc, free
    from warpmem_ctypes import Pointer, lib, made, must, pointer_info, sized

    class Statistics(ctypes.Structure):
        _fields_ = [("struct_size", ctypes.c_size_t)] + [
            (field, ctypes.c_uint64)
            for field in ("live_bytes", "peak_bytes", "live_blocks", "allocations", "frees", "stale_blocks")
        ]

    class Dtype(ctypes.Structure):
        _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("item_size", ctypes.c_uint32)]

    class ArrayInfo(ctypes.Structure):
        _fields_ = [("struct_size", ctypes.c_size_t), ("data", Pointer), ("device", Pointer)]
        _fields_ += [(field, ctypes.c_uint64) for field in ("count", "size", "capacity")]
        _fields_ += [("dtype", Dtype), ("rank", ctypes.c_int32), ("kind", ctypes.c_int32), ("rule", ctypes.c_int32), ("is", ctypes.c_uint8 * 4)]

    for function, arguments in {
        "warp_statistics_get": [Pointer, ctypes.c_int32, ctypes.POINTER(Statistics)],
        "warp_array_zeros": [Pointer, Dtype, ctypes.c_int32, ctypes.POINTER(ctypes.c_int64), Pointer, warp.Out],
        "warp_array_get_info": [Pointer, ctypes.POINTER(ArrayInfo)],
        "warp_array_release": [Pointer],
        "warp_stream_create": [Pointer, Pointer, warp.Out],
        "warp_capture_begin": [Pointer, ctypes.c_int32],
        "warp_capture_end": [Pointer, warp.Out],
        "warp_graph_launch": [Pointer, Pointer],
        "warp_graph_release": [Pointer],
    }.items():
        getattr(lib, function).argtypes = arguments

    must(lib.warp_init(None, None))
    gpu = made(lib.warp_device_get, b"cuda:0")
    framework = {"torch": Torch, "cupy": Cupy, "rmm": Rmm}[name]()
    tests = []

    def test(function):
        tests.append((f"{name}: {function.__name__}", function))

    def count_blocks():
        counts = sized(Statistics)
        must(lib.warp_statistics_get(gpu, 0, ctypes.byref(counts)))
        return counts.live_blocks

    found = [0]

    def live_blocks():
        """More than when the test began."""
        return count_blocks() - found[0]

    def read(address, size, stream=None):
        host = ctypes.create_string_buffer(size)
        must(lib.warp_memory_copy(host, address, size, stream))
        must(lib.warp_stream_synchronize(stream) if stream else lib.warp_device_synchronize(gpu))
        return host.raw

    def check_both(address, size, byte):
        """Written by the one and read by the other."""
        must(lib.warp_memory_fill(address, size, bytes([byte]), 1, None))
        must(lib.warp_device_synchronize(gpu))
        assert framework.read(address, size) == bytes([byte]) * size, "what the library wrote"
        framework.write(address, size, byte ^ 255)
        assert read(address, size) == bytes([byte ^ 255]) * size, f"what {name} wrote"

    def raises(expected, function, *arguments, **options):
        try:
            function(*arguments, **options)
        except expected as error:
            return error
        raise AssertionError(f"no {expected}")

    class Provided:
        """The framework's memory, installed in the library; the same bytes are out afterwards."""

        def __enter__(self):
            self.before = framework.used()
            self.allocator = framework.provide()
            must(lib.warp_allocator_set_for_all(self.allocator.handle))
            return self.allocator

        def __exit__(self, kind, *_):
            must(lib.warp_allocator_set_for_all(None))
            self.allocator.close()
            must(lib.warp_device_synchronize(gpu))
            if kind is None:
                state = vars(self.allocator.provider)
                assert not state.get("sizes") and not state.get("blocks"), f"blocks are left: {state}"
                assert not self.allocator.is_alive, "the allocator was not destroyed"
                assert framework.used() == self.before, f"{framework.used()} bytes of {name} are in use, not {self.before}"
                assert live_blocks() == 0, f"{live_blocks()} blocks are live"

    @test
    def provides_every_size():
        with Provided() as allocator:
            blocks = [alloc(gpu, size) for size in SIZES]
            assert framework.used() >= sum(SIZES), framework.used()
            for byte, (block, size) in enumerate(zip(blocks, SIZES)):
                info = pointer_info(block)
                assert (info.size, info.allocator, info.ordinal) == (size, allocator.handle, 0), (info.size, info.ordinal)
                assert block % 256 == 0
                check_both(block, size, byte)
            assert alloc(gpu, 0) is None
            for block in blocks:
                free(block)

    @test
    def provides_arrays():
        with Provided() as allocator:
            shape = (ctypes.c_int64 * 2)(300, 200)
            array = made(lib.warp_array_zeros, gpu, Dtype(2, 32, 1, 4), 2, shape, None)
            info = sized(ArrayInfo)
            must(lib.warp_array_get_info(array, ctypes.byref(info)))
            assert pointer_info(info.data).allocator == allocator.handle
            must(lib.warp_device_synchronize(gpu))
            assert framework.read(info.data, info.size) == bytes(240_000)
            check_both(info.data, info.size, 9)
            must(lib.warp_array_release(array))

    @test
    def provides_on_the_stream_of_the_request():
        with Provided() as allocator:
            seen, provide = [], allocator.provider.allocate

            def watched(request):
                seen.append(request.native_stream)
                return provide(request)

            allocator.provider.allocate = watched
            streams = [framework.stream() for _ in range(3)]
            for _, native in streams:
                stream = made(lib.warp_stream_wrap, gpu, native)
                for byte in range(20):
                    block = alloc(gpu, MIB, stream=stream)
                    must(lib.warp_memory_fill(block, MIB, bytes([byte]), 1, stream))
                    assert read(block, MIB, stream) == bytes([byte]) * MIB
                    must(lib.warp_memory_fill(block, MIB, b"\xee", 1, stream))
                    free(block)
                assert seen[-20:] == [native] * 20, (seen[-20:], native)
                must(lib.warp_stream_release(stream))
            # A block that another stream uses is freed after the work there.
            first, second = (made(lib.warp_stream_wrap, gpu, native) for _, native in streams[:2])
            for byte in range(20):
                block, copy = alloc(gpu, MIB, stream=first), alloc(gpu, MIB, stream=second)
                must(lib.warp_memory_fill(block, MIB, bytes([byte]), 1, first))
                must(lib.warp_stream_synchronize(first))
                must(lib.warp_memory_copy(copy, block, MIB, second))
                free(block)
                other = alloc(gpu, MIB, stream=first)
                must(lib.warp_memory_fill(other, MIB, b"\xdd", 1, first))
                assert read(copy, MIB, second) == bytes([byte]) * MIB
                free(copy)
                free(other)
            must(lib.warp_stream_release(first))
            must(lib.warp_stream_release(second))

    @test
    def provides_on_every_gpu():
        count = ctypes.c_size_t()
        lib.warp_device_get_count(ctypes.byref(count))
        if count.value == 2:
            print(f"{name}: provides_on_every_gpu left out: there is one")
        with Provided() as allocator:
            for number in range(1, count.value - 1):
                other = made(lib.warp_device_get, b"cuda:%d" % number)
                seen, provide = [], allocator.provider.allocate
                allocator.provider.allocate = lambda request: seen.append(request.ordinal) or provide(request)
                block = alloc(other, 5000)
                allocator.provider.allocate = provide
                assert (seen, pointer_info(block).ordinal) == ([number], number), (seen, pointer_info(block).ordinal)
                must(lib.warp_memory_fill(block, 5000, b"\x77", 1, None))
                must(lib.warp_device_synchronize(other))
                assert framework.read(block, 5000) == b"\x77" * 5000
                free(block)
                must(lib.warp_device_synchronize(other))

    @test
    def provides_nothing_for_a_wrong_free():
        with Provided() as allocator:
            block = alloc(gpu, 5000)
            request = sized(warp.AllocRequest, size=5000)
            raises(RuntimeError, allocator.provider.deallocate, 0x1000, request)
            request.size = 5001
            raises(ValueError, allocator.provider.deallocate, block, request)
            assert raises(warp.WarpError, free, 0x1000).status == warp.UNKNOWN_POINTER
            foreign = framework.used()
            check_both(block, 5000, 3)
            assert framework.used() == foreign
            free(block)
            raises(warp.WarpError, free, block)

    @test
    def carries_exceptions():
        with Provided() as allocator:
            error = raises(ValueError, alloc, gpu, 100, alignment=MIB)
            assert error.__cause__.status == warp.ALLOCATOR_FAILED, error.__cause__
            provide = allocator.provider.allocate

            def interrupted(request):
                raise KeyboardInterrupt

            allocator.provider.allocate = interrupted
            raises(KeyboardInterrupt, alloc, gpu, 100)
            allocator.provider.allocate = provide
            block = alloc(gpu, 100)
            check_both(block, 100, 1)
            free(block)

    @test
    def is_out_of_memory_and_goes_on():
        with Provided():
            error = raises(MemoryError, alloc, gpu, TOO_MUCH)
            assert error.__cause__.status == warp.OUT_OF_MEMORY, error.__cause__
            block = alloc(gpu, MIB)
            check_both(block, MIB, 1)
            free(block)

    @test
    def provides_for_threads():
        with Provided():
            failures = []

            def work(number):
                try:
                    stream = made(lib.warp_stream_create, gpu, None)
                    for turn in range(100):
                        size = 1000 * (1 + (number * 7 + turn) % 40)
                        block = alloc(gpu, size, stream=stream)
                        must(lib.warp_memory_fill(block, size, bytes([number * 50 + turn % 50]), 1, stream))
                        assert read(block, size, stream) == bytes([number * 50 + turn % 50]) * size
                        free(block)
                    must(lib.warp_stream_release(stream))
                except BaseException:
                    failures.append(traceback.format_exc())

            threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not failures, failures[0]

    @test
    def provides_in_a_capture():
        with Provided():
            stream = made(lib.warp_stream_create, gpu, None)
            result = alloc(gpu, MIB, stream=stream)
            must(lib.warp_capture_begin(stream, 1))
            try:
                if name == "rmm":
                    error = raises(RuntimeError, alloc, gpu, MIB, stream=stream)
                    assert error.__cause__.status == warp.ALLOCATOR_FAILED and "no captures" in str(error), error
                scratch = alloc(gpu, MIB, stream=stream, kind=warp.CUDA_MEMPOOL if name == "rmm" else 0)
                must(lib.warp_memory_fill(scratch, MIB, b"\x5a", 1, stream))
                must(lib.warp_memory_copy(result, scratch, MIB, stream))
                free(scratch)
            finally:
                graph = made(lib.warp_capture_end, stream)
            # What others get meanwhile is not the graph's.
            others = [alloc(gpu, MIB, stream=stream) for _ in range(3)]
            for other in others:
                must(lib.warp_memory_fill(other, MIB, b"\x11", 1, stream))
            for _ in range(3):
                must(lib.warp_memory_fill(result, MIB, b"\0", 1, stream))
                must(lib.warp_graph_launch(graph, stream))
                assert read(result, MIB, stream) == b"\x5a" * MIB
            assert all(read(other, MIB, stream) == b"\x11" * MIB for other in others)
            must(lib.warp_graph_release(graph))
            for block in (result, *others):
                free(block)
            must(lib.warp_stream_release(stream))

    serving = {"torch": serve_torch, "cupy": serve_cupy, "rmm": serve_rmm}[name]
    serving(framework, test, locals())

    @test
    def examples_run():
        for example in (f"{name}_provider.py", f"serve_{name}.py"):
            finished = subprocess.run(
                [sys.executable, "-B", pathlib.Path(providers.__file__).with_name(example)], capture_output=True, text=True, timeout=60
            )
            assert finished.returncode == 0, f"{example}: {finished.stdout}{finished.stderr}"
            print(f"    {example}: {finished.stdout.strip()}")

    passed = 0
    for title, function in tests:
        found[0] = count_blocks()
        try:
            function()
            passed += 1
            print(f"PASS {title}", flush=True)
        except BaseException:
            print(f"FAIL {title}\n{traceback.format_exc()}", flush=True)
        gc.collect()
    print(f"{passed} passed, {len(tests) - passed} failed")
    return len(tests) - passed


def serve_torch(framework, test, tools):
    torch, lib, check_both, live_blocks = framework.torch, tools["lib"], tools["check_both"], tools["live_blocks"]
    pointer_info, raises, gpu = tools["pointer_info"], tools["raises"], tools["gpu"]

    class Served:
        def __enter__(self):
            self.pool, self.plug = framework.serve.torch_pool()
            self.context = torch.cuda.use_mem_pool(self.pool)
            self.context.__enter__()
            return self.pool, self.leave

        def leave(self):
            if self.context is not None:
                self.context.__exit__(None, None, None)
                self.context = None

        def __exit__(self, kind, *_):
            self.leave()
            self.pool = None
            gc.collect()
            torch.cuda.empty_cache()
            must = tools["must"]
            must(lib.warp_device_synchronize(gpu))
            if kind is None:
                assert live_blocks() == 0, f"{live_blocks()} blocks are live"

    @test
    def serves_tensors_of_every_size():
        with Served():
            tensors = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in SIZES]
            for byte, (tensor, size) in enumerate(zip(tensors, SIZES)):
                info = pointer_info(tensor.data_ptr())
                assert info.is_owned and info.size >= size, info.size
                check_both(tensor.data_ptr(), size, byte)
            assert torch.empty(0, device="cuda").data_ptr() == 0
            del tensors, tensor

    @test
    def serves_streams():
        with Served():
            for turn in range(20):
                side = torch.cuda.Stream()
                with torch.cuda.stream(side):
                    tensor = torch.full((MIB,), turn, dtype=torch.uint8, device="cuda")
                    total = tensor.sum()
                other = torch.cuda.Stream()
                other.wait_stream(side)
                with torch.cuda.stream(other):
                    doubled = tensor + tensor
                tensor.record_stream(other)
                del tensor
                torch.cuda.current_stream().wait_stream(other)
                assert total.item() == turn * MIB and doubled.sum().item() == 2 * turn * MIB
                del total, doubled

    @test
    def serves_every_gpu():
        for number in range(torch.cuda.device_count()):
            pool, plug = framework.serve.torch_pool()
            with torch.cuda.device(number), torch.cuda.use_mem_pool(pool, device=number):
                tensor = torch.full((1000,), 3.0, device=f"cuda:{number}")
                assert pointer_info(tensor.data_ptr()).ordinal == number
                assert tensor.sum().item() == 3000
            del tensor, pool
            gc.collect()
            torch.cuda.empty_cache()

    @test
    def serves_a_capture_in_torch():
        with Served() as (pool, leave):
            source = torch.zeros(MIB, device="cuda")
            # PyTorch routes to one pool at a time.
            leave()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool.id):
                first = source + 1
                second = (first * 2).cumsum(0)
            assert pointer_info(second.data_ptr()).is_owned
            for value in range(3):
                source.fill_(value)
                graph.replay()
                assert second[-1].item() == 2 * (value + 1) * MIB
            del first, second, graph, source, pool

    @test
    def is_out_of_memory_in_torch_and_goes_on():
        with Served():
            raises(torch.cuda.OutOfMemoryError, torch.empty, TOO_MUCH, dtype=torch.uint8, device="cuda")
            tensor = torch.ones(1000, device="cuda")
            assert tensor.sum().item() == 1000
            del tensor

    @test
    def refuses_unknown_pointers_of_torch():
        tensor = torch.ones(1000, device="cuda")
        lib.warp_torch_free(tensor.data_ptr(), 4000, 0, None)
        assert b"not" in lib.warp_error_get_message(), lib.warp_error_get_message()
        block = lib.warp_torch_alloc(1000, 0, None)
        lib.warp_torch_free(block, 999, 0, None)
        assert pointer_info(block).is_owned and b"999" in lib.warp_error_get_message()
        lib.warp_torch_free(block, 1000, 0, None)
        assert not pointer_info(block).is_owned and tensor.sum().item() == 1000

    @test
    def serves_all_of_torch():
        program = """
import sys
sys.path[:0] = sys.argv[1:]
import torch
from serve_torch import *
must(lib.warp_init(None, None))
plug = torch.cuda.memory.CUDAPluggableAllocator(LIBRARY, "warp_torch_alloc", "warp_torch_free")
torch.cuda.memory.change_current_allocator(plug)
tensors = [torch.full((size,), 3.0, device="cuda") for size in (1, 1000, 1 << 20)]
assert all(pointer_info(tensor.data_ptr()).size == tensor.nbytes for tensor in tensors)
model = torch.nn.Linear(100, 100).cuda()
model(torch.ones(10, 100, device="cuda")).sum().backward()
assert pointer_info(model.weight.grad.data_ptr()).is_owned
assert torch.empty(0, device="cuda").numel() == 0
print(sum(tensor.sum().item() for tensor in tensors))
"""
        finished = subprocess.run([sys.executable, "-B", "-c", program, *sys.path], capture_output=True, text=True, timeout=60)
        assert (finished.returncode, finished.stdout) == (0, f"{3.0 * (1001 + (1 << 20))}\n"), finished


def serve_cupy(framework, test, tools):
    cupy, serve, check_both, live_blocks = framework.cupy, framework.serve, tools["check_both"], tools["live_blocks"]
    pointer_info, raises, lib, must, gpu = (tools[tool] for tool in ("pointer_info", "raises", "lib", "must", "gpu"))

    def nothing_left():
        gc.collect()
        pool.free_all_blocks()
        must(lib.warp_device_synchronize(gpu))
        assert live_blocks() == 0, f"{live_blocks()} blocks are live"

    pool = cupy.cuda.MemoryPool(serve.allocate)
    for way, allocator in {
        "by_a_function": serve.allocate,
        "by_c_functions": serve.c_allocator().malloc,
        "behind_a_pool_of_cupy": pool.malloc,
    }.items():

        def serves_arrays(allocator=allocator):
            with cupy.cuda.using_allocator(allocator):
                arrays = [cupy.empty(size, cupy.uint8) for size in SIZES]
                for byte, (array, size) in enumerate(zip(arrays, SIZES)):
                    assert pointer_info(array.data.ptr).is_owned
                    check_both(array.data.ptr, size, byte)
                assert cupy.empty(0).size == 0
                del arrays, array
            nothing_left()

        def serves_streams(allocator=allocator):
            with cupy.cuda.using_allocator(allocator):
                for turn in range(20):
                    with cupy.cuda.Stream(non_blocking=True) as stream:
                        array = cupy.full(MIB, turn, cupy.int64)
                        doubled = array + array
                        del array
                        assert int(doubled.sum()) == 2 * turn * MIB
                        del doubled
                        stream.synchronize()
                    del stream
            nothing_left()

        for function in (serves_arrays, serves_streams):
            function.__name__ += "_" + way
            test(function)

    @test
    def is_out_of_memory_in_cupy_and_goes_on():
        with cupy.cuda.using_allocator(serve.allocate):
            error = raises(MemoryError, cupy.empty, TOO_MUCH, cupy.uint8)
            assert "out of memory" in str(error), error
            assert int(cupy.ones(1000, cupy.int64).sum()) == 1000
        nothing_left()

    @test
    def refuses_unknown_pointers_of_cupy():
        array = cupy.ones(1000)
        lib.warp_cupy_free(None, array.data.ptr, 0)
        assert b"not" in lib.warp_error_get_message(), lib.warp_error_get_message()
        assert lib.warp_cupy_malloc(0x1234567, 100, 0) is None
        assert int(array.sum()) == 1000

    @test
    def serves_from_a_named_allocator():
        from allocator import Allocator, LeakFinder
        from warpmem_ctypes import CUDA_DEVICE

        finder = LeakFinder(CUDA_DEVICE, 1 << 30)
        with Allocator(finder, "leak finder", CUDA_DEVICE) as allocator:
            with cupy.cuda.using_allocator(serve.c_allocator(allocator.handle).malloc):
                array = cupy.ones(1000, cupy.float32)
                assert finder.blocks[array.data.ptr][0] == 4000 and float(array.sum()) == 1000
                del array
        nothing_left()
        assert not finder.blocks and not allocator.is_alive


def serve_rmm(framework, test, tools):
    rmm, serve, check_both, live_blocks = framework.rmm, framework.serve, tools["check_both"], tools["live_blocks"]
    pointer_info, raises, lib, must, gpu = (tools[tool] for tool in ("pointer_info", "raises", "lib", "must", "gpu"))

    def nothing_left():
        gc.collect()
        must(lib.warp_device_synchronize(gpu))
        assert live_blocks() == 0, f"{live_blocks()} blocks are live"

    @test
    def serves_buffers_of_every_size():
        resource = serve.rmm_resource()
        buffers = [rmm.DeviceBuffer(size=size, mr=resource) for size in SIZES]
        for byte, (buffer, size) in enumerate(zip(buffers, SIZES)):
            info = pointer_info(buffer.ptr)
            assert info.is_owned and info.size == size
            check_both(buffer.ptr, size, byte)
        assert rmm.DeviceBuffer(size=0, mr=resource).size == 0
        del buffers, buffer
        nothing_left()

    @test
    def serves_streams():
        resource = serve.rmm_resource()
        for turn in range(20):
            stream, other = framework.stream()[0], framework.stream()[0]
            address = resource.allocate(MIB, stream)
            framework.buffers.copy_host_to_ptr(bytes([turn]) * MIB, address, stream)
            stream.synchronize()
            host = bytearray(MIB)
            framework.buffers.copy_ptr_to_host(address, host, other)
            assert host == bytes([turn]) * MIB
            resource.deallocate(address, MIB, other)
            assert not pointer_info(address).is_owned
        nothing_left()

    @test
    def serves_a_pool_of_rmm():
        pool = rmm.mr.PoolMemoryResource(serve.rmm_resource(), initial_pool_size=32 * MIB, maximum_pool_size=64 * MIB)
        buffers = [rmm.DeviceBuffer(size=MIB, mr=pool) for number in range(20)]
        for number, buffer in enumerate(buffers):
            buffer.copy_from_host(bytes([number]) * MIB)
        assert all(buffer.tobytes() == bytes([number]) * MIB for number, buffer in enumerate(buffers))
        assert live_blocks() >= 1
        del buffers, buffer, pool
        nothing_left()

    @test
    def is_out_of_memory_in_rmm_and_goes_on():
        resource = serve.rmm_resource()
        raises(MemoryError, rmm.DeviceBuffer, size=TOO_MUCH, mr=resource)
        buffer = rmm.DeviceBuffer(size=3, mr=resource)
        buffer.copy_from_host(b"abc")
        assert buffer.tobytes() == b"abc"
        del buffer
        nothing_left()


if __name__ == "__main__":
    wanted = sys.argv[1:]
    sys.exit(1 if (sum(one(name) for name in wanted) if wanted else every()) else 0)
