"""Runs a program directly on the software device and remotely in several ways; its transcripts must be the same.

usage: run.py BUILD_FOLDER PROGRAM [ARGUMENT…]
"""

import difflib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))

from trial import Build, Server  # noqa: E402

WAYS = {
    "as it is": {},
    "no optimisation": {"REMOTE_GPU_OPT": "-all"},
    "without async": {"REMOTE_GPU_OPT": "-async"},
    "without batch": {"REMOTE_GPU_OPT": "-batch"},
    "without shadow": {"REMOTE_GPU_OPT": "-shadow"},
    "without late": {"REMOTE_GPU_OPT": "-late"},
    "1 ms away": {"REMOTE_GPU_FILTER": "delay:oneway=1ms"},
}


def main():
    build = Build(sys.argv[1])
    command = [os.path.join(sys.argv[1], "tests", sys.argv[2])] + sys.argv[3:]
    direct = build.run_direct(command)
    lines = direct.output.splitlines()
    print("directly: %s, %d lines" % (direct.describe(), len(lines)))
    good = direct.status == 0 and (len(lines) > 100 or len(sys.argv) > 3)
    with Server(build) as server:
        for way, environment in WAYS.items():
            remote = build.run_remote(command, server.address, environment=environment)
            same = remote.output == direct.output and remote.status == direct.status
            print("%s: %s" % (way, "the same" if same else remote.describe()))
            if not same:
                good = False
                print("\n".join(difflib.unified_diff(lines, remote.output.splitlines(), "direct", "remote", lineterm="", n=1)))
                print(remote.errors)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
