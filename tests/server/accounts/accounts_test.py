"""Accounts and quotas of a server with the software device: accounts_test.py BUILD_FOLDER [CASE…] [--random SECONDS]

Programs of which it is known what they do, and what is said of them afterwards: exactly, also when workers, the accountant and the
server are killed.
"""

import contextlib
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "scripts"))

import trial  # noqa: E402
from trial import Failure, children_of, expect  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
BIN = os.path.join(BUILD, "stage", "bin")
MOVES = os.path.join(BUILD, "tests", "moves")
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith(("REMOTE_GPU_", "CUDA_VISIBLE", "SOFTGPU_"))}


def wait_until(condition, seconds, world=None):
    if not trial.wait_until(condition, seconds):
        raise Failure("it did not come within %d s%s" % (seconds, ":\n" + world.log() if world else ""))


class World:
    """A folder with a server's state, its rules, and its log; and the server, which may be started again."""

    def __init__(self, *arguments, rules=None, state="state", environment=None):
        self.folder = tempfile.mkdtemp(prefix="remote-gpu-accounts-")
        self.state = os.path.join(self.folder, state)
        self.socket = "unix:" + os.path.join(self.folder, "socket")
        self.rules = os.path.join(self.folder, "rules.json")
        self.arguments = list(arguments)
        if rules is not None:
            self.write_rules(rules)
            self.arguments += ["--rules", self.rules]
        self.environment = dict(ENVIRONMENT, **(environment or {}))
        self.process = None
        self.programs = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for program in self.programs:
            if program.poll() is None:
                program.kill()
            program.wait()
            for pipe in filter(None, (program.stdin, program.stdout, program.stderr)):
                with contextlib.suppress(OSError):
                    pipe.close()
        self.stop()
        subprocess.run(["rm", "-rf", self.folder], check=False)

    def write_rules(self, rules):
        with open(self.rules, "w") as file:
            json.dump(rules, file)

    def start(self, wait=True):
        ready = os.path.join(self.folder, "ready")
        for name in (ready, os.path.join(self.folder, "socket")):
            with contextlib.suppress(OSError):
                os.unlink(name)
        with open(os.path.join(self.folder, "log"), "a") as log:
            self.process = subprocess.Popen(
                [os.path.join(BIN, "remote-gpud"), "--driver", "soft", "--state-dir", self.state, "--listen", self.socket,
                 "--listen", "127.0.0.1:0", "--config", "/dev/null", "--ready-file", ready, "--grace", "1",
                 *self.arguments], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env=self.environment)
        if wait:
            wait_until(lambda: os.path.exists(ready) or self.process.poll() is not None, 60)
            expect(self.process.poll() is None, "the server did not start", self.log())
            with open(ready) as file:
                self.address = [line for line in file.read().split() if line.startswith("tcp:")][0]
        return self

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            time.sleep(0.1)
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def kill(self):
        """As a machine's memory runs out, say; its processes are given time to notice."""
        others = children_of(self.process.pid, "worker") + children_of(self.process.pid, "accountant")
        self.process.kill()
        self.process.wait()
        wait_until(lambda: not any(os.path.exists("/proc/%d" % pid) for pid in others), 30)

    def log(self):
        with open(os.path.join(self.folder, "log")) as file:
            return file.read()

    def accountant(self):
        found = children_of(self.process.pid, "accountant")
        return found[0] if found else None

    def workers(self):
        return children_of(self.process.pid, "worker")

    def command(self, *words, server=None, status=0):
        result = subprocess.run([os.path.join(BIN, "remote-gpu"), *words], env=dict(
            ENVIRONMENT, REMOTE_GPU_SERVER=server or self.socket), stdin=subprocess.DEVNULL, text=True,
            capture_output=True, timeout=60)
        expect(status is None or result.returncode == status,
               "remote-gpu %s: status %d, not %s" % (" ".join(words), result.returncode, status), result.stdout,
               result.stderr, self.log())
        return result

    def program(self, launches, size, *options, server=None):
        """One that has done what it does, and stays."""
        program = self.begin(launches, size, *options, server=server)
        line = program.stdout.readline().split()
        expect(len(line) == 3, "a program did not say what it did", program.poll(), self.log(),
               program.stderr.read() if program.poll() is not None else "")
        expect(int(line[0]) == launches, "a wrong result")
        program.does = {"launches": launches, "bytes_in": int(line[1]), "bytes_out": int(line[2])}
        return program

    def begin(self, launches, size, *options, server=None):
        program = subprocess.Popen([os.path.join(BIN, "remote-gpu"), "run", *options, "--", MOVES, str(launches), str(size)],
                                   env=dict(ENVIRONMENT, REMOTE_GPU_SERVER=server or self.socket), text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.programs.append(program)
        return program

    def leave(self, program):
        before = self.sessions()
        program.stdin.close()
        expect(program.wait(30) == 0, "a program failed", program.stderr.read())
        wait_until(lambda: self.sessions() < before, 20)

    def sessions(self):
        listed = json.loads(self.command("list", "--json", status=None).stdout)
        return listed["servers"][0].get("sessions_running", 0)

    def usage(self, *words, by="session", server=None):
        result = self.command("usage", "--json", "--since", "2d", "--by", by, *words, server=server)
        return json.loads(result.stdout)["servers"][0]["rows"]

    def settled(self, n):
        """The rows of that many sessions, all of which have ended in the accounts."""
        wait_until(lambda: len([row for row in self.usage() if row["ended"]]) >= n, 20)
        rows = self.usage()
        expect(len(rows) == n, "%d sessions were expected" % n, json.dumps(rows, indent=1), self.log())
        return rows

    def database(self):
        return os.path.join(self.state, "accounts", "accounts.db")

    def sound(self):
        """The file is whole."""
        with contextlib.closing(sqlite3.connect("file:%s?mode=ro" % self.database(), uri=True)) as database:
            expect(database.execute("PRAGMA integrity_check").fetchall() == [("ok",)], "the file is damaged")
            return database.execute("SELECT coalesce(sum(launches), 0), coalesce(sum(held_ns), 0), coalesce(sum(bytes_in), 0),"
                                    " coalesce(min(held_ns), 0), coalesce(max(held_ns), 0) FROM part JOIN session"
                                    " ON session.id = part.session WHERE project != 'nccl'").fetchone()


def same(row, does):
    for name, value in does.items():
        expect(row[name] == value, "%s: %s instead of %s" % (name, row[name], value), json.dumps(row, indent=1))


# --- cases ------------------------------------------------------------------------------------------------------


def case_exact():
    """Launches and bytes are exact; times are not longer than they can be; and users see their own alone."""
    with World().start() as world:
        began = time.time()
        first = world.program(17, 100000, "--project", "vision", "-m", "1G")
        other = world.program(3, 3 << 20, server=world.address)
        time.sleep(1.2)
        rows = world.usage()
        expect(len(rows) == 2 and not any(row["ended"] for row in rows), "sessions that run are in it", rows)
        world.leave(first)
        world.leave(other)
        rows = world.settled(2)
        lasted = time.time() - began
        same(rows[0], first.does)
        same(rows[1], other.does)
        for row in rows:
            expect(1.2 < row["gpu_seconds_held"] <= lasted, "held for %s s of %s" % (row["gpu_seconds_held"], lasted))
            expect(0 <= row["gpu_seconds_busy"] <= row["gpu_seconds_held"], "busy for longer than held")
            expect(row["end"] == "ended", row["end"])
        # what is guaranteed is held, used or not; without a limit what is used
        held = rows[0]["gpu_seconds_held"] * (1 << 30)
        expect(abs(rows[0]["memory_byte_seconds"] - held) < held / 1000, "byte-seconds", rows[0])
        expect(100000 <= rows[0]["peak_memory_bytes"] < 1 << 20, "peak", rows[0])
        expect(3 << 20 <= rows[1]["peak_memory_bytes"] < 4 << 20, "peak", rows[1])
        expect(0 < rows[1]["memory_byte_seconds"] <= (4 << 20) * lasted, "byte-seconds", rows[1])
        expect((rows[0]["user"], rows[0]["kind"], rows[0]["project"]) == ("uid:%d" % os.getuid(), "local", "vision"), rows[0])
        expect((rows[1]["user"], rows[1]["kind"], rows[1]["address"]) == ("unauthenticated", "unauthenticated", "127.0.0.1"),
               rows[1])
        # who has proved nothing sees what went to its address
        own = world.usage(server=world.address)
        expect(len(own) == 1 and own[0]["session"] == 2, own)
        result = world.command("usage", "--user", "uid:0", server=world.address, status=125)
        expect("[usage-forbidden]" in result.stderr, result.stderr)
        rows = world.usage("--project", "vision", by="project")
        expect(len(rows) == 1 and rows[0]["launches"] == 17, rows)
        total = world.usage(by="day")
        expect(sum(row["launches"] for row in total) == 20 and sum(row["sessions"] for row in total) == 2, total)
        # the operator's command reads the same, also when the server has ended
        world.stop()
        for more in ([], ["--user", "unauthenticated"]):
            result = subprocess.run([os.path.join(BIN, "remote-gpud"), "usage", "--state-dir", world.state, "--json", "--by",
                                     "session", "--since", "2d", *more], capture_output=True, text=True, env=ENVIRONMENT)
            rows = json.loads(result.stdout)["rows"]
            expect(len(rows) == (1 if more else 2) and rows[-1]["launches"] == 3, result.stdout, result.stderr)
        result = subprocess.run([os.path.join(BIN, "remote-gpud"), "usage", "--state-dir", world.state, "--csv"],
                                capture_output=True, text=True, env=ENVIRONMENT)
        lines = result.stdout.splitlines()
        expect(len(lines) == 3 and lines[0].startswith("server,user,kind,address,project,"), result.stdout)


def case_killed():
    """A worker, the accountant, and the server, each killed while a session runs: what was counted is kept."""
    with World().start() as world:
        first = world.program(11, 5000)
        os.kill(world.workers()[0], signal.SIGKILL)
        rows = world.settled(1)
        same(rows[0], first.does)
        expect("killed by signal 9" in rows[0]["end"], rows[0])
        # another accountant knows all
        second = world.program(12, 6000)
        before = world.accountant()
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: world.accountant() not in (None, before), 20, world)
        world.leave(second)
        rows = world.settled(2)
        same(rows[1], second.does)
        expect("another takes its place, nothing is lost" in world.log(), world.log())
        # the server: up to the last measurement, a second ago at most
        third = world.program(13, 7000)
        time.sleep(1.5)
        world.kill()
        world.start()
        rows = world.settled(3)
        same(rows[2], third.does)
        expect(rows[2]["end"] == "its server ended" and rows[2]["gpu_seconds_held"] > 0.4, rows[2])
        world.sound()


