"""Rootless podman, as docs/containers.md has it: for run.py, within its machine, once there are images of ours and the CDI specification.

alice is an ordinary user, whose containers have her number as root's and the numbers of /etc/subuid as all others'.
"""

import os
import pwd
import shutil
import subprocess

import page
from trial import Failure, Server, call, wait_until

IMAGE = "docker.io/library/debian:12"
SOCKET = "unix:/run/remote-gpu/containers/socket"


class Alice:
    """Her account, home and podman; `wrapper`: a script that calls podman with what it needs here, to be formatted."""

    def __init__(self, build, folder, wrapper):
        self.home = os.path.join(folder, "alice")
        call("useradd", "--create-home", "--home-dir", self.home, "alice")
        self.uid = pwd.getpwnam("alice").pw_uid
        with open("/etc/subuid") as file:
            self.first = next(int(line.split(":")[1]) for line in file if line.startswith("alice:"))
        os.makedirs("/run/user/%d" % self.uid)
        shutil.chown("/run/user/%d" % self.uid, "alice", "alice")
        examples, binary = os.path.join(self.home, "examples"), os.path.join(folder, "alice-bin")
        for path in examples, binary:
            os.mkdir(path)
        call("mount", "--bind", build.example_dir, examples)
        os.symlink(os.path.join(folder, "work", "build"), os.path.join(self.home, "build"))
        with open(os.path.join(binary, "podman"), "w") as file:
            file.write(wrapper.format(podman="/usr/bin/podman", where=""))
        os.chmod(os.path.join(binary, "podman"), 0o755)
        self.environment = {"HOME": self.home, "USER": "alice", "XDG_RUNTIME_DIR": "/run/user/%d" % self.uid,
                            "PATH": os.pathsep.join([binary, "/opt/remote-gpu/bin", "/usr/sbin:/usr/bin:/sbin:/bin"])}

    def run(self, *words):
        """A command of hers."""
        return subprocess.run(["setpriv", "--reuid", "alice", "--regid", "alice", "--clear-groups", *words], env=self.environment, cwd=self.home,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900, check=False)

    def well(self, *words):
        """What one wrote that must succeed."""
        result = self.run(*words)
        if result.returncode != 0:
            raise Failure("%s, as alice: status %d\n%s" % (" ".join(words), result.returncode, result.stdout))
        return result.stdout

    def logs(self, name):
        """What a container of hers has written."""
        return self.well("podman", "logs", name)


def run_by_device(build, alice, path):
    """The page's commands, root's and hers, with the machine's server, which sees which of her numbers a program has."""
    with Server(build, listen=SOCKET, arguments=["--allow-unauthenticated"]) as server:
        print(call("bash", "-c", page.script(path, "rootless-root")))
        shown = alice.well("bash", "-c", page.script(path, "rootless"))
        log = server.log()
    print(shown, log, flush=True)
    if shown.count("\nvector_add: ok\n") != 2:
        raise Failure("not every program of alice's has said that it is well:\n" + log)
    for who in "uid %d (alice), " % alice.uid, "uid %d, " % (alice.first + 999):
        if "starts: " + who not in log:
            raise Failure("the machine's server does not know a container of alice's as %s:\n%s" % (who, log))


def run_images(alice, path):
    """The page's commands with a server in a container of hers, which knows the user of another one."""
    shown = alice.well("bash", "-c", page.script(path, "rootless-images"))
    log = alice.logs("local-server")
    print(shown, log, flush=True)
    if shown.count("\nvector_add: ok\n") != 1 or "starts: uid 65532" not in log:
        raise Failure("a program has not said that it is well, or its user is not known:\n" + log)


def run_others(alice):
    """Who else comes to the server in her container: she herself is root there, and the machine's root nobody."""
    alice.well("podman", "start", "local-server")
    if not wait_until(lambda: alice.logs("local-server").count("listening on") == 2, 60):
        raise Failure("the server did not start again:\n" + alice.logs("local-server"))
    socket = os.path.join(alice.home, "socket", "socket")
    alice.well("podman", "unshare", "remote-gpu", "run", "-s", "unix:" + socket, "--", "./examples/vector_add")
    if "starts: uid 0 (root), " not in alice.logs("local-server"):
        raise Failure("alice is not root of her container:\n" + alice.logs("local-server"))
    stranger = subprocess.run(["remote-gpu", "run", "-s", "unix:" + socket, "--", "true"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=60, check=False)
    if stranger.returncode != 125 or "user namespace" not in stranger.stdout:
        raise Failure("the machine's root is somebody in alice's container: status %d, %s" % (stranger.returncode, stranger.stdout))
    alice.well("podman", "stop", "--time", "30", "local-server")


def run_all(build, folder, path, wrapper):
    """All of it; `path`: of the page."""
    alice = Alice(build, folder, wrapper)
    alice.well("podman", "import", os.path.join(os.path.dirname(os.path.dirname(path)), ".deps", "containers", "debian.tar"), IMAGE)
    run_by_device(build, alice, path)
    run_images(alice, path)
    run_others(alice)
