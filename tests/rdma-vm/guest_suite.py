"""Runs in the virtual machine: the product over real verbs (Soft-RoCE). See run.

usage: guest_suite.py BUILD_FOLDER [PART…]

Parts: conformance (RDMA_VM_FULL=1: in more forms), examples (RDMA_VM_FULL=1: all of them), limits, direct (the GPU's memory
itself), benchmark (bench/rdma, briefly: that it has figures), rails (two links), peers (two servers of one program), failover (RDMA lost, TCP not), returning
(and had again), grace (ends and faults of sessions that may outlive their connection), faults. Without parts: all of them, but
benchmark and returning only with RDMA_VM_FULL=1; faults comes last, since it leaves the link down. What takes long and finds little
that others do not is left to RDMA_VM_FULL=1 in rails, peers, failover and grace too. Prints a line for each check and
`N passed, N failed`, before it once more what failed; the exit status is 1 if a check failed.
"""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))

import guest_failover  # noqa: E402
import guest_faults  # noqa: E402
import guest_peers  # noqa: E402
import guest_rails  # noqa: E402
from guest_failover import PATIENCE_S  # noqa: E402
from trial import Build, Server, run_program  # noqa: E402

SERVER = "10.77.0.1"
FULL = os.environ.get("RDMA_VM_FULL") == "1"
# What differs over RDMA is how data moves; the others are compared over TCP on every machine, and here with RDMA_VM_FULL=1.
EXAMPLES = ("big_copy", "device_exchange", "managed_memory", "many_launches", "streams_overlap", "virtual_memory")
passed = 0
failures = []


def check(name, good, report=""):
    """Counts one check and says how it went."""
    global passed
    if good:
        passed += 1
    else:
        failures.append(name)
    print("%s %s" % ("ok    " if good else "FAILED", name), flush=True)
    if not good and report:
        print(report, flush=True)


def server(build, **options):
    """A remote-gpud on the server's end of the pair."""
    environment = dict(options.pop("environment", {}), REMOTE_GPU_LOG="info")
    return Server(build, listen=SERVER + ":7600", arguments=["--allow-unauthenticated"], environment=environment,
                  **options)


def conformance(build):
    """The transports' conformance suite, in every form of transport rdma."""
    program = os.path.join(build.folder, "tests", "transport_conformance")
    forms = [("rdma", {})]
    if FULL:
        forms += [("rdma", {"REMOTE_GPU_RDMA": "two-sided,polled"}), ("rdma-spin", {}), ("fault+rdma", {}),
                  ("delay+rdma", {}), ("rdma", {"REMOTE_GPU_RDMA": "two-sided"})]
    for name, environment in forms:
        result = run_program([program, name], environment, timeout=PATIENCE_S)
        check("conformance %s %s: %.0f s" % (name, environment.get("REMOTE_GPU_RDMA", ""), result.seconds),
              result.status == 0, result.report())
    result = run_program([os.path.join(build.folder, "tests", "transport_strangers"), SERVER], timeout=PATIENCE_S)
    check("strangers hold up nobody: %.0f s" % result.seconds, result.status == 0, result.report())


def examples(build):
    """Every example gives the same over RDMA as directly; pinned memory is not copied by the CPU."""
    with server(build) as there:
        names = build.examples()
        for name in names if FULL else [name for name in EXAMPLES if name in names]:
            arguments = ["16"] if name == "big_copy" else []
            command = [build.example(name), *arguments]
            direct = build.run_direct(command, timeout=PATIENCE_S)
            remote = build.run_remote(command, there.address, ["--transport", "rdma"], timeout=PATIENCE_S)
            same = (direct.status, direct.output) == (remote.status, remote.output)
            check("%s over RDMA: %.1f s, %.1f s directly" % (name, remote.seconds, direct.seconds),
                  same and "remote-gpu:" not in remote.errors, direct.report() + remote.report())
            if name == "streams_overlap":
                check("%s: pinned memory moves without a copy on the client: %s" % (name, remote.stats),
                      # what is copied is the module and single words
                      remote.stats.get("bulk_copied", 0) < 8192 and remote.stats.get("bulk_direct", 0) >= 6400000)
        log = there.log()
    moved = re.findall(r"received (\d+) bytes in their place and (\d+) by a copy, sent (\d+) from their place and (\d+)",
                       log)
    check("the workers moved bulk data without a copy: %d sessions" % len(moved),
          any(int(direct_in) > 0 and int(direct_out) > 0 for direct_in, _, direct_out, _ in moved), log)


def direct(build):
    """Bulk data goes straight into and out of the device's memory: that of the software device can be registered."""
    with server(build, environment={"REMOTE_GPU_DIRECT": "peer"}) as there:
        for name, arguments in (("big_copy", ["16"]), ("streams_overlap", []), ("virtual_memory", []), ("pitched_memory", [])):
            command = [build.example(name), *arguments]
            here = build.run_direct(command, timeout=PATIENCE_S)
            remote = build.run_remote(command, there.address, ["--transport", "rdma", "--rails", "off"], timeout=PATIENCE_S)
            check("%s past the server's memory: %.1f s" % (name, remote.seconds),
                  (here.status, here.output) == (remote.status, remote.output) and "remote-gpu:" not in remote.errors,
                  here.report() + remote.report())
        log = there.log()
    went = re.findall(r"(\d+) bytes went straight to GPUs' memory and (\d+) bytes straight from it", log)
    check("what went past it: %s" % went, "(peer memory)" in log and len(went) >= 2 and
          all(int(number) >= 16000000 for number in went[0]), log)


