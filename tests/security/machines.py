"""Two machines of a test: network, mount and host name namespaces of their own, with a cable between them.

"server" is gpu-machine (10.77.0.1, fd77::1), "client" is client-machine (10.77.0.2). Each knows the other by name. What
runs there ends with the test.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from trial import Failure, Result, end_group, expect, read_stats, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
PORT = 7600
NAME = "gpu-machine:%d" % PORT
SKIPPED = 77


def skip(why):
    """Ends the program as one that could not be tried."""
    print("skipped: " + why)
    sys.exit(SKIPPED)


def works(result):
    """It ran, and nobody complained."""
    expect(result.status == 0 and "remote-gpu:" not in result.errors, "it does not work", result)
    return result


def checked(*command, **options):
    """Runs a tool that must succeed; its output."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, **options)
    if result.returncode != 0:
        raise Failure("%s failed: %s" % (" ".join(command), result.stderr))
    return result.stdout


class Machine:
    """One of the two: a process that holds its namespaces."""

    def __init__(self, folder, name):
        self.name = name
        self.prefix = []  # as whom programs run
        self.home = os.path.join(folder, name)
        os.mkdir(self.home, 0o755)
        hosts = os.path.join(folder, "hosts")
        with open(hosts, "w") as file:
            file.write("127.0.0.1 localhost\n::1 localhost\n10.77.0.1 gpu-machine gpu-alias\n10.77.0.2 client-machine\n")
        script = ("mount --make-rprivate / && mount --bind %s /etc/hosts && hostname %s && ip link set lo up && "
                  "exec sleep 100000" % (hosts, name))
        self.holder = subprocess.Popen(["unshare", "--net", "--mount", "--uts", "sh", "-c", script], start_new_session=True,
                                       stdin=subprocess.DEVNULL)
        if not wait_until(self.is_there, 10):
            raise Failure("the namespaces of %s cannot be made" % name)

    def is_there(self):
        """Whether its namespaces are set up."""
        try:
            with open("/proc/%d/comm" % self.holder.pid) as file:
                return file.read().strip() == "sleep"
        except OSError:
            return False

    def command(self, *words):
        """The words that run `words` there."""
        return ["nsenter", "--target", str(self.holder.pid), "--net", "--mount", "--uts", *self.prefix, *words]

    def environment(self, **changes):
        """Nothing of the tester's settings; a home there."""
        full = {name: value for name, value in os.environ.items()
                if not name.startswith(("REMOTE_GPU_", "XDG_")) or name in ("REMOTE_GPU_CACHE", "REMOTE_GPU_IMAGE_CACHE")}
        full.update(HOME=self.home, LC_ALL="C", **changes)
        return full

    def end(self):
        """Ends what holds the namespaces."""
        self.holder.kill()
        self.holder.wait()


