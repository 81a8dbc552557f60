"""Runs the step programs for their results, and the commands that measure with them for what they write.

usage: run.py BUILD_FOLDER PROGRAM | wrong-results | forwarding | steps | optimisations | scale | grants | told | collectives | all | compare

A program of bench/steps runs directly on the software device and remotely: with all optimisations and with none, without
delay and with 5 ms each way; its line must be the same but for the times. `forwarding` runs bench/run, `steps` the command of that name briefly and looks
into its JSON and Markdown, `profile`, `scale`, `grants`, `collectives` and `all` likewise; `compare` feeds bench/compare results that are better, worse, noisy and no results at all.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "scripts")]
sys.dont_write_bytecode = True

import network  # noqa: E402
import steps_report  # noqa: E402
from trial import Build, Failure, Server, expect, stop_with_servers  # noqa: E402

WAYS = ({}, {"REMOTE_GPU_OPT": "-all"}, {"REMOTE_GPU_FILTER": "delay:oneway=5ms"},
        {"REMOTE_GPU_FILTER": "delay:oneway=5ms", "REMOTE_GPU_OPT": "-all"})
STEPS = 3


def line_of(result):
    """What a program printed, without its times, which must be there."""
    expect(result.status == 0 and not result.hung and "remote-gpu:" not in result.errors, result.report())
    told = json.loads(result.output)
    times = told.pop("ns")
    expect(len(times) == told["steps"] * told["threads"] and all(time > 0 for time in times), result.report())
    return told


def program_test(build, program):
    """The same line in all ways."""
    command = [os.path.join(build.folder, "bench", program.command[0]), *program.command[1:], "--steps", str(STEPS),
               "--warm", "1", "--kernel-us", "2"]
    direct = line_of(build.run_direct(command))
    expect(direct["steps"] == STEPS and direct["launches"] > 0 and direct["results"] > 0, "line: %r" % direct)
    with Server(build, tcp=True) as server:
        for way in WAYS:
            remote = line_of(build.run_remote(command, server.address, environment=way))
            expect(remote == direct, "with %r: %r, directly %r" % (way, remote, direct))


def wrong_results_test(build):
    """Programs tell wrong use from success."""
    for arguments in (["--steps", "-1"], ["--steps", "x"], ["--steps"], ["--nothing"]):
        result = build.run_direct([os.path.join(build.folder, "bench", "training"), *arguments])
        expect(result.status == 2 and "usage: training" in result.errors and not result.output, result.report())
    # Without a driver, a call fails, and no time is told.
    result = build.run_direct([os.path.join(build.folder, "bench", "training")], driver_dir="/nowhere")
    expect(result.status in (0, 1) and (result.status == 0 or not result.output), result.report())


def command(name, *arguments, status=0):
    """Runs a command of bench/; its output."""
    done = subprocess.run([sys.executable, os.path.join(ROOT, "bench", name), *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)
    output, errors = done.stdout.decode(), done.stderr.decode()
    expect(done.returncode == status, "bench/%s %s: exit status %d\n%s%s" % (name, " ".join(arguments), done.returncode,
                                                                        output, errors))
    return output + errors


def forwarding_test(build):
    """bench/run measures, writes, and shows again what it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.json")
        command("run", "--build", build.folder, "--quick", "--rounds", "1", "--only", "launch_each", "--json", path)
        with open(path) as file:
            result = json.load(file)
        rows = {row["key"]: row for row in result["rows"]}
        expect(rows["launch_each"]["measured"] > 0 and rows["launch_each"]["ratio"] > 0, "rows: %r" % rows)
        expect("timed one by one" in command("run", "--from", path), "--from shows nothing")


