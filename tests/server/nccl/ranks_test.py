"""Ranks of NCCL in several processes, on one server and on several: what they get is the same wherever they are; gradients go through
no client; what is wrong is told to all ranks, and nothing hangs.

usage: ranks_test.py BUILD_FOLDER
"""

import contextlib
import os
import shutil
import sys
import tempfile
import threading
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "..", "scripts"), os.path.join(HERE, "..", "peers"),
                os.path.join(HERE, "..", "..", "fidelity")]

from peers_test import Relay  # noqa: E402
from suspended import Disturber  # noqa: E402
from trial import Build, Server, run_program, stop_with_servers, wait_until  # noqa: E402

DEVICES = {"SOFTGPU_DEVICES": "4"}
TRAINING = os.path.join(os.path.abspath(sys.argv[1]), "examples", "nccl", "data_parallel") if len(sys.argv) > 1 else ""
SOON = {"SOFTGPU_NCCL_TIMEOUT": "2"}  # seconds that ranks wait for each other


class Job:
    """Processes with ranks of one communicator, as a launcher starts them: each has its number, and a file in common."""

    def __init__(self, stack, program="nccl_ranks"):
        self.program = program
        self.folder = stack.enter_context(tempfile.TemporaryDirectory())
        self.results = {}

    def command(self, ranks, first, count, case, user=None, device=0):
        become = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups"] if user else []
        return become + [os.path.join(build.folder, "tests", self.program), os.path.join(self.folder, "id"), str(ranks), str(first),
                str(count), case, str(device)]

    def run_one(self, address, command, first):
        self.results[first] = build.run_remote(command, address)

    def run(self, places, count=1, case="all", while_running=None, ranks=None, as_user=None,
            own_device=False):
        """
        A process at each of `places`, with `count` ranks each, on the first devices or (own_device) each on the one of its number. Its
        results, in the order of the ranks.
        """
        ranks = ranks or len(places) * count
        threads = [threading.Thread(target=self.run_one, args=(
            place, self.command(ranks, i * count, count, case, (as_user or {}).get(i), i if own_device else 0), i * count))
            for i, place in enumerate(places)]
        for thread in threads:
            thread.start()
        if while_running:
            while_running()
        for thread in threads:
            thread.join()
        return [self.results[i * count] for i in range(len(places))]


