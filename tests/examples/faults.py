"""Tests of faults: servers that are not there, workers, servers and clients that die, connections that break the rules.

A fault must always end the same way: the program gets a CUDA error in reasonable time and ends by itself (no signal,
no hang), and standard error has a line of remote-gpu's own that says what happened.
"""

import os
import signal
import socket
import sys
import threading
import time

from expected import expect, expect_lost, still_serves
from interrupted import NOTICE, endless, when_working
from trial import Failure, Server, free_port, wait_until
from wire import processor_time


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


# Programs for sessions whose connections are cut, and how many bytes pass between two cuts: the most is more than a message has.
RESUMED = [("big_copy", 3000000), ("streams_overlap", 3000000), ("vector_add", 3000000), ("many_launches", 300000)]


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
                    goes_on = result.errors.count("the session goes on")
                    expect(result.stats["resumed"] == goes_on and (result.stats["without_connection"] > 0) == (goes_on > 0) and
                           [0 < link["seconds"] <= result.stats["seconds"] for link in result.stats["links"]] == [True],
                           "the statistics do not say how the session was connected", result)
                    cuts += goes_on
            expect(cuts > 0, "no connection was lost", server.log())
            still_serves(build, server)


# Ends, by exit, while another thread goes on calling.
LEAVER = r"""
import ctypes, threading, time
cuda, libc = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
context, memory = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0 and cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4096)) == 0
def call():
    cuda.cuCtxSetCurrent(context)
    while True:
        cuda.cuMemsetD8Async(memory, 0, ctypes.c_size_t(4096), None)
threading.Thread(target=call, daemon=True).start()
time.sleep(0.1)
libc.exit(0)
"""


def test_meant_end(build):
    """Who ends as one should, or does not take the session, is not waited for, where sessions outlive connections."""
    programs = [[build.example("vector_add")], [build.example("big_copy"), "8"], *[[sys.executable, "-c", LEAVER]] * 5]
    for tcp in (False, True):
        with Server(build, tcp=tcp, arguments=["--reconnect-grace", "60"], environment={"REMOTE_GPU_LOG": "info"}) as server:
            for command in [*programs, None]:  # None: one that asks for what most machines do not have
                arguments = ["--connections", "2"] if command else ["--transport", "rdma"]
                result = build.run_remote(command or programs[0], server.address, arguments, timeout=60)
                expect(result.status == 0 or (not command and "no RDMA" in result.errors), "the program failed", result,
                       server.log())
                expect(wait_until(lambda: not server.workers(), NOTICE), "a worker is left", result, server.log())
                expect("its connection was lost" not in server.log(), "a worker waited for its client", server.log())


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
        expect("ended the session: the server is shutting down" in result.errors, "the client was not told", result)
        expect(wait_until(lambda: server.process.poll() is not None, 10), "the server does not end", server.log())


# Sends once when the server has ended, which its machine refuses, and once more, which fails.
SLEEPER = r"""
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0 and cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4096)) == 0
assert cuda.cuCtxSynchronize() == 0
open(sys.argv[1], "w").close()
while True:
    time.sleep(0.5)
    if cuda.cuMemsetD8Async(memory, 0, ctypes.c_size_t(4096), None):
        sys.exit("CUDA_ERROR from cuMemsetD8Async")
"""


def test_told_why(build):
    """A server that ends says so; a program that only sends learns it, too, also where sessions may outlive connections."""
    for grace in ("0", "20"):
        with Server(build, arguments=["--grace", "0", "--reconnect-grace", grace]) as server:
            ready = os.path.join(server.folder, "sleeps")

            def stop(_):
                if wait_until(lambda: os.path.exists(ready), 20):
                    server.stop()

            result = build.run_remote([sys.executable, "-c", SLEEPER, ready], server.address, timeout=60,
                                      environment={"REMOTE_GPU_OPT": "-prealloc"}, while_running=stop)
            expect_lost(result, server.log())
            expect("ended the session: the server is shutting down" in result.errors, "the client was not told", result)


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
                    expect("killed by signal" not in server.log(), "the worker crashed with %s" % chain, result, server.log())
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
