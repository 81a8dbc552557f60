"""NVML and sessions together: what a program may use is what it is shown."""

import json
import os
import subprocess
import sys

from nvml_harness import BUILD, COMMAND, LIBRARY, Test, as_client_of, environment, in_python, main, set_used, start


@in_python
class Sessions(Test):
    """NVML and the session show the same devices, where the user sees less than all."""

    def setUp(self):
        set_used(0)
        self.server = self.serve(REMOTE_GPU_LIBDIR=LIBRARY, worker=os.path.join(BUILD, "tests", "daemon", "fake_worker"))

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
        listed = start([COMMAND, "smi", "--json", "-s", self.server.address])
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


if __name__ == "__main__":
    main()
