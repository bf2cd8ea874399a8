"""Access and launch checks as ctypes meets them: the structs, answers and reasons, what is refused in words, warnings.

WARPMEM_LIBRARY is the library's file, WARPMEM_LIBCUDA the driver's.
"""

import ctypes
import enum
import unittest

from binding import (
    CUDA_DEVICE,
    CUDA_MANAGED,
    CUDA_MEMPOOL,
    HOST,
    INVALID_ARGUMENT,
    INVALID_HANDLE,
    PINNED,
    SUCCESS,
    UNKNOWN,
    AllocOptions,
    ArrayOptions,
    BoolOut,
    Dtype,
    Out,
    Pointer,
    Size,
    asked,
    gpus,
    load,
    made,
    message,
    must,
    sized,
)

ACCESS_DENIED = 12
NO_NAME = "WARP_ACCESS_REASON_UNKNOWN"


class Access(enum.IntEnum):
    ACCESSIBLE = 1
    UNVERIFIED = 2
    INACCESSIBLE = 3


class Mode(enum.IntEnum):
    PROCESS = -1
    RELAXED = 0
    CHECKED = 1
    STRICT = 2


ARRAY, INDEXED_ARRAY, POINTER, STRUCT = range(4)


class AccessInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("device", Pointer),
        ("access", ctypes.c_int32),
        ("reason", ctypes.c_int32),
        ("kind", ctypes.c_int32),
        ("rule", ctypes.c_int32),
    ]


class Argument(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("value", Pointer),
        ("member_count", ctypes.c_size_t),
        ("kind", ctypes.c_int32),
        ("reserved", ctypes.c_uint32),
    ]


class Report(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("accessible", Size),
        ("unverified", Size),
        ("inaccessible", Size),
        ("argument", Size),
        ("device", Pointer),
        ("access", ctypes.c_int32),
        ("reason", ctypes.c_int32),
        ("kind", ctypes.c_int32),
        ("reserved", ctypes.c_uint32),
        ("name", ctypes.c_char * 256),
    ]


Callback = ctypes.CFUNCTYPE(None, Pointer, ctypes.c_int32, ctypes.c_char_p)

lib = load(
    {
        "warp_alloc_with": [Pointer, Size, ctypes.POINTER(AllocOptions), Out],
        "warp_array_empty": [Pointer, Dtype, ctypes.c_int32, ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ArrayOptions), Out],
        "warp_array_release": [Pointer],
        "warp_indexed_array_create": [Pointer, Out, ctypes.c_size_t, Out],
        "warp_indexed_array_release": [Pointer],
        "warp_access_can": [Pointer, Pointer, BoolOut],
        "warp_access_can_indexed": [Pointer, Pointer, BoolOut],
        "warp_access_can_pointer": [Pointer, Pointer, BoolOut],
        "warp_access_can_device": [Pointer, Pointer, BoolOut],
        "warp_access_get_status": [Pointer, Pointer, ctypes.POINTER(AccessInfo)],
        "warp_access_get_indexed_status": [Pointer, Pointer, ctypes.POINTER(AccessInfo)],
        "warp_access_get_pointer_status": [Pointer, Pointer, ctypes.POINTER(AccessInfo)],
        "warp_peer_access_set_enabled": [Pointer, Pointer, ctypes.c_uint8],
        "warp_mempool_access_set_enabled": [Pointer, Pointer, ctypes.c_uint8],
        "warp_mempool_set_enabled": [Pointer, ctypes.c_uint8],
        "warp_launch_set_mode": [ctypes.c_int32],
        "warp_launch_get_mode": [ctypes.POINTER(ctypes.c_int32)],
        "warp_launch_check": [
            Pointer,
            ctypes.c_char_p,
            ctypes.POINTER(Argument),
            ctypes.c_size_t,
            ctypes.c_size_t,
            ctypes.c_int32,
            ctypes.POINTER(Report),
        ],
        "warp_log_set_callback": [Callback, Pointer, ctypes.c_int32],
    }
)
lib.warp_access_reason_get_name.argtypes = [ctypes.c_int32]
lib.warp_access_reason_get_name.restype = ctypes.c_char_p


def told(function, *of):
    """The answer, the reason's name without its prefix, and all that is told."""
    info = sized(AccessInfo)
    must(function(*of, ctypes.byref(info)))
    name = lib.warp_access_reason_get_name(info.reason).decode()
    return Access(info.access), name.removeprefix("WARP_ACCESS_REASON_"), info


