"""The portable client in roots of other distributions, against a server outside of them, over TLS on the loopback interface.

usage: roots.py BUILD_FOLDER [NAME…]

Each root is made by mmdebstrap (kept in BUILD_FOLDER/portable-roots), gets the client's tree and nothing else of ours, and runs as a
user without rights: join, list, doctor, and programs, whose output must be as on the software device directly. Then once more with
the root's own OpenSSL and protobuf loaded into the program before anything else, and once inside Python with its ssl module in use.
Where the root's glibc is new enough for it, the wheel's server and software device (scripts/build-wheel --soft) join the tree, and the
programs run on them alone (run --local).
Status 77: no root can be made here. It needs root.
"""

import glob
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path.insert(0, os.path.join(ROOT, "scripts"))

from trial import Build, Failure, Server, free_port, run_program, stop_with_servers  # noqa: E402

SKIPPED = 77
DEBIAN = "http://deb.debian.org/debian"
# Their packages are checked by no key where the building machine has none of Ubuntu's; nothing of these roots is kept for use.
UBUNTU = "deb [trusted=yes] http://archive.ubuntu.com/ubuntu %s main universe"
OWN = ["python3", "libprotobuf-c1", "libjansson4"]
# Name, suite, mirror, and the libraries of the same names as ours that the root has itself.
ROOTS = [
    ("debian-10", "buster", DEBIAN, OWN + ["libssl1.1", "libcurl4"]),
    ("debian-11", "bullseye", DEBIAN, OWN + ["libssl1.1", "libcurl4"]),
    ("debian-12", "bookworm", DEBIAN, []),
    ("debian-13", "trixie", DEBIAN, OWN + ["libssl3t64", "libcurl4t64"]),
    ("ubuntu-20.04", "focal", UBUNTU % "focal", OWN + ["libssl1.1", "libcurl4"]),
    ("ubuntu-22.04", "jammy", UBUNTU % "jammy", OWN + ["libssl3", "libcurl4"]),
    ("ubuntu-24.04", "noble", UBUNTU % "noble", []),
]
SOFT_GLIBC = 34
PROGRAMS = ["vector_add", "nbody", "many_launches", "managed_memory", "host_threads"]
CONFLICTS = ("libcrypto.so.*", "libssl.so.*", "libprotobuf-c.so.*", "libjansson.so.*", "libcurl.so.*", "libzstd.so.*", "liblz4.so.*")
# Allocates, fills and reads back memory by the driver API, with the root's OpenSSL in use before and after.
PYTHON = """
import ctypes, hashlib, ssl
ssl.create_default_context()
cuda = ctypes.CDLL("libcuda.so.1")
device, context, at = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_ulonglong()
read = (ctypes.c_ubyte * 1000)()
for status in (cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0),
               cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), cuda.cuCtxSetCurrent(context),
               cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(1000)), cuda.cuMemsetD8_v2(at, ctypes.c_ubyte(7), ctypes.c_size_t(1000)),
               cuda.cuMemcpyDtoH_v2(read, at, ctypes.c_size_t(1000))):
    assert status == 0, status
assert bytes(read) == b"\\7" * 1000
assert hashlib.sha256(b"").hexdigest().startswith("e3b0c442")
print("with", ssl.OPENSSL_VERSION)
"""


def make_root(folder, name, suite, mirror, packages):
    """The root's folder, made if it is not there; None where the mirror has no such release."""
    root = os.path.join(folder, name)
    if os.path.exists(os.path.join(root, "complete")):
        return root
    shutil.rmtree(root, ignore_errors=True)
    words = ["--include=" + ",".join(["libstdc++6", *packages])]
    with open(root + ".log", "wb") as log:
        result = subprocess.run(["mmdebstrap", "--variant=minbase", *words, suite, root, mirror], stdout=log, stderr=log, check=False)
    if result.returncode != 0:
        return None
    open(os.path.join(root, "complete"), "w").close()
    return root


def link_programs(build, oldest, folder):
    """The examples' objects, linked for the oldest root: what was compiled by nvcc for this machine needs its newer glibc."""
    cc = os.path.join(ROOT, ".deps", "portable", "bin", "cc")
    with open(os.path.join(build.folder, "CMakeCache.txt")) as file:
        nvcc = re.search(r"^RG_NVCC:\w+=(.*)$", file.read(), re.MULTILINE).group(1)
    toolkit = os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))
    runtime = next(path for place in ("lib64", "lib", "targets/x86_64-linux/lib")
                   for path in [os.path.join(toolkit, place, "libcudart_static.a")] if os.path.exists(path))
    libraries = [os.path.realpath(find(oldest, name)) for name in ("libstdc++.so.6", "libgcc_s.so.1")]
    for name in PROGRAMS:
        subprocess.run([cc, os.path.join(build.example_dir, "objects", name + ".o"), runtime, *libraries, "-o",
                        os.path.join(folder, name), "-lpthread", "-ldl", "-lrt", "-lm", "-Wl,--allow-shlib-undefined"], check=True)


def find(root, pattern):
    """A library of the root's, or None."""
    found = [path for place in ("usr/lib", "lib") for path in glob.glob(os.path.join(root, place, "x86_64-linux-gnu", pattern))]
    return sorted(found)[0] if found else None


