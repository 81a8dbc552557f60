"""Runs a program directly on the software device and remotely in several ways; its transcripts must be the same.

usage: run.py BUILD_FOLDER PROGRAM [servers=N,…] [memory=SIZE] [ARGUMENT…]

servers=1,2: two servers, with 1 and 2 devices, that the program uses together; directly, one device has as many.
memory=64M: devices with so much memory.
"""

import contextlib
import difflib
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))

from trial import Build, Server, optimisations  # noqa: E402

WAYS = {
    "as it is": {},
    "nothing known": {"REMOTE_GPU_CACHE": "CACHE"},
    "what the last run learned": {"REMOTE_GPU_CACHE": "CACHE"},
    "the same, 1 ms away": {"REMOTE_GPU_CACHE": "CACHE", "REMOTE_GPU_FILTER": "delay:oneway=1ms"},
    "no optimisation": {"REMOTE_GPU_OPT": "-all"},
    "1 ms away": {"REMOTE_GPU_FILTER": "delay:oneway=1ms"},
}


def each_one_off(names):
    """Each optimisation alone switched off; of those that live by what earlier runs learned, with that at hand."""
    return {"without " + name: dict({"REMOTE_GPU_OPT": "-" + name},
                                    **({"REMOTE_GPU_CACHE": "CACHE"} if name in ("known", "foresee") else {}))
            for name in names}


def main():
    build = Build(sys.argv[1])
    # What is freed is overwritten, so that a client that still reads it, or has it written, is found out.
    os.environ.setdefault("MALLOC_PERTURB_", "165")
    arguments, counts = sys.argv[3:], []
    if arguments and arguments[0].startswith("servers="):
        counts = [int(count) for count in arguments.pop(0)[len("servers="):].split(",")]
    memory = {}
    if arguments and arguments[0].startswith("memory="):
        memory = {"SOFTGPU_MEMORY": arguments[0][len("memory="):]}
    command = [os.path.join(sys.argv[1], "tests", sys.argv[2])] + arguments
    direct = build.run_direct(command, environment=dict(memory, SOFTGPU_DEVICES=str(sum(counts) or 1)))
    lines = direct.output.splitlines()
    print("directly: %s, %d lines" % (direct.describe(), len(lines)))
    good = direct.status == 0 and (len(lines) > 50 or arguments or sys.argv[2] == "images")
    with contextlib.ExitStack() as stack:
        address = ",".join(stack.enter_context(Server(build, environment=dict(memory, SOFTGPU_DEVICES=str(count)))).address
                           for count in counts or [1])
        cache = stack.enter_context(tempfile.TemporaryDirectory(prefix="remote-gpu-cache-"))
        for way, environment in {**WAYS, **each_one_off(optimisations(build, address))}.items():
            environment = {name: cache if value == "CACHE" else value for name, value in environment.items()}
            remote = build.run_remote(command, address, environment=environment)
            same = remote.output == direct.output and remote.status == direct.status
            print("%s: %s" % (way, "the same" if same else remote.describe()))
            if not same:
                good = False
                print("\n".join(difflib.unified_diff(lines, remote.output.splitlines(), "direct", "remote", lineterm="", n=1)))
                print(remote.errors)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
