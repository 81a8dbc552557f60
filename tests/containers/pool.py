"""GPUs of a pool in containers, as docs/containers.md has it: for run.py, within its machine.

A real etcd and two servers with one software device each, gpu1 and gpu2, which have addresses of their own, by TLS and one authority.
"""

import contextlib
import json
import os
import subprocess
import sys
import time

from etcd import Etcd
from trial import Failure, Server, call, name_of, wait_until

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "security"))

from authority import Authority  # noqa: E402

NAMES = {"gpu1": "10.77.0.1", "gpu2": "10.77.0.2"}
CREDENTIALS = "/etc/remote-gpu-pool"
IMAGE, COMMAND = "docker.io/library/debian:12", "/opt/remote-gpu/bin/remote-gpu"
RUN = ("--user", "1000", "--device", "pool.example.com/gpu=2", IMAGE, COMMAND, "run", "--spread", "--wait-for=10m", "--")


class Pool:
    """Ends with `with`."""

    def __init__(self, build, folder):
        self.build, self.folder, self.stack, self.servers = build, os.path.join(folder, "pool"), contextlib.ExitStack(), []

    def __enter__(self):
        os.mkdir(self.folder, 0o755)
        authority = Authority(os.path.join(self.folder, "authority"))
        authority.credentials(CREDENTIALS, "containers")
        self.url = self.stack.enter_context(Etcd()).urls
        for name, address in NAMES.items():
            call("ip", "address", "add", address + "/32", "dev", "lo")
            with open("/etc/hosts", "a") as hosts:
                hosts.write("%s %s\n" % (address, name))
            certificate, key = authority.issue("server", name, alternative="DNS:" + name)
            server = Server(self.build, listen=address + ":7600", environment={"SOFTGPU_DEVICES": "1", "SOFTGPU_MEMORY": "256M"}, arguments=[
                "--state-dir", os.path.join(self.folder, name), "--tls-ca", authority.root, "--tls-cert", certificate, "--tls-key", key,
                "--pool", "lab", "--etcd", self.url, "--advertise", name, "--warm-workers", "0"])
            self.servers.append(self.stack.enter_context(server))
        if not wait_until(lambda: len(self.look()["servers"]) == 2, 60):
            raise Failure("the servers have no pool:\n" + self.log())
        return self

    def __exit__(self, *_):
        self.stack.close()

    def log(self):
        """All that servers have said."""
        return "\n".join(server.log() for server in self.servers)

    def look(self):
        """The pool as `list` has it."""
        answer = subprocess.run(["remote-gpu", "list", "--json", "-s", "gpu1", "--credentials", CREDENTIALS], stdout=subprocess.PIPE, text=True,
                                timeout=60, check=False).stdout
        return json.loads(answer)["servers"][0].get("pool") or {"servers": [], "leases": []} if answer else {"servers": [], "leases": []}

    def expect_free(self, what):
        """Nobody has anything of the pool any more."""
        if not wait_until(lambda: not self.look()["leases"], 60):
            raise Failure("%s, and its lease is left: %s" % (what, self.look()["leases"]))
        for server in self.servers:
            if not wait_until(lambda server=server: all(name_of(pid) == "pool-agent" for pid in server.workers()), 60):
                raise Failure("%s, and a worker is left:\n%s" % (what, self.log()))


def logs_of(name):
    """What a container has written."""
    return subprocess.run(["podman", "logs", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False).stdout


def expect_said(name, words):
    """A container has written the words, in a time that a busy machine has."""
    if not wait_until(lambda: words in logs_of(name), 120, 0.2):
        raise Failure("the container %s does not say '%s' but:\n%s" % (name, words, logs_of(name)))


def start(name, *command):
    """A container with two GPUs of the pool, in the background."""
    call("podman", "run", "--detach", "--name", name, "-v", "./examples:/app:ro", *RUN, *command)


def run_waiting(pool):
    """A container waits while another one has the GPUs, says so, and has them once the other one is killed."""
    start("holds", "sh", "-c", "while /app/vector_add; do :; done")  # which is killed in a session, mostly
    expect_said("holds", "vector_add: ok")
    there = pool.look()
    parts = [part["memory"] for server in there["servers"] for gpu in server["gpus"] for part in gpu["granted"]]
    if [lease["gpus"] for lease in there["leases"]] != [2] or parts != [100 << 20] * 2:
        raise Failure("the lease is not of two GPUs with as much memory as the device is to have: %s" % there)
    # of 256 MB each there is room for one more, not for two
    start("beside", "sh", "-c", "echo begun; exec sleep 3600")
    expect_said("beside", "begun")
    start("waits", "/app/vector_add")
    expect_said("waits", "remote-gpu: waiting since")
    call("podman", "kill", "--signal", "KILL", "holds")
    if call("podman", "wait", "waits", timeout=120).strip() != "0" or "vector_add: ok" not in logs_of("waits"):
        raise Failure("it did not run once there were GPUs:\n" + logs_of("waits"))
    print(logs_of("waits"), flush=True)
    start("again", "sh", "-c", "echo begun; exec sleep 3600")
    expect_said("again", "begun")
    start("gives-up", "/app/vector_add")
    expect_said("gives-up", "remote-gpu: waiting since")
    began = time.monotonic()
    call("podman", "stop", "--time", "120", "gives-up")
    state = json.loads(call("podman", "inspect", "gives-up"))[0]["State"]
    if state["ExitCode"] != 143 or time.monotonic() - began > 100:
        raise Failure("who waits in the queue does not end when told to: %s" % state)
    for name in "beside", "again":
        call("podman", "stop", "--time", "120", name)
    for name in "holds", "beside", "waits", "again", "gives-up":
        call("podman", "rm", name)
    pool.expect_free("all containers have ended")


def run_wrong(pool):
    """A program that the command has not started is told so; `all` is one GPU, and the command may be the entry point."""
    device = ("--rm", "--user", "1000", "-v", "./examples:/app:ro", "--device")
    result = subprocess.run(["podman", "run", *device, "pool.example.com/gpu=2", IMAGE, "/app/vector_add"], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
    if result.returncode == 0 or "given out by the pool lab: run the program by remote-gpu run" not in result.stdout:
        raise Failure("a program without a lease: status %d\n%s" % (result.returncode, result.stdout))
    shown = call("podman", "run", *device, "pool.example.com/gpu=all", "--entrypoint", COMMAND, IMAGE, "run", "--", "sh", "-c",
                 "echo $REMOTE_GPU_GPUS of $REMOTE_GPU_SERVER")
    if not shown.startswith("1 of gpu"):
        raise Failure("all GPUs of a pool: " + shown)
    pool.expect_free("both have ended")


def run_all(pool):
    """All of it, in a folder with the folder `examples`."""
    run_wrong(pool)
    run_waiting(pool)
