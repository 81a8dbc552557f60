"""A server on the software device and programs with sessions there: for the tests of how sessions share GPUs.

The build folder is the first argument of the test's command line.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import unittest
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))

from trial import Build, Server, end_group, stop_with_servers  # noqa: E402

BUILD = Build(sys.argv.pop(1)) if len(sys.argv) > 1 else None


def main():
    stop_with_servers()
    unittest.main(verbosity=2)


class SessionCase(unittest.TestCase):
    """PROGRAM: the text of a Python program that says in a line of JSON what it sees, and ends with its input; and its arguments."""

    PROGRAM = ()

    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)

    def serve(self, arguments=(), environment=None, **options):
        environment = {"REMOTE_GPU_LOG": "info", **(environment or {})}
        self.server = self.stack.enter_context(Server(BUILD, arguments=list(arguments), environment=environment, **options))

    def not_started(self, *arguments, environment=None):
        """What a server says that cannot begin so."""
        done = subprocess.run([BUILD.daemon, "--driver", "soft", "--listen", "127.0.0.1:0", *arguments], capture_output=True,
                              text=True, env=dict(os.environ, **(environment or {})))
        self.assertEqual(done.returncode, 125, done.stderr)
        return done.stderr

    def run_words(self, *options):
        return [BUILD.command, "run", "-s", self.server.address, *options, "--", sys.executable, "-c", *self.PROGRAM]

    @staticmethod
    def environment(visible):
        """That of a program with so many CUDA_VISIBLE_DEVICES; None: it has none of its own."""
        return dict(os.environ, **({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}))

    def begin(self, *options, visible=None, **pipes):
        """A program that runs until it is ended."""
        process = subprocess.Popen(self.run_words(*options), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   start_new_session=True, env=self.environment(visible), **pipes)
        self.stack.callback(self.end, process)
        return process

    def start(self, *options, visible=None):
        """The same, and what it saw."""
        process = self.begin(*options, visible=visible)
        line = process.stdout.readline()
        self.assertTrue(line, "the program has ended")
        return process, json.loads(line)

    @staticmethod
    def end(process):
        end_group(process.pid)
        process.communicate()

    def refused(self, *options, visible=None):
        """What a program is told that gets no session."""
        done = subprocess.run(self.run_words(*options), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env=self.environment(visible))
        self.assertNotEqual(done.returncode, 0, done.stdout)
        return done.stderr

    def listed(self, what="list", *options):
        return subprocess.run([BUILD.command, what, "-s", self.server.address, *options], capture_output=True, check=True,
                              text=True).stdout

    def inventory(self):
        """What `list` says of the server."""
        return json.loads(self.listed("list", "--json"))["servers"][0]

    def sessions(self):
        return {session["id"]: session for session in self.inventory()["sessions"]}

    def metrics(self):
        port = int(re.search(r"status page at http://[^/ ]+:(\d+)/", self.server.log())[1])
        with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port) as answer:
            return answer.read().decode()