def case_quotas():
    """What is allowed, the sentences where more is wanted, and what is shown; rules that are read again."""
    user = "uid:%d" % os.getuid()
    rules = {"default": {"quota": {"sessions": 5}}, "users": {user: {"quota": {"sessions": 2, "memory": "1T"}}},
             "projects": {"vision": {"members": [user], "quota": {"sessions": 1}}},
             "groups": {"all": {"members": [user, "unauthenticated"], "quota": {"gpus": 2}}}}
    with World(rules=rules).start() as world:
        expect("sessions                      0 of 2" in world.command("quota").stdout, world.command("quota").stdout)
        first = world.program(1, 64, "--project", "vision", "-m", "1G")
        refused = world.begin(1, 64, "--project", "vision", "-m", "1G")
        expect(refused.wait(60) != 0, "a session too many of a project")
        expect("project vision has 1 session on this server, and may have 1 at once" in refused.stderr.read(), "")
        second = world.program(1, 64, "-m", "1G")
        for server, code in ((world.socket, "[quota-sessions]"), (world.address, "[quota-gpus]")):
            refused = world.begin(1, 64, "-m", "1G", server=server)
            said = refused.stderr.read()
            expect(refused.wait(60) != 0 and code in said, said)
        quotas = json.loads(world.command("quota", "--json", status=1).stdout)["servers"][0]
        expect(quotas["user"] == user, quotas)
        found = {(one["scope"], one["what"]): one for one in quotas["quotas"]}
        expect(found["user", "sessions"]["used"] == 2 and found["user", "sessions"]["used_up"], quotas)
        expect(found["user", "memory"]["used"] == 2 << 30, quotas)
        expect(found["group", "gpus"]["used"] == 2, quotas)
        expect(("project", "sessions") not in found, quotas)
        quotas = json.loads(world.command("quota", "--project", "vision", "--json", status=1).stdout)["servers"][0]
        found = {(one["scope"], one["what"]): one for one in quotas["quotas"]}
        expect(found["project", "sessions"]["used"] == 1 and found["project", "sessions"]["used_up"], quotas)
        refused = world.command("quota", "--project", "vision", server=world.address, status=125)
        expect("you are no member of a project 'vision'" in refused.stderr, refused.stderr)
        world.leave(first)
        world.leave(second)
        rules["users"][user]["quota"]["memory"] = "512M"
        world.write_rules(rules)
        world.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "hold for new sessions" in world.log(), 20, world)
        refused = world.begin(1, 64, "-m", "1G")
        said = refused.stderr.read()
        expect(refused.wait(60) != 0 and "[quota-memory]" in said, said)
        # wrong ones are said, and change nothing
        rules["groups"]["all"]["quota"]["gpu"] = 3
        world.write_rules(rules)
        world.process.send_signal(signal.SIGHUP)
        wait_until(lambda: '"gpu" is not a quota' in world.log(), 20, world)
        world.leave(world.program(1, 64, "-m", "256M"))
        world.stop()
        world.start(wait=False)
        expect(world.process.wait(60) == 125, "it started with wrong rules")
    with World("--accounts", "off", rules={"default": {"quota": {"gpu-hours-day": 1}}}) as world:
        world.start(wait=False)
        expect(world.process.wait(60) == 125 and "--accounts=on" in world.log(), world.log())
    # however many groups somebody is in, all of them must have room
    groups = {"group %d" % i: {"members": [user], "quota": {"sessions": 9}} for i in range(30)}
    groups["last"] = {"members": [user], "quota": {"sessions": 0}}
    with World(rules={"groups": groups}).start() as world:
        refused = world.begin(1, 64)
        said = refused.stderr.read()
        expect(refused.wait(60) != 0 and "group last has 0 sessions" in said, said)


