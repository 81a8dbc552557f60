"""remote-gpu netperf and compare from outside, and the process that answers measurements, with wrong requests.

The server is real and serves the software device. No figure is judged; that each is there and makes sense is.
"""

import errno
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom

BUILD, SOURCE = map(os.path.abspath, sys.argv[1:3])
SANITIZE = "".join(sys.argv[3:4])  # none: not built with one
del sys.argv[1:4]
sys.path.insert(0, os.path.join(SOURCE, "scripts"))
from trial import Build, Server, wait_until  # noqa: E402

STAGE = os.path.join(BUILD, "stage")
COMMAND = os.path.join(STAGE, "bin", "remote-gpu")
EXAMPLE = os.path.join(BUILD, "examples", "vector_add")


def call(*words, **changes):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REMOTE_GPU_")}
    environment.update(changes)
    return subprocess.run([COMMAND, *words], env=environment, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)


class WithServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(Build(BUILD), tcp=True)
        cls.server.__enter__()
        cls.addClassCleanup(cls.server.__exit__, None, None, None)
        cls.address = cls.server.address


class Netperf(WithServer):
    def test_json(self):
        result = call("netperf", "-s", self.address, "--quick", "--json")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        links = {link["kind"]: link for link in json.loads(result.stdout)["links"]}
        for kind in ("socket", "tcp"):
            self.assertNotIn("error", links[kind])
            self.assertEqual([point["size"] for point in links[kind]["points"]], [64, 4096, 65536, 1048576])
            for point in links[kind]["points"]:
                self.assertGreaterEqual(point["samples"], 20)
                self.assertLessEqual(0, point["min_us"])
                self.assertLessEqual(point["min_us"], point["p50_us"])
                self.assertLessEqual(point["p50_us"], point["p99_us"])
                self.assertLessEqual(point["p99_us"], point["p999_us"])
                self.assertGreater(min(point["to_server"], point["from_server"]), 0)
        self.assertTrue(links["rdma"].get("error") or links["rdma"]["points"])

    def test_it_measures_what_a_session_would_have(self):
        """A delay in the way of sessions is in what is measured, and not in the bare socket beside it."""
        result = call("netperf", "-s", self.address, "--quick", "--json", REMOTE_GPU_FILTER="delay:oneway=5ms")
        links = {link["kind"]: link for link in json.loads(result.stdout)["links"]}
        self.assertGreaterEqual(links["tcp"]["points"][0]["min_us"], 10000)
        self.assertLess(links["socket"]["points"][0]["min_us"], 10000)

    def test_table_and_picture(self):
        with tempfile.TemporaryDirectory() as folder:
            picture = os.path.join(folder, "a.svg")
            result = call("netperf", "-s", self.address, "--quick", "--plot", picture)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertRegex(result.stdout, r"(?m)^tcp +1 MiB( +[\d.]+){5}$")
            lines = xml.dom.minidom.parse(picture).getElementsByTagName("polyline")
            self.assertGreaterEqual(len(lines), 4)
            self.assertEqual(len(lines[0].getAttribute("points").split()), 4)
            result = call("netperf", "-s", self.address, "--quick", "--plot", os.path.join(folder, "no", "a.svg"))
            self.assertEqual(result.returncode, 125)
            self.assertIn("cannot write", result.stderr)

    def test_no_server(self):
        result = call("netperf", "-s", "127.0.0.1:1", "--quick")
        self.assertEqual((result.returncode, result.stdout), (125, ""))
        self.assertIn("127.0.0.1:1", result.stderr)

    def test_a_server_that_does_not_answer_measurements(self):
        with Server(Build(BUILD), tcp=True, arguments=["--no-netperf"]) as server:
            result = call("netperf", "-s", server.address, "--quick")
            self.assertEqual(result.returncode, 125)
            self.assertIn("--no-netperf", result.stderr)
            self.assertEqual(call("list", "-s", server.address).returncode, 0)


