"""The NVML stand-in as programs see it.

Servers of two kinds: one whose driver and management library are stand-ins with known numbers, and one on the
software device. Their worker is a program that fails: nothing may need a session, but for the tests of NVML and
sessions together.
"""

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SANITIZE = sys.argv.pop(2) if len(sys.argv) > 2 else ""
BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "build"
STAGE = os.path.join(BUILD, "stage")
LIBRARY = os.path.join(STAGE, "lib", "remote-gpu")
NVML = os.path.join(LIBRARY, "libnvidia-ml.so.1")
PROGRAM = os.path.join(BUILD, "tests", "nvml", "nvml_program")
SOFT = os.path.join(LIBRARY, "soft", "libcuda.so.1")
TREE = tempfile.mkdtemp(prefix="remote-gpu-nvml-test-")
USED = os.path.join(TREE, "used")
GIB = 1 << 30
# An interpreter that is built without the thread sanitizer cannot load libraries that need it.
in_python = unittest.skipIf("thread" in SANITIZE, "the interpreter is built without sanitizers")
# With the address sanitizer's run-time in front it can; leaks would be the interpreter's.
PRELOAD = {}
if "address" in SANITIZE:
    found = subprocess.run(["cc", "-print-file-name=libasan.so"], stdout=subprocess.PIPE, text=True, check=True)
    PRELOAD = {"LD_PRELOAD": found.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0"}


def make_tree():
    """A driver with its management library beside it."""
    shutil.copy(os.path.join(BUILD, "tests", "daemon", "fake_libcuda.so"), os.path.join(TREE, "libcuda.so.1"))
    shutil.copy(os.path.join(BUILD, "tests", "nvml", "fake_libnvidia-ml.so"),
                os.path.join(TREE, "libnvidia-ml.so.1"))


def set_used(count):
    """What the server's devices have in use from now on."""
    with open(USED + ".new", "w") as file:
        file.write("%d\n" % count)
    os.rename(USED + ".new", USED)


def environment(**changes):
    result = {name: value for name, value in os.environ.items() if not name.startswith("REMOTE_GPU_")}
    result.pop("LD_PRELOAD", None)
    result.pop("LD_LIBRARY_PATH", None)
    result.update(HOME=TREE, XDG_CONFIG_HOME=TREE, PYTHONPATH=HERE, FAKE_MEMORY_FILE=USED)
    result.update(changes)
    return result


def as_client_of(server, **changes):
    return environment(REMOTE_GPU_SERVER=server.address, LD_LIBRARY_PATH=LIBRARY, **PRELOAD, **changes)


class Server:
    def __init__(self, driver, address="127.0.0.1:0", worker="/bin/false", **changes):
        self.ready = os.path.join(TREE, "ready-%d" % time.monotonic_ns())
        self.process = subprocess.Popen(
            [os.path.join(STAGE, "bin", "remote-gpud"), "--listen", address, "--driver", driver, "--worker", worker,
             "--ready-file", self.ready, "--config", "/dev/null", "--grace", "0"],
            env=environment(**changes), stdin=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while not os.path.exists(self.ready):
            assert self.process.poll() is None and time.monotonic() < end, "no server"
            time.sleep(0.02)
        with open(self.ready) as file:
            self.address = file.read().strip().replace("tcp://", "")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)


class Proxy:
    """Stands in front of a server: counts connections, and can hold them up."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.server = (host, int(port))
        self.connections = 0
        self.delay = 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def stop(self):
        self.socket.close()

    def accept(self):
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.carry, args=(client,), daemon=True).start()

    def carry(self, client):
        time.sleep(self.delay)
        with client, socket.create_connection(self.server) as server:
            back = threading.Thread(target=self.pump, args=(server, client), daemon=True)
            back.start()
            self.pump(client, server)
            back.join()

    @staticmethod
    def pump(source, target):
        try:
            while True:
                data = source.recv(65536)
                if not data:
                    break
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # either side may leave when it likes


def start(command, under=None, **changes):
    """Runs a command, under remote-gpu if `under` names a server."""
    if under:
        command = [os.path.join(STAGE, "bin", "remote-gpu"), "run", "-s", under, "--", *command]
    return subprocess.run(command, env=environment(**changes), stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)


def user(lines, under=None, **changes):
    """A Python program of these lines; what it puts into `out` comes back."""
    script = "\n".join(["import ctypes, json, os, time", "from nvml_user import *", "out = {}", lines,
                        "print(json.dumps(out))"])
    if not under:
        changes.setdefault("LD_LIBRARY_PATH", LIBRARY)
    result = start([sys.executable, "-c", script], under, **PRELOAD, **changes)
    if result.returncode != 0:
        raise AssertionError(result.stderr)
    return json.loads(result.stdout), result.stderr


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        set_used(3 * GIB)
        cls.server = Server(os.path.join(TREE, "libcuda.so.1"))
        cls.addClassCleanup(cls.server.stop)
        cls.address = cls.server.address


class Exports(unittest.TestCase):
    def test_the_list_is_what_is_exported(self):
        listed = {line.split()[1] for line in start([PROGRAM, "names"]).stdout.splitlines()}
        self.assertGreater(len(listed), 100)
        lines = start(["nm", "-D", "--defined-only", NVML]).stdout.splitlines()
        self.assertEqual({line.split()[2] for line in lines}, listed)

    def test_loading_does_nothing(self):
        lines = start([PROGRAM, "inert", NVML]).stdout.splitlines()
        self.assertEqual(lines, ["core 0, descriptors 0, tasks 0", "core 1, visible 0"])


@in_python
class Answers(Case):
    def test_system(self):
        out, errors = user("""
call("nvmlInit_v2")
out["count"] = [number("nvmlDeviceGetCount"), number("nvmlDeviceGetCount_v2")]
out["driver"] = text("nvmlSystemGetDriverVersion")
out["nvml"] = text("nvmlSystemGetNVMLVersion")
out["cuda"] = [number("nvmlSystemGetCudaDriverVersion"), number("nvmlSystemGetCudaDriverVersion_v2")]
out["process"] = text("nvmlSystemGetProcessName", ctypes.c_uint(os.getpid()), size=4096)
out["nobody"] = library.nvmlSystemGetProcessName(ctypes.c_uint(0x7fffffff), ctypes.create_string_buffer(9), 9)
""", self.address)
        self.assertEqual(errors, "")
        self.assertEqual(out["count"], [2, 2])
        self.assertEqual(out["driver"], "599.12.34")
        self.assertRegex(out["nvml"], r"^\d+\.\d+\.\d+")
        self.assertEqual(out["cuda"], [13000, 13000])
        self.assertEqual(os.path.realpath(out["process"]), os.path.realpath(sys.executable))
        self.assertEqual(out["nobody"], 6)

    def test_device(self):
        out, _ = user("""
call("nvmlInitWithFlags", 0)
d = handle(1)
out["name"] = text("nvmlDeviceGetName", d)
out["uuid"] = text("nvmlDeviceGetUUID", d)
out["index"] = [number("nvmlDeviceGetIndex", d), number("nvmlDeviceGetMinorNumber", d)]
major, minor = ctypes.c_int(), ctypes.c_int(7)
call("nvmlDeviceGetCudaComputeCapability", d, ctypes.byref(major), ctypes.byref(minor))
out["capability"] = [major.value, minor.value]
out["architecture"] = number("nvmlDeviceGetArchitecture", d)
out["brand"] = number("nvmlDeviceGetBrand", d)
p = pci(d)
out["pci"] = [p.domain, p.bus, p.device, p.bus_id.decode(), p.bus_id_legacy.decode()]
for name, size in (("nvmlDeviceGetPciInfo", 32), ("nvmlDeviceGetPciInfo_v2", 52)):
    old = (ctypes.c_ubyte * 68)(*[255] * 68)
    call(name, d, old)
    out[name] = [bytes(old[:12]).decode(), list(old[16:28:4]), list(old[size:]) == [255] * (68 - size)]
out["found"] = [handle_by(name, key).value == d.value for name, key in (
    ("nvmlDeviceGetHandleByUUID", out["uuid"]), ("nvmlDeviceGetHandleByPciBusId_v2", "00000000:02:00.0"),
    ("nvmlDeviceGetHandleByPciBusId", "0000:02:00.0"), ("nvmlDeviceGetHandleByIndex", None)) if key]
none = ctypes.byref(ctypes.c_void_p())
out["missing"] = [library.nvmlDeviceGetHandleByUUID(b"GPU-0", none),
                  library.nvmlDeviceGetHandleByPciBusId_v2(b"0000:09:00.0", none),
                  library.nvmlDeviceGetHandleByPciBusId_v2(b"here", none),
                  library.nvmlDeviceGetHandleByIndex_v2(2, none), library.nvmlDeviceGetHandleByIndex_v2(0, None)]
small = ctypes.create_string_buffer(b"untouched", 10)
out["small"] = [library.nvmlDeviceGetUUID(d, small, 10), small.value.decode(), library.nvmlDeviceGetName(d, None, 96)]
status = ctypes.c_int(-1)
out["peer"] = [library.nvmlDeviceGetP2PStatus(handle(0), d, 0, ctypes.byref(status)), status.value]
""", self.address)
        self.assertRegex(out["name"], "^Fake GPU 1")
        self.assertEqual(out["uuid"], "GPU-20212223-2425-2627-2829-2a2b2c2d2e2f")
        self.assertEqual(out["index"], [1, 1])
        self.assertEqual(out["capability"], [9, 0])
        self.assertEqual(out["architecture"], 9)
        self.assertEqual(out["brand"], 0)
        self.assertEqual(out["pci"], [0, 2, 0, "00000000:02:00.0", "0000:02:00.0"])
        for name in ("nvmlDeviceGetPciInfo", "nvmlDeviceGetPciInfo_v2"):
            self.assertEqual(out[name], ["0000:02:00.0", [0, 2, 0], True], name)
        self.assertEqual(out["found"], [True, True, True])
        self.assertEqual(out["missing"], [6, 6, 2, 2, 2])
        self.assertEqual(out["small"], [7, "untouched", 2])
        self.assertEqual(out["peer"], [0, 120])

    def test_memory_is_of_now(self):
        set_used(3 * GIB)
        self.addCleanup(set_used, 3 * GIB)
        out, _ = user("""
call("nvmlInit")
d = handle(0)
m = memory(d)
out["first"] = [m.total, m.free, m.used]
with open(%r + ".new", "w") as file:
    file.write("%%d" %% (5 << 30))
os.rename(%r + ".new", %r)
end = time.monotonic() + 20
while memory(d).used != 5 << 30 and time.monotonic() < end:
    time.sleep(0.05)
second = Memory2(version=0x02000028)
call("nvmlDeviceGetMemoryInfo_v2", d, ctypes.byref(second))
out["second"] = [second.total, second.free, second.used]
out["unknown"] = [library.nvmlDeviceGetMemoryInfo_v2(d, ctypes.byref(Memory2())),
                  library.nvmlDeviceGetMemoryInfo(d, None)]
""" % (USED, USED, USED), self.address)
        self.assertEqual(out["first"], [8 * GIB, 5 * GIB, 3 * GIB])
        self.assertEqual(out["second"], [8 * GIB, 3 * GIB, 5 * GIB])
        self.assertEqual(out["unknown"], [25, 2])

    def test_many_questions_are_few_connections(self):
        proxy = Proxy(self.address)
        self.addCleanup(proxy.stop)
        out, _ = user("""
call("nvmlInit")
d = handle(0)
start = time.monotonic()
for i in range(3000):
    memory(d)
    processes(d)
    text("nvmlDeviceGetName", d)
out["seconds"] = time.monotonic() - start
""", REMOTE_GPU_SERVER=proxy.address)
        self.assertLessEqual(proxy.connections, 2 + out["seconds"] / 0.1)
        self.assertGreaterEqual(proxy.connections, 2)

    def test_memory_that_is_not_known(self):
        server = Server(os.path.join(TREE, "libcuda.so.1"), FAKE_MEMORY_FILE="/nowhere")
        self.addCleanup(server.stop)
        out, _ = user("""
call("nvmlInit")
out["memory"] = library.nvmlDeviceGetMemoryInfo(handle(0), ctypes.byref(Memory()))
""", server.address)
        self.assertEqual(out["memory"], 3)

    def test_what_is_not_supported(self):
        listed = [line.split() for line in start([PROGRAM, "names"]).stdout.splitlines()]
        device = [name for kind, name in listed if kind == "device"]
        system = [name for kind, name in listed if kind == "system"]
        asked = [name for kind, name in listed if kind == "asked"]
        refused = [name for kind, name in listed if kind == "refused"]
        refused_system = [name for kind, name in listed if kind == "refused-system"]
        out, _ = user("""
room = (ctypes.c_ubyte * 4096)()
def results(names, *first):
    return sorted({getattr(library, name)(*first, room, room, room) for name in names})
device, system = %r, %r
asked, refused, refused_system = %r, %r, %r
served = [name for name in %r if name not in ("nvmlErrorString", "nvmlSystemGetNVMLVersion") and "Init" not in name]
out["before"] = [results(device, room), results(system), results(served, room), results(asked, room),
                 results(refused, room), results(refused_system)]
call("nvmlInit")
out["after"] = [results(device, handle(0)), results(system), results(refused, handle(0)), results(refused_system)]
out["strange"] = [results(device + asked + refused, ctypes.c_void_p(value)) for value in (None, 8, handle(0).value + 2, 2**64 - 1)]
out["room"] = any(room)
""" % (device, system, asked, refused, refused_system, [name for kind, name in listed if kind == "served"]), self.address)
        self.assertEqual(out["before"], [[1]] * 6)
        self.assertEqual(out["after"], [[3], [3], [4], [4]])
        self.assertEqual(out["strange"], [[2]] * 4)
        self.assertFalse(out["room"])

    def test_init_and_shutdown_are_counted(self):
        out, _ = user("""
count = ctypes.byref(ctypes.c_uint())
out["early"] = library.nvmlShutdown()
call("nvmlInit"); call("nvmlInit_v2"); call("nvmlInitWithFlags", 1)
d = handle(0)
for i in range(3):
    call("nvmlDeviceGetCount_v2", count)
    call("nvmlShutdown")
out["late"] = [library.nvmlShutdown(), library.nvmlDeviceGetCount_v2(count), library.nvmlDeviceGetIndex(d, count)]
call("nvmlInit")
out["same"] = handle(0).value == d.value
""", self.address)
        self.assertEqual(out, {"early": 1, "late": [1, 1, 1], "same": True})

    def test_errors_have_words(self):
        out, _ = user("""
out["words"] = [library.nvmlErrorString(value).decode() for value in [*range(31), 999]]
out["others"] = [library.nvmlErrorString(value).decode() for value in (-1, 31, 12345)]
""")
        self.assertEqual(len(set(out["words"])), 32)
        self.assertEqual(set(out["others"]), {out["words"][-1]})

    def test_fork(self):
        out, _ = user("""
call("nvmlInit")
d = handle(0)
child = os.fork()
if child == 0:
    used = memory(d).used
    call("nvmlShutdown")
    os._exit(42 if used == 3 << 30 and library.nvmlDeviceGetIndex(d, ctypes.byref(ctypes.c_uint())) == 1 else 1)
out["child"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
out["parent"] = memory(d).used
""", self.address)
        self.assertEqual(out, {"child": 42, "parent": 3 * GIB})

    def test_fork_while_a_question_is_under_way(self):
        proxy = Proxy(self.address)
        self.addCleanup(proxy.stop)
        proxy.delay = 0.6
        out, _ = user("""
import threading
call("nvmlInit")
d = handle(0)
asking = threading.Thread(target=memory, args=(d,))
asking.start()
time.sleep(0.2)
out["under way"] = asking.is_alive()
child = os.fork()
if child == 0:
    import signal
    signal.alarm(20)
    time.sleep(0.15)
    os._exit(42 if memory(d).used == 3 << 30 else 1)
out["child"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
asking.join()
""", REMOTE_GPU_SERVER=proxy.address)
        self.assertEqual(out, {"under way": True, "child": 42})

    def test_no_session_is_opened(self):
        out, _ = user("""
call("nvmlInit")
memory(handle(0))
out["sockets"] = [os.readlink("/proc/self/fd/" + name) for name in os.listdir("/proc/self/fd")
                  if os.path.islink("/proc/self/fd/" + name)]
out["tasks"] = len(os.listdir("/proc/self/task"))
""", self.address)
        self.assertFalse([name for name in out["sockets"] if name.startswith("socket:")])
        self.assertEqual(out["tasks"], 1)


@in_python
class Questions(Case):
    """What the server's management library is asked when a program asks."""

    DEFINE = """
call("nvmlInit")
one, two = handle(0), handle(1)
class Field(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint), ("scope", ctypes.c_uint), ("timestamp", ctypes.c_longlong),
                ("latency", ctypes.c_longlong), ("type", ctypes.c_int), ("result", ctypes.c_int),
                ("value", ctypes.c_ulonglong)]
def pair(kind=ctypes.c_int):
    return (kind * 2)(77, 77)
def ref(array, i):
    return ctypes.byref(array, i * ctypes.sizeof(array._type_))
"""

    def test_every_kind_of_signature(self):
        out, errors = user(self.DEFINE + """
out["temperature"] = [number("nvmlDeviceGetTemperature", d, 2) for d in (one, two)]
v = (ctypes.c_int * 3)(12 | 1 << 24, 5, 0)
call("nvmlDeviceGetTemperatureV", two, v)
out["structure"] = v[2]
v[0] = 12 | 9 << 24
out["version"] = library.nvmlDeviceGetTemperatureV(two, v)
u = pair(ctypes.c_uint); call("nvmlDeviceGetUtilizationRates", two, u); out["rates"] = list(u)
out["serial"] = text("nvmlDeviceGetSerial", two, size=30)
out["short"] = library.nvmlDeviceGetSerial(two, ctypes.create_string_buffer(5), 5)
out["inforom"] = text("nvmlDeviceGetInforomVersion", two, 3)
n = ctypes.c_uint(0)
out["length"] = [library.nvmlDeviceGetSupportedGraphicsClocks(one, 1000, ctypes.byref(n), None), n.value]
clocks = (ctypes.c_uint * 5)(*[9] * 5); n.value = 5
call("nvmlDeviceGetSupportedGraphicsClocks", one, 1000, ctypes.byref(n), clocks)
out["clocks"] = [n.value, list(clocks)]
kind, n, room = ctypes.c_int(), ctypes.c_uint(1), (ctypes.c_ulonglong * 4)(1, 1, 1, 1)
call("nvmlDeviceGetSamples", two, 6, ctypes.c_ulonglong(1 << 40), ctypes.byref(kind), ctypes.byref(n), room)
out["samples"] = [kind.value, n.value, list(room)]
out["two devices"] = [number("nvmlDeviceGetTopologyCommonAncestor", one, two), number("nvmlDeviceGetP2PStatus", two, one, 3)]
fields = (Field * 3)(); fields[0].id, fields[1].id, fields[2].id, fields[2].scope = 5, 99, 7, 20
call("nvmlDeviceGetFieldValues", two, 3, fields)
out["fields"] = [[f.result, f.value] for f in fields]
p = pair(); call("nvmlDeviceGetEccMode", one, ref(p, 0), ref(p, 1)); out["ecc"] = list(p)
out["by serial"] = handle_by("nvmlDeviceGetHandleBySerial", "SERIAL-2").value == two.value
""", self.address)
        self.assertEqual(errors, "")
        self.assertEqual(out, {
            "temperature": [52, 62], "structure": -47, "version": 25, "rates": [20, 7], "serial": "SERIAL-2",
            "short": 7, "inforom": "2.3", "length": [7, 3], "clocks": [3, [1010, 1011, 1012, 9, 9]],
            "samples": [7, 2, [1 << 40, 2, 1, 1]], "two devices": [30, 213],
            "fields": [[0, 5002], [3, 99002], [0, 7022]], "ecc": [1, 0], "by serial": True})

    def test_what_is_wrong(self):
        out, errors = user(self.DEFINE + """
n = ctypes.c_uint(3)
out["null"] = [library.nvmlDeviceGetTemperature(one, 0, None), library.nvmlDeviceGetSerial(one, None, 30),
               library.nvmlDeviceGetSupportedMemoryClocks(one, None, None),
               library.nvmlDeviceGetSupportedMemoryClocks(one, ctypes.byref(n), None),
               library.nvmlDeviceGetEccMode(one, ctypes.byref(n), None),
               library.nvmlDeviceGetFieldValues(one, 3, None)]
out["refused there"] = library.nvmlDeviceGetTemperature(one, 3, ctypes.byref(n))
out["not supported there"] = library.nvmlDeviceGetFanSpeed(one, ctypes.byref(n))
out["missing there"] = library.nvmlDeviceGetNumFans(one, ctypes.byref(n))
out["other device"] = library.nvmlDeviceGetTopologyCommonAncestor(one, ctypes.c_void_p(8), ctypes.byref(n))
huge = (ctypes.c_uint * 2)(0xffffff | 1 << 24)
out["huge"] = library.nvmlDeviceGetTemperatureV(one, huge)
out["tiny"] = library.nvmlDeviceGetTemperatureV(one, (ctypes.c_uint * 2)(2))
out["untouched"] = n.value
""", self.address)
        self.assertEqual(errors, "")
        self.assertEqual(out, {"null": [2] * 6, "refused there": 2, "not supported there": 3, "missing there": 3,
                               "other device": 2, "huge": 2, "tiny": 2, "untouched": 3})

    def test_a_library_that_crashes(self):
        server = Server(os.path.join(TREE, "libcuda.so.1"))
        self.addCleanup(server.stop)
        out, _ = user(self.DEFINE + """
n = ctypes.c_uint()
out["crash"] = library.nvmlDeviceGetIrqNum(one, ctypes.byref(n))
time.sleep(1.1)
out["after"] = number("nvmlDeviceGetTemperature", one, 0)
""", server.address)
        self.assertEqual(out, {"crash": 999, "after": 50})

    def test_answers_are_kept_for_a_tenth_of_a_second(self):
        out, _ = user(self.DEFINE + """
def energy(d): return number("nvmlDeviceGetTotalEnergyConsumption", d, kind=ctypes.c_ulonglong)
deadline = time.monotonic() + 20
same = False
while not same and time.monotonic() < deadline:
    same = energy(one) == energy(one)
first = energy(one)
time.sleep(0.15)
out["kept"], out["asked again"], out["other"] = same, energy(one) > first, energy(two) >> 40
""", self.address)
        self.assertEqual(out, {"kept": True, "asked again": True, "other": 2})

    def test_polling_is_a_question_in_a_tenth_of_a_second(self):
        counts = {}
        for way, changes in (("kept", {}), ("asked", {"REMOTE_GPU_OPT": "-shadow"})):
            proxy = Proxy(self.address)
            self.addCleanup(proxy.stop)
            out, _ = user(self.DEFINE + """
start = time.monotonic()
values = {number("nvmlDeviceGetTemperature", one, 0) for i in range(300)}
out["seconds"], out["values"] = time.monotonic() - start, len(values)
""", REMOTE_GPU_SERVER=proxy.address, **changes)
            self.assertEqual(out["values"], 1)
            counts[way] = proxy.connections
            if way == "kept":
                self.assertLessEqual(proxy.connections, 3 + out["seconds"] / 0.1)
        self.assertGreaterEqual(counts["asked"], 300)

    def test_only_what_is_granted_can_be_asked_of(self):
        out, _ = user("""
call("nvmlInit")
out["serial"] = text("nvmlDeviceGetSerial", handle(0))
out["other"] = library.nvmlDeviceGetHandleBySerial(b"SERIAL-2", ctypes.byref(ctypes.c_void_p()))
""", self.address, REMOTE_GPU_GPUS="1")
        self.assertEqual(out, {"serial": "SERIAL-1", "other": 6})

    def test_devices_of_two_servers(self):
        other = Server(os.path.join(TREE, "libcuda.so.1"))
        self.addCleanup(other.stop)
        out, _ = user("""
call("nvmlInit")
out["serials"] = [text("nvmlDeviceGetSerial", handle(i)) for i in range(4)]
n = ctypes.c_int()
out["level"] = library.nvmlDeviceGetTopologyCommonAncestor(handle(0), handle(3), ctypes.byref(n))
out["peers"] = number("nvmlDeviceGetP2PStatus", handle(0), handle(3), 0)
out["same"] = number("nvmlDeviceGetTopologyCommonAncestor", handle(2), handle(3))
""", REMOTE_GPU_SERVER="%s,%s" % (self.address, other.address))
        self.assertEqual(out, {"serials": ["SERIAL-1", "SERIAL-2"] * 2, "level": 3, "peers": 6, "same": 30})

    def test_a_server_that_is_gone(self):
        server = Server(os.path.join(TREE, "libcuda.so.1"))
        self.addCleanup(server.stop)
        command = [sys.executable, "-u", "-c", """
from nvml_user import *
call("nvmlInit")
d, n = handle(0), ctypes.c_uint()
print("ready"); input()
print(library.nvmlDeviceGetTemperature(d, 0, ctypes.byref(n)))
"""]
        with subprocess.Popen(command, env=as_client_of(server), text=True, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            self.addCleanup(process.kill)
            self.assertEqual(process.stdout.readline(), "ready\n")
            server.stop()
            self.assertEqual(process.communicate("\n", 60)[0], "15\n")

    def test_event_sets(self):
        out, _ = user(self.DEFINE + """
s, types, data = ctypes.c_void_p(), ctypes.c_ulonglong(5), (ctypes.c_ubyte * 64)()
call("nvmlEventSetCreate", ctypes.byref(s))
call("nvmlDeviceGetSupportedEventTypes", one, ctypes.byref(types))
out["results"] = [types.value, library.nvmlDeviceRegisterEvents(one, ctypes.c_ulonglong(8), s),
                  library.nvmlEventSetWait_v2(s, data, 10), library.nvmlEventSetFree(s)]
table = ctypes.c_void_p()
known = bytes.fromhex("c4fe3e6cc98f6c4ea327ee696e12f7c4")
out["table"] = [library.nvmlInternalGetExportTable(ctypes.byref(table), bytes(16)),
                library.nvmlInternalGetExportTable(ctypes.byref(table), known)]
size = ctypes.cast(table, ctypes.POINTER(ctypes.c_size_t))[0]
out["size"] = size
""", self.address)
        self.assertEqual(out, {"results": [0, 3, 10, 0], "table": [6, 0], "size": 2048})


@in_python
class Servers(Case):
    def test_devices_are_limited(self):
        out, _ = user("""call("nvmlInit"); out["names"] = names()""", self.address, REMOTE_GPU_GPUS="1")
        self.assertEqual(out["names"], ["Fake GPU 0"])
        result = start([os.path.join(STAGE, "bin", "remote-gpu"), "run", "-n", "1", "-s", self.address, "--",
                        sys.executable, "-c", "from nvml_user import *; call('nvmlInit'); print(names())"], **PRELOAD)
        self.assertEqual(result.stdout, "['Fake GPU 0']\n", result.stderr)

    def fails(self, **changes):
        out, errors = user("""out["init"] = [library.nvmlInit(), library.nvmlInit_v2(), library.nvmlInitWithFlags(1)]
out["count"] = library.nvmlDeviceGetCount(ctypes.byref(ctypes.c_uint()))""", **changes)
        self.assertEqual(out, {"init": [9, 9, 9], "count": 1})
        self.assertRegex(errors, "^(remote-gpu: .*\n)+$")
        return errors

    def test_no_server(self):
        errors = self.fails(REMOTE_GPU_SERVER="127.0.0.1:1")
        self.assertEqual(errors.count("\n"), 1, errors)
        self.assertIn("127.0.0.1:1", errors)
        self.assertIn("connection refused", errors)

    def test_too_few_devices(self):
        errors = self.fails(REMOTE_GPU_SERVER=self.address, REMOTE_GPU_GPUS="3")
        self.assertEqual(errors.count("\n"), 1, errors)
        self.assertIn("has 2 GPUs, and REMOTE_GPU_GPUS asks for 3", errors)

    def test_a_list_of_servers(self):
        out, errors = user("""call("nvmlInit"); out["names"] = names()""",
                           REMOTE_GPU_SERVER="127.0.0.1:1|" + self.address)
        self.assertEqual(out["names"], ["Fake GPU 0", "Fake GPU 1"])
        self.assertRegex(errors, "^remote-gpu: .*127.0.0.1:1.*\n$")

    def test_two_servers_are_one_list(self):
        other = Server(os.path.join(TREE, "libcuda.so.1"))
        self.addCleanup(other.stop)
        both = "%s,,%s" % (self.address, other.address)
        ask = '''call("nvmlInit"); out["names"] = names()
out["free"] = [memory(handle(i)).free for i in range(len(out["names"]))]'''
        out, errors = user(ask, REMOTE_GPU_SERVER=both)
        self.assertEqual((out["names"], errors), (["Fake GPU 0", "Fake GPU 1"] * 2, ""))
        out, _ = user(ask, REMOTE_GPU_SERVER=both, REMOTE_GPU_GPUS="3")
        self.assertEqual(out["names"], ["Fake GPU 0", "Fake GPU 1", "Fake GPU 0"])
        self.assertIn("have 4 GPUs together", self.fails(REMOTE_GPU_SERVER=both, REMOTE_GPU_GPUS="5"))
        self.assertIn("all servers of the list", self.fails(REMOTE_GPU_SERVER=self.address + ",127.0.0.1:1"))

    def test_a_server_that_goes_and_comes_back(self):
        server = Server(os.path.join(TREE, "libcuda.so.1"))
        self.addCleanup(server.stop)
        command = [sys.executable, "-u", "-c", """
from nvml_user import *
call("nvmlInit")
d = handle(0)
while True:
    print(library.nvmlDeviceGetMemoryInfo(d, ctypes.byref(Memory())), text("nvmlDeviceGetName", d)[:10])
    input()
"""]
        with subprocess.Popen(command, env=as_client_of(server),
                              text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            self.addCleanup(process.kill)

            def after_a_while():
                time.sleep(0.15)
                process.stdin.write("\n")
                process.stdin.flush()
                return process.stdout.readline()

            self.assertEqual(process.stdout.readline(), "0 Fake GPU 0\n")
            server.stop()
            for _ in range(3):
                self.assertEqual(after_a_while(), "15 Fake GPU 0\n")
            again = Server(os.path.join(TREE, "libcuda.so.1"), server.address)
            self.addCleanup(again.stop)
            self.assertEqual(after_a_while(), "0 Fake GPU 0\n")
            again.stop()
            fewer = Server(os.path.join(TREE, "libcuda.so.1"), server.address, FAKE_DRIVER_DEVICES="1")
            self.addCleanup(fewer.stop)
            self.assertEqual(after_a_while(), "0 Fake GPU 0\n")
            process.stdin.close()
            errors = process.stderr.read()
        self.assertEqual(errors.count("remote-gpu: "), 1, errors)

    def test_a_device_that_is_gone(self):
        server = Server(os.path.join(TREE, "libcuda.so.1"))
        self.addCleanup(server.stop)
        command = [sys.executable, "-u", "-c", """
from nvml_user import *
call("nvmlInit")
one, two = handle(0), handle(1)
print(number("nvmlDeviceGetCount"))
input()
print(*(library.nvmlDeviceGetMemoryInfo(d, ctypes.byref(Memory())) for d in (one, two)))
"""]
        with subprocess.Popen(command, env=as_client_of(server),
                              text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            self.addCleanup(process.kill)
            self.assertEqual(process.stdout.readline(), "2\n")
            server.stop()
            fewer = Server(os.path.join(TREE, "libcuda.so.1"), server.address, FAKE_DRIVER_DEVICES="1")
            self.addCleanup(fewer.stop)
            self.assertEqual(process.communicate("\n", 60)[0], "0 15\n")

    def test_an_incomplete_installation(self):
        alone = os.path.join(TREE, "alone")
        os.mkdir(alone)
        shutil.copy(NVML, alone)
        out, errors = user("""
out["results"] = [library.nvmlInit(), library.nvmlInit_v2(), library.nvmlDeviceGetPowerUsage(None, None)]
out["words"] = library.nvmlErrorString(12).decode()
""", LD_LIBRARY_PATH=alone)
        self.assertEqual(out["results"], [12, 12, 12])
        self.assertIn("not installed completely", out["words"])
        self.assertRegex(errors, "^remote-gpu: cannot load the client core .*\n$")


@in_python
class Sessions(unittest.TestCase):
    """NVML and the session show the same devices, where the user sees less than all."""

    def setUp(self):
        set_used(0)
        self.server = Server(os.path.join(TREE, "libcuda.so.1"), REMOTE_GPU_LIBDIR=LIBRARY,
                             worker=os.path.join(BUILD, "tests", "daemon", "fake_worker"))
        self.addCleanup(self.server.stop)

    def hold(self, index):
        """Another client, which has device `index`."""
        holder = subprocess.Popen([os.path.join(BUILD, "tests", "daemon", "control_client"), self.server.address,
                                   "index=%d" % index, "hold"], env=environment(REMOTE_GPU_LIBDIR=LIBRARY), text=True,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(holder.communicate)
        self.assertRegex(holder.stdout.readline(), "^hello .*devices=%d" % index)
        return holder

    def devices_of_sessions(self):
        """By the process that has the session."""
        listed = start([os.path.join(STAGE, "bin", "remote-gpu"), "smi", "--json", "-s", self.server.address])
        return {session["pid"]: session["devices"] for session in json.loads(listed.stdout)["servers"][0]["sessions"]}

    def program(self, *steps, gpus="1"):
        """A program that does one step a line of its input, and says what came of it."""
        script = "import time\nfrom nvml_user import *\n" + "\n".join("input(); " + step for step in steps)
        process = subprocess.Popen([sys.executable, "-u", "-c", script], text=True, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, env=as_client_of(self.server, REMOTE_GPU_GPUS=gpus))
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def step(self, process):
        process.stdin.write("\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    MANAGE = "call('nvmlInit'); print(*names(), number('nvmlDeviceGetIndex', handle(0)))"
    COMPUTE = "print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
    STOP = "call('nvmlShutdown'); print('stopped')"

    def test_processes(self):
        holder = self.hold(1)
        ask = "print(processes(handle(0)), processes(handle(1)))"
        process = self.program(self.MANAGE, ask, self.COMPUTE, "time.sleep(0.2); " + ask,
                               "print(processes(handle(0), '_v2'), processes(handle(0), '', Process1))", "", gpus="")
        self.assertEqual(self.step(process), "Fake GPU 0 Fake GPU 1 0")
        self.assertEqual(self.step(process), "[] [%d]" % holder.pid)
        self.assertEqual(self.step(process), "0")
        self.assertEqual(self.step(process), "[%d] %s" % (process.pid, sorted([process.pid, holder.pid])))
        self.assertEqual(self.step(process), "[%d] [%d]" % (process.pid, process.pid))

    def test_the_least_used_is_shown(self):
        self.hold(0)
        self.assertEqual(self.step(self.program(self.MANAGE)), "Fake GPU 1 0")

    def test_the_session_has_what_was_shown(self):
        process = self.program(self.MANAGE, self.STOP, self.COMPUTE, self.MANAGE, "")
        self.assertEqual(self.step(process), "Fake GPU 0 0")
        self.assertEqual(self.step(process), "stopped")
        self.hold(0)
        self.assertEqual(self.step(process), "0")
        self.assertEqual(self.devices_of_sessions()[process.pid], [0])
        self.assertEqual(self.step(process), "Fake GPU 0 0")

    def test_what_the_session_has_is_shown(self):
        holder = self.hold(0)
        process = self.program(self.COMPUTE, self.MANAGE, "")
        self.assertEqual(self.step(process), "0")
        self.assertEqual(self.devices_of_sessions()[process.pid], [1])
        holder.communicate()
        self.assertEqual(self.step(process), "Fake GPU 1 0")


@in_python
@unittest.skipUnless(os.path.exists(SOFT), "the software device is not being built")
class SoftwareDevice(unittest.TestCase):
    def test_as_the_server_lists_it(self):
        server = Server("soft")
        self.addCleanup(server.stop)
        listed = start([os.path.join(STAGE, "bin", "remote-gpu"), "list", "--json", "-s", server.address])
        (device,) = json.loads(listed.stdout)["servers"][0]["devices"]
        out, errors = user("""
call("nvmlInit")
d = handle(0)
out["count"] = number("nvmlDeviceGetCount")
out["name"], out["uuid"] = text("nvmlDeviceGetName", d), text("nvmlDeviceGetUUID", d)
out["driver"], out["cuda"] = text("nvmlSystemGetDriverVersion"), number("nvmlSystemGetCudaDriverVersion")
m = memory(d)
out["total"], out["sum"] = m.total, m.free + m.used
out["found"] = handle_by("nvmlDeviceGetHandleByPciBusId", pci(d).bus_id.decode()).value == d.value
""", server.address)
        self.assertEqual(errors, "")
        self.assertEqual(out["count"], 1)
        self.assertEqual((out["name"], out["uuid"]), (device["name"], device["uuid"]))
        self.assertEqual(out["driver"], "%d.%d" % (out["cuda"] // 1000, out["cuda"] % 1000 // 10))
        self.assertEqual((out["total"], out["sum"]), (device["memory_total"], device["memory_total"]))
        self.assertTrue(out["found"])


class Tools(Case):
    """Programs of others, where they are installed."""

    def under(self, *command):
        return start([os.path.join(STAGE, "bin", "remote-gpu"), "run", "-s", self.address, "--", *command], **PRELOAD)

    @unittest.skipUnless(shutil.which("nvidia-smi"), "nvidia-smi is not installed")
    def test_nvidia_smi(self):
        listed = self.under("nvidia-smi", "-L")
        self.assertEqual(listed.returncode, 0, listed.stdout + listed.stderr)
        self.assertRegex(listed.stdout, r"(?s)GPU 0: Fake GPU 0.*GPU 1: Fake GPU 1")
        asked = self.under("nvidia-smi", "--query-gpu=temperature.gpu,utilization.gpu,serial", "--format=csv,noheader")
        self.assertEqual(asked.stdout, "50, 10 %, SERIAL-1\n60, 20 %, SERIAL-2\n", asked.stderr)
        self.assertEqual(self.under("nvidia-smi").returncode, 0)

    @unittest.skipUnless(importlib.util.find_spec("pynvml"), "nvidia-ml-py is not installed")
    @in_python
    def test_pynvml(self):
        result = self.under(sys.executable, "-c", """
import pynvml as n
n.nvmlInit()
for i in range(n.nvmlDeviceGetCount()):
    d = n.nvmlDeviceGetHandleByIndex(i)
    print(n.nvmlDeviceGetSerial(d), n.nvmlDeviceGetTemperature(d, 0), n.nvmlDeviceGetUtilizationRates(d).gpu,
          n.nvmlDeviceGetSupportedGraphicsClocks(d, 100), [f.value.ullVal for f in n.nvmlDeviceGetFieldValues(d, [5])],
          n.nvmlDeviceGetSamples(d, 6, 40)[0], n.nvmlDeviceGetEccMode(d))
try:
    n.nvmlDeviceSetPersistenceMode(d, 1)
except n.NVMLError_NoPermission:
    print("refused")
""")
        self.assertEqual(result.stdout.count("SERIAL-"), 2, result.stderr)
        self.assertIn("SERIAL-2 60 20 [120, 121, 122] [5002]", result.stdout)
        self.assertRegex(result.stdout, "refused\n$")


class Threads(Case):
    def test_all_at_once(self):
        result = start([PROGRAM, "threads", NVML], REMOTE_GPU_SERVER=self.address)
        self.assertEqual((result.stdout, result.stderr, result.returncode), ("done\n", "", 0))


if __name__ == "__main__":
    try:
        make_tree()
        unittest.main(verbosity=2)
    finally:
        shutil.rmtree(TREE)
