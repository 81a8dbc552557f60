"""GPUs that MIG has divided: each instance is a device of the server, and a session sees the one that it gets.

The software device is divided by SOFTGPU_MIG, and its NVML tells of it as NVIDIA's does. usage: mig_test.py BUILD_FOLDER
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from session_case import BUILD, SessionCase, main  # noqa: E402
from trial import wait_until  # noqa: E402

MIB = 1 << 20
DIVIDED = {"SOFTGPU_DEVICES": "2", "SOFTGPU_CORES": "4", "SOFTGPU_MEMORY": "256M", "SOFTGPU_MIG": "0=1:64M,2:128M"}
PROGRAM = """
import ctypes, json, sys, uuid
c = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    result = getattr(c, name)(*arguments)
    if result:
        sys.exit("%s: error %d" % (name, result))
n, size, context, address = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_void_p(), ctypes.c_uint64()
name, raw = ctypes.create_string_buffer(100), ctypes.create_string_buffer(16)
call("cuInit", 0)
call("cuDeviceGetCount", ctypes.byref(n))
count = n.value
call("cuDeviceGetAttribute", ctypes.byref(n), 16, 0)
call("cuDeviceGetName", name, 100, 0)
call("cuDeviceGetUuid_v2", raw, 0)
call("cuDeviceTotalMem_v2", ctypes.byref(size), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
too_much = c.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size.value + 1))
call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size.value // 8))
print(json.dumps({"count": count, "multiprocessors": n.value, "name": name.value.decode(), "memory": size.value,
                  "uuid": str(uuid.UUID(bytes=raw.raw)), "too_much": too_much}), flush=True)
sys.stdin.readline()
"""
MANAGEMENT = """
import ctypes, json, sys
m = ctypes.CDLL("libnvidia-ml.so.1")
class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]
def number(name, *arguments):
    value = ctypes.c_uint(99)
    result = getattr(m, name)(*arguments, ctypes.byref(value))
    return "error %d" % result if result else value.value
def handle(name, *arguments):
    value = ctypes.c_void_p()
    return None if getattr(m, name)(*arguments, ctypes.byref(value)) else value
def describe(device):
    text, memory = ctypes.create_string_buffer(96), Memory()
    m.nvmlDeviceGetUUID(device, text, 96)
    m.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory))
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    mode = m.nvmlDeviceGetMigMode(device, ctypes.byref(current), ctypes.byref(pending))
    return {"uuid": text.value.decode(), "memory": memory.total, "mig": number("nvmlDeviceIsMigDeviceHandle", device),
            "gpu_instance": number("nvmlDeviceGetGpuInstanceId", device),
            "compute_instance": number("nvmlDeviceGetComputeInstanceId", device),
            "divided": "error %d" % mode if mode else current.value}
m.nvmlInit_v2()
out = []
for i in range(number("nvmlDeviceGetCount_v2")):
    device = handle("nvmlDeviceGetHandleByIndex_v2", i)
    one = describe(device)
    one["instances"] = []
    for j in range(16):
        instance = handle("nvmlDeviceGetMigDeviceHandleByIndex", device, j)
        if instance:
            one["instances"].append(describe(instance))
            whole = handle("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", instance)
            one["same"] = whole.value == device.value
    out.append(one)
