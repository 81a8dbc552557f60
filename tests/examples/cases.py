"""The tests of running programs remotely that are no comparisons: several clients, exit statuses, and faults.

Each test_… function takes the Build and raises Failure, with what was seen, if something is not as it must be.
A fault must always end the same way: the program gets a CUDA error in reasonable time and ends by itself (no signal,
no hang), and standard error has a line of remote-gpu's own that says what happened.
"""

import hashlib
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

from bulk import test_bulk_connections, test_slow_bulk_connection, test_wrong_bulk_token  # noqa: F401
from expected import expect, expect_lost, still_serves
from trial import Failure, Server, free_port, run_program, wait_until
from wire import processor_time, test_beside_bulk, test_idle_wire, test_wait_modes  # noqa: F401

# A program that works until it is stopped: one thread, more rounds than anyone waits for.
ENDLESS = ["host_threads", "1", "2000000000", "1000"]
# How long a program may take to notice that its session is lost.
NOTICE = 30


def run(build, name):
    """Runs one test; whether it passed."""
    test = globals().get("test_" + name.replace("-", "_"))
    if test is None:
        raise Failure("there is no test %s" % name)
    try:
        test(build)
    except Failure as failure:
        print("FAILED %s: %s" % (name, failure))
        return False
    print("%s: ok" % name)
    return True


def endless(build):
    """The command line of a program that runs until something happens to it."""
    return [build.example(ENDLESS[0]), *ENDLESS[1:]]


def when_working(server, action):
    """For run_program: waits until the program's session has worked for a while, then does `action(worker)`."""

    def watch(_):
        def go():
            if wait_until(server.workers, 20):
                time.sleep(1.5)
                workers = server.workers()
                if workers:
                    action(workers[0])

        threading.Thread(target=go, daemon=True).start()

    return watch


# ---- clients ----

