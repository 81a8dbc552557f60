"""Tests of a session's connections for bulk data: they die, lie, or are slow, in mid-transfer."""

import contextlib
import os
import signal
import socket
import threading
import time

from control_message import BULK, RESUME, SESSION, field, fields_of, hello_for, message_of
from expected import expect, expect_lost, still_serves
from passage import Passage
from trial import Server, hold, wait_until


class Disturbed(Passage):
    """From connection `first` on (2: those that carry bulk data), `disturb(data, passed, upward)` says what is passed on."""

    def __init__(self, address, disturb, first=2):
        super().__init__(address)
        self.disturb = disturb
        self.first = first

    def take(self, data, passed, upward, connection):
        return self.disturb(data, passed, upward) if self.disturb and connection >= self.first else data


def cut(limit, upward_only=None):
    """Ends a connection when so many bytes have passed."""
    def disturb(data, passed, upward):
        if upward_only is not None and upward != upward_only:
            return data
        return data if passed + len(data) <= limit else data[:max(limit - passed, 0)] or None
    return disturb


def big_copy(build, megabytes=40):
    return [build.example("big_copy"), str(megabytes)]


def copies_until(build, run, used, what):
    """
    Connections for bulk data are opened while it travels, and come too late for little of it on a busy machine: copies more and more
    until they were in use. run(command) runs it remotely and returns (result, what to report with it), which used(result) judges.
    """
    for megabytes in 40, 160, 640:
        good = build.run_direct(big_copy(build, megabytes))
        result, report = run(big_copy(build, megabytes))
        expect(result.status == 0 and result.output == good.output, "right with %d MB" % megabytes, result, report())
        if used(result):
            return
    expect(False, what, result, report())


def test_bulk_connections(build):
    """A connection for bulk data that ends in mid-transfer or carries what was not promised: an error, and never wrong data."""
    good = build.run_direct(big_copy(build))
    with Server(build, tcp=True) as server:
        for number in "1", "3":
            for compress in "none", "lz4":
                environment = {"REMOTE_GPU_CONNECTIONS": number, "REMOTE_GPU_COMPRESS": compress}
                with Disturbed(server.address, None) as passage:
                    copies_until(
                        build, lambda command: (build.run_remote(command, passage.address, environment=environment), server.log),
                        lambda _: passage.connections >= 1 + int(number), "too few connections")
    with Server(build, tcp=True, arguments=["--reconnect-grace", "0"]) as server:  # else it goes on over others
        # the greeting takes some hundred bytes; the data follows, slowly enough for most of it to come by these connections
        for number in "1", "3":
            environment = {"REMOTE_GPU_CONNECTIONS": number, "REMOTE_GPU_FILTER": "delay:bandwidth=200Mb"}
            for disturb in (cut(5000), cut(1000000, True), cut(1000000, False), cut(3456789, True)):
                with Disturbed(server.address, disturb) as passage:
                    expect_lost(build.run_remote(big_copy(build), passage.address, ["--no-check"], environment,
                                                 timeout=60), server.log())
        # one that ends before it is in use: bulk data stays where it was
        with Disturbed(server.address, cut(20)) as passage:
            result = build.run_remote(big_copy(build), passage.address, ["--no-check"], timeout=60)
            expect(result.status == 0 and result.output == good.output, "without further connections", result, server.log())
            expect(passage.connections >= 2, "no further connection was tried", result)
        still_serves(build, server)


def test_zerocopy(build):
    """What leaves without the kernel's copy is right, on each kind of connection, and after the kernel has refused it."""
    noisy = {"REMOTE_GPU_ZEROCOPY": "1", "REMOTE_GPU_LOG": "debug"}
    for number in "0", "1", "3":
        with Server(build, tcp=True, environment=noisy) as server:
            def run(command):
                return build.run_remote(command, server.address, environment={**noisy, "REMOTE_GPU_CONNECTIONS": number}), server.log

            # Over loopback the kernel copies all the same, and says so of what was sent in this way, from either side.
            def refused(result):
                return "back to plain sending" in result.errors + server.log()

            if number != "0":
                copies_until(build, run, refused, "it was not sent in this way")
                continue
            good, (result, _) = build.run_direct(big_copy(build)), run(big_copy(build))
            expect(result.status == 0 and result.output == good.output, "not what is sent", result, server.log())
            expect(not refused(result), "it was sent in this way", result, server.log())


