"""Tests of recording and predicting: run.py BUILD_FOLDER CASE. What they say of times is that orders and sums are right;
how good predictions are is bench/predict's to say."""

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
sys.path.insert(0, os.path.join(ROOT, "scripts"))

import network  # noqa: E402
from trial import Server, expect, run_case, run_program, wait_until  # noqa: E402

PROGRAMS = ("chatty", "pageable", "threads", "events", "modules", "training")
COUNTED = ("computing", "chatty", "pageable", "modules", "training")  # as many round trips each time


class Trial:
    """A build with a server and a folder for traces."""

    def __init__(self, build, folder, server):
        self.build, self.folder, self.server = build, folder, server
        self.program = os.path.join(build.folder, "bench", "predict_programs")

    def run(self, name, *arguments, link=None):
        """Runs a program of bench's; its seconds and the result."""
        environment = {"REMOTE_GPU_FILTER": "delay:" + link} if link else {}
        result = self.build.run_remote([self.program, name], self.server.address, arguments, environment)
        expect(result.status == 0, "%s failed" % name, result)
        return float(result.output.split()[1]), result

    def record(self, name, *arguments, link=None):
        """Records a program; the trace's path and the result."""
        path = os.path.join(self.folder, name + ".rgt")
        _, result = self.run(name, "--record=" + path, *arguments, link=link)
        return path, result

    def predict(self, path, *arguments):
        """What predict says, as JSON."""
        result = run_program([self.build.command, "predict", path, "--json", *arguments])
        expect(result.status == 0, "predict failed", result)
        return json.loads(result.output)

    def refused(self, path, *arguments):
        """What predict says of something that it must refuse."""
        result = run_program([self.build.command, "predict", path, *arguments])
        expect(result.status == 125 and not result.output, "predict took %s" % path, result)
        return result.errors


def first(answer):
    """The prediction with all optimisations."""
    return answer["predictions"][0]


def case_same_as_recorded(trial):
    """Over the network on which it was recorded, a run takes what it took."""
    for name in PROGRAMS:
        path, result = trial.record(name)
        answer = trial.predict(path)
        recorded, simulated = answer["recorded"]["seconds"], answer["recorded"]["simulated_seconds"]
        expect(abs(simulated / recorded - 1) < 0.25, "%s: recorded in %g s, simulated %g s" % (name, recorded, simulated),
               result)
        expect(first(answer)["seconds"] == simulated, "%s: without a network it is another one" % name)


def case_round_trips(trial):
    """Round trips are those that the statistics count, and a longer way adds so many of them."""
    exact = "--opt=-startup-prefetch"  # whether what is prefetched has come when it is wanted is a matter of time
    for name in COUNTED:
        trial.run(name, exact)  # from then on what is known of its modules is the same each time
        _, plain = trial.run(name, exact)
        path, result = trial.record(name, exact)
        near, far = first(trial.predict(path)), first(trial.predict(path, "--rtt", "+10ms"))
        expect(near["round_trips"] == plain.stats["round_trips"],
               "%s: %d round trips predicted, %d counted" % (name, near["round_trips"], plain.stats["round_trips"]), plain)
        expect(result.stats["round_trips"] == plain.stats["round_trips"], "%s: recording costs round trips" % name, result)
        more = far["seconds"] - near["seconds"]
        expect(more <= (near["round_trips"] + 3) * 0.0101, "%s: %g s more for 10 ms" % (name, more))
        expect(more >= 0.01, "%s: 10 ms cost nothing" % name)


def case_links(trial):
    """Never faster over a worse network; and a long one costs about what it really costs."""
    for name in ("pageable", "events", "training"):
        path, _ = trial.record(name)
        last = 0
        for rtt in ("+0", "+100us", "+1ms", "+10ms", "+100ms"):
            slower = 0
            for bandwidth in ("100Gb", "10Gb", "1Gb", "100Mb"):
                seconds = first(trial.predict(path, "--rtt", rtt, "--bandwidth", bandwidth))["seconds"]
                expect(seconds >= slower * 0.999, "%s: faster at %s with %s" % (name, rtt, bandwidth))
                slower = seconds
                if bandwidth == "100Gb":
                    expect(seconds >= last * 0.999, "%s: faster at %s" % (name, rtt))
                    last = seconds
    path, _ = trial.record("chatty")
    link = "oneway=10ms,bandwidth=10Gb"  # so long that nothing else matters
    measured, result = trial.run("chatty", link=link)
    predicted = first(trial.predict(path, "--link", link))["seconds"]
    expect(0.7 < predicted / measured < 1.4, "chatty: measured %g s, predicted %g s" % (measured, predicted), result)


