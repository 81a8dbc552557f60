"""Parts `failover` and `returning` of guest_suite: sessions that move to RDMA, lose that in mid-run, go on over TCP, and go
back to RDMA when it works again.

TCP goes by the loopback interface, RDMA by the veth pair, so that one can fail without the other.
"""

import os
import re
import subprocess
import sys
import tempfile

from trial import Server, wait_until

# The machine is emulated and shares its processors: how long a program may take before it counts as one that hangs, and how
# long something may take that is waited for. No check is about speed.
PATIENCE_S = 600
WAIT_S = 120

HERE = os.path.dirname(os.path.abspath(__file__))
CHECKER = os.path.join(HERE, "..", "examples", "checker.py")
GRACE = ("--allow-unauthenticated", "--reconnect-grace", "60")


def mend_link(number=1):
    """Makes a link as it was at the start, with devices of its own: Soft-RoCE's do not get over its having been down."""
    for end in ("server", "client"):
        subprocess.run(["rdma", "link", "delete", "rxe-" + end + ("" if number == 1 else str(number))],
                       stderr=subprocess.DEVNULL, check=False)
    subprocess.run([os.path.join(HERE, "guest-pair"), str(number)], check=True)


def remove_link(number):
    """Takes away a link that mend_link has made beside the first."""
    for end in ("server", "client"):
        subprocess.run(["rdma", "link", "delete", "rxe-%s%d" % (end, number)], check=False)
    subprocess.run(["ip", "link", "delete", "v-client%d" % number], check=False)


def ip_link(device, state):
    subprocess.run(["ip", "link", "set", device, state], check=True)


def netem(link, shape):
    """Shapes what is sent from a link's end; None: as it was."""
    change = ["replace", "dev", link, "root", "netem", *shape.split()] if shape else ["del", "dev", link, "root"]
    subprocess.run(["tc", "qdisc", *change], check=True)


def remove_device():
    subprocess.run(["rdma", "link", "delete", "rxe-client"], check=True)


# What happens to RDMA, and how it is made good afterwards. A queue pair of which nothing is acknowledged goes to error.
LOSSES = [("black hole", lambda: netem("v-client", "loss 100%"), lambda: netem("v-client", None)),
          ("own port down", lambda: ip_link("v-client", "down"), mend_link),
          ("peer's port down", lambda: ip_link("v-server", "down"), mend_link),
          ("device removed", remove_device, mend_link)]
# Programs, and after how many bytes over the link it is lost: in commands, in data to the device, and from it.
PROGRAMS = [("many_launches", ["400000"], 2000000), ("big_copy", ["48"], 15000000), ("big_copy", ["48"], 60000000)]
# One adapter, so that its loss is that of RDMA; guest_rails has several.
RUN = ["--transport", "rdma", "--rails", "off"]


def cases():
    """Which loss meets which program: each of them at least once, with RDMA_VM_FULL=1 each loss every program."""
    if os.environ.get("RDMA_VM_FULL") == "1":
        return [(loss, program) for loss in LOSSES for program in PROGRAMS]
    return [(loss, PROGRAMS[(i + 1) % len(PROGRAMS)]) for i, loss in enumerate(LOSSES)]


def link_bytes():
    """What has gone over the link so far, both ways."""
    total = 0
    for direction in ("rx_bytes", "tx_bytes"):
        with open("/sys/class/net/v-client/statistics/" + direction, encoding="ascii") as file:
            total += int(file.read())
    return total


