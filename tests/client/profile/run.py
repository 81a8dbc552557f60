"""Tests of the profile: run.py BUILD_FOLDER CASE. A profile must say what the program itself has counted."""

import glob
import json
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "scripts"))

from trial import Server, expect, run_case, run_program  # noqa: E402

SKIPPED = 77
DELAY_US = 5000


class Trial:
    """A build with servers and a folder for profiles."""

    def __init__(self, build, folder, servers):
        self.build, self.folder = build, folder
        self.address = ",".join(server.address for server in servers)
        self.program = os.path.join(build.folder, "tests", "profiled")

    def run(self, *arguments, environment=None, name="profile.json", command=None):
        """Runs the program (or another command) and returns the result and all profiles that it left."""
        file = os.path.join(self.folder, name)
        result = self.build.run_remote(command or [self.program, *arguments], self.address,
                                       arguments=["--profile=" + file], environment=environment)
        profiles = []
        for path in sorted(glob.glob(os.path.join(self.folder, "*.json"))):
            with open(path, encoding="utf-8") as opened:
                profiles.append(json.load(opened))
            os.unlink(path)
        return result, profiles


def rows(profile):
    """The profile's calls by name."""
    return {row["name"]: row for row in profile["remoteGpu"]["calls"]}


def check_counts(result, profile):
    """The calls of the profile are those that the program counted, and its figures are consistent."""
    wanted = {name: int(count) for name, count in (line.split() for line in result.output.splitlines())}
    expect(wanted, "the program counted nothing", result)
    calls = rows(profile)
    found = {name: row["count"] for name, row in calls.items() if name != "remote-gpu"}
    expect(found == wanted, "calls: expected %s, found %s" % (wanted, found), result)
    total = profile["remoteGpu"]["total"]
    expect(total["count"] == sum(wanted.values()), "the total of calls is wrong: %s" % total, result)
    for field in ("round_trips", "sent_bytes", "received_bytes"):
        expect(total[field] == sum(row[field] for row in calls.values()), "the total of %s is wrong" % field, result)
    for row in calls.values():
        expect(row["waited_us"] <= row["inside_us"] + 0.01, "waited longer than it took: %s" % row, result)


def check_events(profile, result, complete=True):
    """Events are well formed, and those of each thread nest: they are apart, or one is inside the other."""
    events = [event for event in profile["traceEvents"] if event["ph"] == "X"]
    by_thread = {}
    for event in events:
        by_thread.setdefault((event["pid"], event["tid"]), []).append(event)
    for list_of_one in by_thread.values():
        list_of_one.sort(key=lambda event: (event["ts"], -event["dur"]))
        open_until = []
        for event in list_of_one:
            end = event["ts"] + event["dur"]
            while open_until and open_until[-1] <= event["ts"] + 1e-6:
                open_until.pop()
            expect(not open_until or end <= open_until[-1] + 1e-3, "an event crosses another: %s" % event, result)
            open_until.append(end)
    expect(len(events) == profile["remoteGpu"]["events"], "the number of events is wrong", result)
    if complete:
        for name, row in rows(profile).items():
            if name != "remote-gpu":
                seen = [event for event in events if event["name"] == name]
                expect(len(seen) == row["count"], "%s: %d events of %d calls" % (name, len(seen), row["count"]), result)
                trips = sum(event.get("args", {}).get("round_trips", 0) for event in seen)
                expect(trips == row["round_trips"], "%s: events have %d round trips" % (name, trips), result)
    return events