def case_used_up():
    """GPU hours that are used up: no new session, the program is told, and its session ends when the rules say so."""
    user = "uid:%d" % os.getuid()
    rules = {"users": {user: {"quota": {"gpu-hours-day": 1.5 / 3600}}}, "when-used-up": {"action": "end", "grace": "2s"}}
    with World(rules=rules).start() as world:
        program = world.program(1, 64)
        said = program.stderr.readline()
        expect("your GPU hours on the server are used up: no new session can begin, and this session ends in 3 s" in said, said)
        wait_until(lambda: world.sessions() == 0, 20, world)
        program.stdin.close()
        program.wait(30)
        expect("event=quota" in world.log(), world.log())
        refused = world.begin(1, 64)
        said = refused.stderr.read()
        expect(refused.wait(60) != 0 and "[quota-gpu-hours-day]" in said, said)
        quotas = json.loads(world.command("quota", "--json", status=1).stdout)["servers"][0]["quotas"]
        expect(quotas[0]["used_up"] and quotas[0]["renewed"] % 86400 == 0, quotas)
        # it is known after a restart, too
        world.stop()
        world.start()
        refused = world.begin(1, 64)
        said = refused.stderr.read()
        expect(refused.wait(60) != 0 and "[quota-gpu-hours-day]" in said, said)
        # only warned, where the rules say no more
        del rules["when-used-up"]
        rules["users"][user]["quota"]["gpu-hours-day"] = (world.usage(by="day")[0]["gpu_seconds_held"] + 1) / 3600
        world.write_rules(rules)
        world.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "hold for new sessions" in world.log(), 20, world)
        program = world.program(1, 64)
        line = program.stderr.readline()
        expect("this session may go on" in line, line)
        world.leave(program)


