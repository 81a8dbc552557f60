"""Programs in containers that lack what programs expect, or have libraries of their own: for run.py, beside the servers of the page.

The device of CDI is remote-gpu.io/gpu (a unix socket) or lab.example.com/gpu (TLS), as the page's commands have left them.
"""

import os
import shutil
import subprocess

from trial import Failure, call

IMAGE = "docker.io/library/debian:12"
CONFINED = ("--rm", "--cap-drop", "all", "--read-only")
# Libraries of the same names as those inside of the client, with nothing in them: whoever took one would miss something.
DECOYS = ("libssl.so.1.1", "libssl.so.3", "libcrypto.so.1.1", "libcrypto.so.3", "libprotobuf-c.so.1", "libjansson.so.4", "libzstd.so.1",
          "liblz4.so.1", "libb2.so.1")
# Without writable files, temporary files, shared memory, a home, a name; without any variable but the device's.
BARE = ("--read-only-tmpfs=false", "--passwd=false", "--ipc", "none", "--user", "4711:4711", "--env", "HOME=/nonexistent", "--unsetenv", "PATH")


def podman(*words):
    """A container's output; on either stream, whatever its status."""
    return subprocess.run(["podman", "run", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=300)


def expect_well(what, *words):
    result = podman(*words)
    if result.returncode != 0 or "vector_add: ok" not in result.stdout:
        raise Failure("%s: status %d\n%s" % (what, result.returncode, result.stdout))
    if "remote-gpu:" in result.stdout:
        raise Failure("%s: something is said that nobody can change:\n%s" % (what, result.stdout))
    print("%s: ok" % what, flush=True)


def run_bare(examples):
    """A program that finds nothing around it."""
    look = podman(*CONFINED, *BARE, "--device", "remote-gpu.io/gpu=1", IMAGE, "/bin/sh", "-c",
                  "touch /tmp/x /var/tmp/x /dev/shm/x; /usr/bin/id; echo home $HOME")
    for words in ("/tmp/x': Read-only", "/var/tmp/x': Read-only", "/dev/shm/x'", "uid=4711 gid=", "home /nonexistent"):
        if words not in look.stdout:
            raise Failure("the container is not as bare as it is to be: no '%s' in\n%s" % (words, look.stdout))
    expect_well("without temporary files, shared memory, home and name", *CONFINED, *BARE, "--network", "none", "--device",
                "remote-gpu.io/gpu=1", "--volume", examples + ":/app:ro", IMAGE, "/app/vector_add")


def run_beside_others(folder, examples):
    """A program whose image has other libraries of the names that the client has inside, in front of all others."""
    decoys = os.path.join(folder, "decoys")
    os.mkdir(decoys)
    with open(os.path.join(folder, "decoy.c"), "w") as file:
        file.write("int nothing_of_use = 1;\n")
    for name in DECOYS:
        call("cc", "-shared", "-fPIC", os.path.join(folder, "decoy.c"), "-Wl,-soname," + name, "-o", os.path.join(decoys, name))
    for device, user in (("remote-gpu.io/gpu=1", "4711"), ("lab.example.com/gpu=1", "1000")):
        expect_well("beside other OpenSSL, protobuf-c and jansson, by %s" % device, *CONFINED, "--user", user, "--device", device,
                    "--env", "LD_LIBRARY_PATH=/decoys", "--volume", decoys + ":/decoys:ro", "--volume", examples + ":/app:ro", IMAGE,
                    "/app/vector_add")


def run_musl(folder):
    """A program of another C library: it cannot have the device; by the command that is said."""
    if not shutil.which("musl-gcc"):
        raise Failure("there is no musl-gcc: scripts/setup-containers")
    program = os.path.join(folder, "musl")
    os.mkdir(program)
    with open(os.path.join(program, "hello.c"), "w") as file:
        file.write('#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n')
    call("musl-gcc", os.path.join(program, "hello.c"), "-o", os.path.join(program, "hello"))
    result = subprocess.run(["remote-gpu", "run", "-s", "unix:/run/remote-gpu/containers/socket", os.path.join(program, "hello")],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    if result.returncode != 126 or "is made for the C library musl" not in result.stdout:
        raise Failure("a program of musl's by the command: status %d\n%s" % (result.returncode, result.stdout))
    loader = os.path.realpath("/lib/ld-musl-x86_64.so.1")
    result = podman(*CONFINED, "--device", "remote-gpu.io/gpu=1", "--volume", program + ":/app:ro", "--volume",
                    loader + ":/lib/ld-musl-x86_64.so.1:ro", IMAGE, "/app/hello")
    print("a program of musl's with the device: status %d, %s" % (result.returncode, result.stdout))
    if "symbol not found" not in result.stdout:
        raise Failure("musl says something else than the page has:\n%s" % result.stdout)


def run_all(folder):
    """All of it; `folder` is for files."""
    examples = os.path.join(folder, "work", "examples")
    run_bare(examples)
    run_beside_others(folder, examples)
    run_musl(folder)
