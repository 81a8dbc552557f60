"""Sessions of a server share its GPU by weight and cap, whatever they give it to do: in what the server has measured of each.

usage: turns_test.py BUILD_FOLDER

Nothing here depends on how fast the machine is: what is compared are parts of the time that was charged.
"""

import json
import mmap
import os
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

from session_case import BUILD, SessionCase, main  # noqa: E402
import trial  # noqa: E402

LOAD = os.path.join(BUILD.lib_dir, "limits-load") if BUILD else ""
PLACE, READY, TIMES = 64, 1, 8 * 8 * 1024  # client/cli/verify/board.h


def wait_until(good):
    if not trial.wait_until(good, 60, 0.05):
        raise AssertionError("it did not happen in 60 s")


class Loads:
    """Programs that keep the GPU busy: (options of run, work, nanoseconds) each."""

    def __init__(self, server, folder, loads):
        self.n = len(loads)
        path = os.path.join(folder, "board")
        with open(path, "wb") as file:
            file.write(bytes(PLACE * 9 + TIMES))
        with open(path, "r+b") as file:
            self.board = mmap.mmap(file.fileno(), PLACE * 9)
        self.processes = [
            subprocess.Popen([BUILD.command, "run", "-s", server.address, *options, "--", LOAD, path, str(i), work, str(ns)])
            for i, (options, work, ns) in enumerate(loads)]

    def word(self, i, offset, kind="I"):
        return struct.unpack_from(kind, self.board, PLACE * (i + 1) + offset)[0]

    def start(self):
        wait_until(lambda: all(self.word(i, 0) == READY for i in range(self.n)))
        struct.pack_into("I", self.board, 0, 1)

    def units(self):
        return [self.word(i, 8, "Q") for i in range(self.n)]

    def end(self):
        struct.pack_into("I", self.board, 4, 1)
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Turns(SessionCase):
    def setUp(self):
        super().setUp()
        self.folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        self.serve()

    def busy(self):
        """Seconds that were charged, by the work that the program was started for."""
        busy = {}
        for session in self.sessions().values():
            command = json.dumps(session)
            for work in ("kernels", "cooperative", "streams", "graphs", "copies", "fills"):
                if " %s " % work in command:
                    busy[work] = sum(device["busy_seconds"] for device in session["share"]["devices"])
        return busy

    def run_loads(self, *loads):
        running = Loads(self.server, self.folder, loads)
        self.stack.callback(running.end)
        running.start()
        return running

    def test_whatever_the_work_is_it_is_charged(self):
        kinds = ("kernels", "cooperative", "streams", "graphs", "copies", "fills")
        loads = self.run_loads(*[([], kind, 200000) for kind in kinds])
        wait_until(lambda: min(loads.units()) > 0)
        # A program that does not get a core has nothing to be charged for: of several periods one must be even.
        for _ in range(5):
            parts = self.parts_of_a_period(kinds)
            if all(0.08 < part < 0.3 for part in parts.values()):
                return
        self.fail("not charged alike: %s" % parts)

    def parts_of_a_period(self, kinds):
        """Of two seconds that are charged in all, the part of each."""
        before = self.busy()
        wait_until(lambda: sum(self.busy().values()) > sum(before.values()) + 2)
        after = self.busy()
        charged = {kind: after[kind] - before[kind] for kind in kinds}
        return {kind: charged[kind] / sum(charged.values()) for kind in kinds}

    def test_a_cap_is_not_exceeded(self):
        since = time.monotonic()
        loads = self.run_loads((["--compute", "20%"], "graphs", 100000))
        wait_until(lambda: self.busy().get("graphs", 0) > 0.2)
        time.sleep(1)
        busy, passed = self.busy()["graphs"], time.monotonic() - since
        self.assertLess(busy, 0.2 * passed + 0.1)
        wait_until(lambda: sum(loads.units()) > 0)

    def test_a_program_learns_of_what_is_done_while_the_rest_waits_for_its_turn(self):
        loads = self.run_loads((["--compute", "10%"], "kernels", 10000000))  # four ahead, one about every 100 ms
        wait_until(lambda: loads.units()[0] > 12)
        last, steps = loads.units()[0], []
        while sum(steps) < 24:
            time.sleep(0.002)
            now = loads.units()[0]
            if now != last:
                steps.append(now - last)
            last = now
        self.assertGreater(steps.count(1) * 2, len(steps), steps)

    def test_a_killed_session_holds_nobody_up(self):
        loads = self.run_loads(([], "kernels", 1000000), ([], "fills", 1000000))
        wait_until(lambda: min(loads.units()) > 4)
        loads.processes[0].kill()
        before = loads.units()[1]
        wait_until(lambda: loads.units()[1] > before + 100)

    def test_verify_limits_measures(self):
        done = subprocess.run([BUILD.command, "verify-limits", "--quick", "--json", "-s", self.server.address],
                              stdout=subprocess.PIPE, text=True)
        self.assertIn(done.returncode, (0, 1))  # how near the goals it comes is the machine's affair
        cases = json.loads(done.stdout)["cases"]
        self.assertGreaterEqual(len(cases), 3)
        of_memory = [case for case in cases if case["memory_error_bytes"] is not None]
        self.assertEqual([case["memory_error_bytes"] for case in of_memory], [0])
        for case in cases:
            if case in of_memory:
                continue
            self.assertEqual(len(case["part"]), case["sessions"])
            self.assertTrue(all(part > 0 for part in case["part"]), case)
        self.assertEqual(cases[1]["expected"], [25, 75])

    def test_verify_limits_says_what_is_wrong(self):
        done = subprocess.run([BUILD.command, "verify-limits", "-s", "unix:/nowhere/1,unix:/nowhere/2"],
                              stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 125)
        self.assertIn("one server", done.stderr)


if __name__ == "__main__":
    main()
