"""The round trips of programs' starts, and of their steady state call by call: run.py BUILD_FOLDER

bench/startup starts with 60 device libraries: with nothing known on either side, known, from another client, and without
a cache. first_calls.c allocates memory of many kinds when it starts, which is prefetched the next time. first_launches.c
launches kernels for the first time, bursts.c many of one, one after another. frees.c gives things back. In the steady
state, the program (steady.c) makes every call that programs make again and again, in rounds. What a round costs is what
thirty rounds cost more than ten; it must be what the table says. A call that is not in the table costs none.
"""

import glob
import json
import os
import re
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))

from trial import Build, Failure, Server, children_of  # noqa: E402

# Round trips of a round, for each call. Only what the server alone can know, or what has to be waited for.
TABLE = {
    "cuCtxSynchronize": 1,               # waits for the device
    "cuMemcpyDtoH_v2": 1,                # waits for the data
    "cuMemcpyDtoHAsync_v2": 1,           # to pageable memory: waits for the data
    "cuMemHostGetDevicePointer_v2": 1,   # memory that was allocated since is mapped on the server
    "cuMemHostUnregister": 1,            # waits for the device, as kernels may have written to memory that they share with the host
    "cuEventSynchronize": 1,             # waits for the device; the time between events comes with it
    "cuStreamSynchronize": 1,            # waits for the first of several streams; what has come of the others comes with it
    "cuStreamQuery": 1,                  # whether it is done; then the server says when it is
}
# The most that a start of bench/startup may cost: the context, the first allocation, and the result.
STARTUP = 3
# Of a start of first_calls.c, which allocates 16 blocks of 13 kinds: waits that a known one has not got. Its context is ready, and
# one wait is for all blocks, if they have not come before the first one is wanted.
SAVED = 1 + 13 - 1
TURNS = 200
# Of a module and a library from text that the program has in its memory, and of what it finds in them; the context has six streams.
OF_AN_IMAGE = {"cuModuleLoadData": 1, "cuModuleGetFunction": 0, "cuLibraryLoadData": 1, "cuLibraryGetKernel": 0,
               "cuKernelGetFunction": 0, "cuFuncGetAttribute": 0}
# A start that a busy machine disturbs is repeated: memory that is ready for it is given back when the program stands still for a moment.
TRIES = 3
LUCK = 4  # waits of a start that are over, where the server is near, before anybody waits
# The least that may cost where something else than the client decides when a notice arrives.
AT_MOST = {"cuStreamQuery"}
FEW, MANY = 10, 30
# Of a round: a machine that stands still for a moment makes the client give memory back, which it then asks for once.
SLACK = 0.2


# Of bursts.c: messages of a burst, besides one for each of so many ns: what the thread sends by itself, those of the first, shorter rests,
# and the last, which is waited for.
BURSTS, BURST_MOST, BURST_REST_NS = 40, 11, 90000
BURST_INLINE = 2.5 # what the thread sends by itself is more than its first two records, also where another is quick to send the next ones

# Of first_launches.c: in a program of several threads, near a server, each kernel's first launch waits until it is loaded.
FIRST_LAUNCHES = 8


# Turns of turns.c that take longer may be longer than the time for which the thread in the background rests.
TURN_LONG_S = 0.006


def descendants_of(pid):
    """A process and all that come of it."""
    return [pid] + [below for child in children_of(pid) for below in descendants_of(child)]


def switches_of(pid, name):
    """How often a thread of that name has gone to sleep so far; 0: there is none."""
    for thread in glob.glob("/proc/%d/task/*" % pid):
        try:
            with open(thread + "/comm") as comm, open(thread + "/status") as status:
                if comm.read().strip() == name:
                    return int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status.read(), re.M).group(1))
        except OSError:
            pass # it has ended
    return 0


def trips(build, address, folder, environment, *command):
    """Round trips of each call of one of the test programs."""
    file = os.path.join(tempfile.mkdtemp(dir=folder), "profile.json")
    result = build.run_remote([os.path.join(build.folder, "tests", command[0]), *command[1:]], address,
                              arguments=["--profile=" + file], environment=environment)
    if result.status != 0:
        raise Failure(result.report())
    with open(file, encoding="utf-8") as opened:
        profile = json.load(opened)["remoteGpu"]
    counted = {row["name"]: row["round_trips"] for row in profile["calls"]}
    if sum(counted.values()) != result.stats["round_trips"]:
        raise Failure("the profile lacks round trips\n" + result.report())
    return counted


