"""Runs scenarios of a program directly on the software device and remotely; what comes of them must be the same.

usage: run.py BUILD_FOLDER PROGRAM [SCENARIO…]

Standard output, exit status and signal are compared; the scenarios are those that the program lists, or those named.
"""

import difflib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))

from trial import Build, Failure, Server, stop_with_servers  # noqa: E402

WAYS = {
    "as it is": {},
    "no optimisation": {"REMOTE_GPU_OPT": "-all"},
    "1 ms away": {"REMOTE_GPU_FILTER": "delay:oneway=1ms"},
}
# Calls of signal handlers are refused where a filter holds messages back: who waits there does not sleep in poll.
NEAR_ONLY = ["process_handlers"]
# These have pages of theirs trapped by signals as well.
TRAPPED = ["process_segv", "process_mappings", "process_barriers"]
# These are run with sessions that may outlive their connection as well: what they interrupt waits elsewhere. Or they look for names.
LASTING = ["process_handlers", "process_library", "process_conditions"]
# Scenarios that only such sessions can go on with.
OUTLIVES = "outlives_"


def compare(build, address, command):
    """Runs one scenario in all ways; whether all are as the direct run, which must be good itself."""
    direct = build.run_direct(command, timeout=100)
    good = not direct.hung and " fails: " not in direct.output and bool(direct.output)
    if not good:
        print("directly: %s" % direct.report())
    trapped = {"by signals": {"REMOTE_GPU_FAULTS": "signals"}} if os.path.basename(command[0]) in TRAPPED else {}
    for way, environment in {**WAYS, **trapped}.items():
        if "REMOTE_GPU_FILTER" in environment and os.path.basename(command[0]) in NEAR_ONLY:
            continue
        remote = build.run_remote(command, address, environment=environment, timeout=100)
        if remote.output == direct.output and remote.status == direct.status and not remote.hung:
            continue
        good = False
        print("directly: %s; %s: %s" % (direct.describe(), way, remote.describe()))
        print("\n".join(difflib.unified_diff(direct.output.splitlines(), remote.output.splitlines(), "direct", "remote",
                                             lineterm="", n=1)))
        print(direct.errors + remote.errors)
    return good


def main():
    """Runs what the command line names."""
    stop_with_servers()
    build = Build(sys.argv[1])
    program = os.path.join(sys.argv[1], "tests", sys.argv[2])
    failed = []
    try:
        names = sys.argv[3:] or build.run_direct([program, "list"]).output.split()
        if not names:
            raise Failure("%s has no scenarios" % program)
        with Server(build) as server, Server(build, tcp=True, arguments=["--reconnect-grace", "60"]) as lasting:
            for name in names:
                good = name.startswith(OUTLIVES) or compare(build, server.address, [program, name])
                if os.path.basename(program) in LASTING or name.startswith(OUTLIVES):
                    good = compare(build, lasting.address, [program, name]) and good
                print("%s: %s" % (name, "the same" if good else "FAILED"), flush=True)
                if not good:
                    failed.append(name)
    except Failure as failure:
        sys.exit("error: %s" % failure)
    if failed:
        sys.exit("failed: %s" % ", ".join(failed))


if __name__ == "__main__":
    main()
