"""Runs a program directly on the software device and remotely in several ways; its transcripts must be the same.

usage: run.py BUILD_FOLDER PROGRAM [brief] [servers=N,…] [tcp] [memory=SIZE] [cores=N] [drivers=VERSION,…] [behave=SETTINGS,…] [learned] [ARGUMENT…]

brief: not with each optimisation off (which takes two thirds of the time), unless RG_FIDELITY_EACH=1.
servers=1,2: two servers, with 1 and 2 devices, that the program uses together; directly, one device has as many.
tcp: the servers listen on TCP, so that two of them can be connected to each other; in three ways only.
memory=64M: devices with so much memory.
cores=44: devices of so many multiprocessors.
drivers=12.0,12.4: with drivers of these versions, one after another, not with each optimisation off.
behave=seed=1,seed=2:fail=719@3: on a device that behaves as NVIDIA's may, with these settings of SOFTGPU_BEHAVE, one after
another; in two ways only.
learned: and in two more, knowing nothing and what that run has learned.
"""

import contextlib
import difflib
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))

from trial import Build, Server, optimisations, wait_until  # noqa: E402

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
                                    **({"REMOTE_GPU_CACHE": "CACHE"} if name in ("image-cache", "startup-prefetch") else {}))
            for name in names}


def assertions(result):
    """
    What is said on standard error, among what others say there: failed assertions, and that a kernel or a module cannot run.
    """
    return [line for line in result.errors.splitlines()
            if "Assertion `" in line or "cannot run kernel '" in line or "cannot run a module" in line]


def main():
    build = Build(sys.argv[1])
    # What is freed is overwritten, so that a client that still reads it, or has it written, is found out.
    os.environ.setdefault("MALLOC_PERTURB_", "165")
    arguments, counts = sys.argv[3:], []
    brief = bool(arguments) and arguments[0] == "brief"
    if brief:
        arguments.pop(0)
    if arguments and arguments[0].startswith("servers="):
        counts = [int(count) for count in arguments.pop(0)[len("servers="):].split(",")]
    tcp = bool(arguments) and arguments[0] == "tcp"
    if tcp:
        arguments.pop(0)
    device, drivers = {}, []
    if arguments and arguments[0].startswith("memory="):
        device = {"SOFTGPU_MEMORY": arguments.pop(0)[len("memory="):]}
    if arguments and arguments[0].startswith("cores="):
        device["SOFTGPU_CORES"] = arguments.pop(0)[len("cores="):]
    if arguments and arguments[0].startswith("drivers="):
        drivers = arguments.pop(0)[len("drivers="):].split(",")
    seeds = []
    if arguments and arguments[0].startswith("behave="):
        seeds = arguments.pop(0)[len("behave="):].split(",")
    learned = bool(arguments) and arguments[0] == "learned"
    if learned:
        arguments.pop(0)
    command = [os.path.join(sys.argv[1], "tests", sys.argv[2])] + arguments
    settings = [{}]
    if drivers:
        settings = [{"SOFTGPU_DRIVER_VERSION": version} for version in drivers]
    elif seeds:
        settings = [{"SOFTGPU_BEHAVE": "nvidia:init=20:context=10:" + seed} for seed in seeds]
    ways = WAYS if drivers else {name: WAYS[name] for name in ("as it is", "no optimisation")} if seeds else None
    if learned:
        ways.update((name, WAYS[name]) for name in ("nothing known", "what the last run learned"))
    if brief and not ways and os.environ.get("RG_FIDELITY_EACH") != "1":
        ways = WAYS
    if tcp:
        ways = {name: WAYS[name] for name in ("as it is", "no optimisation", "1 ms away")}
    good = True
    for setting in settings:
        if setting:
            print(setting)
        good &= compare(build, command, counts, dict(device, **setting), ways, tcp)
    return 0 if good else 1


def compare(build, command, counts, device, ways, tcp):
    """Whether the program's transcript is the same in these ways (None: in all there are)."""
    with tempfile.TemporaryDirectory(prefix="remote-gpu-share-") as share: # what its processes have in common, as a server's have
        direct = build.run_direct(command, environment=dict(device, SOFTGPU_DEVICES=str(sum(counts) or 1), SOFTGPU_SHARE=share))
    lines = direct.output.splitlines()
    print("directly: %s, %d lines" % (direct.describe(), len(lines)))
    good = direct.status == 0 and (len(lines) > 50 or bool(device) or len(command) > 1 or command[0].endswith("/images"))
    if command[0].endswith("/device_output") and "closed" not in command and not assertions(direct):
        print("directly: nothing on standard error of what fails")
        good = False
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Server(build, tcp=tcp, environment=dict(device, SOFTGPU_DEVICES=str(count))))
                   for count in counts or [1]]
        address = ",".join(server.address for server in servers)
        cache = stack.enter_context(tempfile.TemporaryDirectory(prefix="remote-gpu-cache-"))
        ways = ways or {**WAYS, **each_one_off(optimisations(build, address))}
        for way, environment in ways.items():
            environment = {name: cache if value == "CACHE" else value for name, value in environment.items()}
            # The memory of the program before, which programs that ask would see, is free when its worker has ended.
            wait_until(lambda: not any(server.workers() for server in servers))
            remote = build.run_remote(command, address, environment=environment)
            same = remote.output == direct.output and remote.status == direct.status
            same = same and assertions(remote) == assertions(direct)
            print("%s: %s" % (way, "the same" if same else remote.describe()))
            if not same:
                good = False
                print("\n".join(difflib.unified_diff(lines, remote.output.splitlines(), "direct", "remote", lineterm="", n=1)))
                print(remote.errors)
    return good


if __name__ == "__main__":
    sys.exit(main())