def case_midnight():
    """A new day begins while nobody does anything, and gives new GPU hours; a clock that is set back gives none twice."""
    user = "uid:%d" % os.getuid()
    rules = {"users": {user: {"quota": {"gpu-hours-day": 1.2 / 3600}}}}
    with tempfile.NamedTemporaryFile("w") as clock, World(rules=rules, environment={
            "LD_PRELOAD": os.path.join(BUILD, "tests", "moved_clock.so"), "MOVED_CLOCK": clock.name}) as world:
        def move(days):
            clock.seek(0)
            clock.truncate()
            clock.write(str(days * 86400))
            clock.flush()

        world.start()
        program = world.program(1, 64)
        expect("GPU hours on the server are used up" in program.stderr.readline(), "nothing was said")
        world.leave(program)
        time.sleep(1.2) # the server has measured that there is nothing to be measured
        world.command("quota", status=1)
        move(1)
        world.command("quota", status=0)
        world.leave(world.program(1, 64))
        move(0)
        wait_until(lambda: world.command("quota", status=None).returncode == 1, 20, world)
        said = world.begin(1, 64).stderr.read()
        expect("[quota-gpu-hours-day]" in said, said)


def case_broken():
    """A file that cannot be used: one sentence; sessions go on, quotas of hours do not open, and nothing is lost."""
    user = "uid:%d" % os.getuid()
    rules = {"users": {user: {"quota": {"gpu-hours-day": 10}}}}
    with World(rules=rules) as world:
        os.makedirs(os.path.join(world.state, "accounts"), mode=0o700)
        os.chmod(world.state, 0o700)
        with open(world.database(), "w") as file:
            file.write("no database\n" * 1000)
        world.start()
        refused = world.begin(1, 64)
        said = refused.stderr.read()
        expect(refused.wait(60) != 0 and "[quota-unknown]" in said, said)
        program = world.program(5, 64, server=world.address) # no quota of hours
        result = world.command("usage", status=125)
        expect("the server's accounts cannot be read now" in result.stderr, result.stderr)
        wait_until(lambda: "is damaged" in world.log(), 20, world)
        program.stdin.close()
        program.wait(30)
        wait_until(lambda: world.sessions() == 0, 20, world)
        time.sleep(0.2)
        expect(world.log().count("is damaged") == 1, world.log())
        os.rename(world.database(), world.database() + ".old")
        wait_until(lambda: "the accounts are saved again; nothing is lost" in world.log(), 30, world)
        same(world.settled(1)[0], program.does)
        world.leave(world.program(1, 64))


