"""What the tests of the NVML stand-in share: servers to ask, and programs that ask them.

Servers of two kinds: one whose driver and management library are stand-ins with known numbers, and one on the
software device. Their worker is a program that fails: nothing may need a session, but for the tests of NVML and
sessions together. A test module is started with the build folder and what the build is sanitized with.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "scripts"))

import trial  # noqa: E402
from passage import Passage  # noqa: E402

SANITIZE = sys.argv.pop(2) if len(sys.argv) > 2 else ""
BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "build"
STAGE = os.path.join(BUILD, "stage")
COMMAND = os.path.join(STAGE, "bin", "remote-gpu")
LIBRARY = os.path.join(STAGE, "lib", "remote-gpu")
NVML = os.path.join(LIBRARY, "libnvidia-ml.so.1")
PROGRAM = os.path.join(BUILD, "tests", "client", "nvml", "nvml_program")
SOFT = os.path.join(LIBRARY, "soft", "libcuda.so.1")
TREE = tempfile.mkdtemp(prefix="remote-gpu-nvml-test-")
DRIVER = os.path.join(TREE, "libcuda.so.1")
USED = os.path.join(TREE, "used")
GIB = 1 << 30
# An interpreter that is built without the thread sanitizer cannot load libraries that need it.
in_python = unittest.skipIf("thread" in SANITIZE, "the interpreter is built without sanitizers")
# With the address sanitizer's run-time in front it can; leaks would be the interpreter's.
PRELOAD = {}
if "address" in SANITIZE:
    found = subprocess.run(["cc", "-print-file-name=libasan.so"], stdout=subprocess.PIPE, text=True, check=True)
    PRELOAD = {"LD_PRELOAD": found.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0"}


# Only what a test sets is set.
for name in [name for name in os.environ if name.startswith("REMOTE_GPU_")] + ["LD_PRELOAD", "LD_LIBRARY_PATH"]:
    os.environ.pop(name, None)
SURROUNDINGS = dict(os.environ)


def make_tree():
    """A driver with its management library beside it."""
    shutil.copy(os.path.join(BUILD, "tests", "daemon", "fake_libcuda.so"), DRIVER)
    shutil.copy(os.path.join(BUILD, "tests", "client", "nvml", "fake_libnvidia-ml.so"),
                os.path.join(TREE, "libnvidia-ml.so.1"))


def set_used(count):
    """What the server's devices have in use from now on."""
    with open(USED + ".new", "w") as file:
        file.write("%d\n" % count)
    os.rename(USED + ".new", USED)


def environment(**changes):
    result = dict(SURROUNDINGS)
    result.update(HOME=TREE, XDG_CONFIG_HOME=TREE, PYTHONPATH=HERE, CUDA_FAKE_MEMORY_FILE=USED)
    result.update(changes)
    return result


def as_client_of(server, **changes):
    return environment(REMOTE_GPU_SERVER=server.address, LD_LIBRARY_PATH=LIBRARY, **PRELOAD, **changes)


def start(command, under=None, **changes):
    """Runs a command, under remote-gpu if `under` names a server."""
    if under:
        command = [COMMAND, "run", "-s", under, "--", *command]
    return subprocess.run(command, env=environment(**changes), stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)


def user(lines, under=None, **changes):
    """A Python program of these lines; what it puts into `out` comes back."""
    script = "\n".join(["import ctypes, json, os, time", "from nvml_user import *", "out = {}", lines,
                        "print(json.dumps(out))"])
    if not under:
        changes.setdefault("LD_LIBRARY_PATH", LIBRARY)
    result = start([sys.executable, "-c", script], under, **PRELOAD, **changes)
    if result.returncode != 0:
        raise AssertionError(result.stderr)
    return json.loads(result.stdout), result.stderr


class Test(unittest.TestCase):
    """A test that has servers of its own; they end with it."""

    def serve(self, driver=DRIVER, **settings):
        server = make_server(driver, **settings)
        self.addCleanup(end_server, server)
        return server

    def passage(self, server):
        """Stands in front of a server: counts connections, and can hold them up."""
        passage = Passage(server.address)
        self.addCleanup(passage.__exit__)
        return passage.__enter__()


class Case(Test):
    """A test of one server that all tests of its class ask."""

    @classmethod
    def setUpClass(cls):
        set_used(3 * GIB)
        cls.server = make_server(DRIVER)
        cls.addClassCleanup(end_server, cls.server)
        cls.address = cls.server.address


def make_server(driver, address="127.0.0.1:0", worker="/bin/false", **changes):
    """A server that runs, with only the settings that a test gives it."""
    server = trial.Server(trial.Build(BUILD), driver, listen=address, environment=environment(**changes),
                          arguments=["--worker", worker, "--config", "/dev/null", "--grace", "0",
                                     "--sandbox", "off"])  # the stand-in of a driver reads what a test writes meanwhile
    server.__enter__()
    server.address = server.address.replace("tcp://", "")
    return server


def end_server(server):
    """What it has said may be a sanitizer's report, which fails the test."""
    server.__exit__()
    sys.stderr.write(server.log_text)


def main():
    """Runs the tests of the module that was started."""
    try:
        make_tree()
        unittest.main(verbosity=2)
    finally:
        shutil.rmtree(TREE)
