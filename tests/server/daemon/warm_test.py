"""Workers that are kept warm: who gets them, who does not, and what becomes of them. End to end on the software device.

usage: warm_test.py BUILD_FOLDER
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "scripts"))

from trial import Build, Server, free_port, run_program, stop_with_servers, wait_until  # noqa: E402

QUICK = "nvidia:init=0:context=0"  # addresses as NVIDIA's driver takes them, and no waiting


class Warm(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)

    def serve(self, *arguments, environment=None, behave=QUICK, n="1", driver="soft"):
        full = {"REMOTE_GPU_LOG": "info", "SOFTGPU_DEVICES": "1", "SOFTGPU_BEHAVE": behave, **(environment or {})}
        self.server = self.stack.enter_context(Server(BUILD, driver=driver, arguments=["--warm-workers", n, *arguments],
                                                      environment=full))
        return self.server

    def run_one(self, *words, address=None, environment=None):
        """Runs a program; whether its session had a warm worker, and the worker's process."""
        result = BUILD.run_remote([BUILD.example("vector_add")], address or self.server.address, arguments=words,
                                  environment=environment)
        self.assertEqual(result.status, 0, result.describe() + self.server.log())
        starts = re.findall(r"session \d+ starts: .* worker (\d+)( \(warm\))?:", self.server.log())
        return bool(starts[-1][1]), int(starts[-1][0])

    def warm_ones(self):
        """The processes of workers that are ready, in the order in which they became so, and have neither ended nor got a session."""
        log = self.server.log()
        taken = re.findall(r"worker (\d+) \(warm\):", log)
        ready = re.findall(r"worker (\d+) is warm", log)
        return [int(pid) for pid in ready if pid not in taken and int(pid) in self.server.workers()]

    def await_warm(self, n=1):
        self.assertTrue(wait_until(lambda: len(self.warm_ones()) == n, 30), self.server.log())
        return self.warm_ones()

    def listed(self):
        result = run_program([BUILD.command, "list", "-s", self.server.address, "--json"])
        return json.loads(result.output)["servers"][0]["devices"]

    def test_next_program_gets_it(self):
        """Once a program has run, the next has a driver that is initialised: it takes less than that alone."""
        self.serve(behave="nvidia:init=4000:context=0")
        self.assertFalse(self.run_one()[0])
        pid, = self.await_warm()
        began = time.monotonic()
        self.assertEqual(self.run_one(), (True, pid))
        self.assertLess(time.monotonic() - began, 4)
        self.assertNotIn(pid, self.warm_ones())
        self.assertNotEqual(self.await_warm(), [pid])  # each serves one session

    def test_taken_before_it_is_ready(self):
        """A program that comes while its worker still prepares itself gets it, and waits for what is left."""
        self.serve(behave="nvidia:init=3000:context=0")
        first = subprocess.Popen([BUILD.command, "run", "-s", self.server.address, "--", BUILD.example("vector_add")],
                                 stdout=subprocess.DEVNULL)
        self.stack.callback(first.communicate)
        self.assertTrue(wait_until(lambda: len(self.server.workers()) == 2), self.server.log())
        warm, pid = self.run_one()
        self.assertTrue(warm, self.server.log())
        self.assertNotIn("worker %d is warm" % pid, self.server.log())
        self.assertEqual(first.wait(30), 0)

    def test_they_are_shown(self):
        self.serve(n="2")
        self.run_one()
        self.await_warm(2)
        self.assertTrue(wait_until(lambda: self.listed()[0]["warm_workers"] == 2), self.listed())
        self.assertEqual(self.listed()[0]["memory_warm"], 0)  # the software device's contexts hold nothing
        text = run_program([BUILD.command, "list", "-s", self.server.address]).output
        self.assertRegex(text, r"GPU 0: .*, 2 warm workers hold 0 B")

    def test_none_where_none_are_wanted(self):
        for n in ("0", "auto"):  # with the software device the server keeps none by itself
            self.serve(n=n)
            self.run_one()
            time.sleep(0.3)
            self.assertFalse(self.run_one()[0])
            self.assertEqual(self.listed()[0]["warm_workers"], 0)
            self.assertTrue(wait_until(lambda: not self.server.workers()), self.server.log())

    def test_bad_number(self):
        for text in ("many", "-1", "65"):
            done = subprocess.run([BUILD.daemon, "--warm-workers=" + text], capture_output=True, text=True, timeout=30)
            self.assertEqual(done.returncode, 125)
            self.assertIn("warm-workers is auto, or how many workers are kept ready, 0 to 64; not '%s'" % text,
                          done.stderr)

    def test_identities_have_their_own(self):
        """One who came by the unix socket leaves none to one who came over TCP, and the other way round."""
        port = "127.0.0.1:%d" % free_port()
        self.serve("--listen", port, n="2")
        self.run_one()
        first = self.await_warm(2)
        self.assertFalse(self.run_one(address=port)[0])
        # Two kinds share what is kept: one each.
        self.assertTrue(wait_until(lambda: len(self.warm_ones()) == 2 and self.warm_ones() != first, 30),
                        self.server.log())
        owners = {os.stat("/proc/%d" % pid).st_uid for pid in self.warm_ones()}
        if os.geteuid() == 0:
            self.assertEqual(len(owners), 2)
            self.assertNotIn(0, owners)
        self.assertTrue(self.run_one(address=port)[0])
        self.assertTrue(self.run_one()[0])

    def test_another_kind_waits(self):
        """Who asks for other devices, or another capability, gets a worker of its own; the warm one stays for its kind."""
        self.serve(environment={"SOFTGPU_DEVICES": "2"})
        first = {"CUDA_VISIBLE_DEVICES": "0"}
        self.run_one(environment=first)
        pid, = self.await_warm()
        self.assertFalse(self.run_one("-m", "64M", environment=first)[0])  # the software device is told before it is loaded
        self.assertEqual(self.warm_ones(), [pid])
        self.assertFalse(self.run_one(environment={"CUDA_VISIBLE_DEVICES": "1"})[0])
        self.assertFalse(self.run_one(environment={"CUDA_VISIBLE_DEVICES": "0", "SOFTGPU_CC": "9.0"})[0])

    def test_killed_while_warm(self):
        self.serve()
        self.run_one()
        pid, = self.await_warm()
        os.kill(pid, signal.SIGKILL)
        self.assertTrue(wait_until(lambda: pid not in self.server.workers()))
        self.assertFalse(self.run_one()[0])
        self.assertIn("warm worker %d was killed by signal 9 (Killed); the next is started in 1 s" % pid,
                      self.server.log())
        self.await_warm()
        self.assertTrue(self.run_one()[0])

    def test_pause_grows(self):
        """Those that fail before they have a session are followed by others after a pause that doubles."""
        self.serve()
        self.run_one()
        for pause in (1, 2):
            pid, = self.await_warm()
            os.kill(pid, signal.SIGKILL)
            self.assertTrue(wait_until(lambda: "worker %d was killed" % pid in self.server.log()), self.server.log())
            self.assertIn("worker %d was killed by signal 9 (Killed); the next is started in %d s" % (pid, pause),
                          self.server.log())

    def test_stopped_while_warm(self):
        """One that takes its session and does nothing is that session's trouble alone: killed, and the next one works."""
        self.serve()
        self.run_one()
        pid, = self.await_warm()
        os.kill(pid, signal.SIGSTOP)
        program = subprocess.Popen([BUILD.command, "run", "-s", self.server.address, "--", BUILD.example("vector_add")],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.stack.callback(program.communicate)
        self.stack.callback(program.kill)
        self.assertTrue(wait_until(lambda: "worker %d (warm)" % pid in self.server.log(), 20), self.server.log())
        os.kill(pid, signal.SIGKILL)
        self.assertNotEqual(program.wait(30), 0)
        self.await_warm()
        self.assertTrue(self.run_one()[0])

    def test_no_context_where_none_may_be(self):
        """In a compute mode that allows few contexts, or none, a worker that has no session makes none."""
        self.serve(behave="nvidia:init=0:context=0:prohibited=1")
        for _ in range(2):
            result = BUILD.run_remote([BUILD.example("vector_add")], self.server.address)
            self.assertNotEqual(result.status, 0)
            self.await_warm()

    def test_exclusive_compute_mode(self):
        """Where one process at a time has contexts, a warm worker is in nobody's way: it has none yet."""
        port = "127.0.0.1:%d" % free_port()
        self.serve("--listen", port, behave="nvidia:init=0:context=0:exclusive=1")
        self.run_one()
        self.await_warm()
        self.assertFalse(self.run_one(address=port)[0])  # another identity's, beside the warm one
        self.await_warm()
        self.assertTrue(self.run_one(address=port)[0])

    def test_kept_for_a_time(self):
        self.serve("--warm-time", "2")
        self.run_one()
        self.await_warm()
        self.assertTrue(wait_until(lambda: not self.server.workers(), 20), self.server.log())
        self.assertNotIn("killed by signal", self.server.log())  # nor is it a failure
        self.assertFalse(self.run_one()[0])

    def test_drained(self):
        """A server that takes no sessions keeps nobody ready for them."""
        state = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="remote-gpu-warm-"))
        self.serve("--state-dir", state, "--accounts", "off")
        self.run_one()
        self.await_warm()
        subprocess.run([BUILD.daemon, "drain", "--state-dir", state], check=True, stderr=subprocess.DEVNULL, timeout=30)
        self.assertTrue(wait_until(lambda: not self.server.workers(), 20), self.server.log())
        subprocess.run([BUILD.daemon, "drain", "--undo", "--state-dir", state], check=True, stderr=subprocess.DEVNULL, timeout=30)
        self.await_warm()
        self.assertTrue(self.run_one()[0])

    def test_session_alone(self):
        """Where a session has its GPU alone there is nobody else, warm or not."""
        self.serve()
        self.run_one()
        self.await_warm()
        program = subprocess.Popen([BUILD.command, "run", "-s", self.server.address, "--exclusive", "--", sys.executable,
                                    "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.stack.callback(program.communicate)
        self.stack.callback(program.kill)
        self.assertEqual(program.stdout.readline(), "0\n")
        self.assertTrue(wait_until(lambda: len(self.server.workers()) == 1, 20), self.server.log())
        program.kill()
        self.await_warm()

    def test_memory_is_given_up(self):
        """What contexts of warm workers take of the card is shown, and is a session's when it runs out of memory."""
        folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="remote-gpu-warm-"))
        card = os.path.join(folder, "card")
        open(card, "w").close()
        self.serve("--sandbox", "off", n="auto", environment={"CUDA_TEST_CARD": card},
                   driver=os.path.join(BUILD.folder, "tests", "daemon", "card_libcuda.so"))
        self.assertEqual(self.allocate(16), "0 0\n")
        first, second = self.await_warm(2)
        self.assertTrue(wait_until(lambda: self.listed()[0]["memory_warm"] == 512 * MIB), self.listed())
        # The session has what it got of the first one: 256 MiB, and 512 are left beside the other's.
        self.assertEqual(self.allocate(700), "0 0\n")
        self.assertTrue(wait_until(lambda: second not in self.server.workers()))
        self.assertIn("warm worker %d has left its memory to a session" % second, self.server.log())
        self.assertIn("worker %d (warm)" % first, self.server.log())
        self.assertEqual(self.warm_ones(), [])  # not at once, or there would be no end of it
        self.assertTrue(wait_until(lambda: not self.server.workers()))  # what the session had is free
        self.assertEqual(self.allocate(800), "0 2\n")  # more than there is, whoever leaves

    def allocate(self, mebibytes):
        """Which results a program gets that makes a context and allocates."""
        result = BUILD.run_remote([sys.executable, "-c", ALLOCATE, str(mebibytes)], self.server.address)
        self.assertEqual(result.status, 0, result.describe() + self.server.log())
        return result.output

    def test_stops_with_the_server(self):
        self.serve(n="3")
        self.run_one()
        pids = self.await_warm(3)
        self.assertEqual(self.server.stop(), 0)
        self.assertFalse([pid for pid in pids if os.path.exists("/proc/%d" % pid)])


MIB = 1 << 20

ALLOCATE = """
import ctypes, sys
c, context, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_ulonglong()
print(c.cuInit(0) or c.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or c.cuCtxSetCurrent(context),
      c.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(int(sys.argv[1]) << 20)))
"""

HOLD = """
import ctypes, sys
c, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
print(c.cuInit(0) or c.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), flush=True)
sys.stdin.readline()
"""

if __name__ == "__main__":
    stop_with_servers()
    BUILD = Build(sys.argv.pop(1))
    unittest.main(verbosity=2)
