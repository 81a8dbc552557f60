"""Part `peers` of guest_suite: two servers that serve one program, or one job, go over RDMA to each other where they can, and over TCP
where that is not wanted, or cannot be had.

The servers' TCP goes by the loopback interface, RDMA by the veth pair, so that what goes there is counted, and can fail by itself.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import threading

from guest_failover import GRACE, PATIENCE_S, WAIT_S, link_bytes, mend_link, netem
from trial import Server, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
COPIES = os.path.join(HERE, "..", "server", "peers", "copies.py")
WAITS = os.path.join(HERE, "..", "server", "peers", "waits.py")
ADDRESSES = ("127.0.0.1:7601", "127.0.0.1:7602")
SIZE, COUNT = 5 << 20, 2
COPIED = 2 * COUNT * SIZE
PACKET = 4096  # bytes of the largest over Soft-RoCE


def servers(build, stack, more=((), ())):
    """Two servers with a device each."""
    return [stack.enter_context(Server(build, listen=address, arguments=(*GRACE, *arguments),
                                       environment={"REMOTE_GPU_LOG": "info", "SOFTGPU_DEVICES": "1"}))
            for address, arguments in zip(ADDRESSES, more)]


def packets():
    """How many packets the two RDMA devices have sent."""
    total = 0
    for device in ("rxe-server", "rxe-client"):
        with open("/sys/class/infiniband/%s/ports/1/hw_counters/sent_pkts" % device, encoding="ascii") as file:
            total += int(file.read())
    return total


def copy(build, arguments=(), size=SIZE, count=COUNT, more="", **options):
    """Copies both ways at once, of which the program then reads every byte."""
    return build.run_remote([sys.executable, COPIES, str(size), str(count), more], ",".join(ADDRESSES), arguments,
                            environment={"REMOTE_GPU_LOG": "info"}, timeout=PATIENCE_S, **options)


def is_right(result, by_rdma):
    """Whether all of it is there, and went from one server to the other in that way."""
    stats = result.stats
    return (result.status == 0 and result.output.split() == ["same"] * 2 * COUNT and
            [stats.get(name) for name in ("peer_direct", "peer_rdma", "peer_by_client")] == [COPIED, COPIED if by_rdma else 0, 0])


def both_logs(there):
    """What both servers have said."""
    return "".join(server.log() for server in there)


def copies(build, check):
    """Over RDMA, and counted there; over TCP if the program, or one of the servers, is told to."""
    with contextlib.ExitStack() as stack:
        there = servers(build, stack)
        before, sent = link_bytes(), packets()
        result = copy(build)
        over, sent = link_bytes() - before, packets() - sent
        check("copies between servers over RDMA: %.1f s, %d bytes in %d packets" % (result.seconds, over, sent),
              # what is copied, and what the program reads
              is_right(result, True) and over >= 2 * COPIED and sent >= 2 * COPIED // PACKET, result.report() + both_logs(there))
        check("    both workers say so", both_logs(there).count(", by rdma\n") == 2, both_logs(there))
        before = link_bytes()
        result = copy(build, ["--transport", "tcp"])
        over = link_bytes() - before
        check("over TCP with --transport tcp: %.1f s, %d bytes over the link" % (result.seconds, over),
              is_right(result, False) and over < 1 << 20, result.report() + both_logs(there))
        result = build.run_remote([sys.executable, WAITS, "40"], ",".join(ADDRESSES), timeout=PATIENCE_S)
        check("waits of a stream for one of the other server: %.1f s" % result.seconds,
              result.status == 0 and result.output.splitlines() == ["waits", "goes on", "in turns"] and
              result.stats.get("peer_waits_direct", 0) >= 81, result.report() + both_logs(there))
    for more in ((("--rdma", "deny"), ()), ((), ("--rdma", "deny"))):
        with contextlib.ExitStack() as stack:
            there = servers(build, stack, more)
            result = copy(build)
            check("over TCP where a server has --rdma deny", is_right(result, False), result.report() + both_logs(there))


def remove_devices():
    for end in ("server", "client"):
        subprocess.run(["rdma", "link", "delete", "rxe-" + end], check=True)


def losses(build, check):
    """What RDMA does not reach, or no more."""
    with contextlib.ExitStack() as stack:
        there = servers(build, stack)
        for what, lose in (("nothing gets through", lambda: netem("v-client", "loss 100%")), ("the adapters are gone", remove_devices)):
            lose()
            result = copy(build)
            check("over TCP where %s: %.1f s" % (what, result.seconds), is_right(result, False), result.report() + both_logs(there))
            if what.startswith("nothing"):
                netem("v-client", None)
            mend_link()
        check("    RDMA works again", wait_until(lambda: is_right(copy(build), True), WAIT_S, 0.5), both_logs(there))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        go_on = os.path.join(folder, "go-on")

        def cut(_, until=link_bytes() + (12 << 20)):
            wait_until(lambda: link_bytes() >= until, WAIT_S)
            netem("v-client", "loss 100%")
            with open(go_on, "w", encoding="ascii"):
                pass

        # Copies under way end with an error; later ones go by the program's machine, whose own connections go on over TCP.
        result = copy(build, size=16 << 20, more=go_on, while_running=cut)
        check("RDMA is lost in the middle of copies: %.1f s, status %d" % (result.seconds, result.status),
              not result.hung and ((result.status == 3 and "error" in result.output) or
                                   (result.status == 0 and result.output.split() == ["same"] * 4 * COUNT and
                                    result.stats.get("peer_by_client", 0) > 0)), result.report() + both_logs(there))
        netem("v-client", None)
        mend_link()
        check("no worker crashed", "killed by signal" not in both_logs(there), both_logs(there))


def collectives(build, check):
    """Ranks of one communicator on both servers: the same results as in one process, and their data over the link."""
    program = os.path.join(build.folder, "tests", "nccl_ranks")

    def run(case, arguments=()):
        results = {}
        with tempfile.TemporaryDirectory() as folder:
            def rank(number):
                command = [program, os.path.join(folder, "id"), "2", str(number), "1", case, "0"]
                results[number] = build.run_remote(command, ADDRESSES[number], arguments, timeout=PATIENCE_S,
                                                   environment={"REMOTE_GPU_LOG": "info"})
            threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return [results[number] for number in range(2)]

    with contextlib.ExitStack() as stack:
        there = servers(build, stack)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        direct = build.run_direct([program, os.path.join(folder, "id"), "2", "0", "2", "all", "0"],
                                  environment={"SOFTGPU_DEVICES": "2"}, timeout=PATIENCE_S)
        for arguments, way in (((), "RDMA"), (("--transport", "tcp"), "TCP")):
            results = run("all", arguments)
            report = direct.report() + "".join(result.report() for result in results) + both_logs(there)
            check("collectives of two servers over %s: %.1f s" % (way, max(result.seconds for result in results)),
                  all(result.status == 0 for result in results) and
                  sorted(line for result in results for line in result.output.splitlines()) == sorted(direct.output.splitlines())
                  and any("is connected to one on" in result.errors and "by " + way in result.errors for result in results), report)
            before = link_bytes()
            results = run("large", arguments)
            over = link_bytes() - before
            # 20 sums of 4 MiB: each of the two sends that once.
            check("    20 sums of 4 MiB: %.1f s, %d bytes over the link" % (max(result.seconds for result in results), over),
                  all(result.status == 0 for result in results) and
                  (over >= 2 * 20 * (4 << 20) if way == "RDMA" else over < 1 << 20),
                  "".join(result.report() for result in results) + both_logs(there))
        check("no worker crashed", "killed by signal" not in both_logs(there), both_logs(there))


def peers(build, check):
    """Copies, collectives; losses, which take two minutes, with RDMA_VM_FULL=1."""
    copies(build, check)
    collectives(build, check)
    if os.environ.get("RDMA_VM_FULL") == "1":
        losses(build, check)
