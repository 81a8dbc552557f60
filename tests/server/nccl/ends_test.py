"""Ranks of NCCL on several servers whose communicators are made, used and ended while ranks stay away, threads abort, and servers, workers
and programs are killed: every call returns in time, on all ranks, with an error of NCCL's.

usage: ends_test.py BUILD_FOLDER [UNITTEST…]
"""

import contextlib
import os
import random
import signal
import sys
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "..", "scripts")]

import ranks_test  # noqa: E402
from trial import Build, Server, stop_with_servers, wait_until  # noqa: E402

TIMEOUT = 10  # SOFTGPU_NCCL_TIMEOUT of ranks some of which are killed
AWAY = 5  # the same, where one stays away; the others come within it, also on a busy machine
PATIENCE = 60  # after which a program hangs, also on a busy machine


class Job(ranks_test.Job):
    """Whose programs can be killed."""

    def __init__(self, stack):
        super().__init__(stack, "nccl_ends")
        self.processes = {}

    def run_one(self, address, command, first):
        self.results[first] = build.run_remote(command, address, timeout=PATIENCE,
                                               while_running=lambda process: self.processes.__setitem__(first, process))

    def kill(self, rank):
        """Ends the program of a rank, if it has not ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.processes[rank].pid, signal.SIGKILL)


class Ends(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)

    def servers(self, n, **environment):
        return [self.stack.enter_context(Server(build, tcp=True, environment=environment)) for _ in range(n)]

    def told(self, results):
        """What each rank printed of its error: number and sentence."""
        lines = [line for result in results for line in result.output.splitlines() if " is told " in line]
        self.assertEqual(len(lines), len(results), "".join(result.report() for result in results))
        return [line.partition(" is told ")[2].partition(": ")[::2] for line in lines]

    def test_a_rank_that_stays_away_from_a_split(self):
        addresses = [server.address for server in self.servers(3, SOFTGPU_NCCL_TIMEOUT=str(AWAY))]
        for number, sentence in self.told(Job(self.stack).run(addresses, case="split without one")):
            self.assertEqual((number, sentence), ("6", "ncclCommSplit: rank 1 did not come within %d s" % AWAY))

    def test_a_rank_that_stays_away_from_a_shrunk_one(self):
        addresses = [server.address for server in self.servers(3, SOFTGPU_NCCL_TIMEOUT=str(AWAY))]
        told = self.told(Job(self.stack).run(addresses, case="shrunk without one"))
        self.assertEqual([number for number, _ in told], ["6"] * 3)
        self.assertEqual(told[0][1], "ncclCommShrink: rank 1 did not come within %d s" % AWAY)

    def aborted(self, case):
        """What rank 0 got: of the call that it was in, and of ncclCommAbort by another thread."""
        addresses = [server.address for server in self.servers(2)]
        results = Job(self.stack).run(addresses, case="aborted " + case)
        self.assertEqual(self.told(results[1:]), [("6", "rank 0 has aborted the communicator")], results[0].report())
        self.assertTrue(results[0].output.startswith("rank 0 goes on: "), results[0].report())
        return results[0].output.partition(": ")[2].strip()

    def test_abort_while_a_thread_waits_for_a_sum(self):
        self.assertEqual(self.aborted("sum"), "0, 0")

    def test_abort_while_a_thread_splits(self):
        self.assertEqual(self.aborted("split"), "6, 0")

    def test_abort_while_a_thread_finalizes(self):
        self.assertEqual(self.aborted("finalize"), "6, 0")

    def live(self, kill, seed, beside=lambda _: None):
        """
        Ranks that make, use and end communicators, on three servers, until `kill` of one server and the job ends something. `beside`
        goes on at the same places meanwhile.
        """
        servers = self.servers(3, SOFTGPU_NCCL_TIMEOUT=str(TIMEOUT), SOFTGPU_DEVICES="1")
        job = Job(self.stack)
        chance = random.Random(seed)
        places = [servers[0].address, servers[0].address, servers[1].address, servers[2].address]

        def soon():
            self.assertTrue(wait_until(lambda: os.path.exists(os.path.join(job.folder, "id.working")), 60))
            other = threading.Thread(target=beside, args=(places,))
            other.start()
            time.sleep(chance.random() / 4)
            kill(chance.choice(servers), job)
            other.join()
        for result in job.run(places, case="lives", while_running=soon):
            self.assertFalse(result.hung, "seed %d\n%s" % (seed, result.report()))
            if result.status == 0:
                self.assertRegex(result.output, r"is told ([12356]:|nothing more)", "seed %d\n%s" % (seed, result.report()))

    def test_a_server_is_killed(self):
        for seed in range(SEEDS):
            self.live(lambda server, _: server.kill(), seed)

    def test_a_worker_is_killed(self):
        for seed in range(SEEDS):
            self.live(lambda server, _: os.kill(server.workers()[-1], signal.SIGKILL), seed)

    def test_a_program_is_killed(self):
        """Another job on the same servers takes no notice."""
        for seed in range(SEEDS):
            results = []
            self.live(lambda _, job, seed=seed: job.kill(seed % 4), seed,
                      lambda places, results=results: results.extend(ranks_test.Job(self.stack).run(places)))
            self.assertEqual([result.status for result in results], [0] * 4, "".join(result.report() for result in results))
            self.assertEqual(sorted(line for result in results for line in result.output.splitlines()), self.alone())

    def alone(self):
        """What the ranks of the other job get in one process."""
        result = build.run_direct(ranks_test.Job(self.stack).command(4, 0, 4, "all"), environment={"SOFTGPU_DEVICES": "4"})
        self.assertEqual(result.status, 0, result.report())
        return sorted(result.output.splitlines())


if __name__ == "__main__":
    stop_with_servers()
    build = ranks_test.build = Build(sys.argv.pop(1))
    SEEDS = int(os.environ.get("SEEDS", "3"))
    unittest.main(verbosity=2)
