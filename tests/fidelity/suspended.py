"""Runs programs remotely while their sessions are suspended and resumed at random moments; their transcripts must be those of
the programs directly on the software device.

usage: suspended.py BUILD_FOLDER [seed=N] [memory=SIZE] [devices=N] [times=N] PROGRAM[,ARGUMENT…] …

times=N: so many suspensions at least, over all programs, or nothing was tested. PROGRAM is one of tests/, or examples/NAME.
"""

import difflib
import os
import random
import re
import signal
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))

from trial import Build, Server, stop_with_servers  # noqa: E402

WAYS = {"as it is": {}, "no optimisation": {"REMOTE_GPU_OPT": "-all"}}
ROUNDS = 20
PAUSES = (0, 0.001, 0.003, 0.01, 0.03)  # seconds between suspensions, at most


def takes_signals(pid):
    """Whether a worker is so far that it waits for the signal, which would end it before."""
    try:
        with open("/proc/%d/status" % pid) as file:
            blocked = re.search(r"^SigBlk:\s*([0-9a-f]+)", file.read(), re.M)
        return bool(int(blocked[1], 16) >> (signal.SIGUSR1 - 1) & 1)
    except (OSError, TypeError):
        return False


class Disturber:
    """A thread that has every worker of the server suspend itself, again and again."""

    def __init__(self, server, seed):
        self.server, self.random, self.over = server, random.Random(seed), threading.Event()
        self.thread = threading.Thread(target=self.disturb)

    def disturb(self):
        pids, looked = [], 0
        while not self.over.is_set():
            if time.monotonic() - looked > 0.05:
                pids, looked = [pid for pid in self.server.workers() if takes_signals(pid)], time.monotonic()
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGUSR1)
                except ProcessLookupError:
                    pass
            time.sleep(self.random.random() * self.random.choice(PAUSES))

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def main():
    stop_with_servers()
    build = Build(sys.argv[1])
    options = dict(word.split("=") for word in sys.argv[2:] if "=" in word)
    programs = [word for word in sys.argv[2:] if "=" not in word]
    memory = {"SOFTGPU_" + name.upper(): options[name] for name in ("memory", "devices") if name in options}
    good, suspensions, least, rounds = True, 0, int(options.get("times", 10)), 0
    with Server(build, environment=dict(memory, REMOTE_GPU_LOG="info")) as server:
        while good and rounds < ROUNDS and (rounds == 0 or suspensions < least):  # a slow machine gets in fewer at once
            rounds += 1
            for number, program in enumerate(programs):
                name, *arguments = program.split(",")
                command = [os.path.join(build.folder, name if "/" in name else os.path.join("tests", name))] + arguments
                direct = build.run_direct(command, environment=memory)
                good = good and direct.status == 0
                for way, environment in WAYS.items():
                    with Disturber(server, int(options.get("seed", 1)) + number + 100 * rounds):
                        remote = build.run_remote(command, server.address, environment=environment, timeout=280)
                    times = server.log().count(": is back after") - suspensions
                    suspensions += times
                    same = remote.output == direct.output and remote.status == direct.status
                    print("%s, %s: suspended %d times, %s" % (program, way, times, "the same" if same else remote.describe()),
                          flush=True)
                    if not same:
                        good = False
                        print("\n".join(difflib.unified_diff(direct.output.splitlines(), remote.output.splitlines(), "directly",
                                                             "suspended", lineterm="", n=1)))
                        print(remote.errors, server.log())
    if suspensions < least:
        print("%d suspensions are too few: %d are meant" % (suspensions, least))
    return 0 if good and suspensions >= least else 1


if __name__ == "__main__":
    sys.exit(main())
