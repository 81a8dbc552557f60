"""In the virtual machine of vm.py: the packages and units of the server under a real systemd.

usage: guest.py [PART…]

Parts, in their order; each leaves the service running with the settings of SERVED, for the next. Each prints a line with its time, by
the machine's clock, which may be several times too fast where the processor is emulated and busy: so all limits of time are long.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time

import page

UNIT = "remote-gpud.service"
DROP_IN = "/etc/systemd/system/remote-gpud.service.d/test.conf"
SOCKETS_ONLY = "/etc/systemd/system/remote-gpud.service.d/sockets-only.conf"
CONFIG = "/etc/remote-gpu/remote-gpud.conf"
SERVED = "listen = *:7600\ndriver = soft\ngrace = 500\n"
NAMES = ("remote-gpu-client", "remote-gpu-server", "remote-gpu-soft")
os.environ.update(HOME="/root", LANG="C.UTF-8", DEBIAN_FRONTEND="noninteractive", PATH="/usr/sbin:/usr/bin:/sbin:/bin", SYSTEMD_PAGER="",
                  XDG_CONFIG_HOME="/root/.config")


class Failure(Exception):
    pass


def expect(good, *what):
    if not good:
        raise Failure(" ".join(str(word) for word in what))


def run(command, status=0, timeout=3000):
    """A command of the shell that must end with this status: what it wrote."""
    result = subprocess.run(["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, timeout=timeout, check=False)
    expect(status is None or result.returncode == status, "'%s' ended with %d:\n%s" % (command, result.returncode, result.stdout))
    return result.stdout


def until(what, condition, seconds=3000):
    end = time.monotonic() + seconds
    while not condition():
        expect(time.monotonic() < end, "not within %d s: %s\n%s" % (seconds, what, log()))
        time.sleep(0.5)


def show(name):
    return run("systemctl show --property=%s --value %s" % (name, UNIT)).strip()


def main_pid():
    return int(show("MainPID"))


def log():
    return run("journalctl --unit %s --no-pager --output=cat --lines=60" % UNIT)


def is_running():
    return show("ActiveState") == "active" and show("SubState") == "running"


def entries(match):
    """Entries of the journal, as objects."""
    return [json.loads(line) for line in run("journalctl --output=json --no-pager " + match).splitlines()]


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def restart(settings=None, drop_in=None):
    """The service with these settings and these lines in its unit, and without a socket of systemd's."""
    run("systemctl disable --now remote-gpud.socket", status=None)
    if os.path.exists(SOCKETS_ONLY):
        os.remove(SOCKETS_ONLY)
    if settings is not None:
        write(CONFIG, settings)
    if drop_in is not None:
        write(DROP_IN, "[Service]\nTimeoutStartSec=900\nTimeoutStopSec=900\n" + drop_in)
    run("systemctl daemon-reload && systemctl restart " + UNIT)
    expect(is_running(), log())


def vector_add(server="gpu-machine"):
    """With patience: the server may be about to start, on an emulated processor."""
    expect("vector_add: ok" in run("remote-gpu run -s %s --timeout 600 -- /opt/vector_add" % server), "vector_add")


class Held:
    """A program with a session, until it is told to end."""

    def __init__(self, server="gpu-machine"):
        self.folder = tempfile.mkdtemp()
        self.fifo, self.log = os.path.join(self.folder, "fifo"), os.path.join(self.folder, "log")
        os.mkfifo(self.fifo)
        with open(self.log, "w") as out:
            self.process = subprocess.Popen(["remote-gpu", "run", "-s", *server.split(), "--timeout", "600", "--", "/opt/held", self.fifo], stdout=out, stderr=out)
        until("a session", lambda: self.said("held\n") or self.process.poll() is not None)
        expect(self.process.poll() is None, self.text())

    def text(self):
        with open(self.log) as file:
            return file.read()

    def said(self, text):
        return text in self.text()

    def end(self):
        """Lets it go on to its end: its exit status."""
        with open(self.fifo, "w") as file:
            file.write("\n")
        return self.process.wait(3000)

    def ends_well(self):
        status = self.end()
        expect(status == 0 and self.said("held: ok"), status, self.text(), log())


# --- parts ---------------------------------------------------------------------------------------------------