class Ranks(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)

    def servers(self, n, tcp=True, environment=None, arguments=()):
        return [self.stack.enter_context(Server(build, tcp=tcp, arguments=arguments, environment=dict(DEVICES, **(environment or {}))))
                for _ in range(n)]

    def direct(self, ranks, case="all"):
        """What the ranks get in one process, directly on the software device."""
        job = Job(self.stack)
        result = build.run_direct(job.command(ranks, 0, ranks, case), environment=DEVICES)
        self.assertEqual(result.status, 0, result.report())
        return sorted(result.output.splitlines())

    def check(self, results, lines):
        for result in results:
            self.assertEqual(result.status, 0, result.report())
        self.assertEqual(sorted(line for result in results for line in result.output.splitlines()), lines)

    def test_one_server(self):
        for tcp in (True, False):
            (server,) = self.servers(1, tcp)
            self.check(Job(self.stack).run([server.address] * 4), self.direct(4))

    def test_suspended(self):
        """Ranks whose sessions are suspended and come back at any moment get the same."""
        one, other = self.servers(2, environment={"REMOTE_GPU_LOG": "info"})
        lines, times = self.direct(4), 0
        for _ in range(10):
            with Disturber(one, 1), Disturber(other, 2):
                self.check(Job(self.stack).run([one.address, one.address, other.address, other.address]), lines)
            times = sum(server.log().count(": is back after") for server in (one, other))
            if times > 4:
                break
        self.assertGreater(times, 4, one.log() + other.log())

    def test_two_servers(self):
        one, other = (server.address for server in self.servers(2))
        self.check(Job(self.stack).run([one, one, other, other]), self.direct(4))
        self.check(Job(self.stack).run([one, other], count=2), self.direct(4))

    def test_random_programs(self):
        one, other = (server.address for server in self.servers(2))
        for seed, (places, count) in enumerate((([one, one, other, other], 1), ([one, other], 2), ([one, other, one], 1), ([one, other], 1))):
            for result in Job(self.stack, "random_collectives").run(places, count, case=str(seed + 100)):
                self.assertEqual(result.status, 0, result.report())
                self.assertIn(" 0 wrong\n", result.output)

    def test_graphs(self):
        """Captured calls, in one process, in several, and on two servers."""
        one, other = (server.address for server in self.servers(2))
        lines = self.direct(4, "captured")
        for places, count in (([one], 4), ([one] * 4, 1), ([one, other], 2), ([one, one, other, other], 1)):
            self.check(Job(self.stack).run(places, count=count, case="captured"), lines)

    def test_every_process_has_all_servers(self):
        """As below one `remote-gpu run -n 4 --spread`: each process sees all GPUs, and uses one."""
        addresses = ",".join(server.address for server in self.servers(2, environment={"SOFTGPU_DEVICES": "2"}))
        self.check(Job(self.stack).run([addresses] * 4, own_device=True), self.direct(4))

    @unittest.skipUnless(shutil.which("mpirun"), "Open MPI is not installed (apt-get install openmpi-bin)")
    def test_by_mpirun(self):
        one, other = (server.address for server in self.servers(2))
        job = Job(self.stack)
        script = ("servers=(%s %s); exec %s run -s ${servers[OMPI_COMM_WORLD_RANK / 2]} -- %s %s/id 4 $OMPI_COMM_WORLD_RANK 1"
                  % (one, other, build.command, os.path.join(build.folder, "tests", "nccl_ranks"), job.folder))
        result = run_program(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4", "bash", "-c", script])
        self.check([result], self.direct(4))

    def test_one_process_on_two_servers(self):
        addresses = ",".join(server.address for server in self.servers(2, environment={"SOFTGPU_DEVICES": "1"}))
        self.check(Job(self.stack).run([addresses], count=2), self.direct(2))

    @unittest.skipUnless(os.path.exists(TRAINING), "the example is not built (it needs nvcc and NCCL's header)")
    def test_training_in_two_processes(self):
        job = Job(self.stack)
        threads = [threading.Thread(target=job.run_one, args=(
            server.address, [TRAINING, "200", str(rank), "2", os.path.join(job.folder, "id")], rank))
            for rank, server in enumerate(self.servers(2, environment={"SOFTGPU_DEVICES": "1"}))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in job.results.values():
            self.assertEqual(result.status, 0, result.report())
            self.assertIn("on 2\n", result.output)
        self.assertEqual(job.results[0].output, job.results[1].output)

    def test_no_gradient_through_a_client(self):
        addresses = [server.address for server in self.servers(2)]

        def sent(case):
            results = Job(self.stack).run(addresses, case=case)
            for result in results:
                self.assertEqual(result.status, 0, result.report())
            return sum(result.stats["bytes_sent"] + result.stats["bytes_received"] for result in results)
        few, many = sent("small"), sent("large")
        self.assertLess(many - few, 20000)  # 20 sums of 4 MiB instead of 4 bytes, of two ranks

    def told(self, results):
        """What each rank printed of its error: number and sentence."""
        lines = [line for result in results for line in result.output.splitlines() if " is told " in line]
        self.assertEqual(len(lines), len(results), "".join(result.report() for result in results))
        return [line.partition(" is told ")[2].partition(": ")[::2] for line in lines]

    def at_work(self, job):
        """Waits until the ranks have begun, and are between two sums."""
        self.assertTrue(wait_until(lambda: os.path.exists(os.path.join(job.folder, "id.working")), 60))

    def test_a_server_is_killed(self):
        one, other = self.servers(2)
        job = Job(self.stack)

        def kill():
            self.at_work(job)
            other.kill()
        results = job.run([one.address, one.address, other.address], case="fails", while_running=kill)
        for number, sentence in self.told(results):
            self.assertEqual(number, "6", sentence)
        self.assertIn("the connection to the process of rank 2 has ended", results[0].output + results[1].output)

    def test_the_others_go_on(self):
        one, two, other = self.servers(3)
        job = Job(self.stack)

        def kill():
            self.at_work(job)
            other.kill()
        results = job.run([one.address, two.address, one.address, other.address], case="shrinks", while_running=kill)
        for rank in range(3):
            self.assertIn("rank %d goes on as %d of 3: 6\n" % (rank, rank), results[rank].output, results[rank].report())

    def test_a_process_is_killed(self):
        (server,) = self.servers(1)
        job = Job(self.stack)

        def kill():
            self.at_work(job)
            os.kill(server.workers()[-1], 9)
        for number, sentence in self.told(job.run([server.address] * 3, case="fails", while_running=kill)):
            self.assertEqual(number, "6", sentence)

    def test_ranks_that_call_something_else(self):
        addresses = [server.address for server in self.servers(2)]
        for number, sentence in self.told(Job(self.stack).run(addresses, case="mismatch")):
            self.assertEqual(number, "6", sentence)
            self.assertIn("all ranks must call the same", sentence)
            self.assertIn("3000 elements", sentence)
            self.assertIn("3001 elements", sentence)

    def test_a_rank_that_does_not_call(self):
        addresses = [server.address for server in self.servers(2, environment={"SOFTGPU_NCCL_TIMEOUT": "1"})]
        for number, sentence in self.told(Job(self.stack).run(addresses, case="missing")):
            self.assertEqual(number, "6", sentence)
            self.assertIn("ncclAllReduce, collective 0", sentence)
            self.assertIn("rank 1 did not come within 1 s", sentence)

    def test_an_id_is_used_twice(self):
        addresses = [server.address for server in self.servers(2)]
        results = Job(self.stack).run(addresses, case="twice")
        self.assertNotIn("has failed", results[0].output, results[0].report())
        for number, sentence in self.told(results):
            self.assertEqual(number, "5", sentence)
            self.assertIn("each id is good for one communicator", sentence)

    def test_a_rank_that_does_not_come(self):
        addresses = [server.address for server in self.servers(2, environment={"SOFTGPU_NCCL_TIMEOUT": "1"})]
        job = Job(self.stack)
        results = job.run(addresses, ranks=3)
        for result in results:
            self.assertEqual(result.status, 3, result.report())
            self.assertIn("did not begin within 1 s: rank 2 did not come", result.output)

    def test_nobody_waits_for_the_beginning(self):
        addresses = [server.address for server in self.servers(2)]
        results = Job(self.stack).run(addresses, case="later")
        self.assertEqual([result.status for result in results], [0, 0], "".join(result.report() for result in results))
        self.assertEqual(len({result.output.rpartition(":")[2] for result in results}), 1)

    def apart(self, results, why):
        """Rank 1 is told why it does not find the others, and rank 0, in time, that it did not come."""
        for result in results:
            self.assertEqual(result.status, 3, result.report())
        self.assertIn("rank 1 did not come", results[0].output)
        self.assertIn("rank 1: ", results[1].output)
        self.assertIn(why, results[1].output)

    def test_servers_that_may_not_connect(self):
        (one,), (other,) = self.servers(1, environment=SOON), self.servers(1, environment=SOON, arguments=("--peers", "deny"))
        self.apart(Job(self.stack).run([one.address, other.address]), "--peers deny")
        # Sessions of one server are connected by no network. There, nobody is to be late on a busy machine.
        (patient,) = self.servers(1, arguments=("--peers", "deny"))
        self.check(Job(self.stack).run([patient.address] * 4), self.direct(4))

    def test_a_server_that_is_not_reached(self):
        """The clients reach both servers; the own server of rank 1 finds nobody at the address by which rank 0 knows the other."""
        one, other = self.servers(2, environment=SOON)
        relay = Relay(self.stack, one.address, takes_peers=False)
        self.apart(Job(self.stack).run([relay.address, other.address]), "could not connect to tcp://" + relay.address)

    @unittest.skipUnless(os.geteuid() == 0, "it takes root to be two users")
    def test_ranks_of_two_users(self):
        (server,) = self.servers(1, tcp=False, environment=SOON, arguments=("--allow-unauthenticated",))
        os.chmod(server.folder, 0o755)
        os.chmod(server.address.partition(":")[2], 0o777)
        job = Job(self.stack)
        os.chmod(job.folder, 0o777)
        self.apart(job.run([server.address] * 2, as_user={1: "65534"}), "all ranks of a communicator must be of one user")


if __name__ == "__main__":
    stop_with_servers()
    build = Build(sys.argv.pop(1))
    unittest.main(verbosity=2)
