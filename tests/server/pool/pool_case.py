"""A pool for tests: members of etcd, servers on the software device, and the commands that users and operators give.

Everything is started on ports that were free a moment ago, in temporary folders, and ends with the test (server_case.py).
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path[:0] = [os.path.join(TESTS, part) for part in ("security", "../scripts", "server")]

import server_case  # noqa: E402
from authority import Authority  # noqa: E402
from etcd import Etcd, base64_of  # noqa: E402, F401
from server_case import BUILD, COMMAND, DAEMON, ENVIRONMENT, PATIENCE, STAGE, wait_until  # noqa: E402, F401
from trial import children_of, stop_with_servers  # noqa: E402

# A CUDA program that begins a session, says so, and ends with its input; then it says whether its session still works.
PROGRAM = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
count, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
status = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
print("begun" if status == 0 else "failed %d" % status, count.value, flush=True)
if status == 0:
    sys.stdin.read()
    print("works" if cuda.cuMemAlloc_v2(ctypes.byref(memory), 1 << 20) == 0 else "lost", flush=True)
"""
SESSION = (sys.executable, "-u", "-c", PROGRAM)


def need_etcd():
    """Ends a test's program as skipped where there is no etcd."""
    if not shutil.which("etcd"):
        print("etcd is not installed, so pools cannot be tested: scripts/setup, or apt-get install etcd-server")
        sys.exit(77)


def main():
    need_etcd()
    stop_with_servers()
    unittest.main(verbosity=2)


def end(process, by=signal.SIGKILL):
    if process.poll() is None:
        process.send_signal(by)
    process.wait()


def agent_of(server):
    """The process id of a server's agent; None: there is none."""
    return child_of(server, "pool-agent")


def child_of(server, program):
    """The process id of a server's process of that name; None: there is none."""
    return next(iter(children_of(server.pid, program)), None)


class Server(server_case.Server):
    def __init__(self, etcd_urls, *arguments, pool="lab", gpus=2, wait=True, environment=(), state="", **options):
        super().__init__("--pool", pool, "--etcd", etcd_urls, *arguments, state=state,
                         environment={"SOFTGPU_DEVICES": str(gpus), **dict(environment)}, **options)
        if wait:
            self.wait_for_log("in the pool")

    def wait_for_log(self, text, times=1):
        wait_until(lambda: self.log().count(text) >= times or self.process.poll() is not None,
                   "'%s' in the log of a server" % text)
        if self.log().count(text) < times:
            raise AssertionError("the server ended:\n" + self.log())

    def drain(self, *arguments):
        return run(DAEMON, "drain", "--state-dir", self.state, *arguments)

    def agent(self):
        return agent_of(self.process)


class Outcome:
    def __init__(self, process):
        self.status, self.out, self.err = process.returncode, process.stdout, process.stderr

    def __repr__(self):
        return "status %d\n%s\n%s" % (self.status, self.out, self.err)


def run(*command, **more):
    return Outcome(subprocess.run(command, env=dict(ENVIRONMENT, **more), stdin=subprocess.DEVNULL, text=True,
                                  capture_output=True, timeout=4 * PATIENCE))


def gpu_run(server, *arguments, program=("true",)):
    return run(COMMAND, "run", "-s", server.address, *arguments, "--", *program)


class Running:
    """`remote-gpu run` in the background, started by the words `prefix`; what it writes is read when it is asked for."""

    def __init__(self, server, *arguments, program=None, prefix=(), **more):
        self.folder = tempfile.TemporaryDirectory(prefix="remote-gpu-run-")
        self.out_path, self.err_path = (os.path.join(self.folder.name, name) for name in ("out", "err"))
        command = [*prefix, COMMAND, "run", "-s", server.address, *arguments, "--",
                   *(program or SESSION)]
        with open(self.out_path, "w") as out, open(self.err_path, "w") as err:
            self.process = subprocess.Popen(command, env=dict(ENVIRONMENT, **more), stdin=subprocess.PIPE, stdout=out,
                                            stderr=err, start_new_session=True)

    def out(self):
        with open(self.out_path) as file:
            return file.read()

    def err(self):
        with open(self.err_path) as file:
            return file.read()

    def wait_for(self, text):
        wait_until(lambda: text in self.out() + self.err() or self.process.poll() is not None, "'%s' of a run" % text)
        if text not in self.out() + self.err():
            raise AssertionError("the run ended: %s%s" % (self.out(), self.err()))
        return self

    def finish(self):
        """Ends the program's input; returns what it wrote."""
        self.process.stdin.close()
        self.process.wait(4 * PATIENCE)
        return self.out()

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.folder.cleanup()


class PoolCase(unittest.TestCase):
    """Keeps what a test starts until its end."""

    def keep(self, thing):
        self.addCleanup(thing.close)
        return thing

    def server(self, *arguments, **more):
        return self.keep(Server(*arguments, **more))

    def running(self, *arguments, **more):
        return self.keep(Running(*arguments, **more))

    def pool(self, server):
        """What `list` says of the pool of a server."""
        outcome = run(COMMAND, "list", "--json", "-s", server.address)
        answer = json.loads(outcome.out)["servers"][0]
        self.assertIn("pool", answer, outcome)
        return answer["pool"]

    def gpus(self, server):
        """Of each GPU of the pool (server's address, index), how much of it is free: 0 to 1."""
        return {(member["address"], gpu["index"]): gpu["free"] / gpu["memory"]
                for member in self.pool(server)["servers"] for gpu in member["gpus"]}

    def wait_free(self, server, n):
        wait_until(lambda: sum(free == 1 for free in self.gpus(server).values()) == n,
                   "%d GPUs are free" % n)

    def assert_refused(self, outcome, *texts):
        self.assertEqual(outcome.status, 125, outcome)
        for text in texts:
            self.assertRegex(outcome.err, text)


class UsersCase(PoolCase):
    """Users who prove by certificates who they are. `users`: the environment of each; `trust`: what servers are told of the authority."""

    NAMES = ()

    @classmethod
    def setUpClass(cls):
        cls.class_folder = tempfile.mkdtemp(prefix="remote-gpu-pool-users-")
        cls.addClassCleanup(shutil.rmtree, cls.class_folder)
        authority = cls.authority = Authority(os.path.join(cls.class_folder, "authority"))
        certificate, key = authority.issue("server", "server", alternative="IP:127.0.0.1")
        cls.users = {name: {"REMOTE_GPU_CREDENTIALS": authority.credentials(os.path.join(cls.class_folder, name), name)}
                     for name in cls.NAMES}
        cls.trust = ("--tls-ca", authority.root, "--tls-cert", certificate, "--tls-key", key)

    def by(self, user, *words):
        return run(COMMAND, *words, **self.users[user])
