"""What becomes of programs whose server cannot be reached any more, and of servers whose client cannot: as each of them sees it, with the
settings that everybody has (docs/transports.md, "When the connection is lost").

usage: losses.py BUILD_FOLDER CASE

The machines are those of run.py, and so is what they need.
"""

import json
import os
import re
import shutil
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))
sys.path.insert(0, HERE)

from machines import NAME, Background, World, checked, expect, skip  # noqa: E402
from trial import run_case, wait_until  # noqa: E402

LOG = {"REMOTE_GPU_LOG": "debug"}
CUT = {"REMOTE_GPU_FILTER": "fault:cut_every=3000000,seed=1"}


def cut(world, on):
    """Nothing of the cable arrives any more, at either end, or all does again; nobody is told."""
    for chain, way in (("INPUT", "-i"), ("OUTPUT", "-o")):
        checked(*world.server.command("iptables", "-w", "-A" if on else "-D", chain, way, "eth0", "-j", "DROP"))


def begin(world, *arguments):
    """A server with the settings that everybody has, and a program of a user that goes on until its session ends."""
    if not shutil.which("iptables") or world.run_server("iptables", "-w", "-L").status != 0:
        skip("there are no rules of packets here (iptables)")
    daemon = world.start_server(*arguments, environment=LOG)
    world.join("alice")
    return daemon, world.hold()


def controlled(daemon, times=1):
    """Waits until the server knows by a second connection whether the program lives; for so many links of the session."""
    expect(wait_until(lambda: daemon.output().count("has a control connection") == times, 30), "it has none:\n" + daemon.output())


def states(world):
    """Of the server's sessions, as its operator has them."""
    listed = world.run_server(world.build.command, "list", "-s", "unix:" + world.path("socket"), "--json")
    return [session["share"]["state"] for each in json.loads(listed.output)["servers"] for session in each["sessions"]]


def worker_of(daemon):
    """The process of the first session."""
    return int(re.search(r"worker (\d+)", daemon.output()).group(1))


def ends(program, seconds, *words):
    """It ends by itself, as one whose session has ended, and says all that."""
    expect(wait_until(lambda: program.process.poll() is not None, seconds), "it does not end:\n" + program.output())
    for word in ("ended with error 46", *words):
        expect(re.search(word, program.output()), "it does not say %r:\n%s" % (word, program.output()))


def case_lost_connections(world):
    """Between two machines a session goes on after a loss, and ends with its connection if both ends are one machine's."""
    world.start_server("--allow-unauthenticated", environment=LOG)
    command = (world.build.command, "run", "-s", "10.77.0.1:7600", "--allow-unauthenticated", "--", world.build.example("big_copy"))
    between = world.run(*command, timeout=90, **CUT)
    expect(between.status == 0 and "the session goes on" in between.errors, "it did not go on", between)
    within = world.run_server(*command, timeout=90, **CUT)
    expect(within.status != 0 and "goes on" not in within.errors, "it went on", within)


def case_black_hole(world):
    """Nothing arrives any more, from a session's first moment on: the program says so within seconds, and goes on when it can."""
    _, program = begin(world)
    cut(world, True)
    expect(wait_until(lambda: "trying again for 60 s" in program.output(), 45), "it says nothing:\n" + program.output())
    cut(world, False)
    expect(wait_until(lambda: "goes on after" in program.output(), 40), "it does not go on:\n" + program.output())
    expect(program.process.poll() is None, "it has ended:\n" + program.output())


def case_lost_server(world):
    """The server's processes are killed, with and without another server in their place: the program ends at once, and is told why."""
    for again in (False, True):
        daemon, program = begin(world) if not again else (world.start_server(environment=LOG), world.hold())
        if not again:
            controlled(daemon)
        os.kill(daemon.process.pid, signal.SIGSTOP)  # so that it says nothing
        os.kill(worker_of(daemon), signal.SIGKILL)
        if not again:
            os.kill(daemon.process.pid, signal.SIGKILL)
            ends(program, 20, "gave up on .* its process there has ended, and nothing listens there")
            continue
        os.kill(daemon.process.pid, signal.SIGCONT)
        ends(program, 20, "cannot go on: the session has ended on the server: its worker was killed by signal 9")