def part_install():
    """apt starts the service; nothing that the sandbox of the server wants is lost by the unit."""
    run("apt-get install -q -y " + " ".join(NAMES))
    until("the service runs", is_running)
    for measure in ("mount namespace", "IPC namespace", "network namespace", "limits", "no capabilities", "files (Landlock)",
                    "system calls (seccomp)"):
        expect(measure in log(), measure, log())
    vector_add("127.0.0.1")
    expect("enabled" in run("systemctl is-enabled " + UNIT), "enabled")
    exposure = float(re.search(r"exposure level for \S+: ([\d.]+)", run("systemd-analyze security " + UNIT)).group(1))
    expect(exposure <= 2.5, "exposure", exposure)
    print("exposure %.1f" % exposure)


def part_users():
    """First start as a server for others; the audit log's fields."""
    restart(SERVED, "")
    expect(os.stat("/var/lib/private/remote-gpu").st_mode & 0o777 == 0o700, "mode of the state folder")
    token = run("remote-gpud token --user alice 2>/dev/null").strip().splitlines()[-1]
    run("remote-gpu join " + token)
    vector_add()
    (made,) = entries("RG_EVENT=token")
    expect(made["RG_USER"] == "alice" and made["RG_FROM"] == "uid 0", made)
    (joined,) = entries("RG_EVENT=join")
    expect(joined["RG_USER"] == "alice" and joined["RG_SERIAL"], joined)
    grant = entries("RG_EVENT=grant _SYSTEMD_UNIT=" + UNIT)[-1]
    expect(grant["RG_USER"] == "alice" and grant["RG_ENCRYPTED"] == "yes" and grant["RG_GPUS"] == "0" and int(grant["RG_SESSION"]) > 0 and
           grant["RG_SERIAL"] == joined["RG_SERIAL"] and grant["PRIORITY"] == "5" and grant["SYSLOG_IDENTIFIER"] == "remote-gpud", grant)
    token = run("remote-gpud token --user bob 2>/dev/null").strip().splitlines()[-1]
    run("remote-gpu join --credentials /root/bob %s && remote-gpud revoke bob" % token)
    expect("vector_add: ok" not in run("remote-gpu run -s gpu-machine --credentials /root/bob -- /opt/vector_add", status=None), "bob")
    refused = entries("RG_EVENT=refuse")[-1]
    expect("revoked" in refused["RG_WHY"] and refused["RG_FROM"], refused)


def part_crash():
    """kill -9: sessions end, their programs are told, and the service is back at once."""
    held, pid, restarts = Held(), main_pid(), int(show("NRestarts"))
    os.kill(pid, 9)
    until("a new server", lambda: main_pid() not in (0, pid) and is_running())
    expect(int(show("NRestarts")) == restarts + 1, "restarts", show("NRestarts"))
    expect(held.end() != 0 and not held.said("held: ok"), "the session cannot have survived", held.text())
    vector_add()


def part_watchdog():
    """A server that hangs is killed and started again."""
    restart(drop_in="WatchdogSec=60\n")
    pid = main_pid()
    os.kill(pid, 19)
    until("a new server", lambda: main_pid() not in (0, pid) and is_running())
    expect("watchdog" in log().lower(), log())
    vector_add()
    restart(drop_in="")


def part_drain():
    """Stopping waits for sessions, and ends them when the time is over."""
    held = Held()
    stopping = subprocess.Popen(["systemctl", "stop", UNIT])
    until("stopping", lambda: show("ActiveState") == "deactivating")
    expect(run("remote-gpu run -s gpu-machine -- /opt/vector_add", status=None).count("vector_add: ok") == 0, "a session of a server that stops")
    expect(stopping.poll() is None, "stop does not wait")
    held.ends_well()
    expect(stopping.wait(3000) == 0 and show("Result") == "success", show("Result"), log())
    restart(SERVED.replace("500", "3"))
    held = Held()
    began = time.monotonic()
    run("systemctl stop " + UNIT)
    expect(3 <= time.monotonic() - began < 500 and show("Result") == "success", time.monotonic() - began, show("Result"), log())
    expect(held.end() != 0, held.text())
    restart(SERVED)