class Background:
    """A process that runs beside the test, with its output in a file."""

    def __init__(self, command, environment, path):
        self.path = path
        with open(path, "wb") as out:
            self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                            start_new_session=True)

    def output(self):
        """What it has said so far."""
        with open(self.path, errors="replace") as file:
            return file.read()

    def stop(self, number=signal.SIGTERM, patience=15):
        """Ends it; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(patience)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        return self.process.wait()


class World:
    """Both machines, a server on one of them, users on the other."""

    def __init__(self, build, stack):
        if os.geteuid() != 0:
            skip("two machines are network namespaces, which need root")
        for tool in ("unshare", "nsenter", "ip", "mount", "hostname"):
            if not shutil.which(tool):
                skip("there is no program %s" % tool)
        if subprocess.run(["unshare", "--net", "--mount", "--uts", "true"], stderr=subprocess.DEVNULL).returncode != 0:
            skip("this machine does not let root make namespaces")
        self.build = build
        self.stack = stack
        self.counter = 0
        self.work = None  # where programs may write, if that is not everywhere
        self.folder = tempfile.mkdtemp(prefix="remote-gpu-security-")
        os.chmod(self.folder, 0o755)
        stack.callback(shutil.rmtree, self.folder, True)
        self.server = Machine(self.folder, "gpu-machine")
        stack.callback(self.server.end)
        self.client = Machine(self.folder, "client-machine")
        stack.callback(self.client.end)
        checked(*self.server.command("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns",
                                     str(self.client.holder.pid)))
        for machine, number in ((self.server, 1), (self.client, 2)):
            checked(*machine.command("ip", "address", "add", "10.77.0.%d/24" % number, "dev", "eth0"))
            checked(*machine.command("ip", "address", "add", "fd77::%d/64" % number, "dev", "eth0", "nodad"))
            checked(*machine.command("ip", "link", "set", "eth0", "up"))
        self.state = os.path.join(self.folder, "state")

    def add_cable(self, name, network):
        """One more between the two machines, which are 1 and 2 in that network (three numbers of an address)."""
        checked(*self.server.command("ip", "link", "add", name, "type", "veth", "peer", "name", name, "netns",
                                     str(self.client.holder.pid)))
        for machine, number in ((self.server, 1), (self.client, 2)):
            checked(*machine.command("ip", "address", "add", "%s.%d/24" % (network, number), "dev", name))
            checked(*machine.command("ip", "link", "set", name, "up"))
        # The kernel may take a second to see that the other end is up: of this cable, and of the one that was there before.
        for machine in (self.server, self.client):
            for cable in ("eth0", name):
                shown = machine.command("ip", "link", "show", cable)
                expect(wait_until(lambda shown=shown: "state UP" in checked(*shown), 10), "%s does not come up" % cable)

    def carried(self, name):
        """Bytes that the client has sent and received by a cable."""
        text = checked(*self.client.command("cat", "/proc/net/dev"))
        numbers = re.search(r"^\s*%s:(.*)$" % name, text, re.MULTILINE).group(1).split()
        return int(numbers[8]), int(numbers[0])

    def path(self, name):
        """A file of this test's own."""
        return os.path.join(self.folder, name)

    def fresh(self, name):
        """A path that nothing else has."""
        self.counter += 1
        return os.path.join(self.work or self.folder, "%s-%d" % (name, self.counter))

    # --- the server

    def start_server(self, *arguments, listen="0.0.0.0:%d" % PORT, environment=None, state=None, machine=None):
        """A remote-gpud on the server machine, or another one; a Background."""
        ready = self.fresh("ready")
        machine = machine or self.server
        command = machine.command(self.build.daemon, "--listen", listen, "--driver", "soft", "--state-dir",
                                      state or self.state,
                                      "--config", "/dev/null", "--ready-file", ready, *arguments)
        daemon = Background(command, machine.environment(**(environment or {})), self.fresh("remote-gpud.log"))
        self.stack.callback(daemon.stop)
        wait_until(lambda: daemon.process.poll() is not None or os.path.exists(ready), 30)
        if not os.path.exists(ready):
            raise Failure("the server did not start:\n" + daemon.output())
        self.stack.callback(lambda: sys.exc_info()[0] and print("--- the server's log\n%s---" % daemon.output()))
        return daemon

    def manage(self, *words, state=None):
        """remote-gpud's subcommands, on the server machine: a Result."""
        return run_isolated(self.server.command(self.build.daemon, words[0], "--state-dir", state or self.state, *words[1:]),
                            self.server.environment(), 30)

    def token(self, user="alice", *words, server=NAME, state=None):
        """A line that joins `user`."""
        result = self.manage("token", "--user", user, "--server", server, *words, state=state)
        found = re.search(r"^rgpu1:\S+@\S+$", result.output, re.MULTILINE)
        expect(result.status == 0 and found, "there is no token", result)
        return found.group(0)

    def run_server(self, *words, timeout=60, **changes):
        """A program on the server machine: a Result."""
        return run_isolated(self.server.command(*words), self.server.environment(**changes), timeout)

    # --- the client

    def run(self, *words, timeout=60, **changes):
        """A program on the client machine: a Result."""
        return run_isolated(self.client.command(*words), self.client.environment(**changes), timeout)

    def remote_gpu(self, *words, timeout=60, **changes):
        """The command, there."""
        return self.run(self.build.command, *words, timeout=timeout, **changes)

    def join(self, user="alice", *words, **changes):
        """Joins `user`, which must succeed."""
        result = self.remote_gpu("join", self.token(user), *words, **changes)
        expect(result.status == 0, "%s cannot join" % user, result)
        return result

    def marker(self, *words, options=(), **changes):
        """The program whose data are known again, under remote-gpu run: a Result with its statistics."""
        stats = self.fresh("stats")
        result = self.remote_gpu("run", "--stats=" + stats, *options, "--", self.marker_path(), *words, timeout=120, **changes)
        result.stats = read_stats(stats) if os.path.exists(stats) else {}
        result.stats_text = open(stats).read() if os.path.exists(stats) else ""
        return result

    def marker_path(self):
        """The program."""
        return os.path.join(self.build.folder, "tests", "security_marker")

    def hold(self, *options, **changes):
        """The same, which goes on until its session ends: a Background that is ready."""
        command = self.client.command(self.build.command, "run", *options, "--", self.marker_path(), "1", "1", "hold")
        program = Background(command, self.client.environment(**changes), self.fresh("held"))
        self.stack.callback(program.stop)
        expect(wait_until(lambda: "ready" in program.output() or program.process.poll() is not None, 30) and
               "ready" in program.output(), "the program does not run:\n" + program.output())
        return program

    # --- the cable

    def capture(self):
        """Everything on the cable from now on."""
        return Capture(self)


def run_isolated(command, environment, timeout):
    """As trial.run_program, with exactly this environment."""
    started = time.monotonic()
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, start_new_session=True)
    hung = False
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        hung = True
        end_group(process.pid)
        output, errors = process.communicate()
    return Result(command, process.returncode, output.decode(errors="replace"), errors.decode(errors="replace"),
                  time.monotonic() - started, hung)


class Capture:
    """What the cable carries while the `with` block runs; `data` afterwards."""

    def __init__(self, world):
        self.path = world.fresh("packets")
        command = world.server.command(sys.executable, os.path.join(HERE, "capture.py"), "eth0", self.path)
        self.process = Background(command, dict(os.environ), world.fresh("capture"))
        world.stack.callback(self.process.stop)
        self.data = b""
        if not wait_until(lambda: "ready" in self.process.output(), 10):
            raise Failure("no packets can be captured:\n" + self.process.output())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stop()
        seen, missed = map(int, self.process.output().split()[-2:])
        expect(missed == 0 and seen > 0, "%d packets were captured, %d missed" % (seen, missed))
        with open(self.path, "rb") as file:
            self.data = file.read()
        os.unlink(self.path)
