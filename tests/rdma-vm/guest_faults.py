"""Parts `faults` and `grace` of guest_suite: what breaks in mid-run, without and with `remote-gpud --reconnect-grace`."""

import os
import re
import signal
import threading
import time

from guest_failover import PATIENCE_S, WAIT_S, ip_link, last_word, link_bytes, mend_link, netem, remove_link
from trial import Server, run_program, wait_until, workers_of

SERVER = "10.77.0.1:7600"
FULL = os.environ.get("RDMA_VM_FULL") == "1"
RDMA = ("--transport", "rdma")
# What a worker says in the end that waited for its client in vain.
WAITED = re.compile(r"its connection was lost, and after ([0-9.]+) s: ")
CRASHED = re.compile(r"session \d+ ended .* killed by signal")  # a client that asks afterwards is told so, too
GRACE_S = 20
HOLE_S = 12  # longer than RDMA tries, shorter than that and the grace time
AT_WORK = 2000000  # bytes over the link, of the 4 MB and more that many_launches sends


def server(build, grace_s=0, **environment):
    """A remote-gpud on the server's end of the pair."""
    arguments = ["--allow-unauthenticated", "--reconnect-grace", str(grace_s)]
    return Server(build, listen=SERVER, arguments=arguments, environment=dict(environment, REMOTE_GPU_LOG="info"))


def long_run(build, address, change, launches=2000000, arguments=RDMA):
    """A program of some seconds, with `change(process)` made when it is at work."""
    before = link_bytes()

    def later(process):
        wait_until(lambda: link_bytes() >= before + AT_WORK, WAIT_S)
        change(process)
    return build.run_remote([build.example("many_launches"), str(launches)], address, arguments, timeout=PATIENCE_S,
                            while_running=later)


def ended_with_word(result):
    """A program that lost its GPU: it ends by itself, in error, and the user is told."""
    return not result.hung and result.status != 0 and not result.crashed and "remote-gpu:" in result.errors


def kill_workers(there):
    """Ends them as a crash does."""
    for child in workers_of(there.process.pid):
        os.kill(child, signal.SIGKILL)


def none_is_left(there, seconds=WAIT_S):
    """Whether all workers have ended, so that the GPU is free."""
    return wait_until(lambda: not workers_of(there.process.pid), seconds)


def run_as_nobody(command, locked):
    """Runs a command as an ordinary user with a limit of locked memory."""
    wrapper = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all",
               "prlimit", "--memlock=%d:%d" % (locked, locked), "--", *command]
    return run_program(wrapper, {"HOME": "/tmp"}, timeout=PATIENCE_S)


def little_memory(build, there, check):
    """Without memory that may be locked there is no RDMA; root is exempt, so another user runs the client."""
    command = [build.command, "run", "-s", there.address, "--transport", "auto", "--", build.example("vector_add")]
    result = run_as_nobody(command, locked=65536)
    check("too little lockable memory: TCP, with a warning", result.status == 0 and
          "going on over TCP" in result.errors, result.report())
    result = run_as_nobody([word if word != "auto" else "rdma" for word in command], locked=65536)
    check("too little lockable memory, nothing but RDMA asked for: an error that says so", result.status != 0 and
          "lock" in result.errors, result.report())


def worse_link(build, there, check):
    """A link that is slow or loses some is none that is lost."""
    for shape in ("delay 2ms limit 10000", "loss 1%"):  # the queue holds what one large write sends
        netem("v-client", shape)
        result = build.run_remote([build.example("vector_add")], there.address, RDMA)
        check("netem %s: %.1f s" % (shape, result.seconds), result.status == 0 and "goes on" not in result.errors,
              result.report())
    netem("v-client", None)


def faults(build, check):
    """What breaks in mid-run ends in a clear error; what cannot be had is done without."""
    with server(build) as there:
        result = long_run(build, there.address, lambda _: netem("v-client", "loss 100%"))
        check("a black hole in mid-run: %s after %.0f s" % (result.describe(), result.seconds), ended_with_word(result),
              result.report() + there.log())
        netem("v-client", None)
        result = build.run_remote([build.example("vector_add")], there.address, RDMA)
        check("after the hole is closed", result.status == 0, result.report() + there.log())
        result = long_run(build, there.address, lambda _: kill_workers(there))
        check("worker killed: %s" % result.describe(), ended_with_word(result), result.report())
        little_memory(build, there, check)
        worse_link(build, there, check)
        check("the server still runs", there.process.poll() is None, there.log())
        check("no worker is left", none_is_left(there), there.log())
        # last, since Soft-RoCE needs the machine started anew afterwards
        result = long_run(build, there.address, lambda _: ip_link("v-client", "down"))
        check("link down in mid-run: %s after %.0f s" % (result.describe(), result.seconds), ended_with_word(result),
              result.report() + there.log())


