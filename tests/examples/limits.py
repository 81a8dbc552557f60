"""Tests of what one session may take of its server: lines of the log, memory, time."""

import os
import signal
import subprocess
import sys
import tempfile
import time

from expected import expect, still_serves
from trial import Server, wait_until
from wire import PREAMBLE

def test_files_that_may_not_grow(build):
    """Where files may not grow (ulimit -f), statistics, profiles, traces and messages are left out, and the program runs."""
    direct = build.run_direct([build.example("vector_add")])
    with tempfile.TemporaryDirectory() as folder, Server(build) as server:
        for name in "STATS", "PROFILE", "RECORD":
            result = build.run_by_path(["sh", "-c", 'ulimit -f 0 && exec "$0"', build.example("vector_add")], server.address,
                                       environment={"REMOTE_GPU_" + name: os.path.join(folder, name)})
            expect(result.status == 0 and result.output == direct.output, "the program ended otherwise", result, server.log())
            expect("remote-gpu: warning: " in result.errors, "nothing is said", result)
        result = build.run_by_path(["sh", "-c", 'ulimit -f 0 && exec "$0" 2>>"$1"', build.example("vector_add"),
                                    os.path.join(folder, "errors")], server.address, environment={"REMOTE_GPU_WAIT": "nonsense"})
        expect(result.status == 0 and result.output == direct.output, "a message ended the program", result, server.log())


# Becomes a program of a user who may have no process, or thread, more.
ALONE = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
if os.geteuid() == 0:
    os.setuid(61998)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_no_threads(build):
    """Where no thread can be started, a program has no GPU, and is told why."""
    with Server(build, tcp=True) as server:
        result = build.run_by_path([sys.executable, "-c", ALONE, build.example("vector_add")], server.address)
        expect(result.status > 0 and not result.crashed and not result.hung, "it was to fail", result, server.log())
        expect("remote-gpu: no thread can be started" in result.errors, "it is not told why", result)


# The user may have no thread more once CUDA is up.
LATE = PREAMBLE + """
import os, resource
if os.geteuid() == 0:
    os.setuid(61988)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def called(_):
    print("called", flush=True)
print(cuda.cuLaunchHostFunc(None, called, None), cuda.cuCtxSynchronize(), flush=True)
"""


def test_no_threads_later(build):
    """A host function that there is no thread for is refused, with a word: no stream waits for it."""
    with Server(build, tcp=True) as server:
        result = build.run_by_path([sys.executable, "-c", LATE], server.address, timeout=60)
        expect(result.status == 0 and result.output == "2 0\n", "it was to be refused", result, server.log())
        expect("host functions need one more thread" in result.errors, "it is not told why", result)


# All descriptors that there may be are in use before the first call.
FULL = """
import ctypes, os, resource
cuda = ctypes.CDLL("libcuda.so.1")
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
try:
    while True:
        os.open("/dev/null", os.O_RDONLY)
except OSError:
    print(cuda.cuInit(0), flush=True)
"""


def test_no_descriptors(build):
    """Where no file can be opened when CUDA is to start, a program is told which limit it is."""
    with Server(build) as server:
        result = build.run_by_path([sys.executable, "-c", FULL], server.address)
        expect(result.status == 0 and result.output != "0\n", "it was to fail", result, server.log())
        expect(result.errors.count("ulimit -n") == 1 and "installed" not in result.errors, "it is not told why", result)


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


# Waits for standard input and then for the device, over and over; prints what came of it.
TALK = PREAMBLE + """
print("ready", flush=True)
for line in sys.stdin:
    print(cuda.cuCtxSynchronize(), flush=True)
"""
SILENCE = 2  # seconds
GRACES = "0", "60"  # time without a connection; who is silent on one that lives does not get it on top


class Talk:
    """A program that runs remotely and can be asked to make a call."""

    def __init__(self, build, server, *arguments, environment=None, program=TALK):
        command = [build.command, "run", "-s", server.address, *arguments, "--", sys.executable, "-c", program]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, env=dict(os.environ, **(environment or {})))
        self.errors = ""
        expect(self.process.stdout.readline() == "ready\n", "the program does not begin", server.log())

    def ask(self):
        """The result of a call."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def stop(self):
        """Stops the program, as a debugger or SIGTSTP does."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        """It continues."""
        self.process.send_signal(signal.SIGCONT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.go_on()
        try:
            self.errors = self.process.communicate(timeout=20)[1]
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.errors = self.process.communicate()[1]


def test_stopped_client(build):
    """A client that is stopped for ever loses its session; one that merely does nothing, and one that asked for time, do not."""
    for grace in GRACES:
        stop_a_client(build, grace)


def stop_a_client(build, grace):
    with Server(build, tcp=True, arguments=["--keep-alive", str(SILENCE), "--reconnect-grace", grace]) as server:
        with Talk(build, server) as idle, Talk(build, server, "--keep-alive", "100") as patient:
            with Talk(build, server) as stopped:
                stopped.stop()
                patient.stop()
                expect(wait_until(lambda: len(server.workers()) == 2, SILENCE + 10), "a stopped client keeps its session",
                       server.log())
                stopped.go_on()
                expect(stopped.ask() == "46", "its calls do not fail", server.log())
            expect("nothing came from the program for 2 s" in stopped.errors, "it is not told why: " + stopped.errors,
                   server.log())
            time.sleep(2 * SILENCE)
            patient.go_on()
            expect(idle.ask() == "0", "an idle client loses its session", server.log())
            expect(patient.ask() == "0", "a client that asked for more time loses its session", server.log())


# Sends without end, and reads nothing of what it asked for: the worker's replies stay with it.
FLOOD_AND_STOP = PREAMBLE + """
import os, signal
memory, size = ctypes.c_uint64(), 64 << 20
must("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
host = (ctypes.c_ubyte * size)()
print("ready", flush=True)
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGSTOP)).start()
while cuda.cuMemcpyDtoH_v2(host, memory, ctypes.c_size_t(size)) == 0:
    pass
