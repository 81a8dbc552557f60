"""Part `rails` of guest_suite: two links, of which a session uses both, and one of which fails."""

import json
import os
import re
import subprocess
import time

from guest_failover import PATIENCE_S, WAIT_S, mend_link, netem, remove_link
from trial import Server, run_program, wait_until

FULL = os.environ.get("RDMA_VM_FULL") == "1"
RAILS = {"REMOTE_GPU_RAILS": "rxe-server,rxe-server2", "REMOTE_GPU_LOG": "info"}


def sent(link):
    """Bytes that have gone over a link, both ways."""
    total = 0
    for direction in ("rx_bytes", "tx_bytes"):
        with open("/sys/class/net/%s/statistics/%s" % (link, direction), encoding="ascii") as file:
            total += int(file.read())
    return total


def set_link(state):
    """Takes the second link down (up: as it was)."""
    if state == "up":
        mend_link(2)
    else:
        subprocess.run(["ip", "link", "set", "v-client2", state], check=True)


def transport(build, check):
    """The conformance suite over two rails; traffic while one is cut."""
    program = os.path.join(build.folder, "tests", "transport_conformance")
    result = run_program([program, "rails+rdma"], timeout=PATIENCE_S)
    check("conformance rails+rdma: %.0f s" % result.seconds, result.status == 0, result.report())
    program = os.path.join(build.folder, "tests", "transport_multirail_test")

    def cut(_):
        until = sent("v-client2") + 5000000
        wait_until(lambda: sent("v-client2") >= until, WAIT_S)
        set_link("down")

    result = run_program([program, "rdma", "25"], timeout=PATIENCE_S, while_running=cut)
    check("a rail is cut in mid-transfer: %.0f s" % result.seconds, result.status == 0 and
          "1 and 1 rails" in result.output, result.report())
    set_link("up")


def moved(log):
    """What each worker received in place and by a copy, and sent likewise, in bytes."""
    found = re.findall(r"received (\d+) bytes in their place and (\d+) by a copy, sent (\d+) from their place and (\d+)",
                       log)
    return [tuple(int(number) for number in session) for session in found]


def pinned(build, check):
    """Page-locked memory by rails: no processor touches it; with the GPU's own memory the server's is not either."""
    for direct, went in (("staging", None), ("peer", r"(\d+) bytes went straight to GPUs' memory and (\d+) bytes straight")):
        with Server(build, listen="0.0.0.0:7600", arguments=("--allow-unauthenticated",),
                    environment=dict(RAILS, REMOTE_GPU_DIRECT=direct)) as there:
            before = sent("v-client"), sent("v-client2")
            # pieces of 4 MB and of 1.2 MB; copies that wait, so that the device is idle when they come
            for name, *arguments in (("streams_overlap", "4", "1000003", "8"), ("streams_overlap", "2", "300007", "24"),
                                     ("big_copy", "24")):
                if name == "big_copy" and not went:
                    continue
                command = [build.example(name), *arguments]
                here = build.run_direct(command, timeout=PATIENCE_S)
                remote = build.run_remote(command, "10.77.0.1:7600", ["--transport", "rdma", "--profile=/tmp/rails-%p.json"],
                                          timeout=PATIENCE_S)
                check("%s by rails, %s: %.1f s, %s" % (" ".join(arguments), direct, remote.seconds, remote.stats),
                      (here.status, here.output) == (remote.status, remote.output) and
                      (remote.stats.get("bulk_copied", 0) < 8192 or name == "big_copy") and
                      remote.stats.get("bulk_connections", 0) == 2 and
                      # whether large transfers need more than one is for the session to find out; that both carry is checked below
                      "over rdma, 2 rails" in remote.errors and
                      "memory of GPU 0: " + ("peer memory" if went else "staging") in remote.errors,
                      here.report() + remote.report() + there.log())
            each = sent("v-client") - before[0], sent("v-client2") - before[1]
            check("both carried some: %d and %d bytes" % each, min(each) > 5000000)
            log = there.log()
        check("the workers copied nothing: %s" % moved(log),
              len(moved(log)) >= 2 and
              all(copied_in < 8192 and copied_out < 8192 for _, copied_in, _, copied_out in moved(log)[:2]), log)
        if went:
            straight = re.findall(went, log)
            check("straight to and from the GPU's memory: %s" % straight,
                  straight and all(int(number) > 10000000 for number in straight[-1]), log)


def returning(build, check):
    """A rail that was lost is opened again when its network carries something again."""
    with Server(build, listen="0.0.0.0:7600", arguments=("--allow-unauthenticated",), environment=RAILS) as there:
        command = [build.example("big_copy"), "128"]

        def cut_and_mend(_):
            # Not by taking the link down: Soft-RoCE's devices do not get over that, and cannot be made anew in use.
            until = sent("v-client2") + 3000000
            wait_until(lambda: sent("v-client2") >= until, WAIT_S)
            netem("v-client2", "loss 100%")
            wait_until(lambda: "left" in there.log(), WAIT_S)
            netem("v-client2", None)

        result = build.run_remote(command, "10.77.0.1:7600", ["--transport", "rdma"],
                                  {"REMOTE_GPU_LOG": "info", "REMOTE_GPU_RAILS": "always"}, timeout=PATIENCE_S,
                                  while_running=cut_and_mend)
        check("a rail that was lost comes back: %.1f s" % result.seconds,
              result.status == 0 and "a rail to" in result.errors and "is back; 2 now" in result.errors,
              result.report() + there.log())


