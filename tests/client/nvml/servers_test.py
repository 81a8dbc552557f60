"""Servers of the NVML stand-in: several, missing, gone and back again; the software device."""

import json
import os
import shutil
import subprocess
import sys
import time
import unittest

from nvml_harness import COMMAND, NVML, PRELOAD, SOFT, TREE, Case, Test, as_client_of, in_python, main, start, user


@in_python
class Servers(Case):
    def test_devices_are_limited(self):
        out, _ = user("""call("nvmlInit"); out["names"] = names()""", self.address, REMOTE_GPU_GPUS="1")
        self.assertEqual(out["names"], ["Fake GPU 0"])
        result = start([COMMAND, "run", "-n", "1", "-s", self.address, "--",
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
        other = self.serve()
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
        server = self.serve()
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
            again = self.serve(address=server.address)
            self.assertEqual(after_a_while(), "0 Fake GPU 0\n")
            again.stop()
            self.serve(address=server.address, CUDA_FAKE_DRIVER_DEVICES="1")
            self.assertEqual(after_a_while(), "0 Fake GPU 0\n")
            process.stdin.close()
            errors = process.stderr.read()
        self.assertEqual(errors.count("remote-gpu: "), 1, errors)

    def test_a_device_that_is_gone(self):
        server = self.serve()
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
            self.serve(address=server.address, CUDA_FAKE_DRIVER_DEVICES="1")
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
        self.assertRegex(errors, "^remote-gpu: cannot load .*client[.]so: .*\n$")


@in_python
@unittest.skipUnless(os.path.exists(SOFT), "the software device is not being built")
class SoftwareDevice(Test):
    def test_as_the_server_lists_it(self):
        server = self.serve("soft")
        listed = start([COMMAND, "list", "--json", "-s", server.address])
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


if __name__ == "__main__":
    main()
