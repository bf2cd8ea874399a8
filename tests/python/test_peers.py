"""Peer access and pool access through ctypes, with the scopes of both.

The library is the file that WARPMEM_LIBRARY names; the driver is what it finds, the simulated one with two GPUs in the tests.
"""

import ctypes
import threading
import unittest

from binding import (
    BUSY,
    INVALID_ARGUMENT,
    INVALID_HANDLE,
    SCOPE_ORDER,
    SUCCESS,
    BoolOut,
    Out,
    Pointer,
    asked,
    gpus,
    load,
    made,
    message,
    must,
)

Byte = ctypes.c_uint8

KINDS = ("peer", "mempool")

SIGNATURES = {"warp_scope_end": [Pointer], "warp_stream_get_current": [Pointer, Out]}
for kind in KINDS:
    SIGNATURES[f"warp_{kind}_access_is_supported"] = [Pointer, Pointer, BoolOut]
    SIGNATURES[f"warp_{kind}_access_query_enabled"] = [Pointer, Pointer, BoolOut]
    SIGNATURES[f"warp_{kind}_access_set_enabled"] = [Pointer, Pointer, Byte]
    SIGNATURES[f"warp_{kind}_access_set_enabled_for"] = [Pointer, Out, ctypes.c_size_t, Byte]
    SIGNATURES[f"warp_scope_begin_{kind}_access"] = [Pointer, Pointer, Byte, Out]

lib = load(SIGNATURES)


class Access:
    """One of the two kinds, as a binding would wrap it."""

    def __init__(self, kind):
        self.supported_call = getattr(lib, f"warp_{kind}_access_is_supported")
        self.query = getattr(lib, f"warp_{kind}_access_query_enabled")
        self.set = getattr(lib, f"warp_{kind}_access_set_enabled")
        self.set_for = getattr(lib, f"warp_{kind}_access_set_enabled_for")
        self.begin = getattr(lib, f"warp_scope_begin_{kind}_access")

    def supported(self, target, peer):
        return asked(self.supported_call, target, peer)

    def enabled(self, target, peer):
        return asked(self.query, target, peer)

    def scope(self, target, peer, wanted):
        return made(self.begin, target, peer, wanted)


class TestAccess(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        must(lib.warp_init(None, None))
        cls.addClassCleanup(lambda: must(lib.warp_shutdown()))
        cls.cpu = made(lib.warp_device_get, b"cpu")
        cls.one, cls.two, *_ = gpus(2)

    def each(self):
        for kind in KINDS:
            access = Access(kind)
            with self.subTest(kind=kind):
                if not access.supported(self.one, self.two):
                    self.skipTest("the GPUs are no peers")
                yield access

    def test_on_and_off_in_one_direction(self):
        for access in self.each():
            for wanted in (1, 1, 0, 0):
                must(access.set(self.one, self.two, wanted))
                self.assertEqual(access.enabled(self.one, self.two), wanted)
                self.assertEqual(access.enabled(self.two, self.one), 0)
            self.assertEqual(access.enabled(self.one, self.one), 1)

    def test_the_cpu_has_none(self):
        for access in self.each():
            self.assertEqual(access.supported(self.cpu, self.one), 0)
            self.assertEqual(access.enabled(self.one, self.cpu), 0)
            self.assertEqual(access.set(self.one, self.cpu, 1), INVALID_ARGUMENT)
            self.assertIn('"cpu"', message())
            self.assertEqual(access.set(self.one, self.cpu, 0), SUCCESS)

    def test_all_or_none(self):
        for access in self.each():
            peers = (Pointer * 2)(self.two, self.cpu)
            self.assertEqual(access.set_for(self.one, peers, 2, 1), INVALID_ARGUMENT)
            self.assertEqual(access.enabled(self.one, self.two), 0)
            must(access.set_for(self.one, peers, 1, 1))
            self.assertEqual(access.enabled(self.one, self.two), 1)
            must(access.set_for(self.one, None, 0, 0))
            self.assertEqual(access.enabled(self.one, self.two), 0)
            peers[0] = Pointer(64)
            self.assertEqual(access.set_for(self.one, peers, 1, 1), INVALID_HANDLE)

    def test_scopes_of_all_threads_are_one(self):
        for access in self.each():
            mine = access.scope(self.one, self.two, 1)
            seen = []

            def other():
                theirs = access.scope(self.one, self.two, 1)
                refused = Pointer(1)
                seen.append(access.begin(self.one, self.two, 0, ctypes.byref(refused)))
                seen.append(refused.value)
                seen.append(lib.warp_scope_end(mine))
                seen.append(lib.warp_scope_end(theirs))

            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            self.assertEqual(seen, [BUSY, None, SCOPE_ORDER, SUCCESS])
            self.assertEqual(access.set(self.one, self.two, 0), BUSY)
            self.assertEqual(access.enabled(self.one, self.two), 1)
            must(lib.warp_scope_end(mine))
            self.assertEqual(access.enabled(self.one, self.two), 0)


if __name__ == "__main__":
    unittest.main()