def part_reload():
    """Certificates of the operator's: new ones by a reload, while a session runs; and by credentials."""
    make_authority()
    for name in ("server", "client"):
        make_certificate(name)
    place("/var/lib/private/remote-gpu/operator", "server")
    restart(SERVED + "".join("tls-%s = /var/lib/remote-gpu/operator/tls.%s\n" % pair for pair in (("ca", "ca"), ("cert", "crt"), ("key", "key"))))
    held, pid, serial = Held("gpu-machine --credentials /root/operator"), main_pid(), served_serial()
    make_certificate("server")
    place("/var/lib/private/remote-gpu/operator", "server")
    run("systemctl reload " + UNIT)
    until("the new certificate", lambda: served_serial() != serial)
    expect(main_pid() == pid, "the server was started again")
    held.ends_well()
    for name, file in (("ca", "ca"), ("cert", "crt"), ("key", "key")):
        run("install -D -m 600 /root/made/server.%s /etc/remote-gpu/tls/tls.%s" % (file, file))
    restart(SERVED, "".join("LoadCredential=tls-%s:/etc/remote-gpu/tls/tls.%s\n" % pair for pair in (("ca", "ca"), ("cert", "crt"), ("key", "key"))))
    expect("--tls-key is the credential" in log(), log())
    vector_add("gpu-machine --credentials /root/operator")
    restart(SERVED, "")


def part_socket():
    """By the socket the first client starts the server, also one that has no network."""
    restart(SERVED, "")
    run("systemctl disable --now %s && systemctl enable --now remote-gpud.socket" % UNIT)
    write(CONFIG, "driver = soft\ntls-name = gpu-machine\n")
    expect(not is_running(), "it runs already")
    vector_add()
    run("systemctl stop " + UNIT)
    run("install -D -m 644 /usr/share/doc/remote-gpu-server/examples/sockets-only.conf "
        "%s && systemctl daemon-reload" % SOCKETS_ONLY)
    vector_add()
    expect(run("readlink /proc/%d/ns/net" % main_pid()) != run("readlink /proc/1/ns/net"), "its network namespace")
    exposure = float(re.search(r"exposure level for \S+: ([\d.]+)", run("systemd-analyze security " + UNIT)).group(1))
    expect(exposure <= 2.0, "exposure", exposure)
    print("exposure with sockets only %.1f" % exposure)
    run("systemctl enable " + UNIT)
    restart(SERVED)


def part_upgrade():
    """An upgrade leaves sessions, and a server that has some, as they are; then the new version starts by itself."""
    restart(SERVED, "")
    held, pid = Held(), main_pid()
    run("rm -rf /packages && mv /packages-newer /packages && apt-get update -q && apt-get upgrade -q -y")
    expect("+newer" in run("dpkg-query --show remote-gpu-server"), "the version")
    expect(main_pid() == pid, "the server was started again")
    # its processes have the files from before
    inside = "nsenter --target %d --mount " % pid
    expect(run(inside + "mountpoint -q /usr/lib/remote-gpu && echo yes").strip() == "yes", "a copy of the files")
    run("mv /usr/lib/remote-gpu/worker /usr/lib/remote-gpu/worker.away")
    vector_add()
    run("mv /usr/lib/remote-gpu/worker.away /usr/lib/remote-gpu/worker")
    expect(main_pid() == pid, "the server was started again while a session runs")
    held.ends_well()
    until("the new version", lambda: main_pid() not in (0, pid) and is_running())
    for pid in ("self", main_pid()):
        expect("/usr/lib/remote-gpu" not in run("cat /proc/%s/mounts" % pid), "the copy is still there")
    vector_add()
    # without sessions at once
    pid = main_pid()
    run("apt-get install -q -y --reinstall remote-gpu-server")
    until("the new version", lambda: main_pid() not in (0, pid) and is_running())


def run_page(name, folder):
    """The commands of a page that are for this test."""
    os.chdir(folder)
    print(run(page.script("/opt/%s.md" % name, name), timeout=6000), flush=True)
    os.chdir("/")


def part_page():
    """docs/systemd.md."""
    restart(SERVED, "")
    run_page("systemd", "/root")
    until("the service runs", is_running)
    vector_add()


