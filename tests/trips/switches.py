"""Each optimisation does something, and can be switched off: run.py BUILD_FOLDER

For every name of `remote-gpu run --opt` there is a program and a count that is another without it: round trips, messages,
bytes. The program's output must be the same (tests/fidelity compares many more programs with each one off). The client itself
says which names there are, so that none can be added without a row here.
"""

import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))

from trial import Build, Failure, Server, optimisations, stop_with_servers  # noqa: E402

NARROW = {"REMOTE_GPU_FILTER": "delay:bandwidth=1Gb"}
# Which program, in which environment, shows it in which count; and at least how many times as large that is without it
# (below 1: at most). Those that live by earlier runs run twice before, with a cache of their own.
ROWS = {
    "async": ("steady", {}, "round_trips", 2),
    "batch": ("many_launches", {}, "messages_sent", 4),
    "query-cache": ("steady", {}, "round_trips", 1.2),
    "inline-send": ("steady", {}, "messages_inline", 0),
    "deferred-copies": ("steady", {}, "round_trips", 1.02),
    "completion-push": ("steady", {}, "round_trips", 1.1),
    "prealloc": ("steady", {}, "round_trips", 1.2),
    "chunks": ("big_copy", NARROW, "messages_sent", 0.6),
    "image-cache": ("startup", {"REMOTE_GPU_CACHE": "KEPT"}, "round_trips", 5),
    "startup-prefetch": ("startup", {"REMOTE_GPU_CACHE": "KEPT"}, "round_trips", 1.5),
    "image-prefetch": ("startup", {}, "round_trips", 5),
    "image-dedup": ("images", {}, "bytes_sent", 2),
    "delta": ("many_launches", {}, "bytes_sent", 4),
    "peers": ("two_devices", {}, "peer_direct", 0),
}
PROGRAMS = {"steady": ["tests/steady", "10"], "many_launches": ["examples/many_launches"], "images": ["tests/images"],
            "big_copy": ["examples/big_copy", "8"], "two_devices": ["tests/two_devices"], "startup": ["bench/startup", "12"]}


def look(build, address, name, folder):
    """Whether that optimisation shows in what its row says."""
    program, environment, count, factor = ROWS[name]
    command = [os.path.join(build.folder, *PROGRAMS[program][0].split("/")), *PROGRAMS[program][1:]]
    if not os.path.exists(command[0]):
        print("%-16s left out: %s is not built" % (name, command[0]))
        return True
    kept = environment.get("REMOTE_GPU_CACHE") == "KEPT"
    environment = dict(environment, REMOTE_GPU_CACHE=os.path.join(folder, name) if kept else "off")

    def start(**more):
        result = build.run_remote(command, address, environment=dict(environment, **more))
        if result.status != 0:
            raise Failure(result.report())
        # Of bench/startup, whose lines have times, it is the status: it compares its results itself.
        return "" if program == "startup" else result.output, result.stats[count]

    for _ in range(2 if kept else 1): # what server and client keep is there
        before = start()[1]
    (with_output, with_it), (output, without) = start(), start(REMOTE_GPU_OPT="-" + name)
    if factor > 1: # a machine that stands still for a moment makes the client ask for a few things again
        with_it = min(with_it, before)
    print("%-16s %-16s %9d with it, %9d without" % (name, count, with_it, without))
    good = without >= with_it * factor if factor > 1 else without <= with_it * factor and with_it
    if output != with_output:
        print("%s: not the same without:\n%s\n%s" % (name, with_output, output))
    return good and output == with_output


def main():
    stop_with_servers()
    build, good = Build(sys.argv[1]), True
    with Server(build) as server, Server(build, tcp=True) as one, Server(build, tcp=True) as other, tempfile.TemporaryDirectory(prefix="remote-gpu-switches-") as folder:
        names = optimisations(build, server.address)
        if set(names) != set(ROWS):
            raise Failure("there are %s; this test knows %s" % (sorted(names), sorted(ROWS)))
        for name in names:
            good &= bool(look(build, one.address + "," + other.address if name == "peers" else server.address, name, folder))
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit("error: %s" % failure)