def limits(build):
    """What the product's transport gives beside what perftest shows, in the same boot (nothing is demanded of it)."""
    program = os.path.join(build.stage, "bin", "remote-gpu")
    with server(build) as there:
        result = run_program([program, "netperf", "-s", there.address, "--quick", "--timeout", "60"], timeout=PATIENCE_S)
        check("netperf", result.status == 0, result.report())
        print(result.output)
        for name in ("socket", "tcp", "rdma 10.77.0.1"):
            rows = [line for line in result.output.splitlines() if line.startswith(name + " ")]
            check("netperf has rows of " + name, len(rows) >= 4 and "not measured" not in result.output, result.report())
        result = run_program([program, "compare", "-s", there.address, "--timeout", "60", "--json", "--", build.example("vector_add")],
                             timeout=PATIENCE_S)
        rows = json.loads(result.output)["transports"] if result.status == 0 else []
        alone = [row for row in rows if "device" in row]  # both ends' devices are this machine's
        rows = [row for row in rows if "device" not in row]
        check("compare runs over both", [row.get("transport") for row in rows] == ["tcp", "rdma"] and
              all(row["round_trips"] > 0 and row["waited"] > 0 for row in rows), result.report())
        check("compare runs over single devices", sorted(row["device"] for row in alone) == ["rxe-client", "rxe-server"] and
              any(row.get("transport") == "rdma" and row["round_trips"] > 0 for row in alone) and
              all("skipped" in row or row["transport"] == "rdma" for row in alone), result.report())
        result = run_program([program, "doctor", "-s", there.address, "--timeout", "60", "--json"], timeout=PATIENCE_S)
        seen = {(one["check"], one["level"]) for one in json.loads(result.output)["checks"]} if result.output else set()
        check("doctor finds no problem and a way over RDMA", result.status == 0 and
              {("device", "ok"), ("port", "ok"), ("gid", "ok"), ("mtu", "ok"), ("modules", "ok"), ("provider", "ok"),
               ("transport", "ok"), ("rdma", "ok")} <= seen, result.report())
        result = run_program([program, "doctor", "-s", there.address, "--timeout", "60", "--json"],
                             {"REMOTE_GPU_RDMA": "two-sided"}, timeout=PATIENCE_S)
        check("doctor says where there are no one-sided writes", any(
            one["check"] == "rdma" and one["level"] == "warning" and "without one-sided writes" in one["saw"]
            for one in json.loads(result.output or '{"checks": []}')["checks"]), result.report())
        print(run_program([program, "doctor", "-s", there.address], timeout=PATIENCE_S).output)
        subprocess.run(["ip", "link", "set", "v-client", "mtu", "1500"], check=True)
        result = run_program([program, "doctor", "--json"])
        check("doctor sees a small MTU", any(one["check"] == "mtu" and one["level"] == "warning" and "v-client" in
                                             one["saw"] for one in json.loads(result.output)["checks"]), result.report())
        subprocess.run(["ip", "link", "set", "v-client", "mtu", "9000"], check=True)


def benchmark(build):
    """The comparison with perftest on the same devices: prints its table."""
    if not shutil.which("ib_send_lat"):
        print("left out: the comparison with perftest (package perftest)")
        return
    with server(build) as there:
        result = run_program([build.command, "netperf", "-s", there.address, "--quick", "--perftest", "--timeout", "60"],
                             timeout=PATIENCE_S)
        rows = [line for line in result.output.splitlines() if line.startswith("perftest " + SERVER + " ")]
        check("netperf has rows of perftest", result.status == 0 and len(rows) == 2, result.report() + there.log())
    result = run_program([os.path.join(HERE, "..", "..", "bench", "rdma"), "--build", build.folder, "--address", SERVER,
                          "--quick", "--limits", "100mbit/100us"], timeout=PATIENCE_S)
    print(result.output)
    check("bench/rdma has a row for each comparison", result.status == 0 and
          len([line for line in result.output.splitlines() if "×" in line]) == 7, result.report())


def main():
    """Runs what the command line names."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    build = Build(sys.argv[1])
    parts = {"conformance": conformance, "examples": examples, "limits": limits, "direct": direct, "benchmark": benchmark,
             "rails": lambda it: guest_rails.rails(it, check),
             "peers": lambda it: guest_peers.peers(it, check),
             "failover": lambda it: guest_failover.failover(it, check),
             "returning": lambda it: guest_failover.returning(it, check),
             "grace": lambda it: guest_faults.grace(it, check), "faults": lambda it: guest_faults.faults(it, check)}
    for name in sys.argv[2:] or [part for part in parts if FULL or part not in ("benchmark", "returning")]:
        started = time.monotonic()
        parts[name](build)
        print("part %s: %.0f s" % (name, time.monotonic() - started), flush=True)
    for name in failures:
        print("FAILED %s" % name)
    print("%d passed, %d failed" % (passed, len(failures)))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
