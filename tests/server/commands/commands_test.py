"""remote-gpud token, users and revoke: right use, and every wrong use with its sentence."""

import base64
import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = sys.argv.pop(1)
SERVER = os.path.join(BUILD, "stage", "bin", "remote-gpud")
CLIENT = os.path.join(BUILD, "tests", "identity", "client")


def call(*words, **more):
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, **more)


class Commands(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.state = os.path.join(folder.name, "state")
        self.config = os.path.join(folder.name, "config")
        self.configure("")

    def configure(self, text):
        with open(self.config, "w") as file:
            file.write("state-dir = %s\n%s" % (self.state, text))

    def start(self):
        """What the first start of a server makes."""
        self.assertEqual(call(CLIENT, self.state, "open").returncode, 0)

    def run_command(self, *words, status=0, says=None, **more):
        result = call(SERVER, words[0], "--config", self.config, *words[1:], **more)
        self.assertEqual(result.returncode, status, result.stderr + result.stdout)
        if says:
            self.assertIn(says, result.stderr)
        return result.stdout

    def token(self, *words):
        return self.run_command("token", *words).strip()

    def join(self, token, status=0):
        result = call(CLIENT, self.state, "join", token)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result.stdout.split() if status == 0 else result.stdout

    def test_token(self):
        self.start()
        result = call(SERVER, "token", "--config", self.config, "--user", "alice")
        match = re.fullmatch(r"rgpu1:([A-Za-z0-9_-]{64})@([^:]+|\[[^]]+\]):7654\n", result.stdout)
        self.assertTrue(match, result.stdout)
        if not os.path.exists("/run/systemd/journal/socket"):  # else the audit log goes there
            line, _, result.stderr = result.stderr.partition("\n")
            self.assertEqual(line, 'remote-gpud: audit: event=token user="alice" from="uid %d"' % os.getuid())
        self.assertRegex(result.stderr, r"^For alice, 1 use, until 20\d\d-.* UTC\. On the client's machine: remote-gpu join TOKEN\n$")
        self.assertEqual(match[2].split(".")[0], socket.gethostname().split(".")[0])
        payload = base64.urlsafe_b64decode(match[1])
        key = subprocess.run("openssl x509 -noout -pubkey -in %s/ca.crt | openssl pkey -pubin -outform DER" % self.state,
                             shell=True, stdout=subprocess.PIPE, check=True).stdout
        self.assertEqual(payload[:32], hashlib.sha256(key).digest())
        # the secret itself is not on disk
        names = os.listdir(os.path.join(self.state, "tokens"))
        self.assertEqual(names, [hashlib.sha256(payload[32:]).hexdigest()])
        self.assertEqual(self.join(result.stdout.strip())[0], "alice")
        self.assertIn("used 1 time", self.join(result.stdout.strip(), status=1))

    def test_where_the_server_is(self):
        self.start()
        name = socket.gethostname()
        for given, shown in (("127.0.0.1", "127.0.0.1:7654"), ("[::1]", "[::1]:7654"), ("[::1]:9", "[::1]:9"),
                             ("localhost:80", "localhost:80"), ("tcp://" + name + ":9", name + ":9")):
            with self.subTest(given):
                self.assertTrue(self.token("--user", "alice", "--server", given).endswith("@" + shown))
        self.assertIn("@gpu.example.org:7654", self.run_command(
            "token", "--user", "alice", "-s", "gpu.example.org",
            says="the server's certificate is not for gpu.example.org, so clients will refuse it: start remote-gpud with "
                 "--tls-name gpu.example.org"))
        for wrong in ("unix:/x", "*:7600", "a:b", "host:0", "[::1", "host:70000"):
            with self.subTest(wrong):
                self.assertEqual(self.run_command("token", "--user", "alice", "--server", wrong, status=125,
                                                  says="--server %s: " % wrong), "")

    def test_limits(self):
        self.start()
        user, serial = self.join(self.token("--user", "alice", "--max-sessions", "2", "--max-gpus", "1"))
        self.assertEqual(call(CLIENT, self.state, "check", user, serial).stdout, "allowed 2 1\n")
        self.assertRegex(self.run_command("users"),
                         r"^alice: 1 certificate, valid until .*, at most 2 sessions, 1 GPU a session\n$")

    def test_users(self):
        self.start()
        self.run_command("users", says="Nobody has joined yet: remote-gpud token --user NAME lets somebody.")
        _, serial = self.join(self.token("--user", "alice"))
        self.token("--user", "bob", "--uses", "3", "--expires", "90min")
        shown = self.run_command("users")
        self.assertRegex(shown, r"^alice: 1 certificate, valid until 20.* UTC\nbob: a token for 3 uses, until 20.* UTC\n$")
        shown = self.run_command("users", "alice")
        self.assertRegex(shown, r"\n  %s  given 20.* UTC, valid until 20.* UTC\n$" % serial)
        data = json.loads(self.run_command("users", "--json"))
        certificate = data["users"][0]["certificates"][0]
        self.assertEqual(data["users"][0]["name"], "alice")
        self.assertEqual(certificate["serial"], serial)
        self.assertEqual(certificate["expires_unix"] - certificate["issued_unix"], 90 * 86400)
        self.assertIsNone(certificate["revoked_unix"])
        self.assertTrue(certificate["valid"])
        self.assertEqual(data["tokens"][0]["uses_left"], 3)
        self.assertAlmostEqual(data["tokens"][0]["expires_unix"], time.time() + 5400, delta=60)
        with open(os.path.join(self.state, "revoked"), "w") as file:
            file.write('spiffe://example.org/"x\\\nserial:0f\n')
        data = json.loads(self.run_command("users", "--json"))
        self.assertEqual(data["revoked"], ['spiffe://example.org/"x\\', "serial:0f"])
        self.run_command("users", "carol", status=1, says="there is no user 'carol'")
        # one damaged file hides no other
        with open(os.path.join(self.state, "users", "aaron"), "w") as file:
            file.write("certif")
        self.assertIn("alice: 1", self.run_command("users", status=125, says="users/aaron, line 1: not understood"))

    @unittest.skipIf(os.path.exists("/run/systemd/journal/socket"), "the audit log goes to the journal")
    def test_what_is_done_is_in_the_audit_log(self):
        self.start()
        _, serial = self.join(self.token("--user", "alice"))
        deed = 'audit: event=revoke user="alice"'
        self.run_command("revoke", serial, says='%s serial=%s from="uid %d"\n' % (deed, serial, os.getuid()))
        self.assertNotIn("audit:", call(SERVER, "revoke", "--config", self.config, serial).stderr)  # it was before
        self.run_command("revoke", "alice", says='%s from="uid %d"\n' % (deed, os.getuid()))
        self.run_command("revoke", "--foreign", "serial:0f", says='audit: event=revoke user="" serial=0f from="uid %d"\n' % os.getuid())
        failed = call(SERVER, "revoke", "--config", self.config, "nobody")
        self.assertNotIn("audit:", failed.stderr)

    def test_revoke(self):
        self.start()
        _, first = self.join(self.token("--user", "alice"))
        _, second = self.join(self.token("--user", "alice"))
        waiting = self.token("--user", "alice")
        self.assertEqual(self.run_command("revoke", ":".join(re.findall("..", first.upper()))),
                         "alice: the certificate is revoked\n")
        self.assertEqual(self.run_command("revoke", first), "alice: the certificate was revoked before\n")
        self.assertIn("was revoked on", call(CLIENT, self.state, "check", "alice", first).stdout)
        self.assertEqual(call(CLIENT, self.state, "check", "alice", second).returncode, 0)
        self.assertEqual(self.run_command("revoke", "alice"), "alice: 1 certificate revoked, 1 token withdrawn\n")
        self.assertEqual(call(CLIENT, self.state, "check", "alice", second).returncode, 1)
        self.assertIn("does not know this token", self.join(waiting, status=1))
        self.assertRegex(self.run_command("users"), r"^alice: revoked on 20.* UTC\n$")
        self.assertEqual(self.run_command("revoke", "alice"), "alice: 0 certificates revoked, 0 tokens withdrawn\n")
        # back again
        _, third = self.join(self.token("--user", "alice"))
        self.assertEqual(call(CLIENT, self.state, "check", "alice", third).returncode, 0)
        self.assertEqual(call(CLIENT, self.state, "check", "alice", second).returncode, 1)
        # somebody who has a token and nothing else
        waiting = self.token("--user", "bob")
        self.assertEqual(self.run_command("revoke", "bob"), "bob: 0 certificates revoked, 1 token withdrawn\n")
        self.join(waiting, status=1)

    def test_options_behind_words(self):
        self.start()
        self.join(self.token("--user", "alice"))
        self.assertEqual(json.loads(self.run_command("users", "alice", "--json"))["users"][0]["name"], "alice")
        self.run_command("revoke", "alice", "--frobnicate", status=125, says="unknown option '--frobnicate'")
        self.run_command("revoke", "alice", "--state-dir", status=125, says="--state-dir")
        self.run_command("revoke", "alice", "--state-dir", "/nowhere", status=125, says="/nowhere cannot be opened")
        self.assertIn("alice: 1 certificate,", self.run_command("users"))
        self.run_command("revoke", "--", "--foreign", "bob", status=1, says="no user '--foreign'")
        self.assertEqual(self.run_command("revoke", "alice", "--state-dir", self.state, "--", "alice"),
                         "alice: 1 certificate revoked, 0 tokens withdrawn\n"
                         "alice: 0 certificates revoked, 0 tokens withdrawn\n")

    def test_the_running_server_learns_of_it(self):
        self.start()
        user, serial = self.join(self.token("--user", "alice"))
        with subprocess.Popen([CLIENT, self.state, "wait", user, serial], stdout=subprocess.PIPE, text=True) as waiting:
            self.assertIn("allowed", waiting.stdout.readline())
            self.run_command("revoke", "alice")
            self.assertIn("was revoked on", waiting.communicate(timeout=30)[0])
            self.assertEqual(waiting.returncode, 1)

    def test_nobody_of_that_name(self):
        self.start()
        says = "there is no user 'bob' here, so nothing was revoked; remote-gpud users lists those that are, and --foreign is"
        self.run_command("revoke", "bob", status=1, says=says)
        self.run_command("revoke", "0123456789abcdef", status=1, says="there is no certificate '0123456789abcdef' here")
        self.run_command("revoke", "../ca.key", status=1, says="there is no user '../ca.key'")
        # all of several are tried
        self.join(self.token("--user", "alice"))
        self.assertIn("alice: 1 certificate revoked", self.run_command("revoke", "bob", "alice", status=1))

    def test_an_authority_of_the_operators(self):
        self.start()
        self.assertIn("entered in", self.run_command("revoke", "--foreign", "spiffe://example.org/bob", "0102030405060708aa"))
        with open(os.path.join(self.state, "revoked")) as file:
            self.assertEqual(file.read(), "spiffe://example.org/bob\nserial:0102030405060708aa\n")
        self.assertIn("was already in", self.run_command("revoke", "--foreign", "spiffe://example.org/bob"))
        self.configure("tls-ca = /x\ntls-cert = /x\ntls-key = /x\n")
        self.assertIn("entered in", self.run_command("revoke", "carol"))
        self.run_command("revoke", "#x", status=125, says="'#x' cannot be the name in a certificate")
        self.run_command("token", "--user", "alice", status=125, says="uses an authority of its operator's (tls-ca)")

    def test_wrong_use(self):
        self.start()
        for words, says in (
                (["token"], "who is to join? --user NAME; see remote-gpud token --help"),
                (["token", "--user", "a b"], "--user: 'a b' cannot be a user's name: 1 to 64 letters"),
                (["token", "--user", "deadbeefdeadbeef"], "it looks like the serial number of a certificate"),
                (["token", "--user", ""], "--user"),
                (["token", "--user", "a", "--uses", "0"], "--uses: '0' is not in the range 1 to 100000"),
                (["token", "--user", "a", "--expires", "0"], "--expires 0: the token could never be used"),
                (["token", "--user", "a", "--expires", "tomorrow"], "--expires"),
                (["token", "--usr", "a"], "did you mean '--user'?"),
                (["token", "--user", "a", "b"], "'b' is one word too many"),
                (["token", "--user", "a", "--json"], "--json"),
                (["users", "a", "b"], "'b' is one word too many"),
                (["revoke"], "whose certificates are to be refused?")):
            with self.subTest(words):
                self.assertEqual(self.run_command(*words, status=125, says=says), "")
        result = call(SERVER, "tokn")
        self.assertEqual(result.returncode, 125)
        self.assertIn("'tokn' is neither an option nor a subcommand", result.stderr)
        self.configure("nonsense = 1\n")
        self.run_command("users", status=125, says="nonsense")
        self.assertEqual(os.listdir(os.path.join(self.state, "tokens")), [])

    def test_no_state_folder(self):
        for words in (["token", "--user", "a"], ["users"], ["revoke", "a"]):
            self.run_command(*words, status=125, says="/state cannot be opened: No such file or directory: remote-gpud makes it when "
                                                      "it starts for the first time; --state-dir names another one")
        self.assertFalse(os.path.exists(self.state))
        os.mkdir(self.state, 0o700)
        self.run_command("token", "--user", "a", status=125,
                         says="no token was made: there is no authority in %s: remote-gpud makes it" % self.state)
        self.assertFalse(os.path.exists(os.path.join(self.state, "ca.key")))
        self.run_command("users", "--state-dir", "/nowhere", status=125, says="/nowhere cannot be opened")

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_another_user(self):
        self.start()
        os.chmod(self.folder, 0o755)
        self.run_command("users", status=125, says="cannot be opened: Permission denied", preexec_fn=lambda: os.setuid(4711))
        os.chmod(self.state, 0o755)
        self.run_command("users", status=125, says="belongs to user 0, and this is user 4711: run as that user or as root",
                         preexec_fn=lambda: os.setuid(4711))
        # a service with a user of its own, and root's command
        for folder, _, names in os.walk(self.state):
            for path in [folder] + [os.path.join(folder, name) for name in names]:
                os.chown(path, 4711, 4711)
        self.token("--user", "alice")
        for folder, _, names in os.walk(self.state):
            for name in names:
                self.assertEqual(os.stat(os.path.join(folder, name)).st_uid, 4711, name)

    def test_full_disk(self):
        self.start()
        _, serial = self.join(self.token("--user", "alice"))
        # no file may grow, which fails a write as a full disk does
        limited = ["sh", "-c", "ulimit -f 0; trap '' XFSZ; exec \"$@\"", "sh", SERVER]
        result = call(*limited, "token", "--config", self.config, "--user", "bob")
        self.assertEqual((result.returncode, result.stdout), (125, ""))
        self.assertRegex(result.stderr, r"no token was made: .*/tokens/[0-9a-f]{64} cannot be written: File too large")
        self.assertEqual(len(os.listdir(os.path.join(self.state, "tokens"))), 1)
        result = call(*limited, "revoke", "--config", self.config, "alice")
        self.assertEqual(result.returncode, 125)
        self.assertIn("alice is NOT revoked: ", result.stderr)
        self.assertEqual(call(CLIENT, self.state, "check", "alice", serial).returncode, 0)

    def test_help(self):
        for name in ("token", "users", "revoke"):
            result = call(SERVER, name, "--help")
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertIn("Usage: remote-gpud %s" % name, result.stdout)
        self.assertRegex(call(SERVER, "--help").stdout, r"\n  token   print a token")


if __name__ == "__main__":
    unittest.main(verbosity=2)
