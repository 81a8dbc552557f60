"""The machine of docs/slurm.md, in namespaces of its own: munge, slurmctld, three slurmd; and on another one a pool of one server with four GPUs.

/etc, /run, /home and /usr/local are copies, `gpu-machine` is a name for this machine, `systemctl restart` starts Slurm's daemons. All
processes end with the namespace.
"""

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, os.path.join(SOURCE, "scripts"))

import network  # noqa: E402
from trial import Failure, Server, call, free_port, name_of, wait_until  # noqa: E402

ADDRESS, POOL = "10.77.0.1", "10.77.0.2"
USERS = ("alice", "bob")
# Process tracking, accounting and task launch without cgroups, which a container rarely lets one use.
CONFIGURATION = """ClusterName=lab
SlurmctldHost={host}({address})
SlurmUser=slurm
AuthType=auth/munge
AuthInfo=cred_expire=15
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=10
KillWait=2
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2,bf_hetjob_immediate
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
PlugStackConfig=/etc/slurm/plugstack.conf
NodeName=n1 NodeHostname={host} NodeAddr={address} Port=17001 CPUs=8
NodeName=n2 NodeHostname={host} NodeAddr={address} Port=17002 CPUs=8
NodeName=n3 NodeHostname={host} NodeAddr={address} Port=17003 CPUs=8
PartitionName=main Nodes=n1,n2,n3 Default=YES MaxTime=INFINITE State=UP
"""
SYSTEMCTL = """#!/bin/sh
# systemctl restart slurmctld slurmd
[ "$1" = restart ] || exit 1
pkill -F /run/slurmctld.pid 2> /dev/null
for node in n1 n2 n3; do pkill -F /run/slurmd-$node.pid 2> /dev/null; done
sleep 1
slurmctld
for node in n1 n2 n3; do slurmd -N $node; done
until [ "$(sinfo -h -N -o %t 2> /dev/null | grep -c idle)" = 3 ]; do
    sleep 0.2
    tries=$((tries + 1))
    [ $tries -lt 100 ] || exit 1
done
"""


def enter_namespaces():
    """Starts this program again, in namespaces of its own."""
    os.execvp("unshare", ["unshare", "--mount", "--net", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "--",
                          sys.executable, *sys.argv, "inside"])


def be_init():
    """Forks; the parent, which is the namespace's first process, waits for whatever nobody else waits for, until the test ends."""
    child = os.fork()
    while child:
        pid, status = os.wait()
        if pid == child:
            os._exit(os.waitstatus_to_exitcode(status) & 255)


