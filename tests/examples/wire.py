"""Tests of what is on the wire, and when: a tap between client and server notes it."""

import os
import shutil
import subprocess
import sys
import time

from passage import Passage
from trial import Failure, Server


class Tap(Passage):
    """Notes when how many bytes came from clients."""

    def __init__(self, address):
        super().__init__(address)
        self.seen = []  # (time.monotonic_ns(), bytes)

    def take(self, data, passed, upward, connection):
        if upward:
            self.seen.append((time.monotonic_ns(), len(data)))
        return data

    def between(self, begin, end):
        """Bytes from clients that came in between two times."""
        return sum(size for when, size in self.seen if begin <= when <= end)


# What the programs below begin with.
PREAMBLE = """
import ctypes, sys, threading, time
cuda = ctypes.CDLL("libcuda.so.1")
def must(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    assert result == 0, (name, result)
must("cuInit", 0)
context = ctypes.c_void_p()
must("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
must("cuCtxSetCurrent", context)
"""

# Fills memory N times without waiting, then computes, and prints from when to when. A fill is a record of its own.
COMPUTE = PREAMBLE + """
n, seconds = int(sys.argv[1]), float(sys.argv[2])
memory = ctypes.c_uint64()
must("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(4096))
for _ in range(3):
    must("cuMemsetD8Async", memory, 1, ctypes.c_size_t(4096), None)
    must("cuCtxSynchronize")
    time.sleep(0.02)
    begin = time.monotonic_ns()
    for i in range(n):
        must("cuMemsetD8Async", memory, i, ctypes.c_size_t(4096), None)
    while time.monotonic_ns() - begin < seconds * 1e9:
        pass
    print(begin, time.monotonic_ns(), flush=True)
must("cuCtxSynchronize")
"""
RECORD = 48  # bytes of a fill on the wire, at least


def test_idle_wire(build):
    """What a program has put into a stream is at the server while it computes: nothing waits for its next call."""
    one = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
    with Server(build, tcp=True) as server:
        for before in [], one if shutil.which("taskset") else []:
            for options in ({}, {"REMOTE_GPU_OPT": "-inline-send"}, {"REMOTE_GPU_WAIT": "block"}, {"REMOTE_GPU_WAIT": "spin"}):
                # each fill in full, so that bytes tell how many came
                options["REMOTE_GPU_OPT"] = options.get("REMOTE_GPU_OPT", "") + ",-delta"
                for n in 1, 20:
                    with Tap(server.address) as tap:
                        command = [*before, sys.executable, "-c", COMPUTE, str(n), "0.5"]
                        result = build.run_remote(command, tap.address, environment=options)
                        if result.status != 0 or len(result.output.splitlines()) != 3:
                            raise Failure("the program failed\n" + result.report() + server.log())
                        for line in result.output.splitlines():
                            begin, end = map(int, line.split())
                            came = tap.between(begin, end)
                            if came < n * RECORD:
                                raise Failure("%d calls, %d bytes came while the program computed (%s %s)\n%s" % (
                                    n, came, before, options, result.report()))


