"""A fresh root of Debian, and a folder of packages that apt installs from: for the tests of the packages.

Packages are built (scripts/build-deb), unless REMOTE_GPU_TEST_PACKAGES names a folder that has them, and packed a second time as a newer
version, to upgrade to.
"""

import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(SOURCE, "scripts"))

from trial import Build, Failure, call  # noqa: E402

NAMES = ("remote-gpu-client", "remote-gpu-server", "remote-gpu-soft")
NEWER = "+newer"


def build_packages(folder):
    """The packages, in folder/first, and the same as a newer version, in folder/newer. Each folder is one that apt reads."""
    first, newer = (os.path.join(folder, name) for name in ("first", "newer"))
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(newer)
    built = os.environ.get("REMOTE_GPU_TEST_PACKAGES")
    if built:
        shutil.copytree(built, first)
    else:
        call(os.path.join(SOURCE, "scripts", "build-deb"), "--output", first)
    for name in NAMES:
        make_newer(package_in(first, name), newer)
    for place in (first, newer):
        with open(os.path.join(place, "Packages"), "w") as file:
            subprocess.run(["dpkg-scanpackages", "--multiversion", "."], cwd=place, stdout=file, stderr=subprocess.DEVNULL, check=True)
    return first, newer


def package_in(folder, name):
    (found,) = [entry for entry in os.listdir(folder) if entry.startswith(name + "_") and entry.endswith(".deb")]
    return os.path.join(folder, found)


def make_newer(package, folder):
    """The same files under the next version."""
    unpacked = os.path.join(folder, "unpacked")
    call("dpkg-deb", "--raw-extract", package, unpacked)
    control = os.path.join(unpacked, "DEBIAN", "control")
    with open(control) as file:
        text = file.read()
    version = next(line.split()[1] for line in text.splitlines() if line.startswith("Version:"))
    with open(control, "w") as file:
        file.write(text.replace(version, version + NEWER))
    call("dpkg-deb", "--root-owner-group", "--build", unpacked, folder)
    shutil.rmtree(unpacked)


class Root:
    """A root below `folder`, whose processes see their own /proc, and this machine's network."""

    def __init__(self, folder):
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        call("tar", "--extract", "--file", os.path.join(SOURCE, ".deps", "packages", "root.tar"), "--directory", folder)
        shutil.copy("/etc/resolv.conf", self.path("etc/resolv.conf"))
        # what would start services does not, as in every root that is no running system
        self.write("usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", 0o755)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text, mode=0o644):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w") as file:
            file.write(text)
        os.chmod(self.path(name), mode)

    def words(self, *command):
        """The command line that runs a command in it, as root; its processes end with it."""
        script = ('mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount -t tmpfs tmpfs "$0/run" && '
                  'exec chroot "$0" /usr/bin/env -i HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive '
                  'PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"')
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, self.folder, *command]

    def call(self, *command):
        return call(*self.words(*command))

    def use(self, packages):
        """Has apt know the packages of a folder of build_packages, and forget those of another."""
        shutil.rmtree(self.path("packages"), ignore_errors=True)
        shutil.copytree(packages, self.path("packages"))
        self.write("etc/apt/sources.list.d/packages.list", "deb [trusted=yes] file:/packages ./\n")
        self.call("apt-get", "update", "-q")


def machine(build_folder):
    """What the tests begin with: the build, and the folders of packages."""
    build = Build(build_folder)
    if os.geteuid() != 0:
        raise Failure("this test needs root")
    call(os.path.join(SOURCE, "scripts", "setup-packages"))
    return build, build_packages(os.path.join(build.folder, "tests", "packages", "made"))