def waited(there, since):
    """How long workers waited for clients in vain, by what the log says from character `since` on."""
    return [float(seconds) for seconds in WAITED.findall(there.log()[since:])]


def ends(build, check):
    """The worker of a program that ends as it should does not wait for it, whatever carried its session."""
    mend_link(2)
    least = {"REMOTE_GPU_RDMA": "two-sided,polled"}
    forms = [("RDMA", ["--rails", "off"], {}, {}),
             ("two rails", [], {"REMOTE_GPU_RAILS": "always"}, {"REMOTE_GPU_RAILS": "rxe-server,rxe-server2"})]
    if FULL:
        forms.append(("RDMA, two-sided and polled", ["--rails", "off"], least, least))
    for name, arguments, mine, theirs in forms:
        with server(build, GRACE_S, **theirs) as there:
            for program, *rest in (["vector_add"], ["big_copy", "8"], ["many_launches", "20000"]):
                result = build.run_remote([build.example(program), *rest], there.address, [*RDMA, *arguments], mine,
                                          timeout=PATIENCE_S)
                since = time.monotonic()
                gone = none_is_left(there)
                quiet = not waited(there, 0) and "is lost" not in there.log() + result.errors
                check("%s over %s: its worker ends with it (%.1f s)" % (program, name, time.monotonic() - since),
                      result.status == 0 and gone and quiet, result.report() + there.log())
    remove_link(2)


def killed(build, there, check):
    """A client that is killed: its worker learns that it has gone, and frees the GPU; a worker that is: the client ends at once."""
    since = len(there.log())
    result = long_run(build, there.address, lambda process: os.killpg(process.pid, signal.SIGKILL))
    gone = none_is_left(there)
    seconds = waited(there, since)
    check("client killed: its worker waited for %s s" % seconds, result.status == -signal.SIGKILL and gone and
          len(seconds) == 1 and "the client's process has ended" in there.log()[since:], result.report() + there.log())
    result = long_run(build, there.address, lambda _: kill_workers(there))
    check("worker killed: %s" % result.describe(), ended_with_word(result) and "trying again" not in result.errors,
          result.report())


def works(build, there):
    """Whether a program runs over RDMA."""
    return build.run_remote([build.example("vector_add")], there.address, RDMA, timeout=PATIENCE_S).status == 0


def interrupted(build, there, check):
    """RDMA and TCP get nowhere: for some seconds, and the session goes on; for longer than the grace time, and it ends."""
    def for_a_moment(_):
        netem("v-client", "loss 100%")
        threading.Timer(HOLE_S, netem, ("v-client", None)).start()

    result = long_run(build, there.address, for_a_moment, 400000)
    check("a black hole for a moment: %.0f s, %s" % (result.seconds, last_word(result)), result.status == 0 and
          "the session goes on over TCP" in result.errors, result.report() + there.log())
    check("    no worker is left", none_is_left(there), there.log())
    since = len(there.log())
    result = long_run(build, there.address, lambda _: netem("v-client", "loss 100%"))
    check("a black hole for good: %s after %.0f s" % (result.describe(), result.seconds), ended_with_word(result) and
          "gave up on" in result.errors, result.report() + there.log())
    gone = none_is_left(there)
    seconds = waited(there, since)
    check("    its worker waited for %s s" % seconds, gone and len(seconds) == 1 and seconds[0] > GRACE_S - 1, there.log())
    netem("v-client", None)
    check("    RDMA works again", works(build, there), there.log())


def link_down(build, there, check):
    """The link goes down: TCP finds another way, as both ends are on one machine, and the session goes on by that."""
    result = long_run(build, there.address, lambda _: ip_link("v-client", "down"), 400000)
    check("link down: %.0f s, %s" % (result.seconds, last_word(result)), result.status == 0 and
          "the session goes on over TCP" in result.errors, result.report() + there.log())
    check("    no worker is left", none_is_left(there), there.log())
    mend_link()
    check("    RDMA works again", wait_until(lambda: works(build, there), WAIT_S, 0.5), there.log())


def grace(build, check):
    """The same faults where sessions may outlive their connections, and how they end when nothing is at fault."""
    ends(build, check)
    with server(build, GRACE_S) as there:
        killed(build, there, check)
        if FULL:  # without grace they are tried every time
            little_memory(build, there, check)
            worse_link(build, there, check)
        interrupted(build, there, check)
        link_down(build, there, check)
        crashed = len(CRASHED.findall(there.log()))
        check("no worker crashed", crashed == 1, there.log())  # that one
        check("the server still runs", there.process.poll() is None, there.log())
