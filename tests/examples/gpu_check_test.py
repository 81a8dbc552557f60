#!/usr/bin/env python3
"""What scripts/gpu-check does when things go wrong in the middle, and from a folder that was collected, on the software device.

usage: gpu_check_test.py BUILD_FOLDER [TEST…]
"""

import importlib.machinery
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "scripts"))

import trial  # noqa: E402

LOADER = importlib.machinery.SourceFileLoader("gpu_check", os.path.join(ROOT, "scripts", "gpu-check"))
gpu_check = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", LOADER))
LOADER.exec_module(gpu_check)


class Rows(unittest.TestCase):
    def setUp(self):
        self.build = trial.Build(sys.argv[1])
        self.check = gpu_check.Check(self.build, "soft", True)
        self.addCleanup(self.check.end_server)
        self.command = [self.build.example("vector_add")]

    def row(self, name):
        self.check.row(self.check.report["examples"], name, self.command)
        return self.check.report["examples"][name]

    def test_server_that_ends(self):
        """It is started again for the next row, and the report says that it ended."""
        self.assertTrue(self.row("before")["good"])
        self.check.server.kill()
        self.assertTrue(self.row("after")["good"])
        self.assertRegex(self.check.report["servers_lost"][0], "ended with status")
        self.assertFalse(self.check.report["good"])
        self.assertIn("THE SERVER", gpu_check.table(self.check.report))

    def test_server_that_hangs(self):
        """The row that meets it fails, and the next one has another server."""
        gpu_check.LIST_LIMIT = 5
        self.assertTrue(self.row("before")["good"])
        os.killpg(self.check.server.process.pid, signal.SIGSTOP)
        pid = self.check.server.process.pid
        self.addCleanup(lambda: trial.end_group(pid))
        self.check.row(self.check.report["examples"], "meanwhile", self.command, limit=5)
        self.assertFalse(self.check.report["examples"]["meanwhile"]["good"])
        self.assertEqual(self.check.report["servers_lost"], ["did not answer any more"])
        self.assertTrue(self.row("after")["good"])

    @unittest.skipIf(os.path.exists("/dev/nvidiactl"), "a driver of NVIDIA's may be here")
    def test_software_device_instead(self):
        """A server that finds no driver takes the software device: that is nothing to compare a GPU with."""
        self.check.driver = "auto"
        with self.assertRaisesRegex(trial.Failure, "no working NVIDIA driver .*using the software device"):
            self.check.serve()
        self.assertIsNone(self.check.server)

    def test_no_time_left(self):
        """What there is no time for is a row as well."""
        self.check.end = gpu_check.time.monotonic() + 1
        self.assertEqual(self.row("late"), {"skipped": "no time left", "good": False})


    def test_a_part_that_breaks(self):
        """A mistake in one part of the check is told, and the parts behind it are tried."""
        with unittest.mock.patch.object(self.check, "training", side_effect=KeyError("what nobody expected")), \
                unittest.mock.patch.object(self.check, "serve", return_value="nowhere"), \
                unittest.mock.patch.multiple(self.check, **{name: unittest.mock.DEFAULT for name in (
                    "doctor", "examples", "collectives", "instances", "refusals", "mps", "bench")}) as others:
            gpu_check.run_checks(self.check, unittest.mock.Mock(no_torch=False, no_nccl=False, no_bench=False), ["vector_add"])
        for name, other in others.items():
            self.assertTrue(other.called, name)
        self.assertFalse(self.check.report["good"])
        self.assertRegex(gpu_check.table(self.check.report), "AN ERROR OF GPU-CHECK .*what nobody expected")

    def test_doctor_that_finds_something(self):
        """Its status is another one then; what it says is kept."""
        with tempfile.TemporaryDirectory(prefix="remote-gpu-doctor-") as folder:
            self.build.command = os.path.join(folder, "remote-gpu")
            with open(self.build.command, "w") as file:
                file.write("#!/bin/sh\necho a problem\nexit 1\n")
            os.chmod(self.build.command, 0o755)
            self.check.report["machine"] = {}
            self.check.doctor("nowhere")
        self.assertEqual(self.check.report["machine"]["doctor"], ["a problem"])

    def test_no_server(self):
        """What a server has said that does not start is told once, not in each row."""
        self.check.no_server = trial.Failure("the server ended at once:\nits log\n")
        self.assertEqual(self.row("without")["failed"], "there is no server: the server ended at once:")
        self.check.report["examples"]["first"] = {"failed": "it ended\nits log", "good": False}
        self.assertNotIn("log", gpu_check.table(self.check.report))

    def test_no_build(self):
        """What the machine is, is written also where there is nothing to run."""
        with tempfile.TemporaryDirectory(prefix="remote-gpu-no-build-") as folder:
            done = subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "gpu-check"), "--build", folder, "--driver", "soft"],
                                  env=dict(os.environ, OUT=folder), stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 1)
            with open(os.path.join(folder, "gpu-check.json")) as file:
                report = json.load(file)
        self.assertIn("remote-gpu is not built", report["failed"])
        self.assertIn(report["failed"], done.stderr)
        self.assertTrue(report["machine"]["memory"])


class Processes(unittest.TestCase):
    def test_names_of_any_bytes(self):
        """Whatever a process of the machine calls itself, others are found beside it."""
        name = "import time; open('/proc/self/comm', 'wb').write(b'\\xff)x'); print(flush=True); time.sleep(100)"
        with subprocess.Popen([sys.executable, "-c", name], stdout=subprocess.PIPE) as child:
            child.stdout.readline()
            try:
                self.assertIn(child.pid, trial.children_of(os.getpid()))
                self.assertEqual(trial.name_of(child.pid), "\ufffd)x")
                self.assertEqual(len(trial.thread_states(child.pid)), 1)
            finally:
                child.kill()


class Collected(unittest.TestCase):
    def test_elsewhere(self):
        """In another folder, of root's home or /tmp, with a driver in a folder of its own: in the sandbox, and libraries that are missing."""
        with tempfile.TemporaryDirectory(prefix="remote-gpu-collected-") as folder:
            script = os.path.join(folder, "scripts", "gpu-check")
            subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "gpu-check"), "--collect", folder, "--build", sys.argv[1]],
                           check=True, stderr=subprocess.DEVNULL)
            driver = os.path.join(folder, "driver", "libcuda.so.1")
            os.mkdir(os.path.dirname(driver))
            shutil.copy(os.path.join(trial.Build(sys.argv[1]).soft_dir, "libcuda.so.1"), driver)
            found = os.path.join(folder, "result.json")
            environment = dict(os.environ, LD_LIBRARY_PATH=os.path.dirname(driver), PYTHONPATH="", HOME=folder)
            done = subprocess.run([sys.executable, script, "--build", folder, "--driver", driver, "--only", "vector_add", "--no-bench",
                                   "--no-torch", "--no-nccl", "--json", found],
                                  env=environment, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=560)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with open(found) as file:
                report = json.load(file)
            self.assertNotIn("works only without", "\n".join(report["server_log"]))
            self.assertEqual(report["sandbox"]["refused"], [])
            self.assertEqual(sorted(report["examples"]["vector_add"]["remote"]), ["path", "plain", "preload"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[2:], verbosity=2)
