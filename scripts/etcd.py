"""etcd on free ports of this machine, for benchmarks and tests of pools."""

import base64
import contextlib
import functools
import json
import os
import shutil
import socket
import subprocess
import tempfile
import urllib.request

from trial import Failure, wait_until

PATIENCE_S = 60  # of a machine that is busy with other things


def free_ports(n):
    """Ports that nobody has at this moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def base64_of(text):
    return base64.b64encode(text.encode()).decode()


@functools.lru_cache(maxsize=None)
def knows(option):
    text = subprocess.run(["etcd", "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return option in text.stdout


def member(name, data, client, peer, cluster, *options, listen=None, durable=False):
    """
    The command of one member. `client`, `peer`: its URLs, `listen`: those for clients, where they are others; `cluster`: NAME=PEER,… of all.
    `durable`: it waits for the disk, as etcd does by default.
    """
    return ["etcd", "--name", name, "--data-dir", data, "--listen-client-urls", listen or client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster, "--logger", "zap", *options,
            *([] if durable or not knows("unsafe-no-fsync") else ["--unsafe-no-fsync"])]


class Etcd:
    """
    A cluster of so many members, which runs until its `with` block ends, or it is closed. `options`: more for each; `scheme` for clients;
    `place`: where the folder with its data is made.
    """

    def __init__(self, n=1, options=(), scheme="http", place=None, durable=False):
        if not shutil.which("etcd"):
            raise Failure("etcd is not installed: scripts/setup, or apt-get install etcd-server")
        self.folder = tempfile.mkdtemp(prefix="remote-gpu-etcd-", dir=place)
        self.options, self.scheme, self.n, self.durable, self.processes = options, scheme, n, durable, []
        for _ in range(5):  # somebody may have taken a port meanwhile
            self.ports = free_ports(2 * n)
            self.processes = [self.start_member(i) for i in range(n)]
            if self.is_up():
                return
            self.kill()
            log = self.log(0)
            shutil.rmtree(self.folder)
            os.mkdir(self.folder)
        raise Failure("etcd does not start:\n" + log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def client_url(self, i):
        return "%s://127.0.0.1:%d" % (self.scheme, self.ports[i])

    @property
    def urls(self):
        return ",".join(self.client_url(i) for i in range(self.n))

    def peer_url(self, i):
        return "http://127.0.0.1:%d" % self.ports[self.n + i]

    def data(self, i):
        """The folder that a member keeps."""
        return os.path.join(self.folder, "data%d" % i)

    def log(self, i):
        with open(os.path.join(self.folder, "log%d" % i), errors="replace") as file:
            return file.read()

    def start_member(self, i):
        cluster = ",".join("m%d=%s" % (k, self.peer_url(k)) for k in range(self.n))
        with open(os.path.join(self.folder, "log%d" % i), "w") as log:
            return subprocess.Popen(member("m%d" % i, self.data(i), self.client_url(i), self.peer_url(i), cluster, *self.options,
                                           durable=self.durable), stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def has_ended(self):
        """Whether one member has."""
        return any(process.poll() is not None for process in self.processes)

    def serves(self):
        return all(any(text in self.log(i) for text in ("ready to serve client requests", "serving client traffic",
                                                        "serving insecure client requests")) for i in range(self.n))

    def is_up(self):
        """Waits until all members serve; False: one has ended."""
        if not wait_until(lambda: self.has_ended() or self.serves(), PATIENCE_S):
            raise Failure("etcd does not serve:\n" + self.log(0))
        return not self.has_ended()

    def restart(self, i):
        self.processes[i] = self.start_member(i)

    def kill(self):
        for process in self.processes:
            process.kill()
            process.wait()

    def metrics(self):
        with urllib.request.urlopen(self.client_url(0) + "/metrics", timeout=10) as answer:
            return answer.read().decode()

    def ask(self, path, **body):
        request = urllib.request.Request(self.client_url(0) + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=4 * PATIENCE_S)

    @staticmethod
    def text(encoded):
        return base64.b64decode(encoded).decode()

    def revision(self):
        with self.ask("/v3/kv/range", key=base64_of("none")) as answer:
            return int(json.load(answer)["header"]["revision"])

    def events(self, since=0, prefix="/remote-gpu/pools/lab/"):
        """What was written or removed below a prefix after a revision, in order, as often as it was: key, and value ("": removed)."""
        last, found = prefix + "~", []
        self.ask("/v3/kv/put", key=base64_of(last), value=base64_of("{}")).close()
        with self.ask("/v3/watch", create_request={"key": base64_of(prefix), "range_end": base64_of(prefix + "~~"),
                                                   "start_revision": str(since + 1)}) as answer:
            for line in answer:
                for event in json.loads(line)["result"].get("events", ()):
                    key = self.text(event["kv"]["key"])
                    if key == last:
                        return found
                    found.append((key[len(prefix):], self.text(event["kv"].get("value", ""))))
        raise AssertionError("the watch of etcd ended")

    def changes(self, since):
        return [key for key, _ in self.events(since)]
