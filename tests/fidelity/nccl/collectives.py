"""What NCCL's stand-in does beside computing: what goes over the wire, servers without a library, and programs with their own.

usage: collectives.py BUILD_FOLDER
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "scripts"))

from trial import Build, Failure, Server, stop_with_servers  # noqa: E402

DEVICES = {"SOFTGPU_DEVICES": "2"}


def expect(condition, what, result):
    if not condition:
        raise Failure("%s\n%s" % (what, result.report()))
    print("%s: yes" % what)


def bytes_of(build, address, count, times):
    """What the program sends and receives."""
    program = os.path.join(sys.argv[1], "tests", "collectives")
    result = build.run_remote([program, "stream", str(count), str(times)], address)
    expect(result.status == 0, "%d sums of %d floats succeed" % (times, count), result)
    return result.stats["bytes_sent"] + result.stats["bytes_received"], result


def on_the_wire(build, address):
    small, _ = bytes_of(build, address, 1, 50)
    large, result = bytes_of(build, address, 1 << 20, 50)
    expect(large < small + 2000, "50 sums of 4 MiB send no more than 50 of 4 bytes (%d, %d bytes)" % (small, large), result)
    more, result = bytes_of(build, address, 1 << 20, 250)
    each = (more - large) / 200
    expect(each < 400, "a sum of two ranks is less than 400 bytes (%.0f)" % each, result)


def foreign_memory(build, address):
    result = build.run_remote([os.path.join(sys.argv[1], "tests", "collectives"), "foreign"], address)
    for case in ("sends the program's memory", "receives into it", "sends beyond the end"):
        expect(result.status == 0 and case + ": 4\n" in result.output, "whoever %s is refused" % case, result)


def missing_ranks(build):
    with Server(build, environment=dict(DEVICES, SOFTGPU_NCCL_TIMEOUT="0.5")) as server:
        result = build.run_remote([os.path.join(sys.argv[1], "tests", "collectives"), "missing"], server.address)
        for told in ("rank 0, 2 did not come", "rank 0: 6\n", "rank 1 did not come within 0.5 s", "rank 1 has aborted the communicator"):
            expect(result.status == 0 and told in result.output, "who waits is told: %s" % told.strip(), result)


def without_library(build):
    with Server(build, environment=dict(DEVICES, REMOTE_GPU_NCCL="off")) as server:
        program = os.path.join(sys.argv[1], "tests", "collectives")
        result = build.run_remote([program, "stream", "1", "1"], server.address)
        expect(result.status == 3 and "ncclCommInitAll(comms, n, NULL): 2, the server's operator has switched NCCL off"
               in result.output, "a server without NCCL says so", result)


def own_library(build, address):
    ours = os.path.join("lib", "remote-gpu", "nccl")
    for option, there in (("+nccl", True), ("-nccl", False), ("-all", True)):
        result = build.run_remote(["env"], address, arguments=("--opt", option))
        expect(result.status == 0 and (ours in result.output) == there,
               "with --opt %s the stand-in is %s" % (option, "there" if there else "not there"), result)


def later_functions(build, address):
    """Python binds all symbols of what it loads: a framework built for a later NCCL must load."""
    code = "import ctypes; print('it is', ctypes.CDLL(None, ctypes.RTLD_GLOBAL).ncclCommGrow(0, 0, 0, 0, 0, 0))"
    result = build.run_remote([sys.executable, "-c", code], address)
    expect(result.status == 0 and "it is 5\n" in result.output, "a function of a later version is there, and refused", result)
    expect("NCCL's ncclCommGrow is of a later version than 2.27" in result.errors, "which is said", result)


def main():
    stop_with_servers()
    build = Build(sys.argv[1])
    try:
        with Server(build, environment=DEVICES) as server:
            on_the_wire(build, server.address)
            foreign_memory(build, server.address)
            own_library(build, server.address)
            later_functions(build, server.address)
        missing_ranks(build)
        without_library(build)
    except Failure as failure:
        print(failure)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
