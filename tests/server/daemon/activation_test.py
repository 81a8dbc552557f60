"""remote-gpud under a service manager: sockets that are handed over (LISTEN_FDS), and the watchdog. The manager is this test."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import daemon_case
from daemon_case import Case, say
from trial import wait_until

# Does what systemd does between fork and exec: the descriptors from 3 on, and LISTEN_PID, which is the program's own number.
STARTER = """
import os, sys
fds = [int(word) for word in sys.argv[1].split(",") if word]
high = [os.dup2(fd, 200 + i) for i, fd in enumerate(fds)]
for i, fd in enumerate(high):
    os.dup2(fd, 3 + i, inheritable=True)
    os.close(fd)
pid = os.environ.pop("TEST_LISTEN_PID", None)
if pid != "none":
    os.environ["LISTEN_PID"] = pid or str(os.getpid())
os.environ.setdefault("LISTEN_FDS", str(len(fds)))
if "WATCHDOG_USEC" in os.environ:
    os.environ["WATCHDOG_PID"] = os.environ.pop("TEST_WATCHDOG_PID", None) or str(os.getpid())
os.execv(sys.argv[2], sys.argv[2:])
"""


def environment_of(pid):
    """Names of a process's variables; none: it has ended meanwhile. Whatever else is among them is a failure."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            entries = [entry for entry in file.read().split(b"\0") if entry]
        odd = [entry for entry in entries if not re.match(rb"[A-Za-z_][A-Za-z0-9_]*=", entry)]
        assert not odd, odd
        return {entry.partition(b"=")[0].decode() for entry in entries}
    except (FileNotFoundError, ProcessLookupError):
        return set()


