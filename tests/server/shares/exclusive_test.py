"""Sessions that have their GPUs alone: where they and others are placed, what is refused, and what list, smi and the log show.

usage: exclusive_test.py BUILD_FOLDER
"""

import ctypes
import json
import os
import select
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from session_case import SessionCase, main  # noqa: E402
from trial import wait_until  # noqa: E402

PROGRAM = """
import ctypes, sys
c, n = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
result = c.cuInit(0) or c.cuDeviceGetCount(ctypes.byref(n))
if result:
    sys.exit("error %d" % result)
context = ctypes.c_void_p()
c.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
print(n.value, flush=True)
sys.stdin.readline()
"""


class HeldAtExit:
    """A process that does not get further than to the beginning of its end (ptrace)."""

    SEIZE, DETACH, TRACE_EXIT, ALL_CHILDREN = 0x4206, 17, 0x40, 0x40000000

    def __init__(self, pid):
        self.pid, self.libc = pid, ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        if self.libc.ptrace(self.SEIZE, pid, None, self.TRACE_EXIT) != 0:
            raise unittest.SkipTest("processes may not be traced here: " + os.strerror(ctypes.get_errno()))

    def has_come(self):
        return os.waitpid(self.pid, self.ALL_CHILDREN | os.WNOHANG)[0] == self.pid

    def release(self):
        self.libc.ptrace(self.DETACH, self.pid, None, None)


class Exclusive(SessionCase):
    PROGRAM = (PROGRAM,)

    def serve(self, rules=None, devices=2):
        folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="remote-gpu-rules-"))
        path = os.path.join(folder, "rules.json")
        with open(path, "w") as file:
            json.dump(rules or {}, file)
        super().serve(["--rules", path], {"SOFTGPU_DEVICES": str(devices)})

    def devices(self):
        return {number: session["devices"] for number, session in self.sessions().items()}

    def test_placed_apart(self):
        self.serve()
        alone, count = self.start("-n", "1", "--exclusive")
        self.assertEqual(count, 1)
        for _ in range(2):  # others are on the other GPU, and those that want all get what is left
            self.assertEqual(self.start("-n", "1")[1], 1)
        self.assertEqual(self.start()[1], 1)
        self.assertEqual(sorted(self.devices().values()), [[0], [1], [1], [1]])
        self.assertIn("alone on its GPUs", self.listed())
        self.assertRegex(self.listed("smi"), r"exclusive[^$]*shared")
        self.assertIn("GPU 0 alone", self.server.log())
        self.assertIn("1 of this server's 2 GPUs are left", self.refused("-n", "2"))
        self.assertIn("0 of this server's 2 GPUs are used by nobody", self.refused("-n", "1", "--exclusive"))
        self.end(alone)
        self.assertTrue(wait_until(lambda: 1 not in self.devices(), 60))
        self.assertEqual(self.start("-n", "2")[1], 2)
        self.assertNotIn("exclusive", self.listed("smi"))

    def test_one_after_the_other(self):
        """What a program had that has ended is there for the next, which waits for its worker to end."""
        self.serve(devices=1)
        for options in (("--exclusive",), ("-p", "1")):
            first, _ = self.start(*options)
            (worker,) = self.server.workers()
            held = HeldAtExit(worker)
            self.addCleanup(held.release)
            self.end(first)
            self.assertTrue(wait_until(held.has_come, 30))
            second = self.begin(*options)
            self.assertFalse(select.select([second.stdout], [], [], 1)[0])  # neither refused nor begun
            held.release()
            self.assertEqual(second.stdout.readline().strip(), "1")
            self.end(second)
            self.assertTrue(wait_until(lambda: not self.server.workers(), 30))

    def test_rules(self):
        uid = "uid:%d" % os.geteuid()
        self.serve({"default": {"mode": "shared"}, "projects": {"whole": {"members": [uid], "mode": "exclusive"}}}, devices=1)
        self.assertIn("has you share them", self.refused("--exclusive"))
        shared, _ = self.start()
        self.assertIn("alone (exclusive)", self.refused("--project", "whole"))
        self.end(shared)
        self.assertTrue(wait_until(lambda: not self.devices(), 60))
        self.start("--project", "whole")
        self.assertIn("others have theirs alone", self.refused())

    def test_wrong_rule(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(json.dumps({"default": {"mode": "mig"}}))
            file.flush()
            self.assertIn('none of "shared", "turns", "mps" and "exclusive"', self.not_started("--rules", file.name))


if __name__ == "__main__":
    main()