class Place:
    """A root with the client in it, as a user without rights sees it."""

    def __init__(self, root, trees, programs, name):
        """`trees`: the client's, and that of the server and the software device."""
        self.root = root
        self.name = name
        for target, sources in (("opt/any/where", trees[:1]), ("opt/local", trees), ("opt/programs", [programs])):
            shutil.rmtree(os.path.join(root, target), ignore_errors=True)
            for source in sources:
                shutil.copytree(source, os.path.join(root, target), symlinks=True, dirs_exist_ok=True)
        home = os.path.join(root, "home", "user")
        shutil.rmtree(home, ignore_errors=True)
        os.makedirs(home)
        os.chown(home, 1000, 1000)

    def run(self, *command, **environment):
        """A program in it: a Result. The mounts end with it."""
        words = ["%s=%s" % item for item in environment.items()]
        script = ("mount -t proc proc \"$0/proc\" && mount --rbind /dev \"$0/dev\" && "
                  "exec chroot --userspec=1000:1000 \"$0\" /usr/bin/env -i HOME=/home/user PATH=/usr/bin:/bin \"$@\"")
        return run_program(["unshare", "--mount", "sh", "-c", script, self.root, *words, *command], timeout=120)

    def expect(self, what, result, wanted):
        """Ends the trial unless the program ended well and wrote what `wanted` matches."""
        if result.status != 0 or not re.search(wanted, result.output + result.errors, re.DOTALL):
            raise Failure("%s: %s\n%s" % (self.name, what, result.report()))

    def glibc(self):
        """The second number of the root's glibc, as 36 of 2.36."""
        with open(os.path.join(self.root, find(self.root, "libc.so.6")), "rb") as file:
            return int(re.search(rb"GNU C Library .* release version 2\.(\d+)", file.read()).group(1))

    def try_local(self, direct):
        """The programs on the software device of the root's own; what was done."""
        for name in PROGRAMS:
            result = self.run("/opt/local/bin/remote-gpu", "run", "--local", "--driver", "soft", "--", "/opt/programs/" + name)
            self.expect(name + " by run --local", result, "^" + re.escape(direct[name]) + "$")
        return "run --local of glibc 2.%d" % self.glibc()

    def try_all(self, token, direct):
        """Everything; a list of what was done."""
        command = "/opt/any/where/bin/remote-gpu"
        done = []
        self.expect("join", self.run(command, "join", token), "")
        self.expect("list", self.run(command, "list"), "GPU 0: Software GPU")
        self.run(command, "doctor")
        own = [path[len(self.root):] for path in (find(self.root, pattern) for pattern in CONFLICTS) if path]
        for name in PROGRAMS:
            result = self.run(command, "run", "--", "/opt/programs/" + name)
            self.expect(name, result, "^" + re.escape(direct[name]) + "$")
            done.append(name)
        if own:
            result = self.run(command, "run", "--", "/usr/bin/env", "LD_PRELOAD=%s:/opt/any/where/lib/remote-gpu/libcuda.so.1"
                              % ":".join(own), "/opt/programs/vector_add")
            self.expect("with its own " + " ".join(own), result, "^" + re.escape(direct["vector_add"]) + "$")
            done.append("beside " + " ".join(sorted(os.path.basename(path) for path in own)))
        if os.path.exists(os.path.join(self.root, "usr/bin/python3")):
            result = self.run(command, "run", "--", "/usr/bin/python3", "-c", PYTHON)
            self.expect("in Python", result, "with OpenSSL")
            done.append("Python " + result.output.strip())
        if self.glibc() >= SOFT_GLIBC:
            done.append(self.try_local(direct))
        return done


def token_for(build, state, address):
    """A line that joins a user."""
    result = run_program([build.daemon, "token", "--state-dir", state, "--user", "user", "--server", address])
    found = re.search(r"^rgpu1:\S+$", result.output, re.MULTILINE)
    if not found:
        raise Failure("there is no token\n" + result.report())
    return found.group(0)


def main():
    """Builds the client, makes the roots, and tries it in each."""
    stop_with_servers()
    if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        print("skipped: this needs root and mmdebstrap (apt-get install mmdebstrap)")
        return SKIPPED
    build = Build(sys.argv[1])
    build.check()
    wanted = sys.argv[2:]
    folder = os.path.join(build.folder, "portable-roots")
    os.makedirs(folder, exist_ok=True)
    client = os.path.join(build.folder, "portable-client")
    subprocess.run([os.path.join(ROOT, "scripts", "build-client"), "--output", client], check=True)
    subprocess.run([os.path.join(ROOT, "scripts", "build-wheel"), "--soft", "--output", folder], check=True, stdout=subprocess.DEVNULL)
    roots = {}
    for name, *how in ROOTS:
        if not wanted or name in wanted:
            root = make_root(folder, name, *how)
            if root:
                roots[name] = root
            else:
                print("%s: the mirror has none (see portable-roots/%s.log)" % (name, name))
    if not roots:
        print("skipped: no root can be made")
        return SKIPPED
    programs = os.path.join(folder, "programs")
    os.makedirs(programs, exist_ok=True)
    link_programs(build, next(iter(roots.values())), programs)
    direct = {name: build.run_direct([os.path.join(programs, name)]).output for name in PROGRAMS}
    state = os.path.join(folder, "state")
    shutil.rmtree(state, ignore_errors=True)
    with Server(build, listen="127.0.0.1:%d" % free_port(), arguments=["--state-dir", state]) as server:
        for name, root in roots.items():
            done = Place(root, (client, os.path.join(ROOT, "build", "soft")), programs, name).try_all(token_for(build, state, server.address), direct)
            print("%s: %s: ok" % (name, ", ".join(done)), flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit("error: %s" % failure)
