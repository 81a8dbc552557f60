"""One member of etcd, on free ports, for benchmarks and tests of pools."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import urllib.request

from trial import Failure, wait_until


def free_ports(n):
    """Ports that nobody has at this moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Etcd:
    """Runs until its `with` block ends, with its data in a new folder below `place`."""

    def __init__(self, place=None):
        self.place = place

    def __enter__(self):
        if not shutil.which("etcd"):
            raise Failure("etcd is not installed: scripts/setup, or apt-get install etcd-server")
        self.folder = tempfile.mkdtemp(prefix="remote-gpu-etcd-", dir=self.place)
        self.port, peer_port = free_ports(2)
        self.url, peer = ("http://127.0.0.1:%d" % port for port in (self.port, peer_port))
        command = ["etcd", "--name", "one", "--data-dir", os.path.join(self.folder, "data"), "--listen-client-urls", self.url,
                   "--advertise-client-urls", self.url, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                   "--initial-cluster", "one=" + peer]
        with open(os.path.join(self.folder, "log"), "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if not wait_until(self.serves, 30):
            self.__exit__()
            raise Failure("etcd does not start")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def serves(self):
        """Whether it answers."""
        try:
            return bool(self.metrics())
        except OSError:
            return False

    def metrics(self):
        with urllib.request.urlopen(self.url + "/metrics", timeout=10) as answer:
            return answer.read().decode()