class Machine:
    """All of it; a context, within which the daemons run."""

    def __init__(self, build, folder):
        self.stack, self.pool = contextlib.ExitStack(), None
        self.build, self.folder = build, folder
        self.state = os.path.join(folder, "server")
        self.etcd = self.server = None

    # --- making it

    def __enter__(self):
        self.make_network()
        self.make_files()
        self.start_munge()
        self.start_pool()
        return self

    def __exit__(self, *_):
        if self.server:
            self.server.__exit__()
        if self.etcd:
            self.etcd.kill()
        self.stack.close()

    def make_network(self):
        """The pool is on a machine of its own. Slurm's has an address that is not of the loopback interface, without which resolvers
        find no names."""
        call("ip", "link", "set", "lo", "up")
        self.pool = network.Machine(self.stack, "pool")
        call("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", str(self.pool.holder.pid))
        call("ip", "address", "add", ADDRESS + "/24", "dev", "eth0")
        call(*self.pool.command("ip", "address", "add", POOL + "/24", "dev", "eth0"))
        self.cut(False)
        call("hostname", "controller")

    def cut(self, on):
        """Pulls the cable between Slurm's machine and the pool's, or puts it in again."""
        call(*self.pool.command("ip", "link", "set", "eth0", "down" if on else "up"))
        call("ip", "link", "set", "eth0", "up")

    def make_files(self):
        folder = self.folder
        call("mount", "--make-rprivate", "/")
        call("mount", "-t", "tmpfs", "tmpfs", folder)
        os.chmod(folder, 0o755)
        shutil.copytree("/etc", folder + "/etc", symlinks=True)
        for name in ("run", "home", "local/bin", "local/lib/remote-gpu", "local/share/remote-gpu/slurm", "state", "log", "munge",
                     "spool-n1", "spool-n2", "spool-n3"):
            os.makedirs(os.path.join(folder, name))
        for name in ("etc", "run", "home"):
            call("mount", "--bind", os.path.join(folder, name), "/" + name)
        for name in ("bin", "lib/remote-gpu"):
            call("mount", "--bind", os.path.join(self.build.stage, name), os.path.join(folder, "local", name))
        shutil.copy(os.path.join(SOURCE, "places", "slurm", "job_submit.lua"), folder + "/local/share/remote-gpu/slurm")
        call("mount", "--rbind", folder + "/local", "/usr/local")
        with open("/etc/hosts", "w") as file:
            file.write("127.0.0.1 localhost\n%s controller\n%s gpu-machine\n" % (ADDRESS, POOL))
        for name in USERS:
            call("useradd", "--create-home", name)
            os.mkdir("/home/%s/examples" % name)
            call("mount", "--bind", self.build.example_dir, "/home/%s/examples" % name)
        for name in ("state", "log"):
            shutil.chown(os.path.join(folder, name), "slurm")
        shutil.rmtree("/etc/remote-gpu", ignore_errors=True)
        os.makedirs("/etc/slurm", exist_ok=True)
        with open("/etc/slurm/slurm.conf", "w") as file:
            file.write(CONFIGURATION.format(host="controller", address=ADDRESS, folder=folder))
        with open("/etc/slurm/plugstack.conf", "w"):
            pass
        with open(folder + "/run/systemctl", "w") as file:
            file.write(SYSTEMCTL)
        os.chmod(folder + "/run/systemctl", 0o755)
        os.environ["PATH"] = "/run:/usr/local/bin:" + os.environ["PATH"]
        os.environ["HOME"] = "/run"
        os.environ.pop("XDG_CONFIG_HOME", None)

    def start_munge(self):
        os.makedirs("/etc/munge", exist_ok=True)
        with open("/etc/munge/munge.key", "wb") as file:
            file.write(os.urandom(1024))
        for path, mode in (("/etc/munge", 0o700), ("/etc/munge/munge.key", 0o400)):
            shutil.chown(path, "munge", "munge")
            os.chmod(path, mode)
        os.mkdir("/run/munge")
        for path in ("/run/munge", self.folder + "/munge"):
            shutil.chown(path, "munge", "munge")
        munge = pwd.getpwnam("munge")
        call("setpriv", "--reuid", str(munge.pw_uid), "--regid", str(munge.pw_gid), "--clear-groups", "munged",
             "--log-file", self.folder + "/munge/log", "--seed-file", self.folder + "/munge/seed", "--pid-file", "/run/munge/pid")

    def start_pool(self):
        client, peer = free_port(), free_port()
        urls = "http://127.0.0.1:%d" % client
        with open(self.folder + "/etcd.log", "w") as log:
            self.etcd = subprocess.Popen(
                [*self.pool.command("etcd"), "--name", "m", "--data-dir", self.folder + "/etcd", "--listen-client-urls", urls, "--advertise-client-urls", urls,
                 "--listen-peer-urls", "http://127.0.0.1:%d" % peer], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.server = Server(self.build, listen=POOL + ":7600", prefix=self.pool.command(), environment={"SOFTGPU_DEVICES": "4"},
                             arguments=["--state-dir", self.state, "--tls-name", "gpu-machine", "--advertise", "gpu-machine:7600",
                                        "--pool", "lab", "--etcd", urls, "--pool-operators", "slurm", "--log", "info"])
        self.server.__enter__()
        if not wait_until(lambda: "in the pool" in self.server.log(), 60):
            raise Failure("the server is not in its pool:\n" + self.server.log())

    def token(self, user):
        return subprocess.run([self.build.daemon, "token", "--state-dir", self.state, "--user", user, "--server", "gpu-machine"],
                              stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout.strip()

    # --- using it

    @staticmethod
    def run_as(user, *words, timeout=120, **variables):
        """A command of a user's, in the home. Its standard error is in the output."""
        home = pwd.getpwnam(user).pw_dir if user != "slurm" else "/run"
        environment = {"PATH": os.environ["PATH"], "HOME": home, "USER": user, "SOFTGPU_CACHE": "/tmp/softgpu-" + user, **variables}
        try:
            return subprocess.run(["setpriv", "--reuid", user, "--regid", user, "--clear-groups", *words], env=environment, cwd=home,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout)
        except subprocess.TimeoutExpired as expired:
            raise Failure("%s has not ended within %d s:\n%s" % (" ".join(words), timeout, (expired.output or b"").decode(errors="replace")))

    def leases(self):
        """The leases of the pool by their ids."""
        result = subprocess.run(["remote-gpu", "list", "--json", "-s", "gpu-machine", "--credentials", "/etc/remote-gpu/slurm"],
                                stdout=subprocess.PIPE, text=True, timeout=60)
        pool = json.loads(result.stdout)["servers"][0]["pool"]
        return {lease["lease"]: lease for lease in pool["leases"]}

    def sessions(self):
        return sum(name_of(pid) != "pool-agent" for pid in self.server.workers())

    def kill_node(self, node):
        """Ends a node's daemon and all that runs by it at once, as a machine that is switched off: nobody is left to tell of it."""
        with open("/run/slurmd-%s.pid" % node) as file:
            daemon = int(file.read())
        tasks = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self.is_of(pid, node)]
        for pid in [daemon, *{pid for task in tasks for pid in self.managers(task)}, *tasks]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    @staticmethod
    def kill_daemon(node):
        """Ends a node's daemon alone, as where slurmctld cannot reach a node: what runs there goes on."""
        with open("/run/slurmd-%s.pid" % node) as file:
            os.kill(int(file.read()), signal.SIGKILL)

    @staticmethod
    def is_of(pid, node):
        """Whether a process has a task's environment of this node."""
        try:
            with open("/proc/%d/environ" % pid, "rb") as file:
                return b"SLURMD_NODENAME=" + node.encode() in file.read().split(b"\0")
        except OSError:
            return False

    @staticmethod
    def managers(pid):
        """The slurmstepd that a process runs below."""
        found = []
        while pid > 1:
            if name_of(pid) == "slurmstepd":
                found.append(pid)
            try:
                with open("/proc/%d/stat" % pid) as file:
                    pid = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                break
        return found

    def logs(self):
        """What the daemons have written last."""
        text = []
        for name in sorted(os.listdir(self.folder + "/log")):
            with open(os.path.join(self.folder, "log", name), errors="replace") as file:
                text.append("--- %s\n%s" % (name, "".join(file.readlines()[-40:])))
        return "\n".join(text) + "\n--- server\n" + self.server.log()[-3000:]