def case_optimisations(trial):
    """Without an optimisation nothing gets faster, and round trips are those of a run without it."""
    path, _ = trial.record("training")
    answer = trial.predict(path, "--rtt", "+1ms")
    variants = {tuple(one["without"]): one for one in answer["predictions"]}
    for name in ("async", "batch", "query-cache", "deferred-copies", "completion-push"):
        expect((name,) in variants, "no prediction without %s" % name)
        expect(variants[(name,)]["seconds"] >= first(answer)["seconds"] * 0.99, "faster without %s" % name)
    _, result = trial.run("training", "--opt=-async")
    expect(abs(variants[("async",)]["round_trips"] / result.stats["round_trips"] - 1) < 0.02,
           "without async: %d round trips predicted, %d counted" %
           (variants[("async",)]["round_trips"], result.stats["round_trips"]), result)
    expect(variants[("batch",)]["messages"] > 2000, "without batch the calls share messages")


def case_output(trial):
    """The table, the grid and the picture."""
    path, _ = trial.record("training")
    picture = os.path.join(trial.folder, "picture.svg")
    result = run_program([trial.build.command, "predict", path, "--rtt=20ms", "--bandwidth=25Gb", "--grid", "--svg", picture])
    expect(result.status == 0 and not result.errors, "predict failed", result)
    for word in ("predict_programs", "without batch", "25 Gb/s", "RoCE", "PVRDMA", "TCP"):
        expect(word in result.output, "no '%s' in the output" % word, result)
    root = xml.etree.ElementTree.parse(picture).getroot()
    text = "".join(root.itertext())
    expect(root.tag.endswith("svg") and "RoCE" in text and "PVRDMA" in text and "100 Gb/s" in text, "the picture: " + text)
    answer = trial.predict(path, "--grid")
    grid, waited, seconds = answer["grid"], first(answer)["waited_seconds"], first(answer)["seconds"]
    # one thread: it computes or it waits
    expect(abs(answer["recorded"]["computed_seconds"] + waited - seconds) < 0.02 * seconds,
           "%g s computed and %g s waited are not %g s" % (answer["recorded"]["computed_seconds"], waited, seconds))
    expect(len(grid) == 55 and all(point["slow_down"] > 0.9 for point in grid), "the grid: %s" % grid)
    expect(os.path.getsize(path) < 400000, "a trace of %d bytes" % os.path.getsize(path))


def case_names(trial):
    """A program's name may be anything; what is said of it is JSON and XML all the same."""
    program = os.path.join(os.fsencode(trial.folder), b"odd \xff<&\"\x07")
    shutil.copy(trial.build.example("vector_add"), program)
    path = os.path.join(trial.folder, "odd.rgt")
    result = trial.build.run_remote([os.fsdecode(program)], trial.server.address, ["--record=" + path])
    expect(result.status == 0, "the program failed", result)
    picture = os.path.join(trial.folder, "odd.svg")
    answer = trial.predict(path, "--svg", picture)
    expect(answer["program"] == "odd ?<&\"?", "the program is called %r" % answer["program"])
    text = "".join(xml.etree.ElementTree.parse(picture).getroot().itertext())
    expect('odd ?"?' in text, "the picture says " + text)


def case_errors(trial):
    """What is wrong is said."""
    path, _ = trial.record("chatty")
    with open(path, "rb") as file:
        data = file.read()
    damaged = os.path.join(trial.folder, "damaged")
    for content, word in ((data[:-30], "not whole"), (data[:20000], "not whole"), (b"", "not a trace"), (b"{}" * 50, "not a trace"),
                          (data[:900] + b"x" + data[901:], "damaged"), (data + b"x", "damaged")):
        with open(damaged, "wb") as file:
            file.write(content)
        expect(word in trial.refused(damaged), "nothing about '%s': %s" % (word, trial.refused(damaged)))
    expect("cannot be read" in trial.refused(os.path.join(trial.folder, "nothing")), "a file that is not there")
    expect("--rtt" in trial.refused(path, "--rtt=1ms", "--link=oneway=1ms"), "two networks at once")
    expect("oneway" in trial.refused(path, "--link=twoway=1ms"), "a link of nonsense")
    for wrong in (("--rtt=fast",), ("--bandwidth=2",), ("another.rgt",)):
        expect(trial.refused(path, *wrong), "nothing said of %s" % (wrong,))
    result = trial.build.run_remote([trial.program, "chatty"], trial.server.address, ["--profile", "--record"])
    expect(result.status == 125 and "--profile" in result.errors, "a profile and a trace at once", result)
    nowhere = trial.build.run_remote([trial.program, "chatty"], trial.server.address,
                                     ["--record=" + os.path.join(trial.folder, "no/where.rgt")])
    expect(nowhere.status == 0 and "cannot write a trace" in nowhere.errors, "a trace to nowhere", nowhere)