@unittest.skipUnless(os.path.exists(EXAMPLE), "the examples were not built")
@unittest.skipIf(SANITIZE, "the examples are built without sanitizers, and cannot have such a library preloaded")
class Compare(WithServer):
    def test_json(self):
        # what is asked for ahead saves round trips where it comes in time: only runs without that have as many each time
        result = call("compare", "-s", self.address, "--json", "--runs", "2", "--link", "oneway=2ms", "--", EXAMPLE,
                      REMOTE_GPU_OPT="-all")
        self.assertEqual(result.returncode, 0, result.stderr)
        tcp, rdma, slow = json.loads(result.stdout)["transports"]
        self.assertEqual((tcp["transport"], slow["transport"]), ("tcp", "delay+tcp"))
        self.assertTrue("skipped" in rdma or rdma["transport"] == "rdma")
        self.assertGreater(tcp["round_trips"], 0)
        self.assertGreater(tcp["bytes_sent"], 0)
        self.assertEqual(tcp["round_trips"], slow["round_trips"])
        # none of the round trips can have taken less than both ways through the delay
        self.assertGreaterEqual(slow["waited"], slow["round_trips"] * 0.004)
        self.assertLessEqual(tcp["fastest"], tcp["seconds"])
        self.assertLessEqual(tcp["seconds"], tcp["slowest"])

    def test_table(self):
        result = call("compare", "-s", self.address, "--", EXAMPLE)
        self.assertRegex(result.stdout, r"(?m)^tcp( +[\d.]+){6}$")
        self.assertIn("rdma", result.stdout)

    def test_no_room_for_what_is_counted(self):
        with tempfile.TemporaryDirectory() as folder:
            script = "mount -t tmpfs -o size=4k tmpfs %s" % folder
            if subprocess.run(["unshare", "-m", "sh", "-c", script], stderr=subprocess.DEVNULL).returncode:
                self.skipTest("this user cannot mount")
            result = subprocess.run(["unshare", "-m", "sh", "-c", '%s; TMPDIR=%s; export TMPDIR; exec "$@"' % (script, folder),
                                     "sh", COMMAND, "compare", "-s", self.address, "--", EXAMPLE],
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual((result.returncode, result.stdout), (125, ""))
        self.assertIn("no room", result.stderr)

    def test_failures_are_the_commands(self):
        for words, status in ((("sh", "-c", "exit 7"), 7), (("sh", "-c", "kill -9 $$"), 137), (("/nonexistent",), 127)):
            result = call("compare", "-s", self.address, "--", *words)
            self.assertEqual((result.returncode, result.stdout), (status, ""))
            self.assertIn("remote-gpu: ", result.stderr)


class Hostile(unittest.TestCase):
    """The process that answers measurements, talked to over a socket pair."""

    MESSAGE = "<HHIQQ"
    FRAME = "<IIII"

    def setUp(self, *more):
        self.path = tempfile.TemporaryDirectory()
        self.addCleanup(self.path.cleanup)
        self.ours, theirs = socket.socketpair()
        self.ours.settimeout(20)
        hello = tempfile.TemporaryFile()
        body = b"\x08\x01" + b"\x28\x04"  # protocol 1, purpose NETPERF
        hello.write(struct.pack(self.MESSAGE, 1, 1, 1, 0, 0) + b"\x0a" + bytes([len(body)]) + body)
        hello.flush()
        hello.seek(0)
        self.process = subprocess.Popen(
            [os.path.join(STAGE, "lib", "remote-gpu", "netperf"), "--fd", str(theirs.fileno()), "--hello-fd",
             str(hello.fileno()), "--session", "1", *more], pass_fds=(theirs.fileno(), hello.fileno()),
            env=dict(os.environ, PATH=self.path.name))
        theirs.close()
        hello.close()
        self.addCleanup(self.process.wait, 20)
        self.addCleanup(self.ours.close)
        message, _ = self.receive()
        self.assertEqual(message[0], 1)  # the server's hello

    def exactly(self, size):
        data = b""
        while len(data) < size:
            part = self.ours.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def receive(self):
        magic, size, bulk, _ = struct.unpack(self.FRAME, self.exactly(16))
        self.assertEqual(magic, 0x31504752)
        return self.exactly(size), self.exactly(bulk)

    def ask(self, replies=0, size=24, bulk=0, rounds=0, receive=0, send=0, data=b"", kind=6, cut=None):
        message = struct.pack(self.MESSAGE, kind, 1, 1, 0, 0)
        message += struct.pack("<IIIIII", replies, size, bulk, rounds, receive, send)
        message = message[:cut]
        self.ours.sendall(struct.pack(self.FRAME, 0x31504752, len(message), len(data), 0) + message + data)

    def assert_ended(self):
        with self.assertRaises((EOFError, ConnectionError)):
            self.receive()
        self.assertEqual(self.process.wait(20), 0)

    def test_right_ones(self):
        self.ask(rounds=2, receive=3, send=5)
        self.ours.sendall(b"abcdef")
        self.exactly(10)
        self.ask(replies=2, size=100, bulk=5000, data=b"x" * 70000)
        self.assertEqual([(len(message), len(bulk)) for message, bulk in (self.receive(), self.receive())],
                         [(100, 5000)] * 2)

    def test_wrong_ones(self):
        for wrong in (dict(replies=65537), dict(replies=1, size=23), dict(replies=1, size=262145),
                      dict(replies=1, bulk=(4 << 20) + 1), dict(rounds=65537, send=1),
                      dict(rounds=1, receive=(4 << 20) + 1), dict(rounds=1, send=0xffffffff),
                      dict(rounds=1, send=1, data=b"x"), dict(kind=2), dict(cut=47)):
            with self.subTest(wrong):
                self.ask(**wrong)
                self.assert_ended()
                self.doCleanups()
                self.setUp()

    def test_raw_after_framed(self):
        self.ask(replies=1)
        self.receive()
        self.ask(rounds=1, send=1)
        self.assert_ended()


    def ask_perftest(self, program=1, size=64, iterations=5, single=0, more=b""):
        message = struct.pack(self.MESSAGE, 16, 1, 1, 0, 0) + struct.pack("<IIII", program, size, iterations, single)
        message += more
        self.ours.sendall(struct.pack(self.FRAME, 0x31504752, len(message), 0, 0) + message)

    def started(self):
        message, _ = self.receive()
        return struct.unpack(self.MESSAGE + "II", message)[-2:]

    def install(self, name):
        """A stand-in for a program of perftest: notes how it was called and its process, and stays."""
        note = os.path.join(self.path.name, "note-" + name)
        path = os.path.join(self.path.name, name)
        with open(path, "w") as file:
            file.write('#!/bin/sh\necho $$ "$@" > %s.new; /bin/mv %s.new %s; exec /bin/sleep 100\n' % (note, note, note))
        os.chmod(path, 0o755)
        return note

    @staticmethod
    def noted(path):
        assert wait_until(lambda: os.path.exists(path), 20)
        with open(path) as file:
            pid, *words = file.read().split()
        return int(pid), words

    @staticmethod
    def is_gone(pid):
        return wait_until(lambda: not os.path.exists("/proc/%d" % pid), 20)

    def test_perftest(self):
        first, second = self.install("ib_write_bw"), self.install("ib_read_bw")
        self.ask_perftest(program=2, size=1 << 20, iterations=20)
        error, port = self.started()
        self.assertEqual(error, 0)
        pid, words = self.noted(first)
        self.assertEqual(words, ["-F", "-R", "-p", str(port), "-s", "1048576", "-n", "20"])
        self.ask_perftest(program=3)
        self.assertEqual(self.started()[0], 0)
        self.assertTrue(self.is_gone(pid))
        pid, _ = self.noted(second)
        self.ask(replies=1)  # nothing else is in the way
        self.receive()
        self.ours.close()
        self.assertEqual(self.process.wait(20), 0)
        self.assertTrue(self.is_gone(pid))

    def test_perftest_one_at_a_time(self):
        for program, name, more in ((1, "ib_send_lat", []), (2, "ib_write_bw", ["-t", "1"]),
                                    (3, "ib_read_bw", ["-t", "1", "-o", "1"])):
            note = self.install(name)
            self.ask_perftest(program=program, single=1)
            error, port = self.started()
            self.assertEqual(error, 0)
            _, words = self.noted(note)
            self.assertEqual(words, ["-F", "-R", "-p", str(port), "-s", "64", "-n", "5", *more])

    def test_perftest_ends_with_its_parent(self):
        note = self.install("ib_send_lat")
        self.ask_perftest()
        self.assertEqual(self.started()[0], 0)
        pid, _ = self.noted(note)
        self.process.kill()
        self.assertTrue(self.is_gone(pid))

    def test_perftest_that_cannot_be_started(self):
        with open(os.path.join(self.path.name, "ib_read_bw"), "w") as file:
            file.write("neither a program nor executable")
        for program, error in ((3, errno.EACCES), (1, errno.ENOENT)):
            self.ask_perftest(program=program)
            self.assertEqual(self.started()[0], error)
        self.ask(replies=1)
        self.receive()

    def test_perftest_where_no_rdma_is_allowed(self):
        self.doCleanups()
        self.setUp("--rdma", "0")
        note = self.install("ib_send_lat")
        self.ask_perftest()
        self.assertEqual(self.started()[0], errno.EPERM)
        self.ask(replies=1)
        self.receive()
        self.assertFalse(os.path.exists(note))

    def test_wrong_perftest(self):
        for wrong in (dict(program=0), dict(program=4), dict(size=0), dict(size=(4 << 20) + 1), dict(iterations=4),
                      dict(iterations=10001), dict(single=2), dict(more=b"x")):
            with self.subTest(wrong):
                self.ask_perftest(**wrong)
                self.assert_ended()
                self.doCleanups()
                self.setUp()


if __name__ == "__main__":
    unittest.main(verbosity=2)
