"""Many programs of several users at once, each as directly, while things happen to the server.

usage: soak_test.py BUILD_FOLDER [--seconds S] [--seed N]

Examples, whose output is the same in every run, are started at random, a few at a time: by a unix socket, by TCP, by TLS; with shares,
optimisations and ways to wait that are drawn for each. Meanwhile sessions are suspended and resumed, clients are stopped for a while,
programs are killed, and so is the server's accountant. Whatever was not killed must end as it does directly, with the same output
and nothing on stderr, and at the end the server has no session and owes no memory.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))

from trial import Build, Failure, Server, children_of, name_of, optimisations, run_program, stop_with_servers, wait_until  # noqa: E402

AT_ONCE = 5
PATIENCE = 240
# What they print, or how they end, depends on the machine or needs more than two devices.
LEFT_OUT = ("errors", "nccl")
IDLE = "this session does not use the GPU" # what --idle-timeout says
BEHAVIOURS = ({}, {"SOFTGPU_BEHAVE": "nvidia:init=300:context=50"}, {"SOFTGPU_BEHAVE": "nvidia:init=0:context=0"})


class Run:
    """A program that runs, how it was started, and what was done to it."""

    def __init__(self, name, arguments, environment, process):
        self.name, self.arguments, self.environment, self.process = name, arguments, environment, process
        self.began = time.monotonic()
        self.killed = False
        self.output = self.errors = ""
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        self.output, self.errors = self.process.communicate()

    def describe(self):
        shown = ["%s=%s" % pair for pair in sorted(self.environment.items())]
        return " ".join([*shown, "remote-gpu run", *self.arguments, "--", self.name])


class Soak:
    """A server, its users, and the programs that they run."""

    def __init__(self, build, seed):
        self.build = build
        self.chance = random.Random(seed)
        self.folder = tempfile.mkdtemp(prefix="remote-gpu-soak-")
        self.state = os.path.join(self.folder, "state")
        self.behaviour = self.chance.choice(BEHAVIOURS)
        self.running = []
        self.ended = {"well": 0, "killed": 0}
        self.deeds = {}

    def serve(self):
        environment = {"SOFTGPU_DEVICES": "2", "SOFTGPU_MEMORY": str(16 << 30), **self.behaviour}
        arguments = ["--listen", "127.0.0.1:0", "--state-dir", self.state, "--warm-workers", self.chance.choice(("0", "2")),
                     "--config", "/dev/null", "--reconnect-grace", self.chance.choice(("0", "5"))]
        return Server(self.build, arguments=arguments, environment=environment)

    def join(self, address):
        """A user with a certificate; the environment of its programs."""
        settings = os.path.join(self.folder, "settings")
        token = run_program([self.build.daemon, "token", "--user", "alice", "--state-dir", self.state, "--server", address])
        joined = run_program([self.build.command, "join", token.output.strip()], {"XDG_CONFIG_HOME": settings})
        if joined.status != 0:
            raise Failure(token.report() + joined.report())
        return {"XDG_CONFIG_HOME": settings}

    def prepare(self, server):
        """What each program gives directly, and the ways to the server."""
        with open(server.ready_path) as file:
            self.ways = [(server.address, {}), (file.read().split()[1].replace("tcp://", ""), {})]
        self.ways.append((self.ways[1][0], self.join(self.ways[1][0])))
        self.optimisations = optimisations(self.build, server.address)
        self.directly = {}
        for name in self.build.examples():
            if name in LEFT_OUT:
                continue
            result = self.build.run_direct([self.build.example(name)], environment={"SOFTGPU_DEVICES": "2", **self.behaviour},
                                           timeout=PATIENCE)
            if result.status != 0:
                raise Failure("directly:\n" + result.report())
            self.directly[name] = result.output

    def options(self):
        """Options of the command and settings of the environment, by chance."""
        chance = self.chance
        arguments, environment = [], {}
        if chance.random() < 0.2:
            arguments += chance.choice((["-m", "1500M"], ["-p", "0.1"]))
        if chance.random() < 0.3:
            arguments += chance.choice((["--compute", "60%"], ["--weight", "300"], ["--priority", "low"]))
        if chance.random() < 0.3:
            arguments += ["--opt", chance.choice(("-all", "-" + chance.choice(self.optimisations)))]
        if chance.random() < 0.3:
            arguments += ["--wait", chance.choice(("block", "spin"))]
        if chance.random() < 0.3:
            arguments += ["--connections", chance.choice(("0", "1", "3"))]
        if chance.random() < 0.2:
            arguments += ["--compress", chance.choice(("lz4", "zstd", "auto"))]
        if chance.random() < 0.3:
            arguments += ["--idle-timeout", "1"]
        return arguments, environment

    def start(self):
        name = self.chance.choice(sorted(self.directly))
        address, environment = self.chance.choice(self.ways)
        arguments, more = self.options()
        arguments = ["-s", address, *arguments]
        environment = {**environment, **more}
        process = subprocess.Popen([self.build.command, "run", *arguments, "--", self.build.example(name)],
                                   env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.running.append(Run(name, arguments, environment, process))

    def listed(self, server):
        result = run_program([self.build.command, "list", "-s", server.address, "--json"])
        return json.loads(result.output)["servers"][0] if result.status == 0 else {}

    def interfere(self, server):
        """One thing that may happen at any time."""
        deed = self.chance.choice(("suspend", "suspend", "suspend", "stop", "kill", "accountant", "reload"))
        if deed == "suspend":
            sessions = [str(session["id"]) for session in self.listed(server).get("sessions", [])]
            if sessions:
                session = self.chance.choice(sessions)
                run_program([self.build.daemon, "suspend", session, "--state-dir", self.state])
                if self.chance.random() < 0.5:
                    run_program([self.build.daemon, "resume", session, "--state-dir", self.state])
        elif deed == "stop" and self.running:
            run = self.chance.choice(self.running)
            self.signal(run, signal.SIGSTOP)
            time.sleep(self.chance.random())
            self.signal(run, signal.SIGCONT)
        elif deed == "kill" and self.running:
            run = self.chance.choice(self.running)
            run.killed = True
            self.signal(run, signal.SIGKILL)
        elif deed == "accountant":
            for pid in children_of(server.process.pid):
                if name_of(pid) == "accountant":
                    os.kill(pid, signal.SIGKILL)
        elif deed == "reload":
            server.process.send_signal(signal.SIGHUP)
        self.deeds[deed] = self.deeds.get(deed, 0) + 1

    @staticmethod
    def signal(run, number):
        try:
            os.killpg(run.process.pid, number)
        except ProcessLookupError:
            pass

    def collect(self, server):
        """Sees what has ended."""
        for run in list(self.running):
            lasted = time.monotonic() - run.began
            if run.reader.is_alive() and lasted < PATIENCE:
                continue
            self.running.remove(run)
            what = None
            if run.reader.is_alive():
                subprocess.run(["sh", "-c", "for t in /proc/%d/task/*; do cat $t/wchan; echo; done" % run.process.pid], check=False)
                self.signal(run, signal.SIGABRT)
                what = "no end after %d s" % lasted
            elif run.killed:
                self.ended["killed"] += 1
            elif run.process.returncode != 0:
                what = "exit status %d" % run.process.returncode
            elif run.output != self.directly[run.name]:
                what = "another output than directly"
            elif any(IDLE not in line for line in run.errors.splitlines()):
                what = "something on stderr"
            else:
                self.ended["well"] += 1
            if what:
                raise Failure("%s: %s\n--- stdout\n%s--- stderr\n%s--- the server's log\n%s" % (
                    run.describe(), what, run.output, run.errors, server.log()))

    def finish(self, server):
        """All end; then nobody has anything."""
        if not wait_until(lambda: self.collect(server) or not self.running, PATIENCE, 0.1):
            raise Failure("programs do not end")
        if not wait_until(lambda: not self.listed(server).get("sessions_running", 1), 30):
            raise Failure("sessions are left\n" + server.log())
        whole = run_program([self.build.command, "run", "-s", server.address, "-p", "1.0", "--", self.build.example("vector_add")])
        if whole.status != 0:
            raise Failure("not all memory is free at the end\n" + whole.report() + server.log())

    def run(self, seconds):
        with self.serve() as server:
            self.prepare(server)
            end = time.monotonic() + seconds
            try:
                while time.monotonic() < end:
                    if len(self.running) < AT_ONCE and self.chance.random() < 0.7:
                        self.start()
                    if self.chance.random() < 0.15:
                        self.interfere(server)
                    time.sleep(self.chance.random() / 5)
                    self.collect(server)
                self.finish(server)
            finally:
                for run in self.running:
                    self.signal(run, signal.SIGKILL)
                subprocess.run(["rm", "-rf", self.folder], check=False)


def main():
    stop_with_servers()
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    soak = Soak(Build(arguments.build), arguments.seed)
    print("seed %d, %s" % (arguments.seed, soak.behaviour or "the software device as it is"), flush=True)
    try:
        soak.run(arguments.seconds)
    except Failure as failure:
        sys.exit("soak: FAILED after %s, %s: %s" % (soak.ended, soak.deeds, failure))
    print("soak: ok: %s, %s" % (soak.ended, soak.deeds))


if __name__ == "__main__":
    main()