def trace_test(build):
    """What kernels note of a step: its parts make up its time, kernels last as long as they shall, the link takes its time."""
    result = build.run_direct([os.path.join(build.folder, "bench", "inference"), "--trace", "--steps", str(STEPS)])
    told = json.loads(result.output)
    for i, time in enumerate(told["ns"]):
        part = {name: values[i] for name, values in told["trace"].items()}
        expect(part["first"] + part["kernels"] + part["between"] + part["last"] >= time, "step %d: %r" % (i, told))
        expect(part["kernels"] >= told["launches"] * told["kernel_us"] * 1000 and part["pauses"] <= part["between"],
               "step %d: %r" % (i, told))
    result = build.run_direct([os.path.join(build.folder, "bench", "inference"), "--trace", "--kernel-us", "0"])
    expect(result.status == 1 and "--trace" in result.errors, result.report())
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        command("steps", "--build", build.folder, "--trace", "--quick", "--only", "inference", "--rtt", "0,2ms", "--json", path)
        with open(path) as file:
            rows = {row["key"]: row["measured"] for row in json.load(file)["rows"]}
        expect(rows["inference.2ms.first"] >= 1e6 and rows["inference.2ms.last"] >= 1e6, "rows: %r" % rows)
        expect(rows["inference.direct.kernels"] > 0 and rows["inference.0.between"] > 0, "rows: %r" % rows)
        expect("between kernels" in command("steps", "--trace", "--from", path), "--from shows nothing")
        expect("same" in command("compare", path, path), "compare")


