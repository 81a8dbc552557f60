"""The demo's second half: runs every example under `remote-gpu run` against a server of its own.

usage: run_examples.py BUILD_FOLDER [EXAMPLE…]
"""

import sys

from trial import Build, Failure, Server, bytes_text, stop_with_servers


def summary(name, result):
    """One line for one example."""
    verdict = "ok" if result.status == 0 else "FAILED (%s)" % result.describe()
    stats = result.stats
    if not stats:
        return "%-22s %-8s %6.2f s" % (name, verdict, result.seconds)
    moved = stats.get("bytes_sent", 0) + stats.get("bytes_received", 0)
    return "%-22s %-8s %6.2f s  %7d calls  %6d round trips  %9s" % (
        name, verdict, result.seconds, stats.get("calls", 0), stats.get("round_trips", 0), bytes_text(moved))


def run_all(build, names):
    """Runs the examples; returns the names of those that failed."""
    failed = []
    lines = []
    with Server(build) as server:
        print("demo: remote-gpud serves the software device at %s" % server.address)
        for name in names:
            print("\n$ remote-gpu run -s %s -- examples/%s" % (server.address, name), flush=True)
            result = build.run_remote([build.example(name)], server.address, timeout=300)
            sys.stdout.write(result.output)
            if result.errors:
                sys.stdout.write(result.errors)
            lines.append(summary(name, result))
            print("  " + lines[-1], flush=True)
            if result.status != 0:
                failed.append(name)
        if failed:
            print("\ndemo: the server's log:\n" + server.log())
        status = server.stop()
        print("\ndemo: the server is stopped%s\n" % ("" if status == 0 else " (status %s)" % status))
    print("\n".join(lines))
    return failed


def main():
    """Runs the examples named on the command line, or all."""
    stop_with_servers()
    build = Build(sys.argv[1])
    try:
        build.check()
        names = sys.argv[2:] or build.examples()
        unknown = [name for name in names if name not in build.examples()]
        if unknown:
            raise Failure("there is no example %s; there are: %s" % (unknown[0], " ".join(build.examples())))
        if not names:
            raise Failure("no examples are built (is nvcc missing? scripts/setup brings it)")
        failed = run_all(build, names)
    except Failure as failure:
        sys.exit("demo: error: %s" % failure)
    except KeyboardInterrupt:
        sys.exit(130)
    print("\n%d of %d examples ok" % (len(names) - len(failed), len(names)))
    if failed:
        sys.exit("demo: failed: %s" % " ".join(failed))


if __name__ == "__main__":
    main()