def test_slow_bulk_connection(build):
    """A connection for bulk data that is slow holds up nobody for good, and what comes is right."""
    def slow(data, passed, upward):
        time.sleep(len(data) / 20e6)
        return data

    good = build.run_direct(big_copy(build))
    with Server(build, tcp=True) as server:
        for number in "1", "3", "auto":
            with Disturbed(server.address, slow) as passage:
                result = build.run_remote(big_copy(build), passage.address,
                                          environment={"REMOTE_GPU_CONNECTIONS": number}, timeout=120)
                expect(result.status == 0 and result.output == good.output, "with slow connections", result, server.log())
        still_serves(build, server)


def test_stuck_client(build):
    """The server dies while a session's client takes nothing of what it is sent: the worker ends all the same."""
    stuck, over = threading.Event(), threading.Event()

    def swallow(data, passed, upward):
        if not upward and passed > 20e6:
            stuck.set()
            over.wait(60)
        return data

    with Server(build, tcp=True) as server, Disturbed(server.address, swallow, first=1) as passage:
        def kill(_):
            expect(stuck.wait(60), "nothing came from the server", server.log())
            time.sleep(1)  # so that all is full between the two
            workers = server.workers()
            expect(len(workers) == 1, "%d workers" % len(workers))
            os.kill(server.process.pid, signal.SIGKILL)
            gone = wait_until(lambda: not os.path.exists("/proc/%d" % workers[0]), 20)
            over.set()
            expect(gone, "the worker lives on without its server", server.log())

        build.run_remote([build.example("big_copy"), "300"], passage.address, ["--no-check"],
                         {"REMOTE_GPU_CONNECTIONS": "0"}, timeout=120, while_running=kill)


def bulk_hello(session, token):
    """A ClientHello of purpose BULK."""
    return hello_for(BULK, field(70, session) + field(71, token))


def resume_hello(session, token, received=0):
    """A ClientHello of purpose RESUME."""
    return hello_for(RESUME, field(80, session) + field(81, token) + field(82, received))


def answer_to(server, data):
    """What the server answers to these bytes, until it ends the connection."""
    host, port = server.address.rsplit("/", 1)[-1].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(data)
        answer = b""
        while True:
            try:
                part = connection.recv(4096)
            except ConnectionResetError:
                break
            if not part:
                break
            answer += part
        return answer


def test_wrong_resume_token(build):
    """Nobody takes a session over without its token, whether it waits for its client or not, or could at all."""
    for grace in "60", "0":
        with Server(build, tcp=True, arguments=["--reconnect-grace", grace]) as server:
            def intrude(process):
                deadline = time.monotonic() + 20
                while not server.workers() and time.monotonic() < deadline:
                    time.sleep(0.01)
                began = time.monotonic()
                for attempt in range(60):
                    token = bytes(16) if attempt == 0 else os.urandom(16)
                    answer = answer_to(server, resume_hello(1, token, attempt))
                    expect(b"no such session" in answer or b"has ended on the server" in answer,
                           "attempt %d was answered %r" % (attempt, answer))
                expect(b"has ended" in answer_to(server, resume_hello(77, bytes(16))), "session 77")
                answer = answer_to(server, resume_hello(1, b"short"))
                expect(b"no greeting" in answer, "a short token was answered %r" % answer)
                allowed = 20 * (2 + int((time.monotonic() - began) / 10))  # in 10 seconds (common/base/log_limit.h)
                lines = server.log().count("without its token")
                expect(lines <= allowed, "%d lines in the log, %d are allowed" % (lines, allowed), server.log())

            result = build.run_remote([build.example("big_copy"), "300"], server.address, ["--no-check"],
                                      {"REMOTE_GPU_CONNECTIONS": "2",
                                       "REMOTE_GPU_FILTER": "delay:oneway=1ms,bandwidth=2Gb"}, while_running=intrude)
            expect(result.status == 0, "the session that others wanted to take over", result, server.log())
            if grace != "0":
                expect("without its token" in server.log(), "the server did not say that somebody tried", server.log())
            still_serves(build, server)