def start_up(build, address, way, environment):
    """Whether 60 libraries are there after few round trips, by what is known of them."""
    command, good = [os.path.join(build.folder, "bench", "startup")], True
    with tempfile.TemporaryDirectory(prefix="remote-gpu-cache-") as known, \
            tempfile.TemporaryDirectory(prefix="remote-gpu-cache-") as other:
        for which, cache in (("first", known), ("known", known), ("another client's first", other), ("without a cache", "off")):
            result = build.run_remote(command, address, environment={"REMOTE_GPU_CACHE": cache, **environment})
            if result.status != 0:
                raise Failure(result.report())
            count = result.stats["round_trips"]
            print("%s: a start of 60 libraries, %-30s %2d in all, %d wanted" % (way, which, count, STARTUP))
            good &= count <= STARTUP
    return good


def hinted_memory(build, address, way, environment):
    """Whether a program that allocates what it did before waits once for all of it, and finds the same; what it does
    not want any more is not made ready any more."""
    command, good = [os.path.join(build.folder, "tests", "first_calls")], True
    direct = {how: build.run_direct(command, environment={"FIRST_CALLS": how}) for how in ("", "less")}

    def hinted(file):
        """Bytes that went with the context: the hints. And the waits of functions that are looked up."""
        with open(file, encoding="utf-8") as opened:
            calls = {row["name"]: row for row in json.load(opened)["remoteGpu"]["calls"]}
        os.unlink(file)
        return calls["cuDevicePrimaryCtxRetain"]["sent_bytes"], calls["cuModuleGetFunction"]["round_trips"]

    with tempfile.TemporaryDirectory(prefix="remote-gpu-cache-") as cache:
        def start(what, how="", **more):
            file = os.path.join(cache, "profile.json")
            result = build.run_remote(command, address, arguments=["--profile=" + file],
                                      environment=dict(environment, FIRST_CALLS=how, REMOTE_GPU_CACHE=cache, **more))
            if result.status != 0 or result.output != direct[how].output:
                raise Failure("not as directly:\n%s\n%s" % (direct[how].report(), result.report()))
            bytes_hinted, look_ups = hinted(file)
            print("%s: memory for a start, %-24s %2d round trips, %3d bytes of hints, %d look-ups" % (
                way, what, result.stats["round_trips"], bytes_hinted, look_ups))
            return result.stats["round_trips"], bytes_hinted, look_ups
        def start_again(most, *arguments):
            """The same, as good as it gets: no more round trips than `most`, if that is to be had."""
            for _ in range(TRIES):
                came = start(*arguments)
                if came[0] <= most:
                    break
            return came

        first, none, _ = start("the first time")
        known, all_kinds, look_ups = start_again(first - SAVED, "known")
        good &= first - known >= SAVED and none < all_kinds
        good &= look_ups == 1 # of a function that is not there
        for name in "startup-prefetch", "prealloc":
            good &= start("without " + name, REMOTE_GPU_OPT="-" + name)[0] > known + 5
        few, wanted, _ = start("some of it", "less")
        most = few + (1 if environment else LUCK)
        again, not_wanted, _ = start_again(most, "some of it, again", "less")
        good &= wanted == all_kinds and none < not_wanted < wanted and again <= most
    return good


def frees(build, address, folder):
    """Whether giving something back waits where another thread might have to end what the device is at, only there, and not
    when the process exits: others of its threads run into what has been unloaded."""
    good = True
    for how, waits in (("waited", False), ("destroyed", True), ("busy", True), ("exit", False)):
        calls = trips(build, address, folder, {}, "frees", how)
        frees, unloads = calls.get("cuMemFree_v2", 0), calls["cuModuleUnload"]
        print("streams %-10s %d round trips to free 5 blocks, %d to unload" % (how, frees, unloads))
        good &= (frees + unloads > 0) == waits
    return good


def turns(build, address):
    """Whether a thread that launches, copies and waits, over and over, does so by itself: nobody is woken to send for it."""
    counts = {}
    for name, environment in (("inline", {}), ("not inline", {"REMOTE_GPU_OPT": "-inline-send"})):
        result = build.run_remote([os.path.join(build.folder, "tests", "turns"), str(TURNS)], address, environment=environment)
        if result.status != 0:
            raise Failure(result.report())
        counts[name] = [result.stats[word] / (3 * TURNS) for word in ("messages_sent", "messages_inline", "sender_wakes")]
        print("a turn of launch, copy and wait, %-10s %.2f messages, %.2f by the thread that posts; another is woken %.2f times" % (
            name, *counts[name]))
    return counts["inline"][2] < 0.1 and counts["not inline"][1] == 0 and counts["not inline"][2] > 0.2