def case_counts(trial):
    """Calls, round trips and bytes are exact; so is the sum of round trips, counted elsewhere."""
    for environment in ({}, {"REMOTE_GPU_OPT": "-all"}):
        result, profiles = trial.run("work", environment=environment)
        expect(result.status == 0 and len(profiles) == 1, "one profile was expected, %d are there" % len(profiles), result)
        profile = profiles[0]
        check_counts(result, profile)
        check_events(profile, result)
        calls, info = rows(profile), profile["remoteGpu"]
        expect(info["complete"] and info["events_dropped"] == 0, "it is not complete", result)
        expect(info["total"]["round_trips"] == result.stats["round_trips"],
               "%d round trips, of %d that were made" % (info["total"]["round_trips"], result.stats["round_trips"]), result)
        expect(calls["cuCtxSynchronize"]["round_trips"] == 9, "nine waits are nine round trips", result)
        expect(calls["cuMemsetD32Async"]["round_trips"] == (0 if not environment else 1050),
               "asynchronous calls wait only where that optimisation is off", result)
        expect(calls["cuMemcpyHtoD_v2"]["sent_bytes"] >= 2 << 20, "bytes to the device are missing", result)
        expect(calls["cuMemcpyDtoH_v2"]["received_bytes"] >= 2 << 20, "bytes to the host are missing", result)
        expect(2 << 20 <= calls["cuMemcpyDtoH_v2"]["received_bytes"] < 3 << 20, "bytes were counted twice", result)
        expect(calls["cuMemsetD32Async"]["class"] == "async" and calls["cuCtxSynchronize"]["class"] == "wait",
               "the classes are wrong", result)
        sessions = info["sessions"]
        expect(len(sessions) == 1 and sessions[0]["transport"] in ("tcp", "unix") and
               not sessions[0]["rails"] and sessions[0]["gpu_memory"] == {}, "the way is wrong: %s" % sessions, result)
        expect("  %s: over %s" % (trial.address, sessions[0]["transport"]) in result.errors, "the summary lacks the way", result)
        expect("cuCtxSynchronize" in result.errors and "round trips" in result.errors, "there is no summary", result)


def case_delay(trial):
    """Over 5 ms of delay each way, each round trip is waited for 10 ms, and sites know all of the long waits."""
    result, profiles = trial.run("work", environment={"REMOTE_GPU_FILTER": "delay:oneway=%dus" % DELAY_US})
    expect(result.status == 0 and len(profiles) == 1, "one profile was expected", result)
    check_counts(result, profiles[0])
    for row in rows(profiles[0]).values():
        expect(row["waited_us"] >= row["round_trips"] * 2 * DELAY_US, "less than the delay was waited: %s" % row, result)
    waits = sum(site["waits"] for site in profiles[0]["remoteGpu"]["sites"] if site["call"] == "cuCtxSynchronize")
    expect(waits == 9, "%d waits at the sites of cuCtxSynchronize" % waits, result)


def case_two_servers(trial):
    """With a session on each of two servers the figures are those of both."""
    result, profiles = trial.run("work")
    expect(result.status == 0 and len(profiles) == 1, "one profile was expected", result)
    check_counts(result, profiles[0])
    expect(profiles[0]["remoteGpu"]["total"]["round_trips"] == result.stats["round_trips"], "round trips differ", result)
    expect([session["server"] for session in profiles[0]["remoteGpu"]["sessions"]] == trial.address.split(","),
           "the sessions are not those of the servers", result)


def case_nothing_left_out(trial):
    """A timeline that is written while it grows, in several chunks, has every event."""
    result, profiles = trial.run("many", "100000")
    expect(result.status == 0 and len(profiles) == 1, "one profile was expected", result)
    check_counts(result, profiles[0])
    check_events(profiles[0], result)


def case_limit(trial):
    """A full timeline stops, says how much it lacks, and leaves the figures exact."""
    result, profiles = trial.run("many", "5000", environment={"REMOTE_GPU_PROFILE_EVENTS": "1500"})
    expect(result.status == 0 and len(profiles) == 1, "one profile was expected", result)
    check_counts(result, profiles[0])
    check_events(profiles[0], result, complete=False)
    info = profiles[0]["remoteGpu"]
    expect(info["events"] == 1500 and info["events_dropped"] > 3000, "the limit was not kept: %s" % info["events"], result)
    expect("is full" in result.errors, "the summary does not say that events are missing", result)


def case_killed(trial):
    """A process that crashes, or leaves by _exit, leaves a valid profile of all but the last moment."""
    for mode, status in (("_exit", 4), ("abort", -6)):
        result, profiles = trial.run(mode)
        expect(result.status == status and len(profiles) == 1, "one profile was expected", result)
        check_counts(result, profiles[0])
        check_events(profiles[0], result)
        expect(not profiles[0]["remoteGpu"]["complete"], "it says that it ended as it should", result)


