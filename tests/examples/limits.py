"""Tests of what one session may take of its server: lines of the log, memory, time."""

import sys

from expected import expect
from trial import Server
from wire import PREAMBLE

# Calls that the server, or its driver, has something to say about.
FLOOD = PREAMBLE + """
option, value, state, module = ctypes.c_int(999), ctypes.c_void_p(1), ctypes.c_void_p(), ctypes.c_void_p()
failed = 0
for _ in range(1000):
    failed += cuda.cuLinkCreate_v2(1, ctypes.byref(option), ctypes.byref(value), ctypes.byref(state)) != 0
    failed += cuda.cuModuleLoadData(ctypes.byref(module), b".version 8.0\\n.target sm_80\\n.address_size 64\\nnonsense") != 0
print(failed)
"""


def test_log_flood(build):
    """A client cannot fill the server's log, and the log says that lines are missing."""
    with Server(build, environment={"REMOTE_GPU_LOG": "info"}) as server:
        result = build.run_remote([sys.executable, "-c", FLOOD], server.address)
        expect(result.output == "2000\n", "the calls were meant to fail", result, server.log())
        lines = server.log().splitlines()
        expect(len(lines) < 150, "%d lines in the log" % len(lines), result, "\n".join(lines[:100]))
        expect(any("lines behind the next one are left out" in line for line in lines), "nothing is said of what is left out",
               result, server.log())
