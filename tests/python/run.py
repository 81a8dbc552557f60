"""Runs a Python client directly on the software device and remotely in several ways; all of its checks must pass each time.

usage: run.py BUILD_FOLDER CLIENT PACKAGE [NAME=VALUE…] [-- ARGUMENT…]

The interpreter is the first of those in REMOTE_GPU_TEST_PYTHON (separated by colons; by default the one that runs this)
which has PACKAGE; if none has, the test is skipped: status 77, and a line says so. NAME=VALUE goes into the environment
of the device: of the direct run and of the server.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))

from trial import Build, Server, interpreter_with  # noqa: E402

SKIPPED = 77
TIMEOUT = 600  # the first run compiles

REMOTE_WAYS = {
    "remotely": ("command", {}),
    "by LD_LIBRARY_PATH alone": ("path", {}),
    "no optimisation": ("command", {"REMOTE_GPU_OPT": "-all"}),
    "5 ms away": ("command", {"REMOTE_GPU_FILTER": "delay:oneway=5ms"}),
}


def main():
    build = Build(sys.argv[1])
    client, package = sys.argv[2:4]
    rest = sys.argv[4:]
    arguments = rest[rest.index("--") + 1:] if "--" in rest else []
    device = dict(word.split("=", 1) for word in rest[:rest.index("--") if "--" in rest else None])
    python = interpreter_with(package)
    if python is None:
        print("skipped: %s is not installed (REMOTE_GPU_TEST_PYTHON names interpreters)" % package)
        return SKIPPED
    os.environ["CUPY_CACHE_DIR"] = os.path.join(build.folder, "cupy-cache")
    command = [python, os.path.join(HERE, client + ".py"), *arguments]
    good = True

    def judge(way, result):
        nonlocal good
        done = [line for line in result.output.splitlines() if line.endswith(": ok")]
        print("%s: %s, %d checks, %.1f s" % (way, result.describe(), len(done), result.seconds), flush=True)
        if result.status != 0 or not done or "remote-gpu:" in result.errors:
            good = False
            print(result.report())

    judge("directly", build.run_direct(command, environment=device, timeout=TIMEOUT))
    with Server(build, environment=device) as server:
        for way, (kind, environment) in REMOTE_WAYS.items():
            run = build.run_remote if kind == "command" else build.run_by_path
            judge(way, run(command, server.address, environment=environment, timeout=TIMEOUT))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
