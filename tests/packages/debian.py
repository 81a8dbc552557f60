"""The Debian packages in a fresh root: lintian, installation by apt, use, upgrade while a session runs, removal, purge.

usage: debian.py BUILD_FOLDER

There is no systemd here (tests/packages/vm.py has one): the server is started by hand, with the installed settings.
"""

import os
import subprocess
import sys
import time

from root import NAMES, NEWER, Failure, Root, call, machine, package_in
from trial import free_port, stop_with_servers, wait_until

# What apt and dpkg keep for themselves, and what is written by any installation.
OWN = ("var/lib/dpkg", "var/lib/apt", "var/cache", "var/log", "packages", "etc/ld.so.cache", "proc", "dev", "sys", "run", "tmp", "root")


# A field of dpkg's since 1.21.3, which the lintian of Debian 12 does not know yet.
NOT_KNOWN_YET = "W: remote-gpu-client: unknown-field Static-Built-Using"


def check_with_lintian(folder):
    """No error and no warning, without overrides."""
    for name in NAMES:
        listed = call("dpkg-deb", "--contents", package_in(folder, name))
        if "lintian/overrides" in listed:
            raise Failure("%s overrides lintian" % name)
    (changes,) = [entry for entry in os.listdir(folder) if entry.endswith(".changes")]
    said = call("lintian", "--allow-root", "--fail-on", "none", os.path.join(folder, changes)).splitlines()
    complaints = [line for line in said if line[:2] in ("E:", "W:") and line != NOT_KNOWN_YET]
    if complaints:
        raise Failure("lintian complains:\n" + "\n".join(complaints))
    print("\n".join(said))


def files_of(root):
    """Every path in the root but those in OWN."""
    found = set()
    for folder, folders, files in os.walk(root.folder):
        below = os.path.relpath(folder, root.folder)
        folders[:] = [name for name in folders if os.path.normpath(os.path.join(below, name)) not in OWN]
        found |= {os.path.normpath(os.path.join(below, name)) for name in folders + files}
    return {path for path in found if path not in OWN}


class Running:
    """A program in the root that goes on, with what it writes in a file."""

    def __init__(self, root, name, *command):
        self.log_path = root.path("tmp/" + name)
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(root.words(*command), stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def log(self):
        with open(self.log_path, errors="replace") as file:
            return file.read()

    def wait_for(self, text):
        if not wait_until(lambda: text in self.log() or self.process.poll() is not None, 60) or text not in self.log():
            raise Failure("'%s' was not said:\n%s" % (text, self.log()))

    def end(self):
        self.process.kill()  # unshare, and with it all that is inside
        self.process.wait(60)


def use(root, port):
    """An example's run by the installed command."""
    output = root.call("remote-gpu", "run", "-s", "127.0.0.1:%d" % port, "--", "/opt/vector_add")
    if "vector_add: ok" not in output:
        raise Failure("vector_add has not said that it is well:\n" + output)


def upgrade(root, newer, port):
    """To the newer version, while a program has a session and its server runs."""
    os.mkfifo(root.path("tmp/fifo"))
    server = Running(root, "server", "remote-gpud", "--listen", "127.0.0.1:%d" % port)
    try:
        server.wait_for("listening on")
        use(root, port)
        held = Running(root, "held", "remote-gpu", "run", "-s", "127.0.0.1:%d" % port, "--", "/opt/held", "/tmp/fifo")
        held.wait_for("held")
        root.write("etc/remote-gpu/remote-gpud.conf", "# the operator's own\nmax-sessions = 7\n")
        root.use(newer)
        root.call("apt-get", "upgrade", "-q", "-y")
        for name in NAMES:
            if NEWER not in root.call("dpkg-query", "--show", "--showformat", "${Version}", name):
                raise Failure("%s was not upgraded" % name)
        with open(root.path("etc/remote-gpu/remote-gpud.conf")) as file:
            if "the operator's own" not in file.read():
                raise Failure("the operator's settings were replaced")
        use(root, port)
        with open(root.path("tmp/fifo"), "w") as fifo:
            fifo.write("go on\n")
        held.wait_for("held: ok")
        if held.process.wait(60) != 0:
            raise Failure("the program whose session was there did not end well:\n" + held.log())
    finally:
        server.end()


def repeat_scripts(root):
    """Maintainer scripts run as often as dpkg likes, also after they were interrupted."""
    for _ in range(2):
        for name in NAMES:
            for script, words in (("preinst", ("upgrade", "0.1.0")), ("postinst", ("configure", "0.1.0"))):
                if os.path.exists(root.path("var/lib/dpkg/info/%s.%s" % (name, script))):
                    root.call("/var/lib/dpkg/info/%s.%s" % (name, script), *words)


def remove(root, before):
    """Removal leaves settings and state, purging nothing."""
    root.write("var/lib/private/remote-gpu/users/somebody", "")
    os.symlink("private/remote-gpu", root.path("var/lib/remote-gpu"))
    root.call("apt-get", "remove", "-q", "-y", *NAMES)
    for path, stays in (("usr/bin/remote-gpud", False), ("usr/lib/remote-gpu", False), ("etc/remote-gpu/remote-gpud.conf", True),
                        ("var/lib/remote-gpu/users/somebody", True)):
        if os.path.exists(root.path(path)) != stays:
            raise Failure("after removal %s is %s" % (path, "gone" if stays else "still there"))
    root.call("apt-get", "purge", "-q", "-y", "--autoremove", *NAMES)
    left = sorted(files_of(root) - before)
    if left:
        raise Failure("left behind: " + ", ".join(left))


def main():
    stop_with_servers()
    started = time.monotonic()
    try:
        build, (first, newer) = machine(sys.argv[1])
        check_with_lintian(first)
        root = Root(os.path.join(build.folder, "tests", "packages", "root"))
        before = files_of(root) | {"opt/vector_add", "opt/held", "etc/apt/sources.list.d/packages.list"}
        for program in (build.example("vector_add"), os.path.join(build.folder, "tests", "packages", "held")):
            call("cp", program, root.path("opt/"))
        root.use(first)
        root.call("apt-get", "install", "-q", "-y", *NAMES)
        upgrade(root, newer, free_port())
        repeat_scripts(root)
        remove(root, before)
        call("rm", "-rf", root.folder)
    except Failure as failure:
        sys.exit("error: %s" % failure)
    print("packages: ok, %.0f s" % (time.monotonic() - started))


if __name__ == "__main__":
    main()