named = handle("nvmlDeviceGetHandleByUUID", sys.argv[1].encode()) if len(sys.argv) > 1 else None
print(json.dumps({"devices": out, "named": describe(named) if named else None}))
"""


class Mig(SessionCase):
    PROGRAM = (PROGRAM,)

    def serve(self, arguments=(), **environment):
        super().serve(arguments, dict(DIVIDED, **environment))
        self.devices = self.inventory()["devices"]

    def test_devices(self):
        self.serve(["--http", "127.0.0.1:0"])
        self.assertEqual([(device["uuid"][:4], device["memory_total"]) for device in self.devices],
                         [("GPU-", 256 * MIB), ("MIG-", 64 * MIB), ("MIG-", 128 * MIB)])
        whole, first, second = self.devices
        self.assertIsNone(whole["mig"])
        self.assertEqual(first["mig"]["gpu"], second["mig"]["gpu"])
        self.assertNotEqual(first["mig"]["gpu"], whole["uuid"])
        self.assertEqual((first["mig"]["gpu_instance"], second["mig"]["gpu_instance"]), (1, 2))
        self.assertEqual(len({device["uuid"] for device in self.devices}), 3)
        self.assertRegex(self.listed(), "GPU 2: Software GPU MIG 2c.128mb.*, %s of GPU-" % second["uuid"])
        text = self.metrics()
        for device in self.devices:
            self.assertIn('UUID="%s"' % device["uuid"], text)
        self.assertTrue(wait_until(lambda: all(device["memory_free"] for device in self.inventory()["devices"]), 30))

    def check(self, seen, device, multiprocessors):
        self.assertEqual(seen, {"count": 1, "multiprocessors": multiprocessors, "name": device["name"],
                                "memory": device["memory_total"], "uuid": device["uuid"][4:], "too_much": 2})

    def test_sessions(self):
        self.serve()
        whole, first, second = self.devices
        self.check(self.start()[1], whole, 4)  # all that are whole
        self.check(self.start("-n", "1")[1], first, 1)
        self.check(self.start("-n", "1")[1], second, 2)
        self.check(self.start("-n", "1")[1], whole, 4)
        self.check(self.start(visible=second["uuid"])[1], second, 2)
        self.check(self.start(visible=first["uuid"])[1], first, 1)
        self.check(self.start(visible="2")[1], second, 2)
        self.assertEqual({session["share"]["sharing"] for session in self.sessions().values()}, {"turns"})

    def test_what_is_kept_of_it(self):
        folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="remote-gpu-mig-"))
        path = os.path.join(folder, "counts")
        self.serve(["--state-dir", os.path.join(folder, "state")])
        for device, options in zip(self.devices, ((), ("--exclusive",))):
            subprocess.run(self.run_words("--stats=" + path, *options), env=self.environment(device["uuid"]), check=True,
                           stdin=subprocess.DEVNULL, capture_output=True)
        with open(path) as file:
            counts = [json.loads(line) for line in file]
        self.assertEqual([(one["sharing"], one["mig_instances"]) for one in counts], [("turns", 0), ("exclusive", 1)])

        def rows():
            told = json.loads(self.listed("usage", "--by", "sharing", "--json"))
            return [(row["sharing"], row["mig"], row["sessions"]) for row in told["servers"][0]["rows"]]
        self.assertTrue(wait_until(lambda: rows() == [("turns", False, 1), ("exclusive", True, 1)], 30), rows())

    def test_an_instance_alone(self):
        self.serve()
        for _ in range(3):
            self.start("-n", "1", "--exclusive")
        self.assertIn("to have them alone", self.refused("-n", "1", "--exclusive"))

    def test_refused(self):
        self.serve()
        self.assertIn("of those that MIG has divided a session gets one instance", self.refused("-n", "2"))
        self.assertIn("name it alone", self.refused(visible="1,2"))
        self.assertIn("name it alone", self.refused(visible="0,1"))
        self.assertIn("names none of the GPUs", self.refused(visible="MIG-00000000-0000-0000-0000-000000000000"))
        self.assertIn("100M", self.refused("-m", "100M", visible=self.devices[1]["uuid"]).replace(" ", "").replace("iB", ""))

    def test_what_the_operator_leaves(self):
        """CUDA_VISIBLE_DEVICES in the server's environment leaves those that it names; numbers do not say which are meant."""
        self.serve()
        named = [self.devices[2]["uuid"], self.devices[0]["uuid"]]
        self.serve(CUDA_VISIBLE_DEVICES=",".join(named))
        self.assertEqual(sorted(device["uuid"] for device in self.devices), sorted(named))
        self.assertIn("does not say which instances are meant", self.not_started(environment={"CUDA_VISIBLE_DEVICES": "1", **DIVIDED}))

    def test_all_are_divided(self):
        self.serve(SOFTGPU_DEVICES="1")
        self.assertEqual([device["uuid"][:4] for device in self.devices], ["MIG-", "MIG-"])
        self.check(self.start()[1], self.devices[0], 1)
        self.check(self.start()[1], self.devices[1], 2)

    def test_mps_in_an_instance(self):
        folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="remote-gpu-mig-"))
        os.chmod(folder, 0o755)
        control = self.stack.enter_context(contextlib.closing(socket.socket(socket.AF_UNIX)))
        control.bind(os.path.join(folder, "control"))
        os.chmod(os.path.join(folder, "control"), 0o666)
        control.listen(8)
        self.serve(["--mps", folder])
        _, seen = self.start("--compute", "50%", visible=self.devices[2]["uuid"])
        self.assertEqual((seen["multiprocessors"], seen["memory"]), (1, 128 * MIB))

    def test_memory_of_an_instance(self):
        self.serve()
        _, seen = self.start("-m", "32M", visible=self.devices[2]["uuid"])
        self.assertEqual((seen["memory"], seen["too_much"]), (32 * MIB, 2))
        self.assertIn("not yet guaranteed", self.refused("-m", "100M", visible=self.devices[2]["uuid"]))

    def test_management_of_a_server(self):
        self.serve()
        done = subprocess.run([BUILD.command, "run", "-s", self.server.address, "--", sys.executable, "-c", MANAGEMENT,
                               self.devices[2]["uuid"]], capture_output=True, text=True, check=True)
        told = json.loads(done.stdout)
        self.assertEqual([(device["uuid"], device["memory"], device["mig"], device["instances"]) for device in told["devices"]],
                         [(device["uuid"], device["memory_total"], int(device["mig"] is not None), []) for device in self.devices])
        self.assertEqual(told["named"]["uuid"], self.devices[2]["uuid"])
        self.assertEqual((told["named"]["gpu_instance"], told["named"]["compute_instance"]), (2, 0))

    def direct(self, program, *arguments, visible=None):
        environment = dict(self.environment(visible), LD_LIBRARY_PATH=BUILD.soft_dir, **DIVIDED)
        return subprocess.run([sys.executable, "-c", program, *arguments], env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)

    def test_direct(self):
        """A process sees one instance, and nothing beside it, as on NVIDIA's driver."""
        told = json.loads(self.direct(MANAGEMENT).stdout)["devices"]
        self.assertEqual([device["divided"] for device in told], [1, 0])
        self.assertEqual([len(device["instances"]) for device in told], [2, 0])
        first, second = told[0]["instances"]
        self.assertTrue(told[0]["same"])
        self.assertEqual([(one["mig"], one["memory"], one["gpu_instance"]) for one in (first, second)], [(1, 64 * MIB, 1), (1, 128 * MIB, 2)])
        named = json.loads(self.direct(MANAGEMENT, second["uuid"]).stdout)["named"]
        self.assertEqual(named, second)
        for visible, memory, multiprocessors in ((None, 64, 1), ("0", 64, 1), ("1", 256, 4), ("1,0", 64, 1), (first["uuid"], 64, 1),
                                                 (second["uuid"] + "," + first["uuid"], 128, 2), (told[1]["uuid"], 256, 4),
                                                 (told[0]["uuid"], 64, 1)):
            seen = json.loads(self.direct(PROGRAM, visible=visible).stdout)
            self.assertEqual((seen["count"], seen["memory"], seen["multiprocessors"]), (1, memory * MIB, multiprocessors), visible)
        self.assertIn("cuInit: error 100", self.direct(PROGRAM, visible="MIG-0").stderr)

    def test_wrong_settings(self):
        for wrong, why in (("0", "has no '='"), ("7=1:64M", "7"), ("0=64M", "like 1:2G"), ("0=0:64M", "0"), ("0=1:1K", "at least 1M"),
                           ("0=1:64M;0=1:64M", "twice"), ("0=" + ",".join(["1:1M"] * 17), "more than 16")):
            environment = dict(os.environ, LD_LIBRARY_PATH=BUILD.soft_dir, **dict(DIVIDED, SOFTGPU_MIG=wrong))
            done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            self.assertIn("SOFTGPU_MIG: ", done.stderr)
            self.assertIn(why, done.stderr)
            self.assertEqual(json.loads(done.stdout)["count"], 2)


if __name__ == "__main__":
    main()