def sessions(build, check):
    """Sessions over both rails; with one cut; tools that show them."""
    with Server(build, listen="0.0.0.0:7600", arguments=("--allow-unauthenticated", "--reconnect-grace", "60"),
                environment=RAILS) as there:
        command = [build.example("big_copy"), "24"]
        direct = build.run_direct(command, timeout=PATIENCE_S)
        before = sent("v-client"), sent("v-client2")
        result = build.run_remote(command, "10.77.0.1:7600", ["--transport", "rdma"], timeout=PATIENCE_S)
        each = sent("v-client") - before[0], sent("v-client2") - before[1]
        check("big_copy over two rails: %.1f s, %d and %d bytes" % (result.seconds, *each),
              (result.status, result.output) == (direct.status, direct.output) and min(each) > 5000000,
              result.report() + there.log())
        result = build.run_remote(command, "10.77.0.1:7600", ["--transport", "rdma", "--rails", "off"], timeout=PATIENCE_S)
        check("--rails off: one", result.status == 0 and result.stats.get("bulk_connections", 9) == 0, result.report())

        def cut(_):
            until = sent("v-client2") + 8000000
            wait_until(lambda: sent("v-client2") >= until, WAIT_S)
            set_link("down")

        command = [build.example("big_copy"), "96"]  # which is not over by the time that the link is down
        direct = build.run_direct(command, timeout=PATIENCE_S)
        result = build.run_remote(command, "10.77.0.1:7600", ["--transport", "rdma"], timeout=PATIENCE_S, while_running=cut)
        check("a rail is cut in mid-run: %.1f s" % result.seconds,
              (result.status, result.output) == (direct.status, direct.output) and "a rail to" in result.errors and
              "goes on over TCP" not in result.errors, result.report() + there.log())
        set_link("up")
        time.sleep(1)
        remote_gpu = build.command
        result = run_program([remote_gpu, "list", "-s", "10.77.0.1:7600"], timeout=PATIENCE_S)
        check("list shows the rails", "rails: rxe-server (v-server, 10.77.0.1" in result.output and
              "rxe-server2 (v-server2, 10.78.0.1" in result.output, result.report())
        if FULL:  # over one rail, netperf is tried every time
            result = run_program([remote_gpu, "netperf", "-s", "10.77.0.1:7600", "--quick", "--timeout", "60"], timeout=PATIENCE_S)
            print(result.output)
            for name in ("rdma 10.77.0.1", "rdma 10.78.0.1", "rdma, 2 rails"):
                rows = [line for line in result.output.splitlines() if line.startswith(name + " ")]
                check("netperf has rows of " + name, len(rows) >= 4, result.report())
        result = run_program([remote_gpu, "doctor", "-s", "10.77.0.1:7600", "--timeout", "60", "--json"], timeout=PATIENCE_S)
        checks = json.loads(result.output)["checks"] if result.output else []
        check("doctor sees two rails", any(one["check"] == "rails" and "2 adapters" in one["saw"] for one in checks),
              result.report())
        check("no worker crashed", "killed by signal" not in there.log(), there.log())


# Which links are cut, after how many bytes over both: on the way to the device, and back. Commands go by the first.
CUTS = [("the commands' adapter", ["v-client"], 15000000), ("the second rail", ["v-client2"], 15000000),
        ("both", ["v-client", "v-client2"], 45000000), ("the commands' adapter", ["v-client"], 45000000),
        ("both", ["v-client", "v-client2"], 15000000), ("the second rail", ["v-client2"], 45000000)]


def lasting(build, check):
    """Sessions over both rails that may outlive their connection, TCP by a third way: whatever is cut, they go on."""
    with Server(build, listen="0.0.0.0:7600", arguments=("--allow-unauthenticated", "--reconnect-grace", "60"),
                environment=RAILS) as there:
        command = [build.example("big_copy"), "32"]
        direct = build.run_direct(command, timeout=PATIENCE_S)

        def run(while_running=None):
            return build.run_remote(command, "127.0.0.1:7600", ["--transport", "rdma"],
                                    {"REMOTE_GPU_LOG": "info", "REMOTE_GPU_RAILS": "always"}, timeout=PATIENCE_S,
                                    while_running=while_running)

        for what, links, after in CUTS if FULL else CUTS[:1]:
            def cut(_, links=links, until=sent("v-client") + sent("v-client2") + after):
                wait_until(lambda: sent("v-client") + sent("v-client2") >= until, WAIT_S)
                for link in links:
                    netem(link, "loss 100%")

            result = run(cut)
            moved_on = "the session goes on over TCP" in result.errors
            check("%s cut after %d MB, with grace: %.1f s" % (what, after / 1000000, result.seconds),
                  (result.status, result.output) == (direct.status, direct.output) and
                  moved_on == ("v-client" in links) and (moved_on or "a rail to" in result.errors),
                  result.report() + there.log())
            for link in links:
                netem(link, None)
            check("    its worker ends with it", wait_until(lambda: not there.workers(), WAIT_S) and
                  "its connection was lost, and after" not in there.log(), there.log())
        result = run()
        check("afterwards both carry a session", (result.status, result.output) == (direct.status, direct.output) and
              result.stats.get("bulk_connections", 0) == 2 and "goes on over TCP" not in result.errors,
              result.report() + there.log())
        check("no worker crashed", "killed by signal" not in there.log(), there.log())


def rails(build, check):
    """All of it (a rail that comes back with RDMA_VM_FULL=1), with a second link, which is taken away afterwards."""
    mend_link(2)
    for part in (transport, pinned, sessions, returning, lasting) if FULL else (transport, pinned, sessions, lasting):
        part(build, check)
    remove_link(2)