class Managed(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="remote-gpud-activation-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        starter = os.path.join(self.folder, "starter")
        with open(starter, "w") as file:
            file.write(STARTER)
        self.starter = starter

    def given(self, family=socket.AF_INET, address=("127.0.0.1", 0), listen=True, kind=socket.SOCK_STREAM):
        """A socket as a socket unit makes it: blocking."""
        one = socket.socket(family, kind)
        self.addCleanup(one.close)
        one.bind(address)
        if listen:
            one.listen(16)
        return one

    def begin(self, sockets, *arguments, wait=True, listen=False, **environment):
        """A daemon that has these sockets from its start."""
        popen, fds = subprocess.Popen, [one.fileno() for one in sockets]

        def start(command, **options):
            words = [sys.executable, self.starter, ",".join(map(str, fds)), *command]
            return popen(words, pass_fds=fds, **options)

        subprocess.Popen = start
        try:
            daemon = daemon_case.Daemon(*arguments, listen=listen, wait=wait, environment=environment)
        finally:
            subprocess.Popen = popen
        self.addCleanup(daemon.stop)
        return daemon

    def refused(self, sockets, says, **environment):
        daemon = self.begin(sockets, **environment)
        self.assertEqual(daemon.process.wait(20), 125, daemon.log())
        self.assertRegex(daemon.log(), says)


class Activation(Managed):
    def test_serves_what_is_handed_over(self):
        path = os.path.join(self.folder, "socket")
        tcp, unix = self.given(), self.given(socket.AF_UNIX, path)
        daemon = self.begin([tcp, unix])
        self.assertIsNone(daemon.process.poll(), daemon.log())
        # these alone: not the loopback addresses, where it listens when it is told nothing
        self.assertEqual(daemon.addresses(), ["tcp://127.0.0.1:%d" % tcp.getsockname()[1], "unix:" + path])
        for address in daemon.addresses():
            self.assertRegex(say(address), "^hello")
        client = self.join(daemon.address, "hold")
        self.assertRegex(client.line(), "^hello")
        # no process of the server takes them as its own
        for pid, _, name in daemon_case.all_children_of(daemon.process.pid):
            self.assertFalse({"LISTEN_FDS", "LISTEN_PID"} & environment_of(pid), name)
        # those of the clients before may still be ending
        self.assertTrue(wait_until(lambda: len(daemon_case.children_of(daemon.process.pid)) == 1))
        (worker,) = daemon_case.children_of(daemon.process.pid)
        links = [os.readlink("/proc/%d/fd/%s" % (worker[0], fd)) for fd in os.listdir("/proc/%d/fd" % worker[0])]
        self.assertNotIn("socket:[%d]" % os.fstat(tcp.fileno()).st_ino, links)

    def test_beside_those_of_the_settings(self):
        tcp = self.given()
        daemon = self.begin([tcp], listen=True)
        self.assertEqual(len(daemon.addresses()), 2, daemon.log())
        for address in daemon.addresses():
            self.assertRegex(say(address), "^hello")

    def test_who_comes_before_the_start_is_served(self):
        """The socket is there before the server, which is what it is for."""
        tcp = self.given()
        client = self.join("tcp://127.0.0.1:%d" % tcp.getsockname()[1], "hold")
        time.sleep(0.2)
        self.begin([tcp])
        self.assertRegex(client.line(20), "^hello")

    def test_the_socket_outlives_the_server(self):
        path = os.path.join(self.folder, "socket")
        tcp, unix = self.given(), self.given(socket.AF_UNIX, path)
        for _ in range(2):
            daemon = self.begin([tcp, unix])
            self.assertRegex(say("unix:" + path), "^hello")
            self.assertEqual(daemon.stop(), 0)
            self.assertTrue(os.path.exists(path))
        # who comes meanwhile waits for the next server
        client = self.join("unix:" + path, "hold")
        time.sleep(0.2)
        self.begin([tcp, unix])
        self.assertRegex(client.line(20), "^hello")

    def test_who_comes_while_sessions_end_waits_for_the_next(self):
        tcp = self.given()
        daemon = self.begin([tcp], "--grace", "60")
        client = self.join(daemon.address, "hold")
        self.assertRegex(client.line(), "^hello")
        daemon.process.send_signal(signal.SIGTERM)
        self.assertTrue(wait_until(lambda: "stopping: no new sessions" in daemon.log()))
        late = self.join(daemon.address, "hold")
        self.assertEqual(late.line(0.5), "nothing")
        self.assertIsNone(daemon.process.poll())
        client.leave()
        self.assertEqual(daemon.process.wait(20), 0)
        self.begin([tcp])
        self.assertRegex(late.line(), "^hello")

    def test_open_to_the_network_needs_identities(self):
        """What the socket is bound to decides, as an address in the settings does."""
        tcp = self.given(address=("0.0.0.0", 0))
        daemon = self.begin([tcp], "--state-dir", os.path.join(self.folder, "state"))
        self.assertIsNone(daemon.process.poll(), daemon.log())
        self.assertIn("has made an authority of its own", daemon.log())
        self.assertNotRegex(say("127.0.0.1:%d" % tcp.getsockname()[1]), "^hello")

    def test_sockets_of_somebody_else(self):
        tcp = self.given()
        for pid in ("1", "none"):
            with self.subTest(pid):
                daemon = self.begin([tcp], listen=True, TEST_LISTEN_PID=pid)
                self.assertEqual(len(daemon.addresses()), 1)
                self.assertNotEqual(daemon.address, "tcp://127.0.0.1:%d" % tcp.getsockname()[1])

    def test_what_is_no_such_socket(self):
        self.refused([self.given(listen=False)], "descriptor 3.* cannot be listened on: it is no TCP or unix socket that listens")
        self.refused([self.given(), self.given(kind=socket.SOCK_DGRAM, listen=False)], "descriptor 4.* cannot be listened on")
        self.refused([], "LISTEN_FDS=9: descriptor [3-9]: Bad file", LISTEN_FDS="9")
        self.refused([], "LISTEN_FDS: ", LISTEN_FDS="1000")
        self.refused([], "LISTEN_FDS: ", LISTEN_FDS="one")
        self.refused([], "LISTEN_PID: ", TEST_LISTEN_PID="me")


class Notified(Managed):
    def manager(self):
        """Where the server says how it is."""
        one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(one.close)
        path = os.path.join(self.folder, "notify")
        one.bind(path)
        one.settimeout(20)
        return one, path


class Watchdog(Notified):
    def test_says_that_it_is_alive(self):
        manager, path = self.manager()
        daemon = self.begin([], listen=True, NOTIFY_SOCKET=path, WATCHDOG_USEC="400000")
        self.assertEqual(manager.recv(100), b"READY=1")
        began = time.monotonic()
        for _ in range(5):
            self.assertEqual(manager.recv(100), b"WATCHDOG=1")
        self.assertGreater(time.monotonic() - began, 0.7, "more often than twice in the time")
        # a server that hangs says nothing
        daemon.process.send_signal(signal.SIGSTOP)
        manager.setblocking(False)
        try:
            while manager.recv(100):
                pass
        except BlockingIOError:
            pass
        manager.settimeout(1)
        with self.assertRaises(TimeoutError):
            manager.recv(100)
        daemon.process.send_signal(signal.SIGCONT)
        manager.settimeout(20)
        self.assertEqual(manager.recv(100), b"WATCHDOG=1")
        for pid, _, name in daemon_case.all_children_of(daemon.process.pid):
            self.assertNotIn("WATCHDOG_USEC", environment_of(pid), name)
        # also while it waits for sessions
        client = self.join(daemon.address, "hold")
        self.assertRegex(client.line(), "^hello")
        daemon.process.send_signal(signal.SIGTERM)
        while manager.recv(100) != b"STOPPING=1":
            pass
        self.assertEqual(manager.recv(100), b"WATCHDOG=1")

    def test_of_somebody_else(self):
        manager, path = self.manager()
        for changes in ({"TEST_WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}):
            with self.subTest(str(changes)):
                daemon = self.begin([], listen=True, **{"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "100000", **changes})
                self.assertEqual(manager.recv(100), b"READY=1")
                manager.settimeout(0.5)
                with self.assertRaises(TimeoutError):
                    manager.recv(100)
                manager.settimeout(20)
                daemon.stop()
                self.assertEqual(manager.recv(100), b"STOPPING=1")


class Reload(Notified):
    def test_says_when_it_begins_and_ends(self):
        manager, path = self.manager()
        daemon = self.begin([], listen=True, NOTIFY_SOCKET=path)
        self.assertEqual(manager.recv(100), b"READY=1")
        before = time.monotonic()
        daemon.process.send_signal(signal.SIGHUP)
        words = dict(line.split("=") for line in manager.recv(100).decode().splitlines())
        self.assertEqual(words["RELOADING"], "1")
        self.assertTrue(before <= int(words["MONOTONIC_USEC"]) / 1e6 + 1e-6 and int(words["MONOTONIC_USEC"]) / 1e6 <= time.monotonic())
        self.assertEqual(manager.recv(100), b"READY=1")
        # one that stops says so, and nothing after it that could be taken for the contrary
        client = self.join(daemon.address, "hold")
        self.assertRegex(client.line(), "^hello")
        daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(manager.recv(100), b"STOPPING=1")
        daemon.process.send_signal(signal.SIGHUP)
        self.assertTrue(wait_until(lambda: "SIGHUP" in daemon.log()))
        manager.setblocking(False)
        with self.assertRaises(BlockingIOError):
            manager.recv(100)


class Replaced(Notified):
    """SIGUSR1, as an upgrade sends it: the server ends for its successor when no session runs."""

    def test_without_sessions_at_once(self):
        manager, path = self.manager()
        daemon = self.begin([], listen=True, NOTIFY_SOCKET=path)
        self.assertEqual(manager.recv(100), b"READY=1")
        daemon.process.send_signal(signal.SIGUSR1)
        self.assertEqual(manager.recv(100), b"STOPPING=1")
        self.assertEqual(daemon.process.wait(20), 75, daemon.log())

    def test_sessions_end_first(self):
        daemon = self.begin([self.given()])
        first = self.join(daemon.address, "hold")
        self.assertRegex(first.line(), "^hello")
        daemon.process.send_signal(signal.SIGUSR1)
        self.assertTrue(wait_until(lambda: "as soon as no session runs" in daemon.log()), daemon.log())
        # others come, and are served, meanwhile
        second = self.join(daemon.address, "hold")
        self.assertRegex(second.line(), "^hello")
        first.leave()
        self.assertTrue(wait_until(lambda: len(daemon_case.children_of(daemon.process.pid)) == 1))
        self.assertIsNone(daemon.process.poll(), daemon.log())
        second.leave()
        self.assertEqual(daemon.process.wait(20), 75, daemon.log())

    def test_who_is_stopped_is_not_started_again(self):
        daemon = self.begin([], listen=True)
        client = self.join(daemon.address, "hold")
        self.assertRegex(client.line(), "^hello")
        daemon.process.send_signal(signal.SIGUSR1)
        self.assertTrue(wait_until(lambda: "SIGUSR1" in daemon.log()))
        self.assertEqual(daemon.stop(), 0)


class Credentials(Managed):
    """What a service manager hands over by files (LoadCredential=)."""

    def credentials(self, *names):
        folder = os.path.join(self.folder, "credentials")
        os.mkdir(folder)
        for name in names:
            with open(os.path.join(folder, name), "w") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write("no certificate\n")
        return folder

    def test_take_the_place_of_options(self):
        folder = self.credentials("tls-ca", "tls-cert", "tls-key", "grace")
        daemon = self.begin([], listen=True, wait=False, CREDENTIALS_DIRECTORY=folder, REMOTE_GPU_LOG="")
        self.assertEqual(daemon.process.wait(20), 125)
        for name in ("tls-ca", "tls-cert", "tls-key"):
            self.assertIn("--%s is the credential that the service manager has handed over" % name, daemon.log())
        self.assertIn(folder + "/tls-ca", daemon.log().split("handed over")[-1])
        self.assertNotIn("grace", daemon.log())

    def test_options_are_stronger(self):
        other = os.path.join(self.folder, "other")
        daemon = self.begin([], "--tls-ca", other, "--tls-cert", other, "--tls-key", other, listen=True, wait=False,
                            CREDENTIALS_DIRECTORY=self.credentials("tls-ca", "tls-cert", "tls-key"))
        self.assertEqual(daemon.process.wait(20), 125)
        self.assertNotIn("credential", daemon.log())
        self.assertIn(other, daemon.log())

    def test_some_are_missing(self):
        self.refused([self.given()], "--tls-key", CREDENTIALS_DIRECTORY=self.credentials("tls-ca", "tls-cert"))

    def test_none_are_wanted(self):
        daemon = self.begin([], listen=True, CREDENTIALS_DIRECTORY=self.credentials("password"))
        self.assertIsNone(daemon.process.poll(), daemon.log())


if __name__ == "__main__":
    unittest.main(verbosity=2)