def case_forks(trial):
    """The profile is its process's: a child that was forked adds nothing, one that works itself has its own."""
    result, profiles = trial.run("fork-after")
    expect(result.status == 0 and len(profiles) == 1, "one profile was expected, %d are there" % len(profiles), result)
    check_counts(result, profiles[0])
    result, profiles = trial.run("fork-before")
    expect(result.status == 0 and len(profiles) == 2, "two profiles were expected, %d are there" % len(profiles), result)
    for profile in profiles:
        check_counts(result, profile)
        expect({event["pid"] for event in profile["traceEvents"]} == {profile["remoteGpu"]["pid"]},
               "a profile has events of another process", result)


def case_no_file(trial):
    """Beside a device, a pipe or a folder nothing is written, and it is said why."""
    for place in "pipe", "folder":
        path = os.path.join(trial.folder, place)
        os.mkfifo(path) if place == "pipe" else os.mkdir(path)
        for option in "--profile=", "--record=":
            result = trial.build.run_remote([trial.program, "work"], trial.address, arguments=[option + path])
            expect(result.status == 0 and "is not a regular file" in result.errors, "it is not said", result)
    expect(sorted(os.listdir(trial.folder)) == ["folder", "pipe"], "files are left: %s" % os.listdir(trial.folder), result)


def case_names(trial):
    """Sites name function, file and line of the program; %p in the file's name is the process's number."""
    result, profiles = trial.run("work", name="of-%p.json", environment={"REMOTE_GPU_FILTER": "delay:oneway=1ms"})
    expect(len(profiles) == 1, "one profile was expected", result)
    expect("of-%d.json" % profiles[0]["remoteGpu"]["pid"] in result.errors, "the file has another name", result)
    sites = [site for site in profiles[0]["remoteGpu"]["sites"] if site["call"] == "cuCtxSynchronize"]
    frames = sites[0]["frames"]
    expect(frames[0]["module"] == "profiled", "the first frame is not the program's: %s" % frames[0], result)
    if "file" not in frames[0]:
        print("libdw is not there: no lines")
        sys.exit(SKIPPED)
    with open(os.path.join(HERE, "profiled.c"), encoding="utf-8") as source:
        line = source.readlines()[frames[0]["line"] - 1]
    expect(frames[0]["function"] == "wait_here" and "cuCtxSynchronize" in line, "the wrong place: %s" % frames[0], result)
    expect({frame.get("function") for site in sites for frame in site["frames"]} >= {"main", "work", "other_thread"},
           "callers are missing: %s" % sites, result)


PYTHON = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
def waits():
    assert cuda.cuCtxSynchronize() == 0
device, context = ctypes.c_int(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
assert cuda.cuCtxSetCurrent(context) == 0
waits()
"""


def case_python(trial):
    """Python frames, where the interpreter exports what tells them."""
    path = os.path.join(trial.folder, "waits.py")
    with open(path, "w", encoding="utf-8") as script:
        script.write(PYTHON)
    probe = run_program([sys.executable, "-c", "import ctypes; ctypes.pythonapi._Py_DumpTraceback"])
    result, profiles = trial.run(command=[sys.executable, path], environment={"REMOTE_GPU_FILTER": "delay:oneway=2ms"})
    expect(result.status == 0 and len(profiles) == 1, "one profile was expected", result)
    sites = [site for site in profiles[0]["remoteGpu"]["sites"] if site["call"] == "cuCtxSynchronize"]
    expect(len(sites) == 1, "the wait is not there", result)
    if probe.status != 0:
        print("this Python does not tell its frames")
        sys.exit(SKIPPED)
    expect(sites[0].get("python", [""])[0] == 'File "%s", line 5 in waits' % path, "wrong frames: %s" % sites[0], result)


def prepare(build, stack):
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="remote-gpu-profile-"))
    servers = [stack.enter_context(Server(build)) for _ in range(2 if sys.argv[2] == "two-servers" else 1)]
    return Trial(build, folder, servers)


if __name__ == "__main__":
    run_case(globals(), prepare)
