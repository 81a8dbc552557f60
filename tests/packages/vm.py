"""The Debian packages under a real systemd, in a virtual machine: what guest.py does there.

usage: vm.py BUILD_FOLDER [PART…]

The machine (tests/rdma-vm/boot) has a root of Debian 12 with the packages' dependencies; it has no network, so what apt installs in it
lies in a folder of it. Status 77: no virtual machine can be had here.
"""

import os
import shutil
import subprocess
import sys

from root import HERE, NAMES, SOURCE, Failure, Root, call, machine

SKIPPED = 77
PAGES = ("systemd.md", "operating.md")


def make_root(build, first, newer):
    """A system in which the packages can be installed without a network."""
    root = Root(os.path.join(build.folder, "tests", "packages", "vm-root"))
    root.use(first)
    root.call("apt-get", "install", "-q", "-y", *NAMES)
    root.call("apt-get", "purge", "-q", "-y", *NAMES)
    os.remove(root.path("usr/sbin/policy-rc.d"))
    for name in ("held", "vector_add"):
        found = build.example(name) if name == "vector_add" else os.path.join(build.folder, "tests", "packages", name)
        shutil.copy(found, root.path("opt/" + name))
    shutil.copytree(newer, root.path("packages-newer"))
    for source in [os.path.join(HERE, "guest.py"), os.path.join(SOURCE, "scripts", "page.py"),
                   *(os.path.join(SOURCE, "docs", page) for page in PAGES)]:
        shutil.copy(source, root.path("opt/"))
    # the one source of packages, whose index is known already
    for name in os.listdir(root.path("etc/apt/sources.list.d")):
        if name != "packages.list":
            os.remove(root.path("etc/apt/sources.list.d/" + name))
    root.write("etc/apt/sources.list", "")
    root.call("apt-get", "update", "-q")
    root.write("etc/hostname", "gpu-machine\n")
    root.write("etc/hosts", "127.0.0.1 localhost\n127.0.1.1 gpu-machine etcd-machine\n127.0.2.1 gpu-machine-2\n")
    root.call("systemctl", "disable", "etcd")
    return root


def main():
    try:
        build, packages = machine(sys.argv[1])
        if subprocess.run([os.path.join(SOURCE, "scripts", "setup-rdma-vm")], check=False).returncode != 0:
            print("systemd.vm: left out: no virtual machine here")
            sys.exit(SKIPPED)
        root = make_root(build, *packages)
        status = subprocess.run([os.path.join(SOURCE, "tests", "rdma-vm", "boot"), "--timeout", "3000", "--memory", "2048", "--root",
                                 root.folder, "python3", "/opt/guest.py", *sys.argv[2:]], check=False).returncode
        if status == 0:
            call("rm", "-rf", root.folder)
    except Failure as failure:
        sys.exit("error: %s" % failure)
    if status == 125:
        print("systemd.vm: left out: no virtual machine here")
        sys.exit(SKIPPED)
    sys.exit(status)


if __name__ == "__main__":
    main()