def case_refusing_firewall(world):
    """Something between refuses for some seconds: the program goes on when it no longer does. Nothing is refused for good while the
    server's process may live.
    """
    daemon, program = begin(world)
    controlled(daemon)
    rule = ("INPUT", "-i", "eth0", "-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset")
    checked(*world.server.command("iptables", "-w", "-I", *rule))
    expect(wait_until(lambda: "(connection refused): trying again for 60 s" in program.output(), 30), "it says nothing:\n" + program.output())
    time.sleep(3)
    checked(*world.server.command("iptables", "-w", "-D", *rule))
    expect(wait_until(lambda: "goes on after" in program.output(), 30), "it does not go on:\n" + program.output())
    expect(program.process.poll() is None, "it has ended:\n" + program.output())


def case_lease_of_a_pool(world):
    """A lease outlives the connection that holds it, as its session does, and ends with that."""
    if not shutil.which("etcd"):
        skip("etcd is not installed")
    etcd = Background(world.server.command("etcd", "--data-dir", world.path("etcd"), "--log-level", "error"), world.server.environment(),
                      world.fresh("etcd.log"))
    world.stack.callback(etcd.stop)
    daemon = world.start_server("--pool", "lab", "--etcd", "http://127.0.0.1:2379", "--advertise", NAME, environment=LOG)
    world.join("alice")
    expect(wait_until(lambda: "in the pool lab" in daemon.output(), 30), "it is in no pool:\n" + daemon.output())
    program = world.hold("-n", "1")
    controlled(daemon)
    if world.run("ss", "-K", "dst", "10.77.0.1").status != 0:
        skip("connections cannot be ended here (ss -K)")
    expect(wait_until(lambda: "the connection of its client was lost" in daemon.output(), 30), "it is not noticed:\n" + daemon.output())
    expect(wait_until(lambda: "goes on after" in program.output(), 30), "it does not go on:\n" + program.output())
    waits = Background(world.client.command(world.build.command, "run", "-n", "1", "--wait-for=5min", "--", "true"), world.client.environment(),
                       world.fresh("waits"))
    world.stack.callback(waits.stop)
    expect(wait_until(lambda: "waiting since" in waits.output(), 30), "it does not wait:\n" + waits.output())
    controlled(daemon, 2)
    world.run("ss", "-K", "dst", "10.77.0.1")
    expect(wait_until(lambda: waits.output().count("waiting since") > 1, 30) and "asking again" in waits.output(),
           "it does not ask again:\n" + waits.output())
    listed = world.remote_gpu("list").output
    expect("1 GPU, 0 free" in listed, "the GPU is given away:\n" + listed)
    controlled(daemon, 3)
    expect(program.process.poll() is None, "it has ended:\n" + program.output())
    program.stop()
    expect(waits.process.wait(60) == 0, "who waited was not granted it:\n" + waits.output())
    expect(wait_until(lambda: "1 GPU, 1 free" in world.remote_gpu("list").output, 30), "it is not freed:\n" + daemon.output())


def case_lost_client(world):
    """A program that is killed is waited for a second. One that is out of reach is listed as waiting, ends when it is told to, and its
    session when its user may not stay.
    """
    daemon, program = begin(world, "--listen", "unix:" + world.path("socket"))
    controlled(daemon)
    os.killpg(program.process.pid, signal.SIGKILL)
    expect(wait_until(lambda: re.search("session 1 ended after", daemon.output()), 20), "it is waited for:\n" + daemon.output())
    waited = re.search(r"its connection was lost, and after ([0-9.]+) s: the client's process has ended", daemon.output())
    expect(waited and float(waited.group(1)) < 5, "it was waited for:\n" + daemon.output())
    program = world.hold()
    cut(world, True)
    expect(wait_until(lambda: states(world) == ["waiting"], 40), "it is not shown as waiting: %s" % states(world))
    os.kill(program.process.pid, signal.SIGINT)
    expect(wait_until(lambda: program.process.poll() is not None, 10), "SIGINT does not end the program")
    expect(states(world) == ["waiting"], "it is not waited for: %s" % states(world))
    world.manage("revoke", "alice")
    expect(wait_until(lambda: "session 2 ended after" in daemon.output(), 20), "its session does not end:\n" + daemon.output())


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    run_case(globals(), World)
