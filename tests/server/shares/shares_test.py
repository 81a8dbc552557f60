"""Shares of a GPU's memory, end to end on the software device.

usage: shares_test.py BUILD_FOLDER CASE
"""

import json
import os
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "..", "scripts"), os.path.join(HERE, "..", "..", "fidelity")]

from suspended import Disturber  # noqa: E402
from trial import Failure, Server, expect, interpreter_with, run_case, run_program, wait_until  # noqa: E402

MIB = 1 << 20
GIB = 1 << 30
CARD = {"SOFTGPU_MEMORY": "4G", "SOFTGPU_DEVICES": "1"}
OTHER = dict(CARD, SOFTGPU_BEHAVE="nvidia")  # what holds for drivers that keep no limit by themselves


class Trial:
    def __init__(self, build, stack):
        self.build, self.stack = build, stack
        self.greedy = os.path.join(build.folder, "tests", "greedy")

    def serve(self, *arguments, environment=CARD):
        return self.stack.enter_context(Server(self.build, arguments=arguments, environment=environment))

    def run(self, server, words, *command, environment=None):
        return self.build.run_remote(list(command), server.address, arguments=words, environment=environment)

    def sessions(self, server):
        result = run_program([self.build.command, "list", "-s", server.address, "--json"])
        return json.loads(result.output)["servers"][0]["sessions"]

    def hold(self, server, size, *words):
        """A session that holds so many bytes until its input is closed; None with its words if it is refused."""
        process = subprocess.Popen([self.build.command, "run", "-s", server.address, *words, "--", self.greedy, "hold",
                                    str(size)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.stack.callback(end, process)
        process.held = process.stdout.readline() == "held\n"
        return process


def end(process):
    process.kill()
    process.communicate()


# What NVML says before there is a session, and once the program has 256 MiB: total and used by both versions, and of the process.
MANAGE = """
import ctypes, os, time
nvml, cuda = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.CDLL("libcuda.so.1")
class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]
class Memory2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [(name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")]
class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong), ("instances", ctypes.c_uint * 2)]
device, one, two = ctypes.c_void_p(), Memory(), Memory2(version=ctypes.sizeof(Memory2) | 2 << 24)
def must(result):
    assert result == 0, result
def look():
    must(nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(one)))
    must(nvml.nvmlDeviceGetMemoryInfo_v2(device, ctypes.byref(two)))
    assert (one.total, one.free, one.used) == (two.total, two.free, two.used)
    return one.total, one.used
must(nvml.nvmlInit_v2())
must(nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)))
print(*look())
context, address = ctypes.c_void_p(), ctypes.c_ulonglong()
must(cuda.cuInit(0))
must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
must(cuda.cuCtxSetCurrent(context))
must(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(256 << 20)))
end = time.monotonic() + 20
while look()[1] == 0 and time.monotonic() < end:
    time.sleep(0.1)
processes, count = (Process * 8)(), ctypes.c_uint(8)
must(nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), processes))
print(*look(), *[p.memory for p in processes[:count.value] if p.pid == os.getpid()])
"""


def case_limits(trial):
    """What a session sees is a card of the size of its limit, and refusals are sentences."""
    for environment in (CARD, OTHER):
        server = trial.serve(environment=environment)
        holder = trial.hold(server, 256 * MIB, "-m", "1G", "--weight", "7", "--project", "vision")
        expect(holder.held, "refused")
        expect(wait_until(lambda: trial.sessions(server)[0]["share"]["devices"][0]["memory_used"]), "nothing is used")
        share, = [session["share"] for session in trial.sessions(server)]
        device, = share["devices"]
        expect(device["memory_limit"] == GIB and 256 * MIB <= device["memory_used"] <= 256 * MIB + 4 * MIB, share)
        expect(share["weight"] == 7 and share["project"] == "vision" and share["priority"] == "normal", share)
        expect(share["state"] == "running" and not share["overcommitted"], share)
        end(holder)
    result = trial.run(trial.serve(), ("-m", "1G"), sys.executable, "-c", MANAGE)
    expect(result.output.split() == [str(n) for n in (GIB, 0, GIB, 256 * MIB, 256 * MIB)], result.report())
    for words, expected in ((("-m", "5G"), "5 GiB of each GPU's memory were asked for, but GPU 0 has 4 GiB"),
                            (("--priority", "low", "-p", "0.0000001"), "more than 0")):
        result = trial.run(server, words, trial.greedy, "1", "linear")
        expect(result.status != 0 and expected in result.errors, result.report())
    result = trial.run(server, (), trial.greedy, "1", "linear", environment={"REMOTE_GPU_MEMORY": "much"})
    expect(result.status != 0 and "REMOTE_GPU_MEMORY" in result.errors, result.report())


def case_greedy(trial):
    """A program that tries every way gets no byte more than its limit, and no way gets much less."""
    ways = ["linear", "pitched", "managed", "ordered", "pools", "arrays", "volumes", "mipmaps", "physical", "mapped", "graphs",
            "modules", "libraries", "pairs"]
    for environment in (CARD, OTHER):
        server = trial.serve(environment=environment)
        coarse = {"GREEDY_COARSE": "1"} if environment is OTHER else {}
        result = trial.run(server, ("-m", "256M"), trial.greedy, str(256 * MIB), *ways, environment=coarse)
        expect(result.status == 0, environment, result.report())
        for way in ("modules", "libraries"):  # that each of them loads is known by now, but not that all of them fit
            result = trial.run(server, ("-m", "256M"), trial.greedy, str(256 * MIB), "half", way, environment=coarse)
            expect(result.status == 0, environment, way, result.report())
        for way in ("import", "opened"):
            result = trial.run(server, ("-m", "256M"), trial.greedy, str(256 * MIB), way, environment=coarse)
            expect(result.status == 0, environment, way, result.report())


def case_greedy_two(trial):
    """Between two devices that are full there is no memory to be had by what moves data, on one server and on two."""
    words = ("-m", "128M")
    for environment in (CARD, OTHER):
        coarse = {"GREEDY_COARSE": "1"} if environment is OTHER else {}
        server = trial.serve(environment=dict(environment, SOFTGPU_DEVICES="2"))
        for way in ("staging", "collectives"):
            result = trial.run(server, words, trial.greedy, str(128 * MIB), way, environment=coarse)
            expect(result.status == 0, environment, way, result.report())
        servers = [trial.stack.enter_context(Server(trial.build, tcp=True, environment=environment)) for _ in range(2)]
        result = trial.build.run_remote([trial.greedy, str(128 * MIB), "staging"], ",".join(one.address for one in servers),
                                        arguments=words, environment=coarse)
        expect(result.status == 0, environment, "two servers", result.report())


def case_greedy_sessions(trial):
    """Nor by several sessions, where the user has a quota; nor by a warm worker's memory; nor by being suspended and coming back."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as rules:
        json.dump({"default": {"quota": {"memory": "256M"}}}, rules)
        rules.flush()
        for environment in (CARD, OTHER):
            coarse = {"GREEDY_COARSE": "1"} if environment is OTHER else {}
            server = trial.serve("--rules", rules.name, environment=environment)
            result = trial.run(server, ("-m", "64M"), trial.greedy, str(256 * MIB), "children", environment=coarse)
            expect(result.status == 0, environment, result.report())
            expect(wait_until(lambda: not trial.sessions(server), 30), "sessions are still there")
            result = trial.run(server, ("-m", "100M"), trial.greedy, str(200 * MIB), "children", environment=coarse)
            expect(result.status == 0 and "[quota-memory]" in result.errors, environment, result.report())
    server = trial.serve("--warm-workers", "1", environment=OTHER)
    for _ in range(2):
        result = trial.run(server, ("-m", "256M"), trial.greedy, str(256 * MIB), "linear", "modules", "pools",
                           environment={"GREEDY_COARSE": "1"})
        expect(result.status == 0, result.report())
    for environment in (CARD, OTHER):
        coarse = {"GREEDY_COARSE": "1"} if environment is OTHER else {}
        server = trial.serve(environment=dict(environment, REMOTE_GPU_LOG="info"))
        with Disturber(server, 1):
            result = trial.run(server, ("-m", "256M"), trial.greedy, str(256 * MIB), "linear", "arrays", "pools", "mapped", "modules",
                               environment=coarse)
        expect(result.status == 0, environment, result.report())
        expect(server.log().count(": is back after") > 1, "it was not suspended", server.log())


def case_freed(trial):
    """What a session had is free at once, however its worker dies."""
    server = trial.serve()
    for sign in (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM):
        holder = trial.hold(server, 3 * GIB - MIB, "-m", "3G")
        expect(holder.held, "refused")
        refused = trial.hold(server, MIB, "-m", "2G")
        expect(not refused.held and "1 GiB are not yet guaranteed" in refused.communicate()[1])
        worker, = server.workers()
        os.kill(worker, sign)
        expect(wait_until(lambda: not server.workers(), 30), "the worker is still there")
        expect(wait_until(lambda: not trial.sessions(server), 30), "the session is still there")
        again = trial.hold(server, 4 * GIB, "-m", "4G")
        expect(again.held, "refused")
        end(again)
        end(holder)
        expect(wait_until(lambda: not server.workers(), 30), "the worker is still there")


def case_promised(trial):
    """What is promised is there, whatever sessions without a limit do; what they have cannot be promised."""
    for environment in (CARD, OTHER):
        server = trial.serve(environment=environment)
        promised = trial.hold(server, MIB, "-m", "3G")
        expect(promised.held, "refused")
        over = trial.hold(server, GIB + MIB)
        expect(not over.held, "more than is left")
        free = trial.hold(server, GIB - 8 * MIB)
        expect(free.held, "refused")
        refused = trial.hold(server, MIB, "-m", "128M")
        expect(not refused.held and "not yet guaranteed" in refused.communicate()[1])
        end(promised)
        expect(wait_until(lambda: len(server.workers()) == 1, 30))
        result = trial.run(server, ("-m", "2G"), trial.greedy, str(2 * GIB), "linear")
        expect(result.status == 0, result.report())
        end(free)


def case_overcommit(trial):
    server = trial.serve("--overcommit")
    first, second = (trial.hold(server, GIB, "-m", "3G") for _ in range(2))
    expect(first.held and second.held, "refused")
    expect(all(session["share"]["overcommitted"] for session in trial.sessions(server)))
    third = trial.hold(server, 2 * GIB + MIB, "-m", "3G")
    expect(not third.held, "more than the card has")
    third = trial.hold(server, 2 * GIB, "-m", "3G")
    expect(third.held, "refused")


def case_rules(trial):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        def write(rules):
            file.seek(0)
            file.truncate()
            file.write(rules if isinstance(rules, str) else json.dumps(rules))
            file.flush()

        uid = "uid:%d" % os.getuid()
        write({"default": {"require-memory": True}, "users": {uid: {"max-memory": "50%", "max-weight": 10}}})
        server = trial.serve("--rules", file.name)
        # a maximum is what one gets who asks for nothing
        result = trial.run(server, (), trial.greedy, str(2 * GIB), "linear")
        expect(result.status == 0, result.report())
        for words, expected in ((("-m", "3G"), "3 GiB of GPU 0's memory were asked for, and you may have 2 GiB at most"),
                                (("--weight", "11"), "a weight of 11 was asked for, and you may have 10 at most")):
            result = trial.run(server, words, trial.greedy, "1", "linear")
            expect(result.status != 0 and expected in result.errors, result.report())

        def reload(rules, said):
            write(rules)
            server.process.send_signal(signal.SIGHUP)
            expect(wait_until(lambda: said in server.log()), server.log())

        reload({"default": {"require-memory": True}}, "hold for new sessions")
        result = trial.run(server, (), trial.greedy, "1", "linear")
        expect(result.status != 0 and "wants every session to say how much" in result.errors, result.report())
        reload("{\"default\": {\"memry\": 1}}", "the rules stay as they were")
        result = trial.run(server, (), trial.greedy, "1", "linear")
        expect(result.status != 0 and "wants every session to say how much" in result.errors, result.report())
        result = run_program([trial.build.daemon, "--rules", file.name, "--driver", "soft", "--listen", "127.0.0.1:0"])
        expect(result.status == 125 and "\"memry\"" in result.errors, result.report())


# --- exactly what is needed ----------------------------------------------------------------------------------

def directly(trial, command, memory):
    """On a device with so many bytes; less than the 1 MiB that SOFTGPU_MEMORY allows is possible so."""
    environment = dict(CARD, SOFTGPU_SHARES=str(memory))
    return trial.build.run_direct(command, environment=environment)


def least_memory(trial, command, whole):
    """The least memory, in whole pages, with which the program does directly what it does with much; None: it needs none."""
    def works(pages): # some need more now and then, directly too
        for _ in range(3):
            result = directly(trial, command, pages * 4096)
            if result.status == 0 and result.output == whole.output:
                return True
        return False

    low, high = 1, 256
    if works(low):
        return None
    while not works(high):
        low, high = high, high * 4
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle) else (middle, high)
    return high * 4096


# What this one needs depends on how many of its threads have memory at a time.
BY_CHANCE = {"host_threads"}


def check_exact(trial, server, command):
    """Runs it in what it needs directly, and with a byte less, where it must do what it does directly. None: it tells nothing."""
    whole, again = (directly(trial, command, 2 * GIB) for _ in range(2))
    if whole.status != 0 or whole.output != again.output or os.path.basename(command[0]) in BY_CHANCE:
        return None
    needed = least_memory(trial, command, whole)
    if needed is None:
        return None
    result = trial.run(server, ("-m", str(needed)), *command)
    expect(result.status == 0 and result.output == whole.output, "with %d bytes:" % needed, result.report(), whole.report())
    less = directly(trial, command, needed - 4096)
    result = trial.run(server, ("-m", str(needed - 1)), *command)
    expect(result.status == less.status and result.output == less.output, "a byte less:", result.report(), less.report())
    return needed


def run_exact(trial, commands, least):
    server = trial.serve()
    found, wrong = 0, []
    for command in commands:
        name = " ".join(os.path.basename(word) for word in command)
        try:
            needed = check_exact(trial, server, command)
        except Failure as failure:
            needed = None
            wrong.append("%s %s" % (name, failure))
        print("%-24s %s" % (name, "%d bytes" % needed if needed else "not counted"), flush=True)
        found += needed is not None
    expect(not wrong, *wrong)
    expect(found >= least, "only %d programs need memory that can be told" % found)


def case_exact(trial):
    run_exact(trial, [[trial.build.example(name)] for name in ("vector_add", "histogram", "managed_memory", "errors")], 3)


def case_exact_all(trial):
    tests = os.path.join(trial.build.folder, "tests")
    names = [trial.build.example(name) for name in trial.build.examples()]
    names += [os.path.join(tests, name) for name in ("allocations", "tight", "textures", "objects", "graphs", "graph_memory",
                                                     "texture_forms", "surface_forms", "boxes", "host_memory")
              if os.access(os.path.join(tests, name), os.X_OK)]
    run_exact(trial, [[name] for name in names], 15)


def case_exact_libraries(trial):
    """cuBLAS, CuPy with its pool, and a framework's pattern of allocation; what is not installed is said, and left out."""
    tests = os.path.join(trial.build.folder, "tests")
    commands = [[os.path.join(tests, "caching"), way] for way in ("segments", "ordered", "expandable")]
    blas = os.path.join(tests, "library_blas")
    if os.access(blas, os.X_OK):
        commands += [[blas, part] for part in ("level1", "level2", "gemm")]
    else:
        print("cuBLAS is not there: left out")
    python = interpreter_with("cupy")
    if python:
        os.environ["CUPY_CACHE_DIR"] = os.path.join(trial.build.folder, "cupy-cache")
        commands += [[python, os.path.join(HERE, "cupy_pool.py"), way] for way in ("pool", "ordered", "plain")]
    else:
        print("CuPy is not there: left out (REMOTE_GPU_TEST_PYTHON names interpreters)")
    run_exact(trial, commands, len(commands))


if __name__ == "__main__":
    run_case(globals(), Trial)