def case_killed(trial):
    """The trace of a program that was killed is refused, with the reason."""
    path = os.path.join(trial.folder, "killed.rgt")
    process = subprocess.Popen([trial.build.command, "run", "-s", trial.server.address, "--record=" + path, "--",
                                trial.program, "chatty"], stdout=subprocess.DEVNULL,
                               env={**os.environ, "REMOTE_GPU_FILTER": "delay:oneway=20ms"})
    try:
        expect(wait_until(lambda: os.path.exists(path) and os.path.getsize(path) > 0, 30), "no trace was begun")
    finally:
        process.kill()
        process.wait()
    expect("not whole" in trial.refused(path), "the trace of a killed program was taken")


def case_forks(trial):
    """Each process has a trace of its own, whatever the name."""
    for name, n in (("each.%p.rgt", 2), ("same.rgt", 2)):
        result = trial.build.run_remote(["sh", "-c", "%s chatty && %s events" % (trial.program, trial.program)],
                                        trial.server.address, ["--record=" + os.path.join(trial.folder, name)])
        paths = glob.glob(os.path.join(trial.folder, name[:4] + "*.rgt"))
        expect(result.status == 0 and len(paths) == n, "traces: %s" % paths, result)
        for path in paths:
            expect(first(trial.predict(path))["round_trips"] > 0, "an empty trace")


def case_servers(trial):
    """A program of two servers: what these exchange is recorded, and a slower link between them costs what its bytes take there."""
    program = os.path.join(trial.build.folder, "bench", "predict_servers")
    path = os.path.join(trial.folder, "servers.rgt")
    with Server(trial.build, tcp=True) as one, Server(trial.build, tcp=True) as other:
        for name, exchanges, sent in (("halo", 30 * 4, 30 * 2 * (2 << 20)), ("data_parallel", 40 * 2, 40 * 2 * (4 << 20))):
            result = trial.build.run_remote([program, name], "%s,%s" % (one.address, other.address), ["--record=" + path])
            expect(result.status == 0 and "cannot be recorded" not in result.errors, "%s failed" % name, result)
            answer = trial.predict(path)
            recorded = answer["recorded"]
            expect(recorded["exchanges"] >= exchanges and recorded["bytes_between_servers"] == sent,
                   "%s: %d exchanges of %d bytes" % (name, recorded["exchanges"], recorded["bytes_between_servers"]), result)
            expect(abs(recorded["simulated_seconds"] / recorded["seconds"] - 1) < 0.25,
                   "%s: recorded in %g s, simulated %g s" % (name, recorded["seconds"], recorded["simulated_seconds"]), result)
            slow = first(trial.predict(path, "--server-link", "bandwidth=100Mb"))["seconds"]
            # each server sends half of it, at 12.5 MB/s
            expect(slow > sent / 2 / 12.5e6, "%s: %g s over 100 Mb/s" % (name, slow))
            # both ways at once; what a round waits for behind data adds some 30 ms each time
            expect(slow < sent / 2 / 12.5e6 * 1.5 + recorded["seconds"] * 1.1, "%s: %g s over 100 Mb/s" % (name, slow))
            far = first(trial.predict(path, "--server-link", "oneway=10ms"))["seconds"]
            expect(far > recorded["simulated_seconds"] + 0.2, "%s: %g s over 10 ms" % (name, far))
            os.unlink(path)
    path, _ = trial.record("chatty")
    result = run_program([trial.build.command, "predict", path, "--server-link", "bandwidth=1Gb"])
    expect(result.status == 0 and "--server-link changes nothing" in result.errors, "nothing is said of a link that nothing uses", result)
    expect("oneway" in trial.refused(path, "--server-link=twoway=1ms"), "a link of nonsense")


def case_bench(trial):
    """bench/predict works."""
    table = os.path.join(trial.folder, "table.json")
    result = run_program([os.path.join(ROOT, "bench", "predict"), "--build", trial.build.folder, "--quick", "--json", table],
                         timeout=250)
    expect(result.status == 0, "bench/predict failed", result)
    with open(table) as file:
        table = json.load(file)
    programs, servers = table["programs"], table["servers"]
    expect(len(programs) == 2 and all(len(program["points"]) == 2 for program in programs), "the table: %s" % programs)
    expect(bool(network.why_not()) or (len(servers) == 1 and len(servers[0]["points"]) == 2), "the table of two servers: %s" % servers)


def prepare(build, stack):
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="remote-gpu-predict-"))
    os.environ["REMOTE_GPU_CACHE"] = os.path.join(folder, "cache")
    return Trial(build, folder, stack.enter_context(Server(build)))


if __name__ == "__main__":
    run_case(globals(), prepare)
