"""Who may come to remote-gpud: certificates, tokens, local users, revocation, limits, what others get to see."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from daemon_case import DAEMON, ENVIRONMENT, STAGE, Case, children_of, frontend_of, say
from trial import wait_until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "security"))

from authority import Authority  # noqa: E402


def has_user_namespaces():
    unshare = shutil.which("unshare")
    return bool(unshare) and subprocess.run([unshare, "-r", "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0


class Security(Case):
    """Who may come from other machines, and by what."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="remote-gpud-security-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.state = os.path.join(self.folder, "state")

    def serve(self, *arguments):
        """A server that other machines can reach."""
        return self.start("--listen", "0.0.0.0:0", "--state-dir", self.state, *arguments, listen=False)

    def command(self, *words):
        result = subprocess.run([DAEMON, words[0], "--state-dir", self.state, *words[1:]], env=ENVIRONMENT,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                timeout=60)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.strip()

    def join_as(self, daemon, user, *limits):
        """The folder of a new user's credentials."""
        token = self.command("token", "--user", user, "--server", daemon.near, *limits)
        home = os.path.join(self.folder, user)
        environment = dict(ENVIRONMENT, XDG_CONFIG_HOME=home)
        environment.pop("REMOTE_GPU_CREDENTIALS", None)
        result = subprocess.run([os.path.join(STAGE, "bin", "remote-gpu"), "join", token], env=environment,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                timeout=60)
        self.assertEqual(result.returncode, 0, result.stdout + daemon.log())
        return os.path.join(home, "remote-gpu", "servers", daemon.near)

    def test_first_start_says_what_to_do_and_the_next_does_not(self):
        first = self.serve()
        self.assertIn("remote-gpud token --user", first.log())
        self.assertEqual(os.stat(self.state).st_mode & 0o777, 0o700)
        self.assertEqual(os.stat(os.path.join(self.state, "ca.key")).st_mode & 0o777, 0o600)
        first.stop()
        self.assertNotIn("token --user", self.serve().log())

    def test_nobody_comes_without_a_certificate(self):
        daemon = self.serve()
        plain = say(daemon.near)
        self.assertRegex(plain, "^refusal unauthorised .*without TLS.*remote-gpu join")
        for purpose in ("inventory", "status", "netperf", "bulk:1", "resume:1"):
            self.assertRegex(say(daemon.near, "purpose=" + purpose), "^refusal unauthorised .*without TLS")
            self.assertRegex(say(daemon.near, "ca=%s/ca.crt" % self.state, "purpose=" + purpose),
                             "^refusal unauthorised .*without a certificate.*remote-gpu join")
        self.assertEqual(children_of(daemon.process.pid), [])

    def test_nothing_plain_is_read_of_who_comes_from_elsewhere(self):
        daemon = self.serve()
        with socket.create_connection(tuple(daemon.near.split(":")), timeout=10) as connection:
            connection.sendall(b"x")  # not even a header
            self.assertIn(b"without TLS", connection.recv(4096))

    def test_user_joins_and_has_sessions(self):
        daemon = self.serve()
        alice = "credentials=" + self.join_as(daemon, "alice")
        client = self.join(daemon.near, alice, "hold")
        self.assertRegex(client.line(), "^hello session=1 ")
        self.assertEqual(say(daemon.near, alice, "purpose=bulk:1"), "move to 1")
        self.assertRegex(say(daemon.near, alice, "purpose=status", "show"), "session 1 user=alice encrypted=1 ")
        self.assertRegex(say(daemon.near, alice, "gpus=7"), "^refusal no-such-gpu 7 GPUs")
        client.leave()
        self.assertTrue(wait_until(lambda: not children_of(daemon.process.pid)))

    def test_certificate_of_a_foreign_authority(self):
        daemon = self.serve()
        own = self.join_as(daemon, "alice")
        daemon.stop()
        shutil.rmtree(self.state)
        other = self.serve()
        shutil.copy(os.path.join(self.state, "ca.crt"), own)  # it believes the new server, which does not believe it
        self.assertRegex(say(other.near, "credentials=" + own), "^refusal unauthorised ")

    def test_session_goes_on_with_who_began_it_alone(self):
        daemon = self.serve("--listen", "127.0.0.1:0")
        alice = "credentials=" + self.join_as(daemon, "alice")
        bob = "credentials=" + self.join_as(daemon, "bob")
        client = self.join(daemon.near, alice, "hold")
        self.assertRegex(client.line(), "^hello session=1 ")
        near = daemon.addresses()[1]
        for purpose in ("purpose=bulk:1", "purpose=resume:1"):
            self.assertRegex(say(daemon.near, bob, purpose), "^refusal unauthorised session 1 was begun by another")
            self.assertRegex(say(near, purpose), "^refusal unauthorised session 1 was begun by another")
            self.assertRegex(say(near, "ca=%s/ca.crt" % self.state, purpose), "^refusal unauthorised session 1")
        client.leave()

    def test_revoked_user_is_out_within_a_second(self):
        daemon = self.serve()
        alice = "credentials=" + self.join_as(daemon, "alice")
        bob = "credentials=" + self.join_as(daemon, "bob")
        clients = [self.join(daemon.near, who, "hold", *words)
                   for who, words in ((alice, ()), (alice, ("command=worker:stubborn",)), (bob, ()))]
        for client in clients:
            self.assertRegex(client.line(), "^hello")
        self.command("revoke", "alice")
        revoked = time.monotonic()
        self.assertEqual(clients[0].line(), "end revoked")
        self.assertTrue(wait_until(lambda: len(children_of(daemon.process.pid)) == 1))
        self.assertLess(time.monotonic() - revoked, 2)  # a second, on a machine with more to do
        self.assertRegex(say(daemon.near, alice), "^refusal unauthorised .*revoked")
        self.assertRegex(say(daemon.near, alice, "purpose=status"), "^refusal unauthorised .*revoked")
        self.assertRegex(say(daemon.near, bob, "purpose=status"), "inventory devices=2 sessions=1")
        self.assertEqual(clients[2].line(0.2), "nothing")
        for client in clients:
            client.leave()

    def test_session_ends_with_its_certificate(self):
        authority = Authority(os.path.join(self.folder, "authority"))
        certificate, key = authority.issue("server", "server", alternative="IP:127.0.0.1")
        daemon = self.serve("--tls-ca", authority.root, "--tls-cert", certificate, "--tls-key", key)
        life = 15

        def credentials(name, folder, ends):
            return "credentials=" + authority.credentials(os.path.join(self.folder, folder), name, ends=ends)
        renewed = credentials("alice", "renewed", 600)
        alice, bob = credentials("alice", "short", life), credentials("bob", "bob", life)
        clients = []
        for number, who in enumerate((alice, alice, bob), 1):
            clients.append(self.join(daemon.near, who, "hold"))
            self.assertRegex(clients[-1].line(), "^hello session=%d " % number)
        self.assertEqual(say(daemon.near, renewed, "purpose=stay:1"), "answer 0\nclosed")
        self.assertEqual(say(daemon.near, renewed, "purpose=bulk:2"), "move to 2")
        self.assertEqual(say(daemon.near, alice, "purpose=stay:1"), "answer 0\nclosed")  # an older one takes nothing away
        self.assertRegex(say(daemon.near, renewed, "purpose=stay:3"), "^refusal unauthorised session 3 was begun by")
        self.assertRegex(say(daemon.near, renewed, "purpose=stay:7"), "^refusal no-such-session ")
        self.assertEqual(clients[2].line(60), "end expired")
        self.assertRegex(say(daemon.near, alice), "^refusal unauthorised .*expired")
        self.assertEqual([client.line(1.5) for client in clients[:2]], ["nothing"] * 2)
        self.assertRegex(daemon.log(), r'audit: event=expire user="bob" serial=\w+ from="\S+" session=3 ')
        for client in clients:
            client.leave()

    def test_limits_of_a_user(self):
        daemon = self.serve("--max-sessions-per-user", "2")
        alice = "credentials=" + self.join_as(daemon, "alice")
        bob = "credentials=" + self.join_as(daemon, "bob", "--max-sessions", "1")
        clients = [self.join(daemon.near, who, "hold") for who in (alice, bob, alice)]
        for client in clients:
            self.assertRegex(client.line(), "^hello")
        self.assertRegex(say(daemon.near, alice), "^refusal full alice has 2 sessions")
        self.assertRegex(say(daemon.near, bob), "^refusal full bob has 1 sessions")
        for client in clients:
            client.leave()

    def test_command_lines_are_not_for_others(self):
        daemon = self.serve("--listen", "127.0.0.1:0", "--listen", "unix:@remote-gpud-list-%d" % os.getpid())
        alice = "credentials=" + self.join_as(daemon, "alice")
        bob = "credentials=" + self.join_as(daemon, "bob")
        _, near, own = daemon.addresses()
        client = self.join(daemon.near, alice, "hold", "command=/opt/app/train --password=hunter2")
        self.assertRegex(client.line(), "^hello")
        for words in ([daemon.near, bob], [near], [near, "ca=%s/ca.crt" % self.state]):
            shown = say(*words, "purpose=status", "show")
            self.assertIn("session 1 user=alice", shown)
            self.assertRegex(shown, "command=train$")
        for words in ([daemon.near, alice], [own]):
            self.assertIn("--password=hunter2", say(*words, "purpose=status", "show"))
        client.leave()

    @unittest.skipUnless(os.geteuid() == 0, "needs a PID namespace")
    def test_root_of_a_container_is_no_operator(self):
        """Which is user 0 for the kernel where the container has no user namespace."""
        daemon = self.serve("--listen", "unix:@remote-gpud-contained-%d" % os.getpid())
        alice = "credentials=" + self.join_as(daemon, "alice")
        client = self.join(daemon.near, alice, "hold", "command=/opt/app/train --password=hunter2")
        self.assertRegex(client.line(), "^hello")
        own = daemon.addresses()[1]
        shown = say(own, "purpose=status", "show", prefix=("unshare", "--pid", "--fork"))
        self.assertIn("session 1 user=alice", shown)
        self.assertRegex(shown, "command=train$")
        self.assertIn("--password=hunter2", say(own, "purpose=status", "show"))
        client.leave()

    @unittest.skipUnless(os.geteuid() == 0 and has_user_namespaces(), "needs other users, and a user namespace")
    def test_users_whom_a_user_namespace_has_not(self):
        """As in a rootless container: to the kernel they are all the same number, which may be the server's own."""
        def stranger(number):
            return {"user": number, "group": number, "extra_groups": [], "cwd": "/"}

        own = self.start("--listen", "unix:@remote-gpud-own-%d" % os.getpid(), listen=False, environment={"XDG_RUNTIME_DIR": self.folder},
                         prefix=("unshare", "--user", "--map-user=65534", "--map-group=65534"))
        self.assertRegex(say(own.address, **stranger(61993)), "^refusal unauthorised .*user namespace")
        all_come = self.start("--listen", "unix:@remote-gpud-all-%d" % os.getpid(), "--allow-unauthenticated", listen=False,
                              environment={"XDG_RUNTIME_DIR": self.folder}, prefix=("unshare", "--map-root-user"))
        client = self.join(all_come.address, "hold", "command=/opt/app/train --password=hunter2", **stranger(61993))
        self.assertRegex(client.line(), "^hello")
        shown = say(all_come.address, "purpose=status", "show", **stranger(61994))
        self.assertRegex(shown, "session 1 user=.*command=train$")
        self.assertIn("--password=hunter2", say(all_come.address, "purpose=status", "show"))  # to root of the namespace
        self.assertRegex(all_come.log(), r'audit: event=grant user="" from="unix')
        client.leave()

    def test_audit_log(self):
        daemon = self.serve("--log", "error")
        alice = "credentials=" + self.join_as(daemon, "alice")
        client = self.join(daemon.near, alice, "hold", "gpus=1")
        self.assertRegex(client.line(), "^hello")
        self.assertRegex(say(daemon.near, alice, "gpus=7"), "^refusal")
        self.assertRegex(say(daemon.near), "^refusal")
        self.command("revoke", "alice")
        self.assertEqual(client.line(), "end revoked")
        client.leave()
        lines = [line for line in daemon.log().splitlines() if " audit: " in line]
        for number, pattern in enumerate((
                r'event=join user="alice" serial=[0-9a-f]+ from="127\.0\.0\.1:\d+" encrypted=yes$',
                r'event=grant user="alice" serial=[0-9a-f]+ from="127\.0\.0\.1:\d+" session=1 gpus=0 encrypted=yes$',
                r'event=refuse user="alice" serial=[0-9a-f]+ from="\S+" encrypted=yes why="7 GPUs were asked for',
                r'event=refuse user="" from="\S+" encrypted=no why="where other machines reach it, this server takes nobody',
                r'event=revoke user="alice" serial=[0-9a-f]+ from="\S+" session=1 encrypted=yes why=".*revoked')):
            self.assertRegex(lines[number], pattern)
        with open(os.path.join(alice.split("=", 1)[1], "tls.key")) as file:
            self.assertNotIn(file.read().splitlines()[1], daemon.log())

    def test_handshakes_of_strangers_hold_up_nobody(self):
        daemon = self.serve()
        alice = "credentials=" + self.join_as(daemon, "alice")
        near = tuple(daemon.near.split(":"))
        silent = [socket.create_connection(near, timeout=10) for _ in range(150)]
        for number, connection in enumerate(silent):  # nothing, the beginning of a record, a record that is none
            connection.send([b"\x16", b"\x16\x03\x01\x02\x00\x01", b"\x16" * 600][number % 3])
        started = time.monotonic()
        self.assertRegex(say(daemon.near, alice), "^hello")
        self.assertLess(time.monotonic() - started, 5)
        for connection in silent:
            connection.close()

    def test_certificate_is_read_again(self):
        daemon = self.serve()
        alice = "credentials=" + self.join_as(daemon, "alice")
        client = self.join(daemon.near, alice, "hold")
        self.assertRegex(client.line(), "^hello")
        os.unlink(os.path.join(self.state, "tls.crt"))
        os.unlink(os.path.join(self.state, "tls.key"))
        daemon.process.send_signal(signal.SIGHUP)
        self.assertTrue(wait_until(lambda: "new certificate" in daemon.log()), daemon.log())
        self.assertRegex(say(daemon.near, alice), "^hello")
        self.assertEqual(client.line(0.2), "nothing")
        client.leave()

    def test_rdma_is_offered_where_it_may_be(self):
        for arguments, plain, encrypted in (((), "yes", "no"), (("--encrypt", "control"), "yes", "yes"),
                                            (("--encrypt", "control", "--rdma", "deny"), "no", "no")):
            with self.subTest(arguments):
                daemon = self.serve("--listen", "127.0.0.1:0", *arguments)
                alice = "credentials=" + self.join_as(daemon, "alice")
                self.assertIn(" rdma=%s " % plain, say(daemon.addresses()[1]))
                self.assertIn(" rdma=%s " % encrypted, say(daemon.near, alice))
                daemon.stop()

    def test_new_frontend_has_the_certificate(self):
        daemon = self.serve()
        alice = "credentials=" + self.join_as(daemon, "alice")
        before = frontend_of(daemon)
        os.kill(before, signal.SIGKILL)
        self.assertTrue(wait_until(lambda: frontend_of(daemon) not in (None, before)))
        self.assertRegex(say(daemon.near, alice), "^hello")

    def test_unix_sockets_identify_by_the_kernel(self):
        daemon = self.start("--listen", "unix:@remote-gpud-who-%d" % os.getpid(), listen=False)
        client = self.join(daemon.address, "hold")
        self.assertRegex(client.line(), "^hello")
        self.assertRegex(say(daemon.address, "purpose=status", "show"),
                         r"session 1 user=uid %d\b.* encrypted=0 " % os.geteuid())
        client.leave()


if __name__ == "__main__":
    unittest.main(verbosity=2)
