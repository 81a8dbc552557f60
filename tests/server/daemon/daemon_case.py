"""A remote-gpud, its clients and what a test asks of processes: for the tests of the daemon and of the frontend.

The driver and the worker are stand-ins (fake_driver.c, fake_worker.c); control_client.c says hello in unusual ways. The build folder is
the first argument of the test's command line.
"""


import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "scripts"))

from control_message import SESSION, hello_for  # noqa: E402
import trial  # noqa: E402
from trial import all_children_of, wait_until  # noqa: E402

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "build"
STAGE = os.path.join(BUILD, "stage")
DAEMON = os.path.join(STAGE, "bin", "remote-gpud")
HELPERS = os.path.join(BUILD, "tests", "daemon")
CLIENT = os.path.join(HELPERS, "control_client")
WORKER = os.path.join(HELPERS, "fake_worker")
DRIVER = os.path.join(HELPERS, "fake_libcuda.so")
ENVIRONMENT = dict(os.environ, REMOTE_GPU_LIBDIR=os.path.join(STAGE, "lib", "remote-gpu"), REMOTE_GPU_LOG="debug")
for name in ("REMOTE_GPU_FILTER", "CUDA_VISIBLE_DEVICES"):
    ENVIRONMENT.pop(name, None)


def children_of(pid):
    """State and command of each child but the frontend and the accountant, zombies included."""
    return [child for child in all_children_of(pid) if child[2] not in ("frontend", "accountant")]


def frontend_of(daemon):
    """The process id of the daemon's frontend; None: there is none."""
    return next(iter(trial.children_of(daemon.process.pid, "frontend")), None)


def descriptors_of(pid):
    """How many descriptors a process has, also one into which its own user may not look."""
    try:
        return len(os.listdir("/proc/%d/fd" % pid))
    except PermissionError:
        return os.stat("/proc/%d/fd" % pid).st_size  # 0 before Linux 6.2


def is_running(pid):
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def built_with_sanitizer():
    with open(os.path.join(BUILD, "CMakeCache.txt")) as file:
        return any(re.match(r"RG_SANITIZE:.*=.*\w", line) for line in file)


def built_with_thread_sanitizer():
    with open(os.path.join(BUILD, "CMakeCache.txt")) as file:
        return any(re.match(r"RG_SANITIZE:.*=.*thread", line) for line in file)


class Daemon:
    def __init__(self, *arguments, environment=None, listen=True, wait=True, worker=WORKER,
                 driver=DRIVER, user=None, log_mode="w", prefix=()):
        self.folder = tempfile.TemporaryDirectory(prefix="remote-gpud-test-")
        more = {}
        if user is not None:
            os.chown(self.folder.name, user, user)
            more = {"user": user, "group": user, "extra_groups": []}
        self.ready = os.path.join(self.folder.name, "ready")
        self.log_path = os.path.join(self.folder.name, "log")
        command = [*prefix, DAEMON, "--worker", worker, "--driver", driver, "--ready-file", self.ready,
                   "--config", "/dev/null", "--log", "debug", "--warm-workers", "0", *arguments]
        if listen:
            command += ["--listen", "127.0.0.1:0"]
        with open(self.log_path, log_mode) as log:
            own = {"STATE_DIRECTORY": os.path.join(self.folder.name, "state")}
            self.process = subprocess.Popen(command, env={**ENVIRONMENT, **own, **(environment or {})}, stdout=log,
                                            stderr=log, stdin=subprocess.DEVNULL, **more)
        if wait:
            wait_until(lambda: os.path.exists(self.ready) or self.process.poll() is not None)

    def addresses(self):
        with open(self.ready) as file:
            return file.read().split()

    @property
    def address(self):
        return self.addresses()[0]

    @property
    def near(self):
        """The address by which this machine reaches a server that listens on all of them."""
        return self.address.replace("0.0.0.0", "127.0.0.1").replace("tcp://", "")

    def socket(self):
        host, port = re.fullmatch(r"tcp://(.*):(\d+)", self.address).groups()
        return socket.create_connection((host, int(port)), timeout=20)

    def log(self):
        with open(self.log_path) as file:
            return file.read()

    def stop(self):
        if not os.path.exists(self.folder.name):
            return self.process.returncode
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            if self.process.poll() is None:
                time.sleep(0.05)
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        print(self.log(), end="")  # so that a sanitizer's report is seen
        self.folder.cleanup()
        return status


class Client:
    """A control client that stays, with its output by lines."""

    def __init__(self, address, *words, **options):
        self.process = subprocess.Popen([CLIENT, address, *words], env=ENVIRONMENT, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, **options)

    def line(self, seconds=10):
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        return self.process.stdout.readline().strip() if ready else "nothing"

    def leave(self):
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


def say(address, *words, prefix=(), **options):
    result = subprocess.run([*prefix, CLIENT, address, *words], env=ENVIRONMENT, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, text=True, timeout=60, **options)
    return result.stdout.strip()


class Case(unittest.TestCase):
    def start(self, *arguments, **options):
        daemon = Daemon(*arguments, **options)
        self.addCleanup(daemon.stop)
        self.assertIsNone(daemon.process.poll(), daemon.log())
        return daemon

    def join(self, address, *words, **options):
        client = Client(address, *words, **options)
        self.addCleanup(client.process.kill)
        return client

    def fails(self, *arguments, **options):
        """A start that must fail: its messages."""
        daemon = Daemon(*arguments, **options)
        self.addCleanup(daemon.stop)
        self.assertEqual(daemon.process.wait(20), 125, daemon.log())
        self.assertFalse(os.path.exists(daemon.ready))
        return daemon.log()
