"""The chapter Memory through ctypes: what a language without a compiler sees of it.

The library is the file that WARPMEM_LIBRARY names; the driver is what it finds, the simulated one in the tests.
"""

import ctypes
import random
import threading
import unittest

from binding import (
    BAD_ALIGNMENT,
    CUDA_DEVICE,
    CUDA_MANAGED,
    CUDA_MEMPOOL,
    DOUBLE_FREE,
    HOST,
    INTERIOR_POINTER,
    INVALID_ARGUMENT,
    INVALID_HANDLE,
    NOT_SUPPORTED,
    OUT_OF_MEMORY,
    PINNED,
    SIZE_MISMATCH,
    SIZE_OVERFLOW,
    SUCCESS,
    UNKNOWN,
    UNKNOWN_POINTER,
    AllocOptions,
    Out,
    Pointer,
    PointerInfo,
    Size,
    Statistics,
    gpus,
    load,
    message,
    sized,
)


class FreeOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("size", Size), ("alignment", Size), ("stream", Pointer)]


lib = load(
    {
        "warp_device_synchronize": [Pointer],
        "warp_stream_create": [Pointer, Pointer, Out],
        "warp_alloc": [Pointer, Size, Out],
        "warp_alloc_with": [Pointer, Size, ctypes.POINTER(AllocOptions), Out],
        "warp_free_with": [Pointer, ctypes.POINTER(FreeOptions)],
        "warp_pointer_record_stream": [Pointer, Pointer],
        "warp_pointer_get_info": [Pointer, ctypes.POINTER(PointerInfo)],
        "warp_statistics_get": [Pointer, ctypes.c_int32, ctypes.POINTER(Statistics)],
        "warp_statistics_reset_peak": [Pointer],
    }
)


def address_of(buffer):
    return ctypes.addressof(buffer)


