"""Containers by podman, as docs/containers.md has them: each command of the page that is for this test is run as it stands there.

usage: run.py BUILD_FOLDER

In namespaces of its own (mounts, network), where it is the machine of the page: /etc, /run and /opt are copies, `gpu-machine` is
a name for this machine, `remote-gpu` is the one that was built, /opt/remote-gpu the portable client. podman is the real one,
with an image of Debian's that has nothing of remote-gpu.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(SOURCE, "scripts"))

import page  # noqa: E402
from trial import Build, Failure, Server, call, stop_with_servers  # noqa: E402

PAGE = os.path.join(SOURCE, "docs", "containers.md")
IMAGE = "docker.io/library/debian:12"
# What podman wants where cgroups are of both versions and limits cannot be raised. Without a network of the container's own,
# which needs bridges and filters, it has the machine's, unless it says otherwise.
PODMAN = """#!/bin/sh
real="{podman} --root {folder}/storage --runroot {folder}/running --storage-driver vfs"
[ "$1" = run ] || exec $real "$@"
shift
network="--network host"
for word; do [ "$word" != --network ] || network=; done
exec $real run --runtime runc --ulimit nofile=1024:1024 --ulimit nproc=1000:1000 $network "$@"
"""


def enter_namespaces():
    """Starts this program again, in namespaces of its own."""
    os.execvp("unshare", ["unshare", "--mount", "--net", "--fork", "--kill-child", "--", sys.executable, __file__, *sys.argv[1:], "inside"])


def make_machine(folder, build):
    """Copies of what the page writes to, which end with this process's namespaces."""
    call("mount", "--make-rprivate", "/")
    call("ip", "link", "set", "lo", "up")
    call("mount", "-t", "tmpfs", "tmpfs", folder)
    shutil.copytree("/etc", os.path.join(folder, "etc"), symlinks=True)
    for name in ("etc", "run", "opt"):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
        call("mount", "--bind", os.path.join(folder, name), "/" + name)
    with open("/etc/hosts", "w") as file:
        file.write("127.0.0.1 localhost gpu-machine\n")
    shutil.rmtree("/etc/cdi", ignore_errors=True)
    os.mkdir("/opt/remote-gpu")
    call("mount", "--bind", os.path.join(build.folder, "portable-client"), "/opt/remote-gpu")
    for name in ("bin", "home"):
        os.mkdir(os.path.join(folder, name))
    with open(os.path.join(folder, "bin", "podman"), "w") as file:
        file.write(PODMAN.format(podman=shutil.which("podman"), folder=folder))
    os.chmod(os.path.join(folder, "bin", "podman"), 0o755)
    os.environ["PATH"] = os.pathsep.join([os.path.join(folder, "bin"), os.path.dirname(build.command), os.environ["PATH"]])
    os.environ["HOME"] = os.path.join(folder, "home")
    os.environ.pop("XDG_CONFIG_HOME", None)


def run_page(build, folder):
    """The page's commands, beside the servers that it speaks of."""
    os.makedirs("/run/remote-gpu/containers")
    os.chmod("/run/remote-gpu", 0o700)
    os.mkdir(os.path.join(folder, "work"))
    os.symlink(build.example_dir, os.path.join(folder, "work", "examples"))
    call("podman", "import", os.path.join(SOURCE, ".deps", "containers", "debian.tar"), IMAGE)
    state = os.path.join(folder, "state")
    with Server(build, listen="unix:/run/remote-gpu/containers/socket", arguments=["--allow-unauthenticated"]) as local, \
            Server(build, listen="127.0.0.1:7600", arguments=["--state-dir", state, "--tls-name", "gpu-machine"]) as remote:
        token = subprocess.run([build.daemon, "token", "--state-dir", state, "--user", "containers", "--server", "gpu-machine"],
                               stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        result = subprocess.run(["bash", "-c", page.script(PAGE, "podman")], env={**os.environ, "TOKEN": token},
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600,
                                cwd=os.path.join(folder, "work"))
        print(result.stdout)
        if result.returncode != 0:
            raise Failure("the page's commands failed\n" + local.log() + remote.log())
        if result.stdout.count("\nvector_add: ok\n") != 3:
            raise Failure("not every program has said that it is well")
        if "starts: containers, by TLS; 1000@" not in remote.log():
            raise Failure("no session by TLS has come from a container:\n" + remote.log())


def main():
    stop_with_servers()
    build = Build(sys.argv[1])
    if "inside" not in sys.argv:
        if os.geteuid() != 0:
            sys.exit("error: this test needs root")
        call(os.path.join(SOURCE, "scripts", "setup-containers"))
        call(os.path.join(SOURCE, "scripts", "build-client"), "--output", os.path.join(build.folder, "portable-client"))
        enter_namespaces()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="remote-gpu-containers-") as folder:
        os.chmod(folder, 0o755)
        try:
            make_machine(folder, build)
            run_page(build, folder)
        except Failure as failure:
            sys.exit("error: %s" % failure)
        finally:
            subprocess.run(["umount", "--lazy", folder])
    print("containers: ok, %.0f s" % (time.monotonic() - started))


if __name__ == "__main__":
    main()