def case_full():
    """A disk that is full: what was used is kept in memory until there is room."""
    with World() as world:
        os.makedirs(os.path.join(world.state, "accounts"), mode=0o700)
        os.chmod(world.state, 0o700)
        folder = os.path.join(world.state, "accounts")
        mounted = os.getuid() == 0 and subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=512k,mode=700", "tmpfs", folder], capture_output=True).returncode == 0
        if not mounted:
            print("left out: no file system can be mounted here")
            return
        try:
            world.start()
            world.leave(world.program(1, 64))
            world.settled(1)
            ballast = os.path.join(folder, "ballast")
            with contextlib.suppress(OSError), open(ballast, "wb") as file:
                while True:
                    file.write(b"0" * 4096)
                    file.flush()
            programs = [world.program(n, 64) for n in (7, 8)]
            # the pages that there are may do for a while
            wait_until(lambda: "the disk is full" in world.log() or "are not saved" in world.log(), 60, world)
            for program in programs:
                program.stdin.close()
                program.wait(30)
            wait_until(lambda: world.sessions() == 0, 20, world)
            expect(world.log().count("are not saved") == 1, world.log())
            os.unlink(ballast)
            wait_until(lambda: "the accounts are saved again" in world.log(), 30, world)
            rows = world.settled(3)
            expect(sorted(row["launches"] for row in rows) == [1, 7, 8], "not all is there", rows)
            world.stop()
        finally:
            world.stop()
            subprocess.run(["umount", folder], check=False)


