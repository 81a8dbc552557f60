"""Tests of what one session may take of its server: lines of the log, memory, time."""

import subprocess
import sys

from expected import expect, still_serves
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


# Each line of output: what was tried, and a result for each time.
GREED = PREAMBLE + """
import mmap, struct

def entry(kind, text, spaces):
    # LZ4: the text as it is, then a space that is repeated, then the five bytes that must end a block
    def length(n):
        return b"" if n < 15 else b"\\xff" * ((n - 15) // 255) + bytes([(n - 15) % 255])
    text = text + b" "
    packed = bytes([min(len(text), 15) << 4 | 15]) + length(len(text)) + text + b"\\x01\\x00" + length(spaces - 4)
    packed += b"\\x50" + b" " * 5
    padded = packed + bytes(-len(packed) % 8)
    return struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(padded), len(packed), 0, 0, 8, 80, 0, 0, 0x11 | 0x2000, 0,
                       len(text) + spaces + 5) + padded

def container(*entries):
    return struct.pack("<IHHQ", 0xba55ed50, 1, 16, sum(map(len, entries))) + b"".join(entries)

def load(image):
    return cuda.cuModuleLoadData(ctypes.byref(ctypes.c_void_p()), image)

HEAD = b".version 8.0\\n.target sm_80\\n.address_size 64\\n"
print("small", load(container(entry(1, HEAD, 1000))), flush=True)
print("bundle", load(container(entry(0x5347, b"", 1000), *[entry(1, HEAD, 400 << 20)] * 6)), flush=True)
print("modules", *[load(container(entry(1, HEAD + b"//%d" % i, 400 << 20))) for i in range(6)], flush=True)
memory = mmap.mmap(-1, 64 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
mapped = cuda.cuMemHostRegister_v2(ctypes.c_void_p(address), ctypes.c_size_t(64 << 30), 2)
mapped = mapped or cuda.cuMemHostGetDevicePointer_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_void_p(address), 0)
print("map", mapped, flush=True)
free = ctypes.c_uint64()
print("device", cuda.cuMemAlloc_v2(ctypes.byref(free), ctypes.c_size_t(200 << 20)),
      cuda.cuMemsetD8_v2(free, 1, ctypes.c_size_t(200 << 20)), flush=True)
sys.stdin.read()
"""


def peak(pid):
    """The most memory that a process has had so far, in MiB."""
    with open("/proc/%d/status" % pid) as status:
        return next(int(line.split()[1]) >> 10 for line in status if line.startswith("VmHWM:"))


def test_memory_budget(build):
    """What a client makes its worker allocate is limited, whatever it is; the calls fail, and the session goes on."""
    with Server(build, arguments=["--session-memory", "1G"], environment={"SOFTGPU_MEMORY": "256M"}) as server:
        command = [build.command, "run", "-s", server.address, "--", sys.executable, "-c", GREED]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
            results = {}
            for line in iter(program.stdout.readline, ""):
                what, *codes = line.split()
                results[what] = list(map(int, codes))
                if what == "device":
                    break
            used = [peak(pid) for pid in server.workers()]
            program.stdin.close()
        said = "%s, memory used: %s MiB" % (results, used)
        print(said)
        expect(results.get("small") == [0] and results.get("device") == [0, 0], "what fits fails: " + said, server.log())
        expect(results["bundle"][0] != 0 and any(results["modules"]) and results["map"][0] != 0,
               "the session got more than its budget: " + said, server.log())
        expect(used and max(used) < 1024 + 256 + 400, "the worker took too much: " + said, server.log())
        still_serves(build, server)