def test_flooded_session(build):
    """More connections come for a session than its worker takes: who is one too many may try again."""
    with Server(build, tcp=True, arguments=["--reconnect-grace", "60"]) as server, contextlib.ExitStack() as stack:
        host, port = server.address.rsplit("/", 1)[-1].rsplit(":", 1)

        def flood(process):
            expect(wait_until(lambda: server.worker_of(1), 20), "no worker", server.log())
            time.sleep(0.5)
            worker = server.worker_of(1)
            hold(worker)
            try:
                answer = b""
                for attempt in range(3000):
                    connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
                    connection.sendall(resume_hello(1, os.urandom(16)))
                    connection.settimeout(0.02)
                    try:
                        answer = connection.recv(4096)
                        break
                    except TimeoutError:
                        pass
                expect(b"try again" in answer, "attempt %d was answered %r" % (attempt, answer), server.log())
            finally:
                os.kill(worker, signal.SIGCONT)

        result = build.run_remote([build.example("big_copy"), "300"], server.address, ["--no-check"],
                                  {"REMOTE_GPU_FILTER": "delay:oneway=1ms,bandwidth=2Gb"}, while_running=flood)
        expect(result.status == 0, "the session that others wanted to join", result, server.log())
        still_serves(build, server)


def test_wrong_bulk_token(build):
    """Nobody joins a session without its token, and those who try do it no harm."""
    with Server(build, tcp=True) as server:
        def intrude(process):
            deadline = time.monotonic() + 20
            while not server.workers() and time.monotonic() < deadline:
                time.sleep(0.01)
            for attempt in range(20):
                answer = answer_to(server, bulk_hello(1, os.urandom(16)))
                expect(b"the token is not that of the session" in answer or b"no session" in answer,
                       "attempt %d was answered %r" % (attempt, answer))
            expect(b"no session 77" in answer_to(server, bulk_hello(77, bytes(16))), "session 77")
            answer = answer_to(server, bulk_hello(1, b"short"))
            expect(b"no greeting" in answer, "a short token was answered %r" % answer)

        result = build.run_remote([build.example("big_copy"), "300"], server.address, ["--no-check"],
                                  {"REMOTE_GPU_CONNECTIONS": "2", "REMOTE_GPU_FILTER": "delay:oneway=1ms,bandwidth=2Gb"},
                                  while_running=intrude)
        expect(result.status == 0, "the session that others tried to join", result, server.log())
        expect("may not" in server.log(), "the server did not say that somebody tried", server.log())
        still_serves(build, server)


def test_unwanted_connection(build):
    """A connection for a session that takes none is refused at once: nobody would ever look at it."""
    with Server(build, tcp=True) as server:
        host, port = server.address.rsplit("/", 1)[-1].rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=30) as session:
            session.sendall(hello_for(SESSION, b""))
            number = dict(fields_of(dict(fields_of(message_of(session)))[2]))[9]
            expect(wait_until(lambda: b"no session" in answer_to(server, bulk_hello(number, bytes(16)))),
                   "a connection that nobody takes is not refused", server.log())


class RawSession:
    """A session as bytes: its number, and the token that its connections for bulk data show."""

    def __init__(self, server):
        host, port = server.address.rsplit("/", 1)[-1].rsplit(":", 1)
        self.connection = socket.create_connection((host, int(port)), timeout=30)
        self.connection.sendall(hello_for(SESSION, field(72, 2)))
        hello = dict(fields_of(dict(fields_of(message_of(self.connection)))[2]))
        self.number, self.token = hello[9], hello[70]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()


def test_stolen_token(build):
    """A token opens its own session alone, and nothing once that is over."""
    with Server(build, tcp=True) as server:
        host, port = server.address.rsplit("/", 1)[-1].rsplit(":", 1)

        def join(session, token):
            """The fields of the answer: 6, it may go on; 3, it is refused."""
            with socket.create_connection((host, int(port)), timeout=30) as connection:
                connection.sendall(bulk_hello(session, token))
                return list(dict(fields_of(message_of(connection))))

        with RawSession(server) as other:
            with RawSession(server) as session:
                expect(session.token != other.token and len(session.token) == 16, "the token is %r" % session.token)
                for attempt in range(3):
                    expect(join(other.number, session.token) == [3], "another session's token was taken", server.log())
                expect(join(session.number, session.token) == [6], "the session's own token was not taken", server.log())
            expect(wait_until(lambda: len(server.workers()) == 1, 20), "the session has not ended", server.log())
            expect(join(session.number, session.token) == [3], "a token was taken after its session's end", server.log())
            expect(join(other.number, session.token) == [3], "… by another session", server.log())
            expect(join(other.number, other.token) == [6], "the other session has ended", server.log())
        expect(wait_until(lambda: not server.workers(), 20), "the other session has not ended", server.log())
        still_serves(build, server)
