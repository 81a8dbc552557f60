"""Sessions that are suspended, from outside: by themselves and by the operator, what remote-gpu list shows, what others get
meanwhile, and processes that are killed at each step.

usage: suspend_test.py BUILD_FOLDER
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "scripts"))

from trial import Build, Server, end_group, stop_with_servers, wait_until  # noqa: E402

# Has 1 MiB of device memory, says so, and for each line that it reads whether the memory is what it was.
PROGRAM = """
import ctypes, sys
c, size = ctypes.CDLL("libcuda.so.1"), 1 << 20
context, memory, found = ctypes.c_void_p(), ctypes.c_uint64(), (ctypes.c_ubyte * size)()
def call(name, *arguments):
    result = getattr(c, name)(*arguments)
    if result:
        sys.exit("%s: error %d" % (name, result))
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
call("cuMemsetD8_v2", memory, ctypes.c_ubyte(7), ctypes.c_size_t(size))
call("cuCtxSynchronize")
print("ready", flush=True)
for line in sys.stdin:
    call("cuMemcpyDtoH_v2", found, memory, ctypes.c_size_t(size))
    print("the same" if bytes(found) == b"\\7" * size else "another", flush=True)
"""


class Program:
    """A program with a session, that is asked by lines."""

    def __init__(self, stack, build, address, *options):
        self.process = subprocess.Popen([build.command, "run", "-s", address, *options, "--", sys.executable, "-c", PROGRAM],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        start_new_session=True, text=True)
        stack.callback(self.kill)

    def line(self):
        return self.process.stdout.readline().strip()

    def ask(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self):
        end_group(self.process.pid)
        self.process.communicate()


class Suspension(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.state = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="remote-gpu-state-"))
        self.server = self.stack.enter_context(
            Server(BUILD, arguments=["--state-dir", self.state], environment={"SOFTGPU_MEMORY": "1G"}))

    def start(self, *options):
        program = Program(self.stack, BUILD, self.server.address, *options)
        self.assertEqual(program.line(), "ready")
        return program

    def sessions(self):
        listed = subprocess.run([BUILD.command, "list", "-s", self.server.address, "--json"], capture_output=True, check=True)
        return {session["id"]: session for session in json.loads(listed.stdout)["servers"][0]["sessions"]}

    def state_of(self, session):
        return self.sessions().get(session, {"share": {}})["share"].get("state")

    def command(self, *words, status=0):
        done = subprocess.run([BUILD.daemon, *words, "--state-dir", self.state], capture_output=True, text=True, timeout=90)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_operator(self):
        program = self.start()
        self.assertEqual(self.command("suspend", "1"), "session 1: is suspended until its next call\n")
        self.assertEqual(self.state_of(1), "suspended")
        program.ask()
        self.assertEqual(program.line(), "the same")
        self.assertEqual(self.command("resume", "1"), "session 1: is running\n")  # as it was
        self.assertEqual(self.state_of(1), "running")
        self.assertEqual(self.command("suspend", "--hold", "1"), "session 1: is suspended until it is resumed\n")
        program.ask()
        self.assertIn("by the server's operator", program.process.stderr.readline())
        self.assertEqual(self.state_of(1), "suspended")
        self.assertEqual(self.command("resume", "1"), "session 1: is running\n")
        self.assertEqual(program.line(), "the same")

    def test_wrong_use(self):
        self.assertIn("there is no such session", self.command("suspend", "7", status=1))
        self.assertIn("no number of a session", self.command("resume", "x", status=125))
        self.assertIn("which session?", self.command("suspend", status=125))
        self.server.stop()
        self.assertIn("no server runs with the state folder", self.command("suspend", "1", status=125))
        self.assertNotIn("requests", os.listdir(self.state))

    def test_one_command_at_a_time(self):
        self.start()
        (worker,) = self.server.workers()
        os.kill(worker, signal.SIGSTOP)
        first = subprocess.Popen([BUILD.daemon, "suspend", "--hold", "1", "--state-dir", self.state], stdout=subprocess.PIPE, text=True)
        self.assertTrue(wait_until(lambda: "session 1: the operator wants it suspended" in self.server.log(), 60))
        self.assertIn("another command is under way", self.command("resume", "1", status=125))
        os.kill(worker, signal.SIGCONT)
        self.assertEqual(first.communicate(timeout=90)[0], "session 1: is suspended until it is resumed\n")
        self.assertEqual(self.command("resume", "1"), "session 1: is running\n")

    def test_two_servers_with_one_folder(self):
        self.start()
        with Server(BUILD, arguments=["--state-dir", self.state]):
            self.assertEqual(self.command("suspend", "1"), "session 1: is suspended until its next call\n")
        self.assertEqual(self.command("resume", "1"), "session 1: is running\n")

    def test_idle(self):
        program = self.start("--idle-timeout", "1s")
        for _ in range(2):
            self.assertTrue(wait_until(lambda: self.state_of(1) == "suspended", 60))
            program.ask()
            self.assertEqual(program.line(), "the same")
            self.assertIn("after 1.0 s others get its GPU memory", program.process.stderr.readline())
            self.assertIn("until its next call", program.process.stderr.readline())

    def test_memory_is_others(self):
        first = self.start("-m", "700M")
        refused = subprocess.run([BUILD.command, "run", "-s", self.server.address, "-m", "700M", "--", sys.executable, "-c",
                                  PROGRAM], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("were asked for", refused.stderr)
        self.command("suspend", "1")
        second = self.start("-m", "700M")
        second.ask()
        self.assertEqual(second.line(), "the same")
        second.kill()
        first.ask()
        self.assertEqual(first.line(), "the same")

    def test_killed(self):
        """Whoever dies while a session is suspended, held with a call that waits, or coming back: the server goes on."""
        session = 0
        for victim in ("program", "worker"):
            for how in ("suspend", "wait", "resume"):
                session += 1
                program = self.start("-m", "900M")
                self.command("suspend", *(["--hold"] if how != "suspend" else []), str(session))
                if how != "suspend":
                    program.ask()
                if how == "resume":
                    resumes = subprocess.Popen([BUILD.daemon, "resume", str(session), "--state-dir", self.state],
                                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                if victim == "program":
                    program.kill()
                else:
                    for pid in self.server.workers():
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                if how == "resume":
                    resumes.wait(90)
                self.assertTrue(wait_until(lambda: not self.sessions(), 60), (victim, how, self.sessions()))
                program.kill()
        self.start("-m", "900M")

    def test_server_killed(self):
        program = self.start()
        self.command("suspend", "--hold", "1")
        program.ask()
        workers = self.server.workers()
        os.kill(self.server.process.pid, signal.SIGKILL)
        self.assertTrue(wait_until(lambda: not any(os.path.exists("/proc/%d" % pid) for pid in workers), 60))
        self.assertEqual(program.line(), "")  # it has ended, with the call's error
        self.server.process.wait()
        with Server(BUILD, arguments=["--state-dir", self.state]):  # a socket that was left does not matter
            self.assertIn("no such session", self.command("suspend", "1", status=1))


if __name__ == "__main__":
    stop_with_servers()
    BUILD = Build(sys.argv[1])
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