# One thread copies SIZE bytes at once, another one fills memory and waits for it, over and over, in a stream of its own:
# prints how often it did before the copy was done.
BESIDE = PREAMBLE + """
way, size = sys.argv[1], int(sys.argv[2])
own, memory, host, streams = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_void_p(), []
must("cuMemAlloc_v2", ctypes.byref(own), ctypes.c_size_t(4096))
must("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
if "pinned" in way:
    must("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(size), 0)
    data = (ctypes.c_char * size).from_address(host.value)
else:
    data = ctypes.create_string_buffer(size)
    host = ctypes.c_void_p(ctypes.addressof(data))
for _ in range(3):
    stream = ctypes.c_void_p()
    must("cuStreamCreate", ctypes.byref(stream), 1)
    streams.append(stream)
must("cuMemsetD8_v2", memory, 7, ctypes.c_size_t(size))
must("cuMemsetD8Async", own, 1, ctypes.c_size_t(4096), streams[1])
must("cuCtxSynchronize")
done = threading.Event()
def copy():
    must("cuCtxSetCurrent", context)
    if way == "to":
        must("cuMemcpyHtoD_v2", memory, host, ctypes.c_size_t(size))
        must("cuStreamSynchronize", streams[0])
    elif way == "from":
        must("cuMemcpyDtoH_v2", host, memory, ctypes.c_size_t(size))
    elif way == "to-pinned":
        # behind a copy to the host that is under way, which it may depend on, it is fetched when the stream gets there
        must("cuMemcpyDtoHAsync_v2", host, own, ctypes.c_size_t(4096), streams[0])
        must("cuMemcpyHtoDAsync_v2", memory, host, ctypes.c_size_t(size), streams[0])
        must("cuStreamSynchronize", streams[0])
    elif way == "from-pinned":
        must("cuMemcpyDtoHAsync_v2", host, memory, ctypes.c_size_t(size), streams[0])
        must("cuStreamSynchronize", streams[0])
    done.set()
thread = threading.Thread(target=copy)
thread.start()
n = 0
while not done.is_set():
    must("cuMemsetD8Async", own, 2, ctypes.c_size_t(4096), streams[1])
    must("cuStreamSynchronize", streams[1])
    n += 1
thread.join()
if way.startswith("from"):
    assert data[0] == data[size - 1] == b"\\x07", (data[0], data[size - 1])
print(n)
"""


def test_beside_bulk(build):
    """A copy of one thread over a slow link does not hold up another thread's calls: between two of them few bytes go."""
    size = 24 << 20
    link = {"REMOTE_GPU_FILTER": "delay:oneway=200us,bandwidth=160Mb"}
    problems = []
    # over TCP, bulk data has a connection of its own, whose buffers are in front of this link as well
    for tcp, most in (False, 1 << 20), (True, 2 << 20):
        with Server(build, tcp=tcp) as server:
            for way in "to", "from", "to-pinned", "from-pinned":
                result = build.run_remote([sys.executable, "-c", BESIDE, way, str(size)], server.address,
                                          environment=link)
                if result.status != 0:
                    raise Failure("the program failed\n" + result.report() + server.log())
                rounds = int(result.output)
                said = "%s over %s: %d rounds beside %d bytes" % (way, "tcp" if tcp else "unix", rounds, size)
                print(said)
                if rounds * most < size:
                    problems.append(said)
    if problems:
        raise Failure("; ".join(problems))


# Works for a moment, so that waits are short, and then does nothing until standard input ends.
IDLE = PREAMBLE + """
for _ in range(200):
    must("cuCtxSynchronize")
    must("cuMemGetInfo_v2", ctypes.byref(ctypes.c_size_t()), ctypes.byref(ctypes.c_size_t()))
print("idle", flush=True)
sys.stdin.read()
"""


def test_wait_modes(build):
    """Programs do the same however both sides wait; sessions at rest use no processor time unless told to."""
    for mode in "auto", "block", "spin":
        with Server(build, tcp=True, arguments=["--wait", mode]) as server:
            result = build.run_remote([build.example("host_threads")], server.address, ["--wait", mode])
            direct = build.run_direct([build.example("host_threads")])
            if result.status != 0 or result.output != direct.output:
                raise Failure("host_threads with --wait %s\n%s\n%s" % (mode, result.report(), server.log()))
            if mode != "spin":
                check_rest(build, server, 8)


def check_rest(build, server, n):
    """So many sessions that have worked and wait for nothing: neither they nor their workers run."""
    programs = []
    try:
        for _ in range(n):
            programs.append(subprocess.Popen([build.command, "run", "-s", server.address, "--", sys.executable, "-c", IDLE],
                                             stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        for program in programs:
            if program.stdout.readline() != b"idle\n":
                raise Failure("a program did not come to rest\n" + server.log())
        processes = [program.pid for program in programs] + server.workers()
        before = sum(map(processor_time, processes))
        time.sleep(2)
        used = sum(map(processor_time, processes)) - before
        if len(processes) != 2 * n or used > 0.1:
            raise Failure("%d processes at rest used %.2f s of processor time in 2 s" % (len(processes), used))
    finally:
        for program in programs:
            program.stdin.close()
            program.stdout.close()
            program.wait()


def processor_time(pid):
    """The processor time in seconds that a process has used so far."""
    with open("/proc/%d/stat" % pid) as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
