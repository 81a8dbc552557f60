"""What the NVML stand-in answers by itself, from the inventory of its servers."""

import os
import sys

from nvml_harness import GIB, NVML, PROGRAM, USED, Case, Test, in_python, main, set_used, start, user


class Exports(Test):
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
    ("nvmlDeviceGetHandleByUUID", out["uuid"]), ("nvmlDeviceGetHandleByUUID", out["uuid"][len("GPU-"):]),
    ("nvmlDeviceGetHandleByPciBusId_v2", "00000000:02:00.0"),
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
        self.assertEqual(out["found"], [True, True, True, True])
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
        proxy = self.passage(self.server)
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
        server = self.serve(CUDA_FAKE_MEMORY_FILE="/nowhere")
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
        proxy = self.passage(self.server)
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


class Threads(Case):
    def test_all_at_once(self):
        result = start([PROGRAM, "threads", NVML], REMOTE_GPU_SERVER=self.address)
        self.assertEqual((result.stdout, result.stderr, result.returncode), ("done\n", "", 0))


if __name__ == "__main__":
    main()