def test_two_clients(build):
    """Two programs at once share a server, each with a worker of its own, and get what they would get alone."""
    command = [build.example("host_threads")]
    alone = build.run_direct(command)
    results = [None, None]
    most = [0]
    with Server(build) as server:
        def client(index):
            # far enough away that both are there for a while
            results[index] = build.run_remote(command, server.address, environment={"REMOTE_GPU_FILTER": "delay:oneway=10ms"})

        threads = [threading.Thread(target=client, args=(index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            most[0] = max(most[0], len(server.workers()))
            time.sleep(0.005)
        for thread in threads:
            thread.join()
        expect(wait_until(lambda: not server.workers(), 10), "workers outlive their clients", server.log())
    for result in results:
        expect(result.status == 0 and result.output == alone.output, "a client got something else", alone, result)
    expect(most[0] >= 2, "the clients did not have a worker each (at most %d at once)" % most[0])


def test_exit_status(build):
    """`remote-gpu run` ends as its command does, and as a shell would where there is no command to run."""
    with Server(build) as server:
        for command, status in ((["true"], 0), (["false"], 1), (["sh", "-c", "exit 7"], 7),
                                (["sh", "-c", "exit 125"], 125), (["/no/such/program"], 127),
                                (["/etc/passwd"], 126), ([build.example("errors"), "nonsense"], 2)):
            result = build.run_remote(command, server.address)
            expect(result.status == status, "expected exit status %d" % status, result)
        result = build.run_remote(["sh", "-c", "kill -TERM $$"], server.address)
        expect(result.status in (-signal.SIGTERM, 128 + signal.SIGTERM), "the signal did not come through", result)


def test_streams_apart(build):
    """Standard output is the program's alone, to the byte."""
    with Server(build) as server:
        result = build.run_remote(["sh", "-c", "printf 'no newline'; printf warning >&2"], server.address)
        expect(result.output == "no newline", "something was added to standard output", result)
        expect(result.errors == "warning", "something was added to standard error", result)


def test_local(build):
    """`remote-gpu run --local` brings its own server, and leaves nothing of it behind."""
    mark = "trial-%d" % os.getpid()
    result = run_program([build.command, "run", "--local", "--", build.example("vector_add")],
                         {"REMOTE_GPU_TRIAL": mark})
    direct = build.run_direct([build.example("vector_add")])
    expect(result.status == 0 and result.output == direct.output, "the output differs", direct, result)
    expect(wait_until(lambda: not marked_processes(mark), 10), "processes are left: %s" % marked_processes(mark))


OPEN_BY_NAMES = """
import ctypes, sys
handles = set()
for name in sys.argv[1:]:
    library = ctypes.CDLL(name)
    handles.add(library._handle)
    count = ctypes.c_int()
    print(library.cuInit(0), library.cuDeviceGetCount(ctypes.byref(count)), count.value)
print(len(handles), "object")
"""


def test_library_names(build):
    """The library is one object under all the names that programs open: libcuda.so.1, libcuda.so, a path."""
    with tempfile.TemporaryDirectory() as folder, Server(build) as server:
        for library in (build.lib_dir, build.soft_dir):
            link = os.path.join(folder, os.path.basename(library))
            os.symlink(os.path.join(library, "libcuda.so.1"), link)
            command = [sys.executable, "-c", OPEN_BY_NAMES, "libcuda.so.1", "libcuda.so", link]
            if library == build.soft_dir:
                results = [build.run_direct(command)]
            else:
                results = [build.run_remote(command, server.address), build.run_by_path(command, server.address)]
            for result in results:
                expect(result.output == "0 0 1\n" * 3 + "1 object\n", "a name does not lead to the library", result)


def marked_processes(mark):
    """The process ids of all processes that inherited the mark in their environment."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open("/proc/%s/environ" % entry, "rb") as file:
                    if ("REMOTE_GPU_TRIAL=%s" % mark).encode() in file.read().split(b"\0"):
                        found.append(int(entry))
            except OSError:
                pass
    return found


# ---- figures ----

def test_round_trips(build):
    """10,000 launches over 5 ms of delay wait for the answers that the program asks for, not for the launches."""
    with Server(build) as server:
        result = build.run_remote([build.example("many_launches")], server.address,
                                  environment={"REMOTE_GPU_FILTER": "delay:oneway=5ms"})
        expect(result.status == 0, "the example failed", result, server.log())
        expect(result.stats.get("calls", 0) >= 10000, "the calls were not counted: %s" % result.stats, result)
        more = result.stats["round_trips"]
        base = build.run_remote([build.example("many_launches"), "10"], server.address,
                                environment={"REMOTE_GPU_FILTER": "delay:oneway=5ms"})
        expect(base.status == 0, "the example failed", base)
        print("%d round trips with 10,000 launches, %d with 10" % (more, base.stats["round_trips"]))
        expect(more <= base.stats["round_trips"] + 2, "launches cost round trips", result)


def test_graph_round_trips(build):
    """500 launches of a graph over 5 ms of delay, one with a loop on the device and a copy to the host, wait for none."""
    with Server(build) as server:
        counts = []
        for launches in ("1", "500"):
            result = build.run_remote([build.example("graph_loop"), "1000", launches], server.address,
                                      environment={"REMOTE_GPU_FILTER": "delay:oneway=5ms"})
            expect(result.status == 0, "the example failed", result, server.log())
            counts.append(result.stats["round_trips"])
        print("%d round trips with one launch, %d with 500" % tuple(counts))
        expect(counts[1] == counts[0], "launches cost round trips", result)


def test_big_copy_delayed(build):
    """100 MB arrive intact over 5 ms of delay."""
    with Server(build) as server:
        result = build.run_remote([build.example("big_copy")], server.address,
                                  environment={"REMOTE_GPU_FILTER": "delay:oneway=5ms"})
        expect(result.status == 0, "the copy is not intact", result, server.log())


# ---- faults ----

def test_refused_connection(build):
    """Nobody listens at the address."""
    address = "127.0.0.1:%d" % free_port()
    expect_lost(build.run_by_path([build.example("vector_add")], address, timeout=60))
    result = build.run_remote([build.example("vector_add")], address, timeout=60)
    expect(not result.hung and not result.crashed and result.status != 0, "no failure", result)
    expect("remote-gpu:" in result.errors and address in result.errors, "the message does not name the server", result)


def test_wrong_address(build):
    """Addresses that cannot be meant: refused as such, before or at the first call."""
    for address in ("127.0.0.1:99999", "unix:/no/such/socket", "no-such-transport://x", "host:port"):
        result = build.run_remote([build.example("vector_add")], address, timeout=60)
        expect(not result.hung and not result.crashed, "no clean end for %s" % address, result)
        expect(result.status != 0, "success with the address %s" % address, result)
        expect("remote-gpu:" in result.errors, "no message for the address %s" % address, result)


def test_not_a_server(build):
    """Something else listens at the address and answers nonsense, or nothing."""
    for answer in (b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"x" * 4096, b""):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(4)
            stop = threading.Event()

            def serve():
                listener.settimeout(0.2)
                while not stop.is_set():
                    try:
                        connection, _ = listener.accept()
                    except OSError:
                        continue
                    with connection:
                        connection.sendall(answer)

            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            result = build.run_by_path([build.example("vector_add")], "127.0.0.1:%d" % listener.getsockname()[1],
                                       timeout=90)
            stop.set()
            thread.join()
            expect_lost(result)


def test_killed_worker(build):
    """The worker dies in the middle: its program gets an error, the next one a new session."""
    with Server(build) as server:
        result = build.run_remote(endless(build), server.address, timeout=NOTICE + 30,
                                  while_running=when_working(server, lambda pid: os.kill(pid, signal.SIGKILL)))
        expect_lost(result, server.log())
        after = build.run_remote([build.example("vector_add")], server.address)
        expect(after.status == 0, "the server does not serve any more", after, server.log())


def test_lost_memory(build):
    """The worker dies while it holds managed memory: who touches that gets SIGBUS, and a line says why."""
    for environment in ({}, {"REMOTE_GPU_FAULTS": "signals"}):
        with Server(build) as server:
            result = build.run_remote([build.example("unified_memory"), "held"], server.address, timeout=NOTICE + 30,
                                      environment=environment,
                                      while_running=when_working(server, lambda pid: os.kill(pid, signal.SIGKILL)))
            expect(not result.hung, "the program hangs", result, server.log())
            expect(result.status in (-signal.SIGBUS, 128 + signal.SIGBUS), "the program was not told by SIGBUS", result)
            expect("SIGBUS" in result.errors and "remote-gpu:" in result.errors, "remote-gpu said nothing", result)


def faults_of_system_calls():
    """Whether this process may have userfaultfd with faults of the kernel's own."""
    if os.geteuid() == 0 or os.access("/dev/userfaultfd", os.R_OK | os.W_OK):
        return True
    try:
        with open("/proc/sys/vm/unprivileged_userfaultfd", encoding="ascii") as setting:
            return setting.read().strip() == "1"
    except OSError:
        return False


def test_system_calls(build):
    """read, write and stdio on memory that the device holds, and threads that block all signals."""
    if not faults_of_system_calls():
        print("left out: userfaultfd is not to be had here")
        return
    command = [build.example("unified_memory"), "calls"]
    direct = build.run_direct(command)
    with Server(build) as server:
        for environment in ({}, {"REMOTE_GPU_OPT": "-all"}, {"REMOTE_GPU_FILTER": "delay:oneway=1ms"}):
            result = build.run_remote(command, server.address, environment=environment)
            expect(result.status == 0 and result.output == direct.output, "not as directly", direct, result)


def test_no_such_session(build):
    """Where sessions outlive connections: a worker that died is told at once, and a client can do without."""
    with Server(build, arguments=["--reconnect-grace", "60"]) as server:
        result = build.run_remote(endless(build), server.address, timeout=NOTICE + 30,
                                  while_running=when_working(server, lambda pid: os.kill(pid, signal.SIGKILL)))
        expect_lost(result, server.log())
        result = build.run_remote([build.example("vector_add")], server.address,
                                  environment={"REMOTE_GPU_RECONNECT": "0",
                                               "REMOTE_GPU_FILTER": "fault:send_lost_at=5"})
        expect_lost(result, server.log())


# Programs for sessions whose connections are cut, and how many bytes pass between two cuts: more than a message has.
RESUMED = [("big_copy", 3000000), ("streams_overlap", 3000000), ("vector_add", 2000000), ("many_launches", 300000)]


def test_resumed_session(build, seeds=(1, 2)):
    """Connections that are cut at random places, again and again: the program's result is the same as directly."""
    directly = [build.run_direct([build.example(name)]) for name, _ in RESUMED]
    for tcp in (False, True):
        with Server(build, tcp=tcp, arguments=["--reconnect-grace", "60"]) as server:
            cuts = 0
            for seed in seeds:
                for (name, every), direct in zip(RESUMED, directly):
                    what = "fault:cut_every=%d,seed=%d" % (every, seed)
                    result = build.run_remote([build.example(name)], server.address, timeout=90,
                                              environment={"REMOTE_GPU_FILTER": what})
                    expect(result.status == direct.status == 0 and result.output == direct.output,
                           "%s with %s is not as directly" % (name, what), direct, result, server.log())
                    cuts += result.errors.count("the session goes on")
            expect(cuts > 0, "no connection was lost", server.log())
            still_serves(build, server)


def test_killed_server(build):
    """Server and worker die in the middle, without a word."""
    with Server(build) as server:
        result = build.run_remote(endless(build), server.address, timeout=NOTICE + 30,
                                  while_running=when_working(server, lambda _: server.kill()))
        expect_lost(result)


def test_stopped_server(build):
    """The server is told to end: it gives its sessions a while, then ends them and says so to their clients."""
    with Server(build, arguments=["--grace", "1"]) as server:
        result = build.run_remote(endless(build), server.address, timeout=NOTICE + 60,
                                  while_running=when_working(server, lambda _: server.stop(NOTICE + 15)))
        expect_lost(result, server.log())
        expect(wait_until(lambda: server.process.poll() is not None, 10), "the server does not end", server.log())


# The connection's end of the client breaks the rules: at its first messages, in the middle, and later.
BROKEN = ["truncate_at=%d", "bad_magic_at=%d", "oversize_at=%d", "send_lost_at=%d", "recv_lost_at=%d",
          "send_close_after=%d", "recv_close_after=%d"]


def test_broken_connection(build):
    """Truncated, oversize and senseless messages and lost connections end that session, clearly, and no other."""
    with Server(build) as server:
        for fault in BROKEN:
            for position in (1, 2, 3, 9):
                chain = "fault:" + fault % position
                result = build.run_remote([build.example("device_functions"), "100"], server.address,
                                          ["--no-check"], {"REMOTE_GPU_FILTER": chain}, timeout=60)
                try:
                    expect_lost(result, server.log())
                except Failure as failure:
                    raise Failure("with %s: %s" % (chain, failure))
        still_serves(build, server)


def test_corrupt_messages(build):
    """A byte that is not what it was: whatever it was, nobody hangs or crashes, and the server goes on."""
    with Server(build) as server:
        lost = 0
        for direction in ("send", "recv"):
            for position in (1, 2, 4, 7, 12):
                for byte in (0, 3, 8, 17, 40):
                    chain = "fault:%s_corrupt_at=%d,byte=%d" % (direction, position, byte)
                    result = build.run_remote([build.example("streams_overlap"), "2", "5000", "4"], server.address,
                                              ["--no-check"], {"REMOTE_GPU_FILTER": chain}, timeout=60)
                    expect(not result.hung and not result.crashed, "with %s" % chain, result, server.log())
                    expect("signal" not in server.log(), "the worker crashed with %s" % chain, result, server.log())
                    lost += result.status != 0
        print("%d of 50 corrupted sessions failed" % lost)
        still_serves(build, server)


def test_vanished_client(build):
    """A client that is killed leaves no worker behind; a server at rest uses no processor time."""
    with Server(build) as server:
        def kill_client(process):
            if not wait_until(server.workers, 20):
                raise Failure("the program got no worker\n" + server.log())
            time.sleep(1)
            os.killpg(process.pid, signal.SIGKILL)

        build.run_remote(endless(build), server.address, while_running=kill_client)
        expect(wait_until(lambda: not server.workers(), 15), "the worker outlives its client", server.log())
        before = processor_time(server.process.pid)
        time.sleep(3)
        used = processor_time(server.process.pid) - before
        expect(used <= 0.02, "the server at rest used %.2f s of processor time in 3 s" % used)
        after = build.run_remote([build.example("vector_add")], server.address)
        expect(after.status == 0, "the server does not serve any more", after, server.log())


def test_fork(build):
    """A program that starts others after CUDA is up keeps its session; the others have theirs."""
    with Server(build) as server, tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "script")
        with open(script, "w") as file:
            file.write("#!/bin/sh\n%s && %s 5000 && echo both\n" % (build.example("vector_add"),
                                                                  build.example("histogram")))
        os.chmod(script, 0o755)
        result = build.run_remote([script], server.address)
        expect(result.status == 0 and result.output.endswith("both\n"), "a program of the script failed", result)


# ---- several devices ----

# Prints the PCI addresses of the devices it sees, by the driver's API.
DEVICES = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
count, text = ctypes.c_int(), ctypes.create_string_buffer(32)
result = cuda.cuInit(0)
if result:
    print("cuInit:", result)
else:
    assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
    for device in range(count.value):
        assert cuda.cuDeviceGetPCIBusId(text, 32, device) == 0
        print(text.value.decode())
"""


def test_chosen_devices(build):
    """CUDA_VISIBLE_DEVICES and `run -n` choose among the software devices, and what they choose is what is seen."""
    see = [sys.executable, "-c", DEVICES]
    names = ["5347:%02X:00.0" % (1 + i) for i in range(3)]
    three = {"SOFTGPU_DEVICES": "3"}
    for value, seen in [(None, names), ("2,0", [names[2], names[0]]), ("1,7,0", [names[1]]), ("", ["cuInit: 100"])]:
        environment = dict(three) if value is None else dict(three, CUDA_VISIBLE_DEVICES=value)
        result = build.run_direct(see, environment=environment)
        expect(result.output.split("\n")[:-1] == seen, "CUDA_VISIBLE_DEVICES=%s" % value, result)
    with Server(build, environment=three) as server:
        result = build.run_remote(see, server.address)
        expect(result.output.split() == names, "not all devices", result)
        # A session holds one device: the next one gets another.
        first = subprocess.Popen([build.command, "run", "-s", server.address, "-n", "1", "--", sys.executable, "-c",
                                  DEVICES + "print('.', flush=True)\ninput()"], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True)
        try:
            held = first.stdout.readline().strip()
            expect(held in names, "the first session sees %s" % held)
            expect(first.stdout.readline() == ".\n", "the first session sees more than one device")
            result = build.run_remote(see, server.address, ["-n", "1"])
            expect(len(result.output.split()) == 1 and result.output.split() != [held],
                   "the second session sees the first one's device %s" % held, result)
            result = build.run_remote([build.example("multi_gpu"), "2"], server.address, ["-n", "2"])
            expect(result.status == 0, "two devices of three do not work", result, server.log())
        finally:
            first.communicate("\n", timeout=20)
    with Server(build, environment=dict(three, CUDA_VISIBLE_DEVICES="2,1")) as server:
        result = build.run_remote(see, server.address)
        expect(result.output.split() == [names[2], names[1]], "the server's own choice is not kept", result)
        result = build.run_remote(see, server.address, ["-n", "1"])
        expect(result.output.split() == [names[2]], "the wrong one of the server's devices", result)


def test_kept_kernels(build):
    """The second start of a program compiles nothing, directly and on a server, and does the same."""
    command = [build.example("reduction")]
    with tempfile.TemporaryDirectory() as folder:
        environment = {"SOFTGPU_CACHE": os.path.join(folder, "kept"), "REMOTE_GPU_LOG": "debug"}
        first = build.run_direct(command, environment=environment)
        expect(first.status == 0 and ": compiled in " in first.errors, "nothing is compiled at first", first)
        expect(": loaded from the cache in " not in first.errors, "the cache is not new", first)
        second = build.run_direct(command, environment=environment)
        expect(second.status == 0 and second.output == first.output, "kept kernels do something else", second)
        expect(": compiled in " not in second.errors, "the second start compiles", second)
        expect(second.errors.count(": loaded from the cache in ") == first.errors.count(": compiled in "),
               "not all kernels are loaded", second)
        with Server(build, environment=environment) as server:
            remote = build.run_remote(command, server.address)
            log = server.log()
            expect(remote.status == 0 and remote.output == first.output, "kept kernels do something else remotely",
                   remote, log)
            expect(": loaded from the cache in " in log and ": compiled in " not in log, "the server compiles",
                   remote, log)
        # Damaged entries are compiled again.
        for name in os.listdir(environment["SOFTGPU_CACHE"]):
            os.truncate(os.path.join(environment["SOFTGPU_CACHE"], name), 100)
        third = build.run_direct(command, environment=environment)
        expect(third.status == 0 and third.output == first.output, "damaged entries do harm", third)
        expect(": compiled in " in third.errors and ": loaded from the cache in " not in third.errors,
               "damaged entries are used", third)
        # Without any place to keep something all goes on.
        nowhere = build.run_direct(command, environment={"SOFTGPU_CACHE": "/proc/nowhere"})
        expect(nowhere.status == 0 and nowhere.output == first.output and not nowhere.errors, "a cache is needed",
               nowhere)


# ---- several servers ----

def test_servers_chosen(build):
    """The devices of two servers are one list, of which -n and CUDA_VISIBLE_DEVICES choose."""
    see = [sys.executable, "-c", DEVICES]
    two = {"SOFTGPU_DEVICES": "2"}
    with Server(build, environment=two) as first, Server(build, environment=two) as second:
        both = "%s,%s" % (first.address, second.address)
        names = ["5347:01:00.0", "5347:02:00.0", "6347:01:00.0", "6347:02:00.0"]
        for arguments, visible, seen in [([], None, names), (["-n", "3"], None, names[:3]),
                                         ([], "3,0", [names[3], names[0]]), ([], "2", [names[2]]),
                                         ([], "1,9,0", [names[1]]), (["-n", "3"], "3,0", ["cuInit: 100"])]:
            environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
            result = build.run_remote(see, both, arguments, environment=environment)
            expect(result.status == 0 and result.output.split("\n")[:-1] == seen,
                   "%s, CUDA_VISIBLE_DEVICES=%s" % (arguments, visible), result)
        result = build.run_remote([build.example("device_exchange"), "2"], both,
                                  environment={"CUDA_VISIBLE_DEVICES": "2,1"})
        expect(result.status == 0, "two chosen devices do not work together", result, first.log(), second.log())
        result = build.run_remote([build.example("vector_add")], both, environment={"CUDA_VISIBLE_DEVICES": "3"})
        expect(result.status == 0, "one device of the second server does not work", result, second.log())


def test_servers_one_missing(build):
    """All servers of the list are needed: which one is missing is said, with the reason and what to do."""
    program = [build.example("vector_add")]
    with Server(build) as server:
        missing = "127.0.0.1:%d" % free_port()
        both = "%s,%s" % (server.address, missing)
        result = build.run_remote(program, both)
        expect(result.status == 125 and missing in result.errors and "refused" in result.errors and
               "all servers of the list are needed" in result.errors, "the command does not say it", result)
        for result in [build.run_remote(program, both, ["--no-check"]), build.run_by_path(program, both)]:
            expect_lost(result)
            expect(missing in result.errors and "refused" in result.errors and
                   "are needed" in result.errors, "the program's session does not say it", result)
        result = build.run_remote(program, "%s|%s" % (missing, server.address))
        expect(result.status == 0 and missing in result.errors, "no alternative was taken", result)


# Uses the devices of two servers in turn until one of them fails, then the other again, and prints what happens. The
# stream of the first holds for work of the second while that goes away.
TWO_SERVERS = """
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    return getattr(cuda, name)(*arguments)
def must(name, *arguments):
    result = call(name, *arguments)
    assert result == 0, (name, result)
must("cuInit", 0)
contexts, memory, streams = [], [], []
for device in range(2):
    context, address, stream = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p()
    must("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    must("cuCtxSetCurrent", context)
    must("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(1 << 20))
    must("cuStreamCreate", ctypes.byref(stream), 1)
    contexts.append(context), memory.append(address), streams.append(stream)
def use(device):
    result = call("cuCtxSetCurrent", contexts[device])
    result = result or call("cuMemsetD8_v2", memory[device], 7, ctypes.c_size_t(1 << 20))
    return result or call("cuCtxSynchronize")
print("works", use(0), use(1), flush=True)
deadline = time.time() + 60
result = 0
while not result and time.time() < deadline:
    must("cuCtxSetCurrent", contexts[0])
    other = 1 - int(sys.argv[1])
    stream = streams[other] # of the one that stays, for a copy from the one that goes
    result = call("cuCtxSetCurrent", contexts[other])
    result = result or call("cuMemcpyAsync", memory[other], memory[1 - other], ctypes.c_size_t(1 << 20), stream)
    result = result or call("cuStreamSynchronize", stream)
print("ends", result)
gone = int(sys.argv[1])
print("gone", use(gone) != 0, use(gone) != 0)
for i in range(3): # what the lost server's part was is told once
    left = use(1 - gone)
print("left", left)
count = ctypes.c_int()
must("cuDeviceGetCount", ctypes.byref(count))
print("count", count.value)
"""


def test_servers_one_dies(build):
    """One of two servers dies in the middle: calls to it fail, what waits for it goes on, the other one works."""
    for gone in 0, 1:
        with Server(build) as first, Server(build) as second:
            dying = (first, second)[gone]
            result = build.run_remote([sys.executable, "-c", TWO_SERVERS, str(gone)],
                                      "%s,%s" % (first.address, second.address), timeout=NOTICE + 60,
                                      while_running=when_working(dying, lambda pid: os.kill(pid, signal.SIGKILL)))
            expect(result.status == 0 and not result.hung, "server %d died" % gone, result, first.log(), second.log())
            lines = result.output.splitlines()
            expect(lines[0] == "works 0 0" and lines[1] == "ends 46" and lines[2:] ==
                   ["gone True True", "left 0", "count 2"], "server %d died" % gone, result)
            expect(dying.address in result.errors, "it is not said which server died", result)


def test_known_images(build):
    """A second start waits for next to nothing; what is kept of the first may be damaged, missing or not wanted."""
    command = [os.path.join(build.folder, "bench", "startup"), "12"]
    with Server(build) as server, tempfile.TemporaryDirectory(prefix="remote-gpu-cache-") as cache:
        def start(**environment):
            result = build.run_remote(command, server.address, environment={"REMOTE_GPU_CACHE": cache, **environment})
            expect(result.status == 0, "the program failed", result, server.log())
            return result.stats["round_trips"]

        def files():
            return [os.path.join(folder, name) for folder, _, names in os.walk(cache) for name in names]

        off = start(REMOTE_GPU_CACHE="off")
        expect(not files(), "something is kept although nothing should be")
        first = start()
        kept = files()
        expect(len(kept) >= 12, "%d files are kept of 12 images" % len(kept))
        second = start()
        expect(second < first / 4, "%d round trips at first, %d then" % (first, second))
        expect(start(REMOTE_GPU_OPT="-known,-foresee") == off == first, "knowledge is used although it is not wanted")
        # The first allocation, and the result; what was foreseen may have to be waited for once, all of it together.
        least = min(start() for _ in range(3))
        expect(least <= 3, "%d round trips of a program whose start is known" % least)
        for damage in (lambda data: data[:len(data) // 2 + 3], lambda data: data[:-1] + bytes([data[-1] ^ 1]),
                       lambda data: bytes(len(data)), lambda data: b""):
            before = {path: read_bytes(path) for path in kept}
            for path, data in before.items():
                with open(path, "wb") as file:
                    file.write(damage(data))
            start()
            expect({path: read_bytes(path) for path in files()} == before, "damaged files are not made again")


def test_wrong_knowledge(build):
    """What is kept is of another server: the program must not go on with parameters that are not the kernel's."""
    command = [os.path.join(build.folder, "bench", "startup"), "12"]
    with Server(build) as server, tempfile.TemporaryDirectory(prefix="remote-gpu-cache-") as cache:
        environment = {"REMOTE_GPU_CACHE": cache}
        expect(build.run_remote(command, server.address, environment=environment).status == 0, "it fails at first")
        folder = os.path.join(cache, "answers")
        # One image's: each is dropped when it is found wrong.
        name = next(name for name in os.listdir(folder) if b"lib03_kernel10" in read_bytes(os.path.join(folder, name)))
        forged = forge_parameters(read_bytes(os.path.join(folder, name)))
        with open(os.path.join(folder, name), "wb") as file:
            file.write(forged)
        result = build.run_remote(command, server.address, environment=environment)
        expect(result.status == 1 and "error 46" in result.errors, "the program does not get the error", result)
        expect("other parameters" in result.errors, "the reason is not told", result)
        result = build.run_remote(command, server.address, environment=environment)
        expect(result.status == 0, "what was wrong is not dropped", result)


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def forge_parameters(data):
    """Records of client/known.c whose first kernel has a larger last parameter, with checks that fit."""
    records, at = bytearray(data), 0
    while at < len(records):
        kind, _, name_size, size = struct.unpack_from("<4I", records, at + 8)
        end = at + 24 + name_size + size
        if kind == 2:
            size_of_last = end - 4
            struct.pack_into("<I", records, size_of_last, struct.unpack_from("<I", records, size_of_last)[0] + 4)
        check = hashlib.blake2b(digest_size=32)
        for part in (records[at + 8:at + 24], records[at + 24:end]):
            check.update(struct.pack("<Q", len(part)) + part)
        records[at:at + 8] = check.digest()[:8]
        at = end
    return bytes(records)


def test_kept_images(build):
    """Device code is sent once, whatever becomes of the server's files of it."""
    command = [os.path.join(build.folder, "tests", "images")]
    direct = build.run_direct(command)
    with tempfile.TemporaryDirectory(prefix="remote-gpu-images-") as folder:
        cache = os.path.join(folder, "images")

        def start(*arguments, **environment):
            with Server(build, arguments=arguments or ("--image-cache", cache)) as server:
                result = build.run_remote(command, server.address, environment={"REMOTE_GPU_CACHE": "off", **environment})
            expect(result.status == 0 and result.output == direct.output, "it goes wrong", result, server.log_text)
            return result.stats["bytes_sent"], server.log_text

        first, _ = start()
        kept = os.listdir(cache)
        expect(len(kept) > 6, "%d images are kept" % len(kept))
        for name in kept:
            digest = hashlib.blake2b(read_bytes(os.path.join(cache, name)), digest_size=32).hexdigest()
            expect(name == digest, "%s has the digest %s" % (name, digest))
        second, _ = start()
        expect(second < first / 4, "%d bytes sent at first, %d then" % (first, second))
        expect(start(REMOTE_GPU_OPT="-images")[0] > first / 2, "device code is sent where it is not named")
        # Somebody else's bytes under the name, and a file that is cut off.
        for number, name in enumerate(sorted(kept)):
            path = os.path.join(cache, name)
            data = read_bytes(path)
            with open(path, "wb") as file:
                file.write(data[:-1] if number % 2 else data[:-2] + b"//")
        third, log = start()
        expect(third > first / 2, "damaged files were used")
        expect("damaged" in log, "nothing is said of damaged files", log)
        expect(start()[0] < first / 4, "damaged files are not made again")
        # There is not enough room, or none at all.
        start("--image-cache", cache, "--image-cache-size", "1M")
        expect(sum(os.path.getsize(os.path.join(cache, name)) for name in os.listdir(cache)) <= 1 << 20, "the limit is exceeded")
        start("--image-cache", "/proc/no/such/folder")
        start("--image-cache", "off")