def steps_test(build):
    """bench/steps measures, writes, and shows again what it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        path, page = os.path.join(folder, "steps.json"), os.path.join(folder, "page.md")
        with open(page, "w") as file:
            file.write("before\n<!-- generated by bench/steps --markdown: begin -->\nold\n"
                       "<!-- generated by bench/steps --markdown: end -->\nafter\n")
        command("steps", "--build", build.folder, "--quick", "--only", "inference,threads", "--rtt", "0,2ms", "--json", path,
                "--markdown", page)
        with open(path) as file:
            result = json.load(file)
        rows = {row["key"]: row for row in result["rows"]}
        expect(sorted(rows) == ["inference.0", "inference.2ms", "threads.0", "threads.2ms"], "rows: %s" % sorted(rows))
        for row in rows.values():
            expect(row["measured"] > 0 and row["direct"] > 0 and 0 <= row["waited"] <= 1, "row: %r" % row)
            # A difference of two runs, whose starts may differ by a round trip.
            expect(row["results"] == 1 and row["round_trips"] > 0.9, "row: %r" % row)
        # A result that is waited for cannot be there before the link has carried it.
        expect(rows["inference.2ms"]["measured"] > 2e6, "row: %r" % rows["inference.2ms"])
        expect(result["rtt"]["2ms"]["measured"] > 2e6, "rtt: %r" % result["rtt"])
        with open(page) as file:
            text = file.read()
        expect(text.startswith("before\n") and text.endswith("after\n") and "old" not in text, text)
        expect("8 threads" in text and "| 2 ms |" in text, text)
        expect("8 threads" in command("steps", "--from", path), "--from shows nothing")
        expect("same" in command("compare", path, path) and "WORSE" not in command("compare", path, path), "compare")
        command("run", "--from", path, status=1)
    trace_test(build)
    command("steps", "--build", build.folder, "--only", "nothing", status=1)
    command("steps", "--build", build.folder, "--only", "threads", "--trace", status=1)
    command("steps", "--build", build.folder, "--rtt", "5", status=1)
    command("steps", "--build", os.path.join(build.folder, "nowhere"), status=1)


def optimisations_test(build):
    """bench/optimisations finds out what two of them save, of one that has nothing to save that it costs nothing, and writes its table."""
    with tempfile.TemporaryDirectory() as folder:
        path, page = os.path.join(folder, "optimisations.json"), os.path.join(folder, "page.md")
        with open(page, "w") as file:
            file.write("<!-- generated by bench/optimisations --markdown: begin -->\n<!-- generated by bench/optimisations --markdown: end -->\n")
        command("optimisations", "--build", build.folder, "--quick", "--only", "async,delta,peers", "--cases", "inference", "--json", path,
                "--markdown", page)
        with open(path) as file:
            rows = {row["key"]: row for row in json.load(file)["rows"]}
        # Each of 136 launches is waited for; calls that repeat others are sent whole.
        row = rows["async.inference.round_trips"]
        expect(row["costs"] and row["measured"] > 100 and row["usual"] < 10, "row: %r" % row)
        row = rows["delta.inference.bytes"]
        expect(row["costs"] and row["ratio"] > 1.5, "row: %r" % row)
        expect(not any(row["costs"] for row in rows.values() if row["without"] == "peers" and row["measure"] in ("round_trips", "bytes")),
               "rows: %r" % rows)
        with open(page) as file:
            text = file.read()
        expect("| `async` | a step of *inference*: " in text and "| `delta` |" in text, text)
        expect("`async`" in command("optimisations", "--from", path), "--from shows nothing")
        expect("WORSE" not in command("compare", path, path), "compare")
    command("optimisations", "--build", build.folder, "--only", "nothing", status=1)
    command("optimisations", "--build", build.folder, "--cases", "nothing", status=1)


def profile_test(build):
    """bench/profile measures with and without a profile, and writes what it measured."""
    with tempfile.TemporaryDirectory() as folder:
        path, page = os.path.join(folder, "profile.json"), os.path.join(folder, "page.md")
        with open(page, "w") as file:
            file.write("<!-- generated by bench/profile --markdown: begin -->\n<!-- generated by bench/profile --markdown: end -->\n")
        command("profile", "--build", build.folder, "--quick", "--json", path, "--markdown", page)
        with open(path) as file:
            result = json.load(file)
        rows = {row["key"]: row for row in result["rows"]}
        expect(sorted(rows) == ["elapsed", "process", "thread"] and len(result["measurements"]) == 2, "result: %r" % result)
        # As much work as makes 100,000 calls a second: 10 us a call, or more where other things have the core.
        expect(rows["thread"]["without"] > 5000 and rows["elapsed"]["without"] > 5000, "rows: %r" % rows)
        with open(page) as file:
            expect("processor time of the process" in file.read(), "the page has no table")
        expect("at 100000 a second" in command("profile", "--from", path), "--from shows nothing")
        expect("WORSE" not in command("compare", path, path), "compare")
    command("profile", "--build", build.folder, "--rate", "0", status=1)


def scale_test(build):
    """bench/scale measures several processes and several threads, and what their sessions take."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "scale.json")
        command("scale", "--build", build.folder, "--sizes", "1,3", "--seconds", "0.6", "--rounds", "1", "--json", path)
        with open(path) as file:
            result = json.load(file)
        rows = {row["key"]: row for row in result["rows"]}
        expect(len(rows) == 12, "rows: %s" % sorted(rows))
        for row in rows.values():
            expect(row["measured"] > 0 and row["direct"] > 0, "row: %r" % row)
            expect(0 < row["shares"][0] <= row["shares"][1] <= row["shares"][2], "row: %r" % row)
        expect(rows["threads.1.calls"]["shares"] == [1, 1, 1], "a share of one: %r" % rows["threads.1.calls"])
        for found in result["memory"].values():
            expect(all(found[name] > 100000 for name in ("clients", "workers", "direct")), "memory: %r" % found)
        expect("3 processes: launches" in command("scale", "--from", path), "--from shows nothing")
        expect("same" in command("compare", path, path), "compare")
    command("scale", "--build", build.folder, "--kinds", "nothing", status=1)
    command("scale", "--build", build.folder, "--sizes", "0", status=1)
    result = build.run_direct([os.path.join(build.folder, "bench", "load"), "calls"])
    expect(result.status == 1 and "stdin ended" in result.errors, result.report())