def failover(build, check):
    """Losses in the middle of programs: these end as they do without, over TCP."""
    direct = {name: build.run_direct([build.example(name), *arguments], timeout=PATIENCE_S)
              for name, arguments, _ in PROGRAMS}
    with Server(build, listen="0.0.0.0:7600", arguments=GRACE, environment={"REMOTE_GPU_LOG": "info"}) as there:
        without_copies(build, there, check)
        for (what, lose, mend), (name, arguments, after) in cases():
            def in_the_middle(_, lose=lose, until=link_bytes() + after):
                wait_until(lambda: link_bytes() >= until, WAIT_S)
                lose()

            result = build.run_remote([build.example(name), *arguments], "127.0.0.1:7600", RUN, timeout=PATIENCE_S,
                                      while_running=in_the_middle)
            same = (result.status, result.output) == (direct[name].status, direct[name].output)
            check("%s during %s: %.1f s, %s" % (what, name, result.seconds, last_word(result)),
                  same and "the session goes on over TCP" in result.errors, result.report() + there.log())
            mend()
            check("    RDMA works again", wait_until(lambda: works(build), WAIT_S, 0.5), there.log())
        check("no worker crashed", "killed by signal" not in there.log(), there.log())
        check("the server still runs", there.process.poll() is None, there.log())


def returning(build, check):
    """A session that has lost RDMA goes back to it, and can lose it again; the program notices nothing."""
    with Server(build, listen="0.0.0.0:7600", arguments=GRACE, environment={"REMOTE_GPU_LOG": "info"}) as there, \
            tempfile.TemporaryDirectory() as folder:
        stop = os.path.join(folder, "stop")
        moved = []

        def more():
            """Whether the program goes on over RDMA, with data."""
            before = link_bytes()
            return wait_until(lambda: link_bytes() >= before + 12000000, WAIT_S)

        def lose_twice(_):
            for number in (1, 2):
                moved.append(more())
                netem("v-client", "loss 100%")
                moved.append(wait_until(lambda n=2 * number - 1: there.log().count("goes on after") >= n, WAIT_S))
                netem("v-client", None)
                moved.append(wait_until(lambda n=2 * number: there.log().count("goes on after") >= n, WAIT_S))
            moved.append(more())
            with open(stop, "w", encoding="ascii"):
                pass

        result = build.run_remote([sys.executable, CHECKER, stop], "127.0.0.1:7600", RUN, timeout=PATIENCE_S,
                                  while_running=lose_twice)
        links = [link["transport"] for link in result.stats.get("links", [])]
        check("back to RDMA twice: %.0f s, %s" % (result.seconds, result.stats.get("links")),
              result.status == 0 and "good" in result.output and all(moved) and
              result.errors.count("the session is back on it") == 2 and
              links == ["rdma", "tcp", "rdma", "tcp", "rdma"] and result.stats["upgraded_again"] == 2,
              str(moved) + result.report() + there.log())
        check("no worker crashed", "killed by signal" not in there.log(), there.log())


def without_copies(build, there, check):
    """As long as nothing fails, a session that could go on elsewhere moves page-locked memory as one that could not."""
    command = [build.example("streams_overlap")]
    here, remote = build.run_direct(command), build.run_remote(command, "127.0.0.1:7600", RUN, timeout=PATIENCE_S)
    check("pinned memory moves without a copy on the client: %s" % remote.stats,
          (here.status, here.output) == (remote.status, remote.output) and
          remote.stats.get("bulk_copied", 0) < 8192 and remote.stats.get("bulk_direct", 0) >= 6400000 and
          remote.stats.get("bulk_kept", 0) < 500000, here.report() + remote.report() + there.log())
    def moved():
        return re.findall(r"(\d+) bytes in their place and (\d+) by a copy, sent (\d+) from their place and (\d+)", there.log())

    wait_until(moved, WAIT_S)  # the worker says it when it ends
    check("nor on the server: %s" % moved(), moved() and int(moved()[-1][1]) < 8192 and int(moved()[-1][3]) < 8192,
          there.log())


def works(build):
    """Whether a program runs over RDMA."""
    result = build.run_remote([build.example("vector_add")], "127.0.0.1:7600", RUN, timeout=PATIENCE_S)
    return result.status == 0


def last_word(result):
    """What remote-gpu said last."""
    lines = [line for line in result.errors.splitlines() if "goes on" in line]
    return lines[-1] if lines else "without a word"
