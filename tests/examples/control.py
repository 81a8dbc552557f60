"""Tests of sessions that may outlive their connection, by TCP: whether the client's process has gone, or something between has
cut its connections, is told apart by the control connection (transport/resumable/resumable.h).
"""

import contextlib
import ctypes
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

from expected import expect
from passage import Passage
from trial import Server, wait_until

CHECKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "checker.py")
GRACE = ["--reconnect-grace", "60"]
LOG = {"REMOTE_GPU_LOG": "debug"}
WAIT_S = 40  # less than the grace time
CONTROLLED = "has a control connection"
# The checker, in a process that calls _exit when a file is there.
LEAVES = r"""
import os, sys, threading, time
def leave(path):
    while not os.path.exists(path):
        time.sleep(0.01)
    os._exit(7)
threading.Thread(target=leave, args=(sys.argv[1],), daemon=True).start()
program, sys.argv = sys.argv[2], ["", "/no/such/file"]
exec(compile(open(program).read(), program, "exec"))
"""


def test_gone_client(build):
    """A client that is killed, or calls _exit, in the middle of everything, is not waited for."""
    for tcp in (True, False):
        for how, status in (("killed", -signal.SIGKILL), ("_exit", 7)):
            with Server(build, tcp=tcp, arguments=GRACE, environment=LOG) as server, tempfile.TemporaryDirectory() as folder:
                leave = os.path.join(folder, "leave")

                def end(process, server=server, how=how, leave=leave):
                    wait_until(lambda: CONTROLLED in server.log(), WAIT_S)
                    if how == "killed":
                        os.killpg(process.pid, signal.SIGKILL)
                    else:
                        with open(leave, "w", encoding="ascii"):
                            pass

                result = build.run_remote([sys.executable, "-c", LEAVES, leave, CHECKER], server.address, while_running=end)
                expect(result.status == status, "it did not end so", result, server.log())
                expect(wait_until(lambda server=server: not server.workers(), WAIT_S), "a worker waits for its client",
                       result, server.log())
                expect("the client's process has ended" in server.log(), "the worker does not know why", result, server.log())


def test_young_client(build):
    """A client that is killed before it has a control connection is not waited for longer than another."""
    with Server(build, tcp=True, arguments=GRACE, environment=LOG) as server:
        def end(process):
            wait_until(server.workers, WAIT_S)
            time.sleep(0.3)
            os.killpg(process.pid, signal.SIGKILL)

        for _ in range(3):
            result = build.run_remote([sys.executable, CHECKER, "/no/such/file"], server.address, while_running=end)
            expect(wait_until(lambda: not server.workers(), WAIT_S), "a worker waits for its client", result, server.log())
        waited = [float(seconds) for seconds in re.findall(r"its connection was lost, and after ([0-9.]+) s", server.log())]
        expect(max(waited, default=0) < 4, "clients were waited for %s s" % waited, server.log())


def states(build, server):
    """Of the server's sessions, as `remote-gpu list` has them."""
    done = subprocess.run([build.command, "list", "-s", server.address, "--json"], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True)
    return [session["share"]["state"] for each in json.loads(done.stdout)["servers"] for session in each["sessions"]]


def test_waiting_session(build):
    """A session that waits for its client is listed so, and a server that stops does not wait for it."""
    with Server(build, tcp=True, arguments=GRACE, environment=LOG) as server, Between(server.address) as between:
        def stop(process):
            wait_until(lambda: CONTROLLED in server.log(), WAIT_S)
            between.reset()
            shown = wait_until(lambda: states(build, server) == ["waiting"], WAIT_S)
            status = server.stop(25)  # less than it gives sessions
            os.killpg(process.pid, signal.SIGKILL)
            expect(shown, "the session is not shown as waiting", server.log())
            expect(status == 0, "the server waited, or ended with %s" % status, server.log())

        build.run_remote([sys.executable, CHECKER, "/no/such/file"], between.address, while_running=stop)


def test_automatic(build):
    """Without a setting a session within one machine, whose connection is not lost, ends with it: by TCP as by a unix socket.
    tests/security/losses.py has those between machines, which go on.
    """
    environment = {"REMOTE_GPU_FILTER": "fault:cut_every=3000000,seed=1"}
    for tcp in (True, False):
        with Server(build, tcp=tcp, arguments=["--reconnect-grace", "auto"], environment=LOG) as server:
            result = build.run_remote([build.example("big_copy")], server.address, environment=environment, timeout=90)
            expect(result.status != 0 and "goes on" not in result.errors,
                   "the session did not end so", result, server.log())


class Between(Passage):
    """Can reset all connections at once, as a firewall does that has forgotten them."""

    def __init__(self, address):
        super().__init__(address)
        self.passes = threading.Event()
        self.passes.set()

    def accept_one(self):
        """Takes what comes; while nothing passes it stays in the queue."""
        self.passes.wait()
        select.select([self.listener], [], [])
        if self.passes.is_set():
            super().accept_one()

    def reset(self):
        """Ends all connections, both ways, by RST; none passes until `passes` is set."""
        self.passes.clear()
        for pair in list(self.ends.values()):
            for end in pair:
                with contextlib.suppress(OSError):  # without an orderly end before it, whoever is inside comes out
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    disconnect(end)


def disconnect(end):
    """Dissolves a connection, for which the kernel sends a RST."""
    unspecified = struct.pack("H14x", socket.AF_UNSPEC)
    ctypes.CDLL(None).connect(end.fileno(), unspecified, len(unspecified))


def test_reset_connections(build):
    """All connections of a session are reset by something between; its client, which lives, comes back after 8 s."""
    with Server(build, tcp=True, arguments=GRACE, environment=LOG) as server, Between(server.address) as between, tempfile.TemporaryDirectory() as folder:
        stop = os.path.join(folder, "stop")

        def cut(_):
            wait_until(lambda: CONTROLLED in server.log(), WAIT_S)
            between.reset()
            time.sleep(8)  # longer than a client is waited for of which nothing is known
            between.passes.set()
            wait_until(lambda: server.log().count(CONTROLLED) > 1, WAIT_S)
            with open(stop, "w", encoding="ascii"):
                pass

        result = build.run_remote([sys.executable, CHECKER, stop, "1"], between.address, while_running=cut, timeout=120)
        expect(result.status == 0 and "good" in result.output and "the session goes on" in result.errors,
               "the session has not survived", result, server.log())
        expect(wait_until(lambda: not server.workers(), WAIT_S), "a worker is left", server.log())


def test_lost_while_interrupted(build):
    """A signal handler that has interrupted a call that waits makes calls itself while the connection is lost: both go on."""
    with Server(build, tcp=True, arguments=GRACE, environment=LOG) as server, Between(server.address) as between, tempfile.TemporaryDirectory() as folder:
        files = {name: os.path.join(folder, name) for name in ("HANDLING", "HANDLED")}

        def cut(_):
            wait_until(lambda: os.path.exists(files["HANDLING"]) and CONTROLLED in server.log(), WAIT_S)
            time.sleep(0.1)  # the handler has made a call
            between.reset()
            between.passes.set()
            wait_until(lambda: "without a connection" in server.log(), WAIT_S)
            with open(files["HANDLED"], "w", encoding="ascii"):
                pass

        result = build.run_remote([os.path.join(build.folder, "tests", "process_handlers"), "handler_for_long"], between.address,
                                  environment=files, while_running=cut, timeout=120)
        expect("signals: 1; 0 0 0; bytes: 9 9" in result.output and "the session goes on" in result.errors,
               "it is not as without a loss", result, server.log())
