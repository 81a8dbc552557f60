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
        self.check.row(self.check.report["examples"], name, self.command, limit=20)
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
                                  env=environment, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=200)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with open(found) as file:
                report = json.load(file)
            self.assertNotIn("works only without", "\n".join(report["server_log"]))
            self.assertEqual(report["sandbox"]["refused"], [])
            self.assertEqual(sorted(report["examples"]["vector_add"]["remote"]), ["path", "plain", "preload"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[2:], verbosity=2)
