#!/usr/bin/env python3
"""remote-gpud --job-mapping-dir: which jobs have each GPU, as dcgm-exporter reads it.

usage: jobs_test.py BUILD [TEST…]
"""

import contextlib
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import http_test  # noqa: E402
from http_test import MIB, PATIENCE, Case, wait_until  # noqa: E402


class Jobs(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="remote-gpu-jobs-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def files(self):
        """What dcgm-exporter finds: files whose names are numbers, and their lines."""
        found = {}
        for name in os.listdir(self.folder):
            if name.isdigit():
                with contextlib.suppress(FileNotFoundError):  # it has been removed since
                    with open(os.path.join(self.folder, name)) as file:
                        found[int(name)] = file.read().splitlines()
        return found

    def test_sessions(self):
        for stale in ("0", "1", "77"):
            with open(os.path.join(self.folder, stale), "w") as file:
                file.write("stale\n")
        with tempfile.NamedTemporaryFile("w+", dir=os.path.dirname(self.folder)) as other:
            other.write("as it was")
            other.flush()
            os.link(other.name, os.path.join(self.folder, ".0.new"))  # by somebody else who may write there
            self.look_at_sessions()
            other.seek(0)
            self.assertEqual(other.read(), "as it was")

    def look_at_sessions(self):
        server = self.server("--job-mapping-dir", self.folder, "--http", "127.0.0.1:0")
        self.assertEqual(self.files(), {77: ["stale"]}, "what is of none of its GPUs is not its own")
        first = self.program(server, MIB, "-n", "1", "-m", "64M")
        second = self.program(server, MIB, "-m", "64M")
        wait_until(lambda: self.files() == {0: ["session-1", "session-2"], 1: ["session-2"], 77: ["stale"]}, "both are there")
        self.assertEqual(os.stat(os.path.join(self.folder, "0")).st_mode & 0o777, 0o644)
        self.end(second)
        wait_until(lambda: self.files() == {0: ["session-1"], 77: ["stale"]}, "one is left")
        first.kill()
        wait_until(lambda: self.files() == {77: ["stale"]}, "none is left")
        self.assertEqual(sorted(os.listdir(self.folder)), ["77"])

    def test_none_is_left_by_a_server_that_stops(self):
        server = self.server("--job-mapping-dir", self.folder, "--http", "127.0.0.1:0", "--grace", "0")
        self.program(server, MIB)
        wait_until(lambda: len(self.files()) == 2, "it is there")
        server.process.terminate()
        self.assertEqual(server.process.wait(PATIENCE), 0)
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_folder_that_is_none(self):
        server = self.server("--job-mapping-dir", os.path.join(self.folder, "nothing"), wait=False)
        self.assertEqual(server.process.wait(PATIENCE), 125)
        self.assertIn("it has to be a folder that this user can write to", server.log())


if __name__ == "__main__":
    http_test.stop_with_servers()
    unittest.main(verbosity=2)