class Memory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        assert lib.warp_init(None, None) == SUCCESS, message()
        cls.cpu = cls.device(b"cpu")
        cls.gpus = gpus()
        cls.devices = [cls.cpu] + cls.gpus

    @classmethod
    def tearDownClass(cls):
        assert lib.warp_shutdown() == SUCCESS, message()

    @staticmethod
    def device(alias):
        out = Pointer()
        assert lib.warp_device_get(alias, ctypes.byref(out)) == SUCCESS, message()
        return out.value

    def tearDown(self):
        for device in self.devices:
            self.ok(lib.warp_device_synchronize(device))
            self.assertEqual(self.statistics(device).live_blocks, 0)
            self.assertEqual(self.statistics(device).live_bytes, 0)

    def ok(self, status):
        self.assertEqual(status, SUCCESS, message())

    def alloc(self, device, size, kind=UNKNOWN, alignment=0, tag=None, stream=None):
        options = sized(AllocOptions)
        options.kind, options.alignment, options.tag, options.stream = kind, alignment, tag, stream
        out = Pointer(1)
        status = lib.warp_alloc_with(device, size, ctypes.byref(options), ctypes.byref(out))
        if status != SUCCESS:
            self.assertIsNone(out.value)
        return status, out.value

    def block(self, *args, **kwargs):
        status, ptr = self.alloc(*args, **kwargs)
        self.ok(status)
        self.assertIsNotNone(ptr)
        return ptr

    def info(self, ptr):
        info = sized(PointerInfo)
        self.ok(lib.warp_pointer_get_info(ptr, ctypes.byref(info)))
        return info

    def statistics(self, device, kind=UNKNOWN):
        statistics = sized(Statistics)
        self.ok(lib.warp_statistics_get(device, kind, ctypes.byref(statistics)))
        return statistics

    def kinds(self, device):
        """Kinds that the device has; the others must say that they are not supported."""
        names = [HOST, PINNED] if device == self.cpu else [CUDA_DEVICE, CUDA_MEMPOOL, CUDA_MANAGED]
        there = []
        for kind in names:
            status, ptr = self.alloc(device, 1, kind)
            if status == SUCCESS:
                there.append(kind)
                self.ok(lib.warp_free(ptr))
            else:
                self.assertEqual(status, NOT_SUPPORTED, message())
        return there

    def read(self, ptr, size):
        buffer = ctypes.create_string_buffer(size)
        self.ok(lib.warp_memory_copy(address_of(buffer), ptr, size, None))
        return buffer.raw

    def write(self, ptr, data):
        buffer = ctypes.create_string_buffer(data, len(data))
        self.ok(lib.warp_memory_copy(ptr, address_of(buffer), len(data), None))

    def test_bytes_survive_in_every_kind(self):
        data = bytes(random.Random(1).randbytes(5000))
        for device in self.devices:
            kinds = self.kinds(device)
            self.assertIn(HOST if device == self.cpu else CUDA_DEVICE, kinds)
            for kind in kinds:
                ptr = self.block(device, 5000, kind)
                self.write(ptr, data)
                self.assertEqual(self.read(ptr, 5000), data)
                self.assertEqual(self.read(ptr + 1234, 100), data[1234:1334])
                self.ok(lib.warp_free(ptr))

    def test_host_memory_is_a_buffer(self):
        ptr = self.block(self.cpu, 256, HOST)
        view = (ctypes.c_ubyte * 256).from_address(ptr)
        view[:] = range(256)
        self.assertEqual(self.read(ptr, 256), bytes(range(256)))
        self.ok(lib.warp_memory_fill(ptr, 256, ctypes.cast(b"ab", Pointer), 2, None))
        self.assertEqual(bytes(view), b"ab" * 128)
        self.ok(lib.warp_free(ptr))

    def test_info_knows_interior_addresses_and_tags(self):
        for device in self.devices:
            for kind in self.kinds(device):
                ptr = self.block(device, 1000, kind, alignment=4096, tag="Gewichte ü".encode())
                self.assertEqual(ptr % 4096, 0)
                for offset in (0, 1, 999):
                    info = self.info(ptr + offset)
                    self.assertEqual((info.base, info.size, info.kind), (ptr, 1000, kind))
                    self.assertEqual((info.alignment, info.device, info.is_owned), (4096, device, 1))
                    self.assertEqual(info.tag.decode(), "Gewichte ü")
                self.ok(lib.warp_free(ptr))
                self.assertEqual(self.info(ptr).is_owned, 0)

    def test_python_memory_is_unknown_and_not_freed(self):
        buffer = ctypes.create_string_buffer(100)
        self.assertEqual(self.info(address_of(buffer)).kind, UNKNOWN)
        self.assertEqual(lib.warp_free(address_of(buffer)), UNKNOWN_POINTER)
        self.assertIn("free it with what allocated it", message())
        self.assertEqual(lib.warp_free(id(self)), UNKNOWN_POINTER)

    def test_every_mistake_has_its_status(self):
        ptr = self.block(self.devices[-1], 1000)
        self.assertEqual(lib.warp_free(ptr + 8), INTERIOR_POINTER)
        options = sized(FreeOptions)
        options.size = 999
        self.assertEqual(lib.warp_free_with(ptr, ctypes.byref(options)), SIZE_MISMATCH)
        options.size, options.alignment = 1000, 1 << 20
        self.assertEqual(lib.warp_free_with(ptr, ctypes.byref(options)), BAD_ALIGNMENT)
        options.alignment = 0
        self.ok(lib.warp_free_with(ptr, ctypes.byref(options)))
        self.assertEqual(lib.warp_free(ptr), DOUBLE_FREE)
        self.ok(lib.warp_free(None))
        self.assertEqual(self.alloc(self.cpu, 10, alignment=3)[0], BAD_ALIGNMENT)
        self.assertEqual(self.alloc(self.cpu, 10, kind=6)[0], INVALID_ARGUMENT)
        self.assertEqual(self.alloc(self.cpu, 10, kind=-1)[0], INVALID_ARGUMENT)
        self.assertEqual(self.alloc(self.cpu, 10, stream=12345)[0], INVALID_HANDLE)
        self.assertEqual(self.alloc(12345, 10)[0], INVALID_HANDLE)
        self.assertEqual(lib.warp_alloc(self.cpu, 10, None), INVALID_ARGUMENT)

    def test_sizes_beyond_32_and_64_bits(self):
        # A Python int that does not fit is wrapped by ctypes; what arrives is then judged.
        self.assertEqual(self.alloc(self.cpu, 2**64 - 1)[0], SIZE_OVERFLOW)
        self.assertEqual(self.alloc(self.cpu, 2**63)[0], SIZE_OVERFLOW)
        self.assertEqual(self.alloc(self.cpu, 2**62)[0], OUT_OF_MEMORY)
        self.assertEqual(self.alloc(self.cpu, -1)[0], SIZE_OVERFLOW)
        self.assertEqual(self.alloc(self.cpu, 0), (SUCCESS, None))
        if self.gpus:
            size = 5 * 2**30
            ptr = self.block(self.devices[1], size, CUDA_DEVICE)
            self.write(ptr + size - 5, b"ends!")
            self.write(ptr + 2**32 - 2, b"over")
            self.assertEqual(self.read(ptr + size - 5, 5), b"ends!")
            self.assertEqual(self.read(ptr + 2**32 - 2, 4), b"over")
            self.assertEqual(self.info(ptr + size - 1).base, ptr)
            self.ok(lib.warp_free(ptr))

    def test_counts(self):
        for device in self.devices:
            for kind in self.kinds(device):
                self.ok(lib.warp_statistics_reset_peak(device))
                before = self.statistics(device, kind)
                blocks = [self.block(device, 100 + i, kind) for i in range(10)]
                now = self.statistics(device, kind)
                self.assertEqual(now.live_bytes, sum(100 + i for i in range(10)))
                self.assertEqual(now.live_blocks, 10)
                self.assertEqual(now.allocations - before.allocations, 10)
                for ptr in blocks:
                    self.ok(lib.warp_free(ptr))
                after = self.statistics(device, kind)
                self.assertEqual((after.live_bytes, after.live_blocks), (0, 0))
                # Other tests' threads may have freed what they had not allocated, which leaves the peak up to 1 MiB too high.
                self.assertGreaterEqual(after.peak_bytes, now.live_bytes)
                self.assertLess(after.peak_bytes - now.live_bytes, 1 << 20)
                self.assertEqual(after.frees - before.frees, 10)

    def test_copies_between_devices(self):
        data = bytes(random.Random(2).randbytes(3000))
        for source in self.devices:
            for target in self.devices:
                first, second = self.block(source, 3000), self.block(target, 3000)
                self.write(first, data)
                for device in self.devices:
                    self.ok(lib.warp_device_synchronize(device))
                self.ok(lib.warp_memory_copy(second, first, 3000, None))
                self.ok(lib.warp_device_synchronize(target))
                self.ok(lib.warp_device_synchronize(source))
                self.assertEqual(self.read(second, 3000), data)
                self.assertEqual(lib.warp_memory_copy(second + 1, first, 3000, None), INVALID_ARGUMENT)
                self.ok(lib.warp_free(first))
                self.ok(lib.warp_free(second))

    def test_a_block_used_on_another_stream(self):
        gpu, *_ = gpus(1)
        stream = Pointer()
        self.ok(lib.warp_stream_create(gpu, None, ctypes.byref(stream)))
        for kind in self.kinds(gpu):
            ptr = self.block(gpu, 1000, kind)
            self.ok(lib.warp_pointer_record_stream(ptr + 10, stream))
            self.ok(lib.warp_free(ptr))
        self.ok(lib.warp_stream_synchronize(stream))
        self.ok(lib.warp_stream_release(stream))

    def test_threads(self):
        # ctypes lets go of the interpreter's lock in every call, so these really run side by side.
        problems = []

        def work(seed):
            try:
                chance = random.Random(seed)
                live = []
                for _ in range(150):
                    if live and chance.random() < 0.5:
                        ptr, data = live.pop(chance.randrange(len(live)))
                        self.assertEqual(self.read(ptr, len(data)), data)
                        self.ok(lib.warp_free(ptr))
                    else:
                        data = chance.randbytes(chance.randrange(1, 2000))
                        ptr = self.block(chance.choice(self.devices), len(data))
                        self.write(ptr, data)
                        live.append((ptr, data))
                for ptr, _ in live:
                    self.ok(lib.warp_free(ptr))
            except BaseException as problem:  # told by the main thread
                problems.append(problem)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(problems, [])


if __name__ == "__main__":
    unittest.main()