def background(build, address):
    """Whether the thread that receives in the background stays asleep while a program that is some ms away from the server receives what it
    copies by itself, turn after turn. Where turns take about as long as that thread rests, it tells nothing."""
    seen = {}

    def watch(process):
        while process.poll() is None:
            for pid in descendants_of(process.pid):
                seen.update({pid: switches_of(pid, "rg-receiver") or seen.get(pid, 0)})
            time.sleep(0.02)

    result = build.run_remote([os.path.join(build.folder, "tests", "turns"), str(TURNS)], address,
                              environment={"REMOTE_GPU_FILTER": "delay:oneway=1700us"}, while_running=watch)
    if result.status != 0:
        raise Failure(result.report())
    took, switches = result.seconds / (3 * TURNS), sum(seen.values()) / (3 * TURNS)
    print("a turn of launch, copy and wait, %.1f ms: the thread in the background runs %.2f times, less than 1 wanted" % (took * 1e3, switches))
    return took > TURN_LONG_S or 0 < switches < 1


def bursts(build, address):
    """Whether a burst of launches, far from the server, leaves in few messages: where the time between two is a twentieth of the
    round trip, another one would bring the device nothing. However long a burst takes, there are no more than its time has room for.
    And whether the thread that launches sends the beginning, so that the device has that before another thread is awake."""
    environment, counts = {"REMOTE_GPU_FILTER": "delay:oneway=1ms"}, []
    for n in 0, BURSTS:
        result = build.run_remote([os.path.join(build.folder, "tests", "bursts"), str(n)], address, environment=environment)
        if result.status != 0:
            raise Failure(result.report())
        counts.append([result.stats[word] for word in ("messages_sent", "messages_inline")])
    messages, inline = ((after - before) / BURSTS for before, after in zip(*counts))
    room = BURST_MOST + float(result.output) / BURST_REST_NS
    print("a burst of launches, in %.0f us: %.1f messages, %.1f at most; %.1f of them by the thread that launches, more than %.1f wanted" % (
        float(result.output) / 1e3, messages, room, inline, BURST_INLINE))
    return messages <= room and inline > BURST_INLINE


def first_launches(build, address, folder):
    """Whether first launches wait where that lets other threads pass, and far away do not."""
    good = True
    for way, wanted, environment in (("as it is", FIRST_LAUNCHES, {}), ("5 ms away", 0, {"REMOTE_GPU_FILTER": "delay:oneway=5ms"})):
        count = trips(build, address, folder, environment, "first_launches").get("cuLaunchKernel", 0)
        print("%s: first launches of %d kernels, %d round trips, %d wanted" % (way, FIRST_LAUNCHES, count, wanted))
        good &= count <= wanted
    return good


def main():
    build = Build(sys.argv[1])
    good = True
    if os.path.exists(os.path.join(build.folder, "bench", "startup")):
        for way, environment in (("as it is", {}), ("5 ms away", {"REMOTE_GPU_FILTER": "delay:oneway=5ms"})):
            with tempfile.TemporaryDirectory(prefix="remote-gpu-images-") as images, \
                    Server(build, arguments=["--image-cache", images]) as server: # it has never seen the images
                good &= start_up(build, server.address, way, environment)
    with Server(build) as server, tempfile.TemporaryDirectory(prefix="remote-gpu-trips-") as folder:
        for way, environment in (("as it is", {}), ("5 ms away", {"REMOTE_GPU_FILTER": "delay:oneway=5ms"})):
            good &= hinted_memory(build, server.address, way, environment)
        good &= turns(build, server.address)
        good &= background(build, server.address)
        good &= bursts(build, server.address)
        good &= frees(build, server.address, folder)
        good &= first_launches(build, server.address, folder)
        once = trips(build, server.address, folder, {}, "steady", "1")  # what the server learns of a program it then knows
        for name, wanted in OF_AN_IMAGE.items():
            print("device code that the program makes: %-22s %2d, %d wanted" % (name, once.get(name, 0), wanted))
            good &= once.get(name, 0) == wanted or (name in AT_MOST and once.get(name, 0) < wanted)
        for way, environment in (("as it is", {}), ("5 ms away", {"REMOTE_GPU_FILTER": "delay:oneway=5ms"})):
            few = trips(build, server.address, folder, environment, "steady", str(FEW))
            many = trips(build, server.address, folder, environment, "steady", str(MANY))
            for name in sorted(many):
                cost, wanted = (many[name] - few.get(name, 0)) / (MANY - FEW), TABLE.get(name, 0)
                if cost or wanted:
                    print("%s: %-40s %5.2f a round, %d wanted" % (way, name, cost, wanted))
                if cost > wanted + SLACK or (cost < wanted - SLACK and name not in AT_MOST):
                    good = False
            missing = [name for name in TABLE if name not in many]
            if missing:
                raise Failure("not called: %s" % ", ".join(missing))
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(failure)
        sys.exit(1)
