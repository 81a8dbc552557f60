"""Sessions that are suspended, from outside: by themselves and by the operator, what remote-gpu list shows, what others get
meanwhile, and processes that are killed at each step.

usage: suspend_test.py BUILD_FOLDER
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from session_case import BUILD, SessionCase, main  # noqa: E402
from passage import Passage  # noqa: E402
from trial import Server, end_group, wait_until  # noqa: E402

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

    def __init__(self, stack, address, *options):
        self.process = subprocess.Popen([BUILD.command, "run", "-s", address, *options, "--", sys.executable, "-c", PROGRAM],
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


class Case(SessionCase):
    """A server with a state folder and 1 GiB of GPU memory."""

    PROGRAM, TCP = (PROGRAM,), False

    def arguments(self):
        return []

    def setUp(self):
        super().setUp()
        self.state = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="remote-gpu-state-"))
        self.serve(["--state-dir", self.state, *self.arguments()], {"SOFTGPU_MEMORY": "1G"}, tcp=self.TCP)

    def start(self, *options):
        program = Program(self.stack, self.server.address, *options)
        self.assertEqual(program.line(), "ready")
        return program

    def state_of(self, session):
        return self.sessions().get(session, {"share": {}})["share"].get("state")

    def command(self, *words, status=0):
        done = subprocess.run([BUILD.daemon, *words, "--state-dir", self.state], capture_output=True, text=True, timeout=90)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr


class Suspension(Case):
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
        self.assertTrue(wait_until(lambda: "session 1: is to be suspended" in self.server.log(), 60))
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
        self.assertIn("were asked for", self.refused("-m", "700M"))
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


class Grace(Case):
    """Sessions that outlive their connections also while they are suspended."""

    TCP = True

    def arguments(self):
        return ["--reconnect-grace", "60"]

    def test_connection_is_lost(self):
        cable = self.stack.enter_context(Passage(self.server.address))
        program = Program(self.stack, cable.address, "-m", "700M")
        self.assertEqual(program.line(), "ready")
        for number, asks_first in enumerate((True, False), 1):
            self.command("suspend", "--hold", "1")
            if asks_first:  # its call waits when the connection is lost
                program.ask()
                self.assertIn("operator", program.process.stderr.readline())
            cable.cut()
            if not asks_first:
                program.ask()
            self.assertTrue(wait_until(lambda: self.server.log().count("without a connection") == number, 60), self.server.log())
            self.assertEqual(self.state_of(1), "suspended")
            self.command("resume", "1")
            self.assertEqual(program.line(), "the same")

    def test_client_never_comes_back(self):
        """Its memory is others' meanwhile, and its end is as it always is."""
        program = self.start("-m", "700M")
        self.command("suspend", "1")
        program.kill()
        self.assertTrue(wait_until(lambda: "its connection was lost" in self.server.log() or not self.sessions(), 60))
        self.start("-m", "700M")


class Preemption(Case):
    """Sessions that are suspended for those of higher priority."""

    RULES = {"default": {"max-priority": "high"}, "projects": {"urgent": {"members": ["uid:%d" % os.geteuid()], "preempt": True}}}

    def arguments(self):
        rules = os.path.join(self.state, "rules.json")
        with open(rules, "w") as file:
            json.dump(self.RULES, file)
        return ["--rules", rules]

    def test_room_for_another(self):
        low = self.start("-m", "700M", "--priority", "low")
        self.assertIn("were asked for", self.refused("-m", "700M", "--priority", "high"))  # by rule only
        self.assertIn("were asked for", self.refused("-m", "700M", "--priority", "low", "--project", "urgent"))
        self.assertTrue(wait_until(lambda: self.state_of(1) == "running", 60))
        high = self.start("-m", "700M", "--priority", "high", "--project", "urgent")
        self.assertTrue(wait_until(lambda: self.state_of(1) == "suspended", 60))
        low.ask()
        self.assertIn("suspended for one of higher priority", low.process.stderr.readline())
        self.assertIn("for a session of higher priority", self.command("resume", "1", status=125))
        self.assertIn("were asked for", self.refused("-m", "700M"))  # nobody takes it from the other one
        self.assertEqual(self.state_of(1), "suspended")
        high.ask()
        self.assertEqual(high.line(), "the same")
        high.kill()
        self.assertEqual(low.line(), "the same")
        self.assertTrue(wait_until(lambda: self.state_of(1) == "running", 60))

    def test_as_few_as_needed_and_in_order(self):
        """Who is chosen, and in which order they come back."""
        programs = [self.start("-m", "300M", "--priority", priority) for priority in ("low", "normal", "low")]
        one = self.start("-m", "300M", "--priority", "high", "--project", "urgent")
        self.assertTrue(wait_until(lambda: [self.state_of(i) for i in (1, 2, 3)] == ["running", "running", "suspended"], 60))
        two = self.start("-m", "600M", "--priority", "high", "--project", "urgent")
        self.assertTrue(wait_until(lambda: [self.state_of(i) for i in (1, 2, 3)] == ["suspended"] * 3, 60))
        for program in programs:
            program.ask()
        two.kill()
        one.kill()
        for program in programs:
            self.assertEqual(program.line(), "the same")
        back = re.findall(r"session (\d) may have its GPU memory again", self.server.log())
        self.assertEqual(back, ["2", "3", "1"])

    def test_killed(self):
        """Whoever goes meanwhile: nothing stays suspended for it."""
        low = self.start("-m", "700M", "--priority", "low")
        workers = set(self.server.workers())
        self.start("-m", "700M", "--priority", "high", "--project", "urgent")
        for pid in set(self.server.workers()) - workers:
            os.kill(pid, signal.SIGKILL)
        low.ask()
        self.assertEqual(low.line(), "the same")
        self.start("-m", "700M", "--priority", "high", "--project", "urgent")
        low.kill()
        self.assertTrue(wait_until(lambda: 1 not in self.sessions(), 60))


if __name__ == "__main__":
    main()