def grants_test(build):
    """bench/grants measures a small pool on a real etcd, and one server with sessions."""
    if not shutil.which("etcd"):
        print("skipped: etcd is not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        path, page = os.path.join(folder, "grants.json"), os.path.join(folder, "page.md")
        with open(page, "w") as file:
            file.write("<!-- generated by bench/grants --markdown: begin -->\n<!-- generated by bench/grants --markdown: end -->\n")
        told = command("grants", "--build", build.folder, "--quick", "--sizes", "1:2,2:6", "--requests", "5", "--sessions", "2", "--json", path,
                       "--markdown", page)
        with open(path) as file:
            result = json.load(file)
        sizes = result["sizes"]
        expect([(row["servers"], row["leases"]) for row in sizes] == [(1, 2), (2, 6)], "sizes: %r" % sizes)
        for row in sizes:
            expect(row["grant"]["n"] == 5 and row["etcd"]["n"] > 0 and row["grant"]["p50"] > 0, "row: %r" % row)
            # a grant and its end are four changes of keys, which each server is told of that is asked
            expect(row["busy"]["watchers"] >= row["servers"] and row["busy"]["events"] > 0 and row["busy"]["requests"] > 0, "row: %r" % row)
            expect(0 < row["agent"] < row["memory"], "row: %r" % row)
        expect(all(result["kept"][name]["n"] == 2 and result["kept"][name]["p50"] > 0 for name in ("first", "again")), "kept: %r" % result["kept"])
        expect(result["sessions"]["worker"] > 100000 and result["sessions"]["server"] > 100000, "sessions: %r" % result["sessions"])
        expect(len(result["targets"]) == 2 and all(one["met"] is not None for one in result["targets"]), "targets: %r" % result["targets"])
        with open(page) as file:
            expect("| 2 | 6 |" in file.read() and "one server with 2 sessions" in told, "the tables")
    command("grants", "--build", build.folder, "--sizes", "8:100,4:200", status=1)


def told_test(build):
    """bench/told measures a pool of three servers, of which two are keys of etcd."""
    if not shutil.which("etcd"):
        print("skipped: etcd is not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "told.json")
        command("told", "--build", build.folder, "--sizes", "3", "--seconds", "2", "--rate", "60", "--json", path)
        with open(path) as file:
            row, = json.load(file)["sizes"]
        expect(row["servers"] == 3 and row["keys"] == 18 and row["read"] > 0, "row: %r" % row)
        expect(row["rest"]["changes"] > row["rest"]["events"] and row["asked"]["events"] > 0, "row: %r" % row)


def collectives_test(build):
    """bench/collectives measures against plain sockets, counts what the client's link carries, and writes its tables."""
    if network.why_not():
        print("skipped: " + network.why_not())
        return
    with tempfile.TemporaryDirectory() as folder:
        path, page = os.path.join(folder, "collectives.json"), os.path.join(folder, "page.md")
        with open(page, "w") as file:
            file.write("<!-- generated by bench/collectives --markdown: begin -->\n<!-- generated by bench/collectives --markdown: end -->\n")
        told = command("collectives", "--build", build.folder, "--quick", "--json", path, "--markdown", page)
        with open(path) as file:
            result = json.load(file)
        rows = {(row["operation"], row["bytes"]): row for row in result["rows"]}
        expect(sorted(rows) == [("all_reduce", 8), ("all_reduce", 16 << 20), ("broadcast", 16 << 20)], "rows: %s" % sorted(rows))
        expect(all(row["ratio"] > 0 and row["limit"] > 0 for row in rows.values()), "rows: %r" % rows)
        expect(rows["all_reduce", 8]["met"] is not None and rows["all_reduce", 16 << 20]["met"] is not None, "nothing was judged")
        # A call is some hundred bytes, and what was to be summed up 16 MiB.
        expect(0 < result["client"]["carried"] < 20000, "the client's link: %r" % result["client"])
        with open(page) as file:
            expect("A sum of 16.0 MiB costs the client's link" in file.read(), told)
        expect("same" in command("compare", path, path), "compare")
    command("collectives", "--build", build.folder, "--link", "nothing", status=2)


def all_test(build):
    """bench/all runs several, judges them, and writes results that bench/compare takes."""
    with tempfile.TemporaryDirectory() as folder:
        results, page = os.path.join(folder, "results"), os.path.join(folder, "page.md")
        with open(page, "w") as file:
            for name in ("bulk", "predict"):
                file.write("<!-- generated by bench/%s --markdown: begin -->\n<!-- generated by bench/%s --markdown: end -->\n"
                           % (name, name))
        told = command("all", "--build", build.folder, "--quick", "--only", "bulk,predict", "--json", results, "--markdown", page)
        targets = 2 if network.why_not() else 3  # without machines of a network, no program of two servers
        expect("no targets" in told and "of %d targets met" % targets in told, told)
        expect(sorted(os.listdir(results)) == ["bulk.json", "predict.json"], "results: %r" % os.listdir(results))
        with open(page) as file:
            text = file.read()
        expect("| 10 Gb/s | 1 MiB |" in text and "chatty" in text, text)
        told = command("compare", results, results)
        expect("── bulk.json" in told and "── predict.json" in told and "auto, pinned, to the host" in told
               and "WORSE" not in told, told)
        command("compare", results, folder, status=1)
        command("compare", results, os.path.join(folder, "nowhere"), status=1)
    told = command("all", "--build", os.path.join(build.folder, "nowhere"), "--quick", "--only", "steps", status=1)
    expect("FAILED" in told, told)
    command("all", "--only", "nothing", status=1)


def compare_test(_):
    """Better, worse, and within the noise."""
    def row(measured, noise=0.02, unit="ns", ratio=None):
        return {"key": "a", "title": "what", "unit": unit, "measured": measured, "noise": noise, "ratio": ratio}

    with tempfile.TemporaryDirectory() as folder:
        def result(name, kind="run", **words):
            path = os.path.join(folder, name)
            with open(path, "w") as file:
                json.dump({"schema": 1, "kind": kind, "device": "d", "split": None, "quick": False,
                           "rows": [row(**words)]}, file)
            return path

        def verdict(before, after, *options, status=0):
            return command("compare", *options, result("before", **before), result("after", **after),
                           status=status).split("\n")[1].split()[-1]

        for before, after, word in ((dict(measured=100), dict(measured=120), "WORSE"),
                                    (dict(measured=120), dict(measured=100), "better"),
                                    (dict(measured=100), dict(measured=103), "same"),
                                    (dict(measured=100, noise=0.2), dict(measured=120, noise=0.2), "same"),
                                    (dict(measured=100, noise=None), dict(measured=108, noise=None), "same"),
                                    (dict(measured=100, noise=None), dict(measured=115, noise=None), "WORSE"),
                                    (dict(measured=100, unit="B/s"), dict(measured=120, unit="B/s"), "better"),
                                    (dict(measured=100, ratio=1.0), dict(measured=200, ratio=1.0), "same")):
            found = verdict(before, after)
            expect(found == word, "%r, then %r: %s, not %s" % (before, after, found, word))
        verdict(dict(measured=100), dict(measured=120), "--fail-over", "10", status=1)
        verdict(dict(measured=100), dict(measured=120), "--fail-over", "30")
        command("compare", result("a", measured=1), result("b", kind="steps", measured=1), status=1)
        with open(os.path.join(folder, "none"), "w") as file:
            file.write("{}")
        command("compare", result("a", measured=1), os.path.join(folder, "none"), status=1)


def main():
    """Runs what the command line names."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    stop_with_servers()
    build = Build(sys.argv[1])
    build.check()
    programs = {program.key: program for program in steps_report.PROGRAMS}
    tests = {"wrong-results": wrong_results_test, "forwarding": forwarding_test, "steps": steps_test, "optimisations": optimisations_test,
             "profile": profile_test, "scale": scale_test, "grants": grants_test, "told": told_test, "collectives": collectives_test, "all": all_test,
             "compare": compare_test}
    try:
        if sys.argv[2] in tests:
            tests[sys.argv[2]](build)
        else:
            program_test(build, programs[sys.argv[2]])
    except Failure as failure:
        sys.exit("FAILED: %s" % failure)


if __name__ == "__main__":
    main()