print("46", flush=True)
"""


def test_slow_reader(build):
    """A client that stops while it is sent much data does not keep its worker, nor the memory in it."""
    for connections, grace in ("0", "0"), ("0", "60"), ("4", "60"):
        with Server(build, tcp=True, arguments=["--keep-alive", str(SILENCE), "--reconnect-grace", grace]) as server:
            with Talk(build, server, environment={"REMOTE_GPU_CONNECTIONS": connections}, program=FLOOD_AND_STOP):
                expect(wait_until(lambda: not server.workers(), SILENCE + 10), "a client that reads nothing keeps its session",
                       server.log())


def test_stopped_worker(build):
    """A program whose worker is stopped gets an error, whether it was waiting or sending; at rest it need not notice."""
    for program, grace in zip((TALK, FLOOD_AND_STOP.replace("SIGSTOP", "SIGCONT")), GRACES[::-1]):
        with Server(build, tcp=True, arguments=["--reconnect-grace", grace]) as server:
            with Talk(build, server, "--keep-alive", str(SILENCE), program=program) as talk:
                workers = server.workers()
                for worker in workers:
                    os.kill(worker, signal.SIGSTOP)
                time.sleep(3 * SILENCE)
                started = time.monotonic()
                result = talk.ask() if program == TALK else talk.process.stdout.readline().strip()
                expect(result == "46", "a call on a stopped server does not fail", server.log())
                expect(program != TALK or time.monotonic() - started < SILENCE + 10, "it took too long", server.log())
                for worker in workers:
                    os.kill(worker, signal.SIGCONT)
            expect("has not answered for 2 s" in talk.errors, "the program is not told why: " + talk.errors, server.log())


# One call that takes long on the device, and one that waits for it in the sequence of records.
LONG = PREAMBLE + """
ptx = b'''.version 8.0
.target sm_80
.address_size 64
.visible .entry spin() {
    .reg .u64 %a, %b; .reg .pred %p;
    mov.u64 %a, %globaltimer;
loop:
    mov.u64 %b, %globaltimer;
    sub.u64 %b, %b, %a;
    setp.lt.u64 %p, %b, 7000000000;
    @%p bra loop;
    ret;
}'''
module, spin, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
must("cuModuleLoadData", ctypes.byref(module), ptx)
must("cuModuleGetFunction", ctypes.byref(spin), module, b"spin")
must("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(4096))
print("ready", flush=True)
for line in sys.stdin:
    must("cuLaunchKernel", spin, 1, 1, 1, 1, 1, 1, 0, None, None, None)
    if line == "free\\n":
        must("cuMemFree_v2", memory)
    print(cuda.cuCtxSynchronize(), flush=True)
"""


def test_long_kernels(build):
    """A kernel that runs longer than either side may be silent is no silence: waited for, or with a call that blocks the worker."""
    with Server(build, tcp=True, arguments=["--keep-alive", str(SILENCE)]) as server:
        with Talk(build, server, "--keep-alive", str(SILENCE), program=LONG) as talk:
            for what in "wait\n", "free\n":
                talk.process.stdin.write(what)
                talk.process.stdin.flush()
                expect(talk.process.stdout.readline() == "0\n", "a long kernel ended the session", server.log())


# Opens a handle that names a descriptor of another process, and tells whether its file was opened for that.
FORGED = PREAMBLE + """
import os, struct, subprocess, tempfile
libc = ctypes.CDLL(None, use_errno=True)
with tempfile.NamedTemporaryFile() as file:
    watch = libc.inotify_init1(os.O_NONBLOCK)
    assert libc.inotify_add_watch(watch, file.name.encode(), 0x20) > 0  # IN_OPEN
    other = subprocess.Popen(["sleep", "60"], pass_fds=[file.fileno()])
    handle = struct.pack("<IiiIQQ16s16x", 0x53475348, other.pid, file.fileno(), ord("m"), 0, 4096, bytes(16))
    class Handle(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_char * 64)]
    opened = cuda.cuIpcOpenMemHandle_v2(ctypes.byref(ctypes.c_uint64()), Handle.from_buffer_copy(handle), 1)
    other.kill()
    try:
        print(opened, len(os.read(watch, 4096)))
    except BlockingIOError:
        print(opened, 0)
"""


def test_forged_handle(build):
    """A handle for shared memory that was made up opens no file: only the software device's own, by their secret."""
    result = build.run_direct([sys.executable, "-c", FORGED])
    expect(result.status == 0 and result.output.split()[0] != "0" and result.output.split()[1] == "0",
           "a file was opened by a forged handle", result)


# Fills most of the device's memory, or tells how much of it is not zero when a session begins.
FILL = PREAMBLE + """
free, total, memory = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
must("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
size = free.value // 2
must("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
found = (ctypes.c_ubyte * size)()
must("cuMemcpyDtoH_v2", found, memory, ctypes.c_size_t(size))
print(size - bytes(found).count(0))
must("cuMemsetD8_v2", memory, 0xa5, ctypes.c_size_t(size))
must("cuCtxSynchronize")
"""


def test_memory_of_ended_sessions(build):
    """What a session left in the software device's memory is zero for the next."""
    with Server(build, environment={"SOFTGPU_MEMORY": "64M"}) as server:
        for _ in range(3):
            result = build.run_remote([sys.executable, "-c", FILL], server.address)
            expect(result.status == 0 and result.output == "0\n", "memory of another session was read", result, server.log())