class Accesses(unittest.TestCase):
    def setUp(self):
        must(lib.warp_init(None, None))
        self.addCleanup(lambda: must(lib.warp_shutdown()))
        self.cpu = made(lib.warp_device_get, b"cpu")
        self.gpus = gpus(1)[:2]
        self.first, self.last = self.gpus[0], self.gpus[-1]
        self.made = []

    def tearDown(self):
        for peer in self.gpus[1:]:
            must(lib.warp_peer_access_set_enabled(self.first, peer, 0))
            must(lib.warp_mempool_access_set_enabled(self.first, peer, 0))
        must(lib.warp_mempool_set_enabled(self.first, 1))
        must(lib.warp_launch_set_mode(Mode.RELAXED))
        for release, what in reversed(self.made):
            must(release(what))

    def array(self, device, kind=UNKNOWN, count=8, code=2):
        options = sized(ArrayOptions, kind=kind)
        array = made(lib.warp_array_empty, device, Dtype(code, 32, 1, 0), 1, (ctypes.c_int64 * 1)(count), ctypes.byref(options))
        self.made.append((lib.warp_array_release, array))
        return array

    def block(self, device, kind):
        block = made(lib.warp_alloc_with, device, 64, ctypes.byref(sized(AllocOptions, kind=kind)))
        self.made.append((lib.warp_free, block))
        return block

    def check(self, device, *arguments, mode=Mode.CHECKED, status=SUCCESS):
        given = (Argument * len(arguments))(*arguments)
        report = sized(Report)
        size = ctypes.sizeof(Argument)
        self.assertEqual(lib.warp_launch_check(device, b"saxpy", given, len(given), size, mode, ctypes.byref(report)), status)
        return report

    def test_peers_and_pools_are_different_facts(self):
        first, second, *_ = gpus(2)
        plain, pooled = self.array(first, CUDA_DEVICE), self.array(first, CUDA_MEMPOOL)
        for peer in (0, 1):
            for pool in (0, 1):
                must(lib.warp_peer_access_set_enabled(first, second, peer))
                must(lib.warp_mempool_access_set_enabled(first, second, pool))
                self.assertEqual(asked(lib.warp_access_can, second, plain), bool(peer))
                self.assertEqual(asked(lib.warp_access_can, second, pooled), bool(pool))
                self.assertEqual(asked(lib.warp_access_can_device, second, first), bool(pool))
                must(lib.warp_mempool_set_enabled(first, 0))
                self.assertEqual(asked(lib.warp_access_can, second, pooled), bool(pool))
                self.assertEqual(asked(lib.warp_access_can_device, second, first), bool(peer))
                must(lib.warp_mempool_set_enabled(first, 1))

    def check_reasons(self, *expected):
        for home, kind, device, access, reason in expected:
            for ask, status, of in (
                (lib.warp_access_can, lib.warp_access_get_status, self.array(home, kind)),
                (lib.warp_access_can_pointer, lib.warp_access_get_pointer_status, self.block(home, kind)),
            ):
                with self.subTest(kind=kind, reason=reason, ask=ask.__name__):
                    answer, name, info = told(status, device, of)
                    self.assertEqual((answer, name), (access, reason))
                    self.assertEqual((info.device, info.kind), (home, kind))
                    self.assertEqual(asked(ask, device, of), access == Access.ACCESSIBLE)

    def test_each_answer_has_its_reason(self):
        self.check_reasons(
            (self.cpu, HOST, self.cpu, Access.ACCESSIBLE, "SAME_DEVICE"),
            (self.cpu, PINNED, self.first, Access.ACCESSIBLE, "PINNED_MAPPING"),
            (self.first, CUDA_DEVICE, self.first, Access.ACCESSIBLE, "SAME_DEVICE"),
            (self.first, CUDA_MEMPOOL, self.cpu, Access.INACCESSIBLE, "DEVICE_MEMORY"),
        )

    def test_each_answer_about_another_gpu_has_its_reason(self):
        first, second, *_ = gpus(2)
        self.check_reasons(
            (first, CUDA_DEVICE, second, Access.INACCESSIBLE, "NO_PEER_ACCESS"),
            (first, CUDA_MEMPOOL, second, Access.INACCESSIBLE, "NO_POOL_ACCESS"),
            (first, CUDA_MANAGED, second, Access.ACCESSIBLE, "MANAGED_ON_BOTH"),
        )

    def test_memory_of_python_is_unknown_and_none_is_empty(self):
        buffer = ctypes.create_string_buffer(64)
        answer, name, info = told(lib.warp_access_get_pointer_status, self.first, ctypes.addressof(buffer))
        self.assertEqual((answer, name, info.device, info.kind), (Access.UNVERIFIED, "UNKNOWN_MEMORY", None, UNKNOWN))
        self.assertEqual(told(lib.warp_access_get_pointer_status, self.first, None)[:2], (Access.ACCESSIBLE, "EMPTY"))
        self.assertEqual(told(lib.warp_access_get_status, self.last, self.array(self.first, count=0))[1], "EMPTY")

    def test_of_an_indexed_array_the_worst_part_counts(self):
        first, second, *_ = gpus(2)
        data, index = self.array(first, CUDA_MANAGED), self.array(first, CUDA_DEVICE, count=4, code=0)
        indexed = made(lib.warp_indexed_array_create, data, (Pointer * 1)(index), 1)
        self.made.append((lib.warp_indexed_array_release, indexed))
        self.assertEqual(told(lib.warp_access_get_indexed_status, second, indexed)[1], "NO_PEER_ACCESS")
        self.assertFalse(asked(lib.warp_access_can_indexed, second, indexed))
        must(lib.warp_peer_access_set_enabled(first, second, 1))
        self.assertTrue(asked(lib.warp_access_can_indexed, second, indexed))
        self.check(second, Argument(b"x", indexed, 0, INDEXED_ARRAY))

    def test_modes(self):
        buffer = ctypes.create_string_buffer(64)
        unverified = Argument(b"x", ctypes.addressof(buffer), 0, POINTER)
        for process in (Mode.RELAXED, Mode.CHECKED, Mode.STRICT):
            must(lib.warp_launch_set_mode(process))
            mode = ctypes.c_int32(9)
            must(lib.warp_launch_get_mode(ctypes.byref(mode)))
            self.assertEqual(mode.value, process)
            denied = ACCESS_DENIED if process == Mode.STRICT else SUCCESS
            self.check(self.first, unverified, mode=Mode.PROCESS, status=denied)
        for number in (3, -2, 2**31 - 1):
            self.assertEqual(lib.warp_launch_set_mode(number), INVALID_ARGUMENT)
            self.assertIn(str(number), message())
        # What a Python caller may get wrong is no matter in relaxed mode.
        self.check(self.last, Argument(b"x", 12345), Argument(None, 1, 2, 77), mode=Mode.RELAXED)
        self.check(self.last, Argument(b"x", 12345), status=INVALID_HANDLE)

    def test_managed_memory_of_another_gpu_is_good_in_all_modes_but_the_strict_one(self):
        first, second, *_ = gpus(2)
        managed = Argument(b"x", self.array(first, CUDA_MANAGED))
        for mode, status in ((Mode.RELAXED, SUCCESS), (Mode.CHECKED, SUCCESS), (Mode.STRICT, ACCESS_DENIED)):
            self.check(second, managed, mode=mode, status=status)

    def test_what_is_refused_is_told_in_words_and_in_the_report(self):
        first, second, *_ = gpus(2)
        own, pooled = self.array(second), self.array(first, CUDA_MEMPOOL)
        members = (Argument * 2)(Argument(b"velocities", own), Argument(b"positions", pooled))
        state = Argument(b"state", ctypes.addressof(members), 2, STRUCT)
        report = self.check(second, Argument(b"y", own), state, status=ACCESS_DENIED)
        for part in (
            'kernel "saxpy" on "cuda:1", argument "state.positions"',
            "memory is not accessible or cannot be verified",
            "memory_kind=CUDA_MEMPOOL",
            'warp_mempool_access_set_enabled("cuda:0", "cuda:1", 1)',
        ):
            self.assertIn(part, message())
        self.assertEqual((report.accessible, report.unverified, report.inaccessible), (2, 0, 1))
        self.assertEqual((report.argument, report.name, report.device), (1, b"state.positions", first))
        self.assertEqual((report.access, report.kind), (Access.INACCESSIBLE, CUDA_MEMPOOL))
        self.assertEqual(lib.warp_access_reason_get_name(report.reason), b"WARP_ACCESS_REASON_NO_POOL_ACCESS")
        must(lib.warp_mempool_access_set_enabled(first, second, 1))
        self.assertEqual(self.check(second, Argument(b"y", own), state).accessible, 3)
        self.check(second, Argument(b"y", own), state, mode=Mode.STRICT, status=ACCESS_DENIED)
        self.assertIn("WARP_LAUNCH_CHECKED", message())
        self.assertNotIn("not accessible", message())

    def test_what_cannot_be_verified_is_warned_of_once(self):
        heard = []
        listener = Callback(lambda user, level, text: heard.append(text.decode()))
        must(lib.warp_log_set_callback(listener, None, 2))
        try:
            buffer = ctypes.create_string_buffer(64)
            argument = Argument(b"buffer", ctypes.addressof(buffer), 0, POINTER)
            for gpu in self.gpus:
                for _ in range(3):
                    self.assertEqual(self.check(gpu, argument).unverified, 1)
            self.check(self.first, argument, mode=Mode.STRICT, status=ACCESS_DENIED)
        finally:
            must(lib.warp_log_set_callback(Callback(), None, 0))
        self.assertEqual(len(heard), len(self.gpus))
        for text, alias in zip(heard, ("cuda:0", "cuda:1")):
            self.assertIn("cannot verify cross-device access", text)
            self.assertIn(f'kernel "saxpy" on "{alias}", argument "buffer"', text)

    def test_a_reason_that_is_none_has_a_name_for_that(self):
        for number in (13, 100, 113, 205, -1):
            self.assertEqual(lib.warp_access_reason_get_name(number).decode(), NO_NAME)


if __name__ == "__main__":
    unittest.main()
