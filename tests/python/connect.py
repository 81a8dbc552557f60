"""remote_gpu.connect and `python -m remote_gpu` (packaging/python), with the client that was built beside them.

usage: connect.py BUILD_FOLDER
"""

import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path.insert(0, os.path.join(ROOT, "scripts"))

from trial import Build, Failure, Server, run_program, stop_with_servers, wait_until  # noqa: E402

# How many devices there are, by whatever the name libcuda.so.1 stands for in this process.
COUNT = """
import ctypes
def count():
    cuda, n = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    status = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(n))
    assert status == 0, status
    return n.value
"""
REFUSED = """
def refused(*words, **more):
    try:
        remote_gpu.connect(*words, **more)
    except remote_gpu.Error as error:
        return str(error)
    raise AssertionError("connected")
"""
CASES = {
    "connects": ("", """
assert "libcuda.so.1" not in open("/proc/self/maps").read()
connection = remote_gpu.connect(SERVER, options=OPTIONS)
assert connection.server == SERVER, connection
assert count() == 2
assert remote_gpu.connect(SERVER, options=OPTIONS) is connection
assert "is connected to" in refused(SERVER, gpus=1, options=OPTIONS)
import subprocess, sys
subprocess.run([sys.executable, "-c", COUNT + "assert count() == 2"], check=True)
"""),
    "takes fewer GPUs": ("", """
remote_gpu.connect(SERVER, gpus=1, memory="64M", options=OPTIONS)
assert count() == 1
"""),
    "refuses what the command refuses": ("", """
assert "3 were asked for" in refused(SERVER, gpus=3, options=OPTIONS)
assert "nonsense" in refused(SERVER, options=["--nonsense"])
assert "/no/such/socket" in refused("unix:/no/such/socket", options=OPTIONS)
assert "libcuda.so.1" not in open("/proc/self/maps").read() and "REMOTE_GPU_SERVER" not in os.environ
remote_gpu.connect(SERVER, options=OPTIONS) # none of that is in the way
assert count() == 2
"""),
    "refuses where a driver is loaded": ("", """
ctypes.CDLL(SOFT)
told = refused(SERVER, options=OPTIONS)
assert SOFT in told and "restart the kernel" in told, told
"""),
    "refuses where the stand-in was used": ("run", """
assert count() == 2
assert "client.so" in refused(SERVER, options=OPTIONS)
"""),
    "connects where the stand-in was not used": ("run", """
remote_gpu.connect(SERVER, gpus=1, options=OPTIONS)
assert count() == 1
"""),
}


class Package:
    """The package as pip would install it, around a client's tree."""

    def __init__(self, folder, tree):
        self.folder = folder
        self.tree = os.path.join(folder, "remote_gpu", "client")
        shutil.copytree(os.path.join(ROOT, "packaging", "python", "remote_gpu"), os.path.join(folder, "remote_gpu"))
        with open(os.path.join(folder, "remote_gpu", "_version.py"), "w") as file:
            file.write('__version__ = "0"\n')
        os.symlink(tree, self.tree)

    def environment(self):
        """Of a program that has the package."""
        return {"PYTHONPATH": self.folder, "PYTHONDONTWRITEBYTECODE": "1"}


def expect(good, what, result):
    """Ends the test with what a program said unless all is well."""
    if not good:
        raise Failure("%s\n%s" % (what, result.report()))


def try_cases(build, package, server):
    """Each case in a Python of its own."""
    for name, (way, script) in CASES.items():
        options = ["--allow-unauthenticated"]
        start = "import ctypes, os, remote_gpu\nSERVER, OPTIONS, SOFT = %r, %r, %r\nCOUNT = %r\n" % (
            server.address, options, os.path.join(build.soft_dir, "libcuda.so.1"), COUNT)
        command = [sys.executable, "-c", start + COUNT + REFUSED + script]
        if way == "run":
            command = [sys.executable, "-m", "remote_gpu", "run", *options, "-s", server.address, "--", *command]
        result = run_program(command, package.environment())
        expect(result.status == 0, name, result)
        print("%s: ok" % name, flush=True)


def try_command(build, package, server):
    """`python -m remote_gpu` is the command."""
    example = build.example("vector_add")
    if os.path.exists(example):
        result = run_program([sys.executable, "-m", "remote_gpu", "run", "-s", server.address, "--", example], package.environment())
        expect(result.status == 0 and result.output == build.run_direct([example]).output, "python -m remote_gpu run", result)
    result = run_program([sys.executable, "-m", "remote_gpu", "run", "-s", server.address, "--", "sh", "-c", "exit 7"],
                         package.environment())
    expect(result.status == 7, "the status is not the command's", result)
    print("python -m remote_gpu: ok", flush=True)


def try_lease(folder):
    """What holds a lease stays for as long as the process, however that ends."""
    tree = os.path.join(folder, "tree")
    ended = os.path.join(folder, "ended")
    os.makedirs(os.path.join(tree, "bin"))
    os.makedirs(os.path.join(tree, "lib"))
    os.symlink(Build(sys.argv[1]).lib_dir, os.path.join(tree, "lib", "remote-gpu"))
    with open(os.path.join(tree, "bin", "remote-gpu"), "w") as file: # as `remote-gpu run` is where there is a pool
        file.write('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift\nREMOTE_GPU_LEASE=1 "$@"\ntouch %s\n' % ended)
    os.chmod(file.name, 0o755)
    package = Package(os.path.join(folder, "leased"), tree)
    for end in ("", "import signal; os.kill(os.getpid(), signal.SIGKILL)"):
        script = "import os, time, remote_gpu\nremote_gpu.connect()\ntime.sleep(0.3)\nassert not os.path.exists(%r)\nprint('held', flush=True)\n%s"
        result = subprocess.run([sys.executable, "-c", script % (ended, end)], env=dict(os.environ, **package.environment()),
                                stdout=subprocess.PIPE, check=False)
        if result.stdout != b"held\n" or not wait_until(lambda: os.path.exists(ended)):
            raise Failure("a lease is not held for as long as its process (%r)" % end)
        os.unlink(ended)
    print("holds a lease: ok", flush=True)


def main():
    """Tries all of it against a server with two GPUs."""
    stop_with_servers()
    build = Build(sys.argv[1])
    build.check()
    # A program's own libraries come before those of the package.
    os.environ.pop("LD_LIBRARY_PATH", None)
    os.environ["REMOTE_GPU_ALLOW_UNAUTHENTICATED"] = "yes"
    with tempfile.TemporaryDirectory(prefix="remote-gpu-") as folder:
        package = Package(os.path.join(folder, "package"), build.stage)
        with Server(build, environment={"SOFTGPU_DEVICES": "2"}) as server:
            try_cases(build, package, server)
            try_command(build, package, server)
        try_lease(folder)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit("error: %s" % failure)
