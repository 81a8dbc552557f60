"""A frontend that has been taken over can ask the monitor for what a frontend may, and for nothing else.

rogue_frontend.c takes the frontend's place in a copy of the installed tree.
"""

import os
import shutil
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "daemon"))

import daemon_case as base  # noqa: E402
from trial import wait_until  # noqa: E402

ROGUE = os.path.join(base.HELPERS, "rogue_frontend")


class Rogue(base.Case):
    def serve(self, mode, *arguments, program="frontend"):
        """A server whose frontend, or process that answers HTTP, misbehaves so."""
        folder = tempfile.mkdtemp(prefix="remote-gpud-rogue-")
        self.addCleanup(shutil.rmtree, folder)
        real = os.path.join(base.STAGE, "lib", "remote-gpu")
        for name in os.listdir(real):
            if name != program:
                os.symlink(os.path.join(real, name), os.path.join(folder, name))
        shutil.copy(ROGUE, os.path.join(folder, program))
        with open(os.path.join(folder, "rogue"), "w") as file:
            file.write(mode)
        return self.start("--grace", "0", *arguments, environment={"REMOTE_GPU_LIBDIR": folder})

    @staticmethod
    def by_unix_socket():
        return ("--listen", "unix:@remote-gpud-rogue-%d-%d" % (os.getpid(), time.monotonic_ns()))

    def answered(self, mode, *arguments):
        daemon = self.serve(mode, *arguments)
        self.assertTrue(wait_until(lambda: "rogue: it is done" in daemon.log()), daemon.log())
        self.assertIsNone(daemon.process.poll())
        return daemon, [line for line in daemon.log().splitlines() if "rogue: answer" in line][0]

    def test_what_is_wrong_is_its_end(self):
        for mode in ("short", "long", "kind", "descriptors", "none", "purpose", "gpus", "sign"):
            with self.subTest(mode):
                daemon = self.serve(mode)
                self.assertTrue(wait_until(lambda: daemon.log().count("asked for something that there is not") >= 2),
                                daemon.log())  # and so is that of the one that takes its place
                self.assertIsNone(daemon.process.poll())
                self.assertEqual(base.children_of(daemon.process.pid), [])
                self.assertEqual(daemon.stop(), 0)

    def test_one_that_does_not_read_is_killed(self):
        daemon = self.serve("flood")
        self.assertTrue(wait_until(lambda: "does not read what it is told" in daemon.log(), 30), daemon.log()[-2000:])
        self.assertIsNone(daemon.process.poll())

    def test_texts_have_an_end(self):
        _, answer = self.answered("texts", *self.by_unix_socket())
        self.assertIn("answer 0", answer)

    def test_proofs_are_checked(self):
        with tempfile.TemporaryDirectory() as state:
            modes = [("impostor", "unauthorised"), ("user", "unauthorised"), ("nobody", "unauthorised"),
                     ("monitor", "unauthorised"), ("pair", "unauthorised"), ("listener", "unauthorised"),
                     ("join", "unauthorised"), ("stranger", "unsupported")]
            if os.geteuid() == 0:
                modes.append(("other", "unauthorised"))
            for mode, expected in modes:
                with self.subTest(mode):
                    daemon, answer = self.answered(mode, "--state-dir", state, *self.by_unix_socket())
                    self.assertNotIn("answer 0", answer)
                    self.assertIn(expected, answer)
                    self.assertEqual(base.children_of(daemon.process.pid), [])

    def test_it_cannot_bring_an_expired_certificate_to_life(self):
        for expires, expected in ((1700000001, "unauthorised"), (99999999999, "answer 0")):
            with tempfile.TemporaryDirectory() as state:
                os.mkdir(os.path.join(state, "users"), 0o700)
                with open(os.open(os.path.join(state, "users", "alice"), os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
                    file.write("certificate 2a issued 1700000000 expires %d\n" % expires)
                _, answer = self.answered("expired", "--state-dir", state)
                self.assertIn(expected, answer)

    def test_it_cannot_change_whom_the_next_one_trusts(self):
        with tempfile.TemporaryDirectory() as state:
            daemon = self.serve("certificate", "--state-dir", state)
            self.assertTrue(wait_until(lambda: "rogue: the certificates are" in daemon.log()), daemon.log())
            self.assertIn("rogue: the certificates are not writable", daemon.log())

    def test_it_has_no_key_of_the_server(self):
        for program in ("frontend", "http"):
            with self.subTest(program), tempfile.TemporaryDirectory() as state:
                daemon = self.serve("key", "--state-dir", state, "--http", "0.0.0.0:0", program=program)
                self.assertTrue(wait_until(lambda daemon=daemon: "server's key" in daemon.log()), daemon.log())
                self.assertIn("rogue: the server's key is not there", daemon.log())

    def test_it_cannot_change_the_list_of_sessions(self):
        daemon = self.serve("board")
        self.assertTrue(wait_until(lambda: "rogue: the board is" in daemon.log()))
        self.assertIn("rogue: the board is not writable", daemon.log())


if __name__ == "__main__":
    unittest.main(verbosity=2)
