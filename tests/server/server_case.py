"""What tests of servers share: where the build is, and a server on the software device, which ends with its test.

Nothing here waits for a time: it waits for what is to become true, with a limit that only a broken machine reaches. The build folder is
the first argument of the test's command line.
"""

import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))

from trial import children_of, stop_at_once  # noqa: E402

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "build"
STAGE = os.path.join(BUILD, "stage")
DAEMON = os.path.join(STAGE, "bin", "remote-gpud")
COMMAND = os.path.join(STAGE, "bin", "remote-gpu")
PATIENCE = 60  # seconds, of a machine that is busy with other things

ENVIRONMENT = dict(os.environ, SOFTGPU_DEVICES="2")
for name in [name for name in ENVIRONMENT if name.startswith("REMOTE_GPU_")] + ["CUDA_VISIBLE_DEVICES", "http_proxy", "https_proxy"]:
    ENVIRONMENT.pop(name, None)


def wait_until(condition, what, patience=PATIENCE):
    """Waits for a condition, whose value it returns; fails with a sentence if it does not become true."""
    end = time.monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError("%s: not within %d s" % (what, patience))
        time.sleep(0.02)


class Server:
    def __init__(self, *arguments, driver="soft", environment=(), log=("--log", "debug"), state=None, wait=True):
        """`state`: its state folder; "": one that ends with it; None: the arguments say."""
        self.folder = tempfile.TemporaryDirectory(prefix="remote-gpu-server-")
        self.ready, self.log_path = os.path.join(self.folder.name, "ready"), os.path.join(self.folder.name, "log")
        command = [DAEMON, "--config", "/dev/null", "--driver", driver, "--listen", "127.0.0.1:0", "--ready-file", self.ready,
                   *log, *arguments]
        if state is not None:
            self.state = state or os.path.join(self.folder.name, "state")
            command += ["--state-dir", self.state]
        with open(self.log_path, "w") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL,
                                            env=dict(ENVIRONMENT, **dict(environment)))
        if wait:
            wait_until(lambda: os.path.exists(self.ready) or self.process.poll() is not None, "a server is ready")
            if self.process.poll() is not None:
                raise AssertionError(self.log())
            with open(self.ready) as file:
                self.address = file.read().split()[0].replace("tcp://", "")

    def log(self):
        with open(self.log_path, errors="replace") as file:
            return file.read()

    def children(self, program):
        """Process ids of its children of that name."""
        return children_of(self.process.pid, program)

    def close(self):
        stop_at_once(self.process, PATIENCE)
        print(self.log(), end="")
        self.folder.cleanup()