def part_operating():
    """docs/operating.md, on a machine where nothing was installed; then a second server of its pool."""
    run("apt-get purge -q -y %s && rm -rf /etc/systemd/system/remote-gpud.service.d /root/.config/remote-gpu" % " ".join(NAMES))
    folder = "/root/operating"
    os.makedirs(folder + "/build")
    os.symlink("/packages", folder + "/build/packages")
    os.symlink("/opt/vector_add", folder + "/vector_add")
    run_page("operating", folder)
    state = "/var/lib/second"
    run("install -d -m 700 %s" % state)
    run("systemd-run --unit=second --setenv=HOME=/root --property=Type=notify remote-gpud --config /dev/null --driver soft --state-dir %s "
        "--listen 127.0.2.1:7601 --tls-ca %s/ca.crt --tls-cert %s/gpu-machine-2.crt --tls-key %s/gpu-machine-2.key --pool lab "
        "--etcd http://etcd-machine:2379 --advertise gpu-machine-2:7601" % (state, folder, folder, folder))
    ask = "REMOTE_GPU_CREDENTIALS=/root/gpu-credentials remote-gpu %s -s gpu-machine "
    until("both servers in the pool", lambda: all(name in run(ask % "list") for name in ("gpu-machine:7600", "gpu-machine-2:7601")))
    expect("vector_add: ok" in run(ask % "run" + "-n 2 --spread --wait-for=1min -- /opt/vector_add"), "two GPUs of the pool")
    run("systemctl stop second etcd")


def part_purge():
    """Removal ends the service, a purge leaves nothing."""
    run("apt-get remove -q -y " + " ".join(NAMES))
    expect(run("systemctl is-active " + UNIT, status=None).strip() != "active" and not run("pgrep remote-gpud", status=None), "it runs")
    expect(os.path.exists("/var/lib/private/remote-gpu/ca.key") and os.path.exists(CONFIG), "the state is gone")
    run("apt-get purge -q -y %s && rm -rf /etc/remote-gpu/tls /etc/remote-gpu/rules.json" % " ".join(NAMES))
    run("rmdir --ignore-fail-on-non-empty /etc/remote-gpu", status=None)
    left = run("find /etc /var /usr /run /lib -xdev -name '*remote-gpu*' -not -path '/var/lib/apt/*' -not -path '/var/lib/dpkg/*' "
               "-not -path '/var/log/*' -not -path '*/remote-gpud.service.d*'")
    expect(not left, "left behind:", left)


# --- certificates --------------------------------------------------------------------------------------------


def make_authority():
    run("mkdir -p /root/made && cd /root/made && openssl ecparam -name prime256v1 -genkey -noout -out ca.key && "
        "openssl req -x509 -new -key ca.key -subj '/CN=the operator' -days 30 -out ca.crt")


def make_certificate(name):
    write("/root/made/extensions", "subjectAltName = DNS:gpu-machine\nextendedKeyUsage = serverAuth, clientAuth\n")
    run("cd /root/made && openssl ecparam -name prime256v1 -genkey -noout -out %s.key && "
        "openssl req -new -key %s.key -subj '/CN=%s' -out request && openssl x509 -req -in request -CA ca.crt -CAkey ca.key "
        "-CAcreateserial -days 20 -extfile extensions -out %s.crt && cp ca.crt %s.ca" % ((name,) * 5))
    if name == "client":
        run("mkdir -p -m 700 /root/operator && cd /root/made && cp ca.crt /root/operator/ca.crt && cp client.crt /root/operator/tls.crt && "
            "install -m 600 client.key /root/operator/tls.key")


def place(folder, name):
    """Where the service, whose user systemd chooses, can read them."""
    run("owner=$(stat -c %%u /var/lib/private/remote-gpu) && install -d -m 700 -o $owner -g $owner %s && for file in ca crt key; do "
        "install -m 600 -o $owner -g $owner /root/made/%s.$file %s/tls.$file; done" % (folder, name, folder))


def served_serial():
    return run("openssl s_client -connect gpu-machine:7600 -servername gpu-machine </dev/null 2>/dev/null | openssl x509 -noout -serial",
               status=None)


PARTS = [part_install, part_users, part_crash, part_watchdog, part_drain, part_reload, part_socket, part_page, part_upgrade, part_operating, part_purge]


def main():
    until("the system is up", lambda: run("systemctl is-system-running", status=None).strip() in ("running", "degraded", "starting"))
    wanted, failed = sys.argv[1:], []
    for part in PARTS:
        name = part.__name__.replace("part_", "")
        if wanted and name not in wanted and name not in ("install", "users"):
            continue
        began = time.monotonic()
        try:
            part()
        except (Failure, subprocess.TimeoutExpired) as failure:
            print("%s: failed after %.0f s: %s" % (name, time.monotonic() - began, failure))
            print(log(), flush=True)
            failed.append(name)
            continue
        print("%s: ok, %.0f s" % (name, time.monotonic() - began), flush=True)
    print("systemd.vm: " + ("failed: " + ", ".join(failed) if failed else "ok"))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