def case_relative_folder():
    """A state folder that is named from where the server was started is the accountant's as well."""
    before = os.getcwd()
    with World() as world:
        os.chdir(world.folder)
        try:
            world.state = "state"
            world.start()
            wait_until(lambda: os.path.exists(os.path.join("state", "accounts", "accounts.db")), 30, world)
        finally:
            os.chdir(before)


def case_sandboxed():
    """The accountant has no rights that it does not need."""
    with World("--sandbox", "auto").start() as world:
        world.leave(world.program(1, 64)) # so that it is well confined by now
        world.settled(1)
        with open("/proc/%d/status" % world.accountant()) as file:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        held = re.search(r"sandbox \(auto\): (.*)", world.log()).group(1)
        if "system calls (seccomp)" in held:
            expect(status["Seccomp"] == "2", status)
        if "no capabilities" in held:
            expect(all(int(status[name], 16) == 0 for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")), status)
        if "no new privileges" in held:
            expect(status["NoNewPrivs"] == "1", status)
        if "network namespace" in held and os.getuid() == 0:
            expect(os.readlink("/proc/%d/ns/net" % world.accountant()) != os.readlink("/proc/self/ns/net"), "it has the network")


CARD = 4 << 30


def check_ledger(world):
    """No more is promised, or held, of a device than it has."""
    result = world.command("list", "--json", status=None)
    for number in range(2):
        of = [device for session in json.loads(result.stdout)["servers"][0].get("sessions", [])
              for device in session.get("share", {}).get("devices", []) if device.get("device", 0) == number]
        owed = sum(max(device["memory_limit"] or 0, device["memory_used"]) for device in of)
        expect(owed <= CARD, "GPU %d owes %d bytes" % (number, owed), result.stdout)


def check_empty(world):
    """Nobody has anything of the devices any more: all of both can be promised. The program that had it, and has left."""
    wait_until(lambda: world.sessions() == 0, 30, world)
    program = world.program(1, 64, "-p", "1.0")
    world.leave(program)
    return program


def start_collectives(world):
    """A program with ranks of NCCL on both devices, that ends by itself, or with its worker."""
    program = subprocess.Popen([os.path.join(BIN, "remote-gpu"), "run", "--project", "nccl", "--", os.path.join(BUILD, "tests", "collectives"),
                                "stream", "65536", "2000"], env=dict(ENVIRONMENT, REMOTE_GPU_SERVER=world.socket),
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    world.programs.append(program)
    return program


def random_kills(seconds):
    """
    Workers, the accountant and the server are killed at random, among them warm ones and some with ranks of NCCL: sums are never too small,
    too large or damaged, and all memory is there again whenever nobody has any.
    """
    seed = random.randrange(1 << 32)
    print("seed %d" % seed)
    chance = random.Random(seed)
    end = time.monotonic() + seconds
    did = {"launches": 0, "bytes_in": 0} # by programs that had said so a while before the server was killed
    most = {"launches": 0, "bytes_in": 0}
    with World("--warm-workers", "1", environment={"SOFTGPU_DEVICES": "2", "SOFTGPU_MEMORY": str(CARD),
                                                   "SOFTGPU_BEHAVE": "nvidia"}).start() as world:
        began = time.monotonic()
        running, collectives = [], []
        rounds = empty = 0
        while time.monotonic() < end:
            rounds += 1
            for _ in range(chance.randrange(3) if len(running) < 6 else 0):
                launches, size = chance.randrange(1, 200), chance.randrange(64, 1 << 18)
                most["launches"] += launches
                most["bytes_in"] += 2 * size + 4
                running.append(world.program(launches, size, *chance.choice([(), ("-m", "256M"), ("-p", "0.1")])))
            collectives = [one for one in collectives if one.poll() is None]
            if len(collectives) < 2 and chance.random() < 0.2:
                collectives.append(start_collectives(world))
            check_ledger(world)
            deed = chance.choice(["leave", "leave", "worker", "worker", "accountant", "server"])
            if deed == "leave" and running:
                program = running.pop(chance.randrange(len(running)))
                program.stdin.close()
                program.wait(30)
                did = {name: did[name] + program.does[name] for name in did}
            elif deed == "worker" and world.workers():
                os.kill(chance.choice(world.workers()), signal.SIGKILL)
            elif deed == "accountant" and world.accountant():
                os.kill(world.accountant(), signal.SIGKILL)
            elif deed == "server":
                time.sleep(1.3) # what they have done has been measured
                wait_until(lambda: world.accountant() is not None, 30, world)
                time.sleep(1.2) # and told
                for program in running:
                    did = {name: did[name] + program.does[name] for name in did}
                for program in running:
                    program.stdin.close()
                running = []
                world.kill()
                world.start()
            time.sleep(chance.random() / 4)
            for program in [one for one in running if one.poll() is not None]:
                running.remove(program) # its worker was killed; what it did is in the slot
                did = {name: did[name] + program.does[name] for name in did}
            if chance.random() < 0.1 or not empty:
                for program in collectives:
                    program.kill()
                for program in running:
                    program.stdin.close()
                    program.wait(30)
                    did = {name: did[name] + program.does[name] for name in did}
                running = []
                alone = check_empty(world)
                did = {name: did[name] + alone.does[name] for name in did}
                most = {name: most[name] + alone.does[name] for name in most}
                empty += 1
        for program in collectives:
            program.kill()
        for program in running:
            program.stdin.close()
            program.wait(30)
            did = {name: did[name] + program.does[name] for name in did}
        wait_until(lambda: world.sessions() == 0, 30, world)
        time.sleep(0.5)
        n_programs = len(world.programs)
        world.stop()
        launches, held, bytes_in, least, longest = world.sound()
        lasted = time.monotonic() - began
        print("%d rounds, %d sessions, %d launches, all memory was free %d times" % (rounds, n_programs, launches, empty))
        expect(did["launches"] <= launches <= most["launches"], "launches: %d, of %s to %s" % (launches, did, most), world.log())
        expect(did["bytes_in"] <= bytes_in <= most["bytes_in"], "bytes: %d, of %s to %s" % (bytes_in, did, most), world.log())
        expect(0 <= least and longest <= held <= 2 * n_programs * lasted * 1e9, "held for %d ns" % held)
        with contextlib.closing(sqlite3.connect(world.database())) as database:
            still = database.execute("SELECT count(*) FROM session WHERE ended = 0 OR ended < started").fetchone()[0]
            expect(still == 0, "%d sessions are open" % still)


def main():
    cases = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}
    words = sys.argv[2:]
    if words[:1] == ["--random"]:
        seconds = float(words[1])
        cases = {"random": lambda: random_kills(seconds)}
        words = ["random"]
    failed = False
    for name in words or cases:
        began = time.monotonic()
        try:
            cases[name]()
            print("%s: ok (%.1f s)" % (name, time.monotonic() - began), flush=True)
        except (Failure, subprocess.TimeoutExpired, AssertionError) as failure:
            print("%s: FAILED: %s" % (name, failure), flush=True)
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
