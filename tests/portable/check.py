"""scripts/check-portable finds every kind of fault that it looks for, and nothing in a tree that has none.

usage: check.py COMPILER
"""

import os
import subprocess
import sys
import tempfile

CHECK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "check-portable")
PARTS = ["bin/remote-gpu"] + ["lib/remote-gpu/" + part for part in (
    "libcuda.so.1", "libnvidia-ml.so.1", "nccl/libnccl.so.2", "client.so", "device-files.so", "transport/tcp.so",
    "transport/tls.so", "transport/rdma.so")]

SOFT_PARTS = ["bin/remote-gpud"] + ["lib/remote-gpu/" + part for part in (
    "frontend", "probe", "worker", "soft/libcuda.so.1", "soft/libnccl.so.2", "soft/libnvidia-ml.so.1", "soft/ptxas",
    "soft/toolkit/bin/ptxas")]

HIDDEN = "static int nothing;\n"
NAMED = "int %s(void) { return 0; }\n"
# What is wrong, in which file, its source, options of the linker, and what is said of it.
FAULTS = [
    ("another library", "lib/remote-gpu/client.so", HIDDEN, ["-Wl,--no-as-needed", "{helper}"], "needs libhelper.so.1"),
    ("a search path", "lib/remote-gpu/client.so", HIDDEN, ["-Wl,-rpath,/usr/local/lib"], "out of the tree: '/usr/local/lib'"),
    ("a search path up", "lib/remote-gpu/client.so", HIDDEN, ["-Wl,-rpath,$ORIGIN:relative"], "out of the tree: 'relative'"),
    ("a private symbol", "lib/remote-gpu/transport/tls.so", NAMED % "SSL_new", [], "exports SSL_new"),
    ("a name of ours in a stand-in", "lib/remote-gpu/libcuda.so.1", NAMED % "rg_x", [], "exports rg_x"),
    ("another API's name", "lib/remote-gpu/libnvidia-ml.so.1", NAMED % "cuInit", [], "exports cuInit"),
    ("an executable stack", "lib/remote-gpu/client.so", HIDDEN, ["-Wl,-z,execstack"], "has an executable stack"),
    ("an undefined symbol", "lib/remote-gpu/client.so", "int f(void);\nint rg_x(void) { return f(); }\n", [],
     "takes f of no library's version"),
    ("a newer glibc", "lib/remote-gpu/client.so",
     "extern int newer(void);\nint rg_x(void) { return newer(); }\n", ["{versioned}"], "newer than glibc 2.28"),
]


class Trees:
    """Client trees of tiny libraries."""

    def __init__(self, compiler, folder):
        self.compiler = compiler
        self.folder = folder
        self.helper = self.build("helper/libhelper.so.1", NAMED % "helper", ["-Wl,-soname,libhelper.so.1"])
        # A library of glibc's name with a function of a version that glibc 2.28 had not.
        self.map = os.path.join(folder, "newer.map")
        with open(self.map, "w") as file:
            file.write("GLIBC_2.34 { newer; };\n")
        self.versioned = self.build("helper/libc.so.6", NAMED % "newer",
                                    ["-Wl,-soname,libc.so.6", "-Wl,--version-script=" + self.map])

    def build(self, name, source, options=()):
        """A shared library without the C library; its path."""
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        options = [option.replace("{helper}", getattr(self, "helper", "")).replace(
            "{versioned}", getattr(self, "versioned", "")) for option in options]
        subprocess.run([self.compiler, "-shared", "-fPIC", "-nostdlib", "-fvisibility=default", "-x", "c", "-", "-x", "none", "-o",
                        path, *options], input=source.encode(), check=True)
        return path

    def tree(self, name, fault=None, parts=PARTS):
        """A whole tree, with a fault in one of its files."""
        for part in parts:
            _, where, source, options, _ = fault or (None, None, None, None, None)
            if part == where:
                self.build(name + "/" + part, source, options)
            else:
                self.build(name + "/" + part, HIDDEN)
        return os.path.join(self.folder, name)


def outcome(tree, *options):
    """Exit status and output of the check."""
    result = subprocess.run([sys.executable, CHECK, *options, tree], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return result.returncode, result.stdout.decode()


def try_soft(trees):
    """The server's tree: its glibc may be newer, and it may need what is inside; its faults are found as the client's are."""
    newer = "extern int newer(void);\nint rg_x(void) { return newer(); }\n"
    needs = ["-Wl,--no-as-needed", "{helper}"]
    tree = trees.tree("soft", ("", "lib/remote-gpu/worker", newer, ["{versioned}", *needs], ""), SOFT_PARTS)
    status, output = outcome(tree, "--soft")
    assert status == 1 and "worker: needs libhelper.so.1" in output and "newer" not in output, output
    os.mkdir(os.path.join(tree, "lib/remote-gpu/private"))
    os.rename(trees.helper, os.path.join(tree, "lib/remote-gpu/private/libhelper.so.1"))
    status, output = outcome(tree, "--soft")
    assert status == 0, output
    trees.build("soft/bin/remote-gpud", NAMED % "SSL_new", ["-Wl,-rpath,/usr/local/lib"])
    os.unlink(os.path.join(tree, "lib/remote-gpu/frontend"))
    status, output = outcome(tree, "--soft")
    assert status == 1 and all(words in output for words in (
        "exports SSL_new", "out of the tree", "frontend: is not there", "3 faults")), output


def try_built(trees):
    """An ordinary build: functions that came after glibc 2.28 are found, those that only have newer versions or names are not."""
    good = "extern int pthread_create(void), stat(void);\nint rg_x(void) { return pthread_create() + stat(); }\n"
    bad = "extern int pthread_cond_clockwait(void);\nint rg_x(void) { return pthread_cond_clockwait(); }\n"
    status, output = outcome(trees.tree("built", ("", "lib/remote-gpu/client.so", good, ["-lc"], "")), "--built")
    assert status == 0, output
    trees.build("built/lib/remote-gpu/transport/tcp.so", bad, ["-lc"])
    os.unlink(os.path.join(trees.folder, "built/bin/remote-gpu"))
    status, output = outcome(os.path.join(trees.folder, "built"), "--built")
    assert status == 1 and "tcp.so: calls pthread_cond_clockwait, which came with glibc 2.30" in output, output
    assert "remote-gpu: is not there" in output and "2 faults" in output, output


def main():
    """Tries a tree without fault, then one with each fault."""
    with tempfile.TemporaryDirectory(prefix="remote-gpu-") as folder:
        trees = Trees(sys.argv[1], folder)
        status, output = outcome(trees.tree("good"))
        assert status == 0, output
        for number, fault in enumerate(FAULTS):
            status, output = outcome(trees.tree("fault%d" % number, fault))
            assert status == 1 and fault[4] in output, "%s is not found: %s" % (fault[0], output)
            assert fault[1] in output, output
        missing = trees.tree("missing")
        os.unlink(os.path.join(missing, "lib/remote-gpu/client.so"))
        os.symlink("/etc/hostname", os.path.join(missing, "lib/remote-gpu/strange"))
        status, output = outcome(missing)
        assert status == 1 and "client.so: is not there" in output and "strange: leads out of the tree" in output, output
        assert outcome(os.path.join(folder, "none"))[0] == 1
        try_soft(trees)
        try_built(trees)
    print("check-portable: all %d faults are found: ok" % (len(FAULTS) + 2))


if __name__ == "__main__":
    main()
