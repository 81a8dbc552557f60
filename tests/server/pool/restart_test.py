"""A server that has died and is started anew is in the pool once; one that lives keeps its place, whatever is started beside it."""

import json
import os
import shutil
import signal
import sys
import tempfile

from pool_case import BUILD, COMMAND, Etcd, PoolCase, agent_of, end, gpu_run, main, run, wait_until

CARD = os.path.join(BUILD, "tests", "daemon", "card_libcuda.so")  # no software device to the server: a machine has each of its GPUs once


def crash(server):
    """Has all of a server end at one moment, as with its machine: nobody tells etcd."""
    agent = agent_of(server.process)
    if agent:
        os.kill(agent, signal.SIGSTOP)
    end(server.process)
    if agent:
        os.kill(agent, signal.SIGKILL)


class Restart(PoolCase):
    NORTH = ("--pool-label", "room=north")
    IN_NORTH = ("--filter", "labels.room=north")

    def addresses(self, server):
        return sorted(member["address"] for member in self.pool(server)["servers"])

    def both(self, etcd, *arguments, **more):
        first = self.server(etcd.urls, *self.NORTH, *arguments, **more)
        other = self.server(etcd.urls)
        wait_until(lambda: self.addresses(other) == sorted([first.address, other.address]), "both are in the pool")
        return first, other

    def test_a_server_that_has_crashed_is_there_once(self):
        """As soon as it is back, nothing is left of what it was, and what was granted then is free."""
        etcd = self.keep(Etcd())
        first, other = self.both(etcd)
        outcome = run(COMMAND, "request", "--json", "-s", other.address, *self.IN_NORTH, "--for", "1h")
        self.assertEqual(outcome.status, 0, outcome)
        kept = json.loads(outcome.out)["lease"]
        self.running(other, *self.IN_NORTH).wait_for("begun 1")
        crash(first)
        again = self.server(etcd.urls, *self.NORTH, state=first.state)
        self.assertEqual(self.addresses(again), sorted([again.address, other.address]))
        self.assertRegex(again.log(), r"the run of this server that was [0-9a-f]{16} there has died, and has left")
        leases = self.pool(again)["leases"]
        self.assertEqual([(lease["lease"], lease["gone"]) for lease in leases], [(kept, 1)])
        self.assertEqual([free for (address, _), free in self.gpus(again).items() if address == again.address], [1, 1])
        outcome = gpu_run(other, *self.IN_NORTH, "-n", "2", "--wait-for=60",
                          program=(sys.executable, "-c", "import os; print(os.environ['REMOTE_GPU_SERVER'])"))
        self.assertEqual(outcome.status, 0, outcome)
        self.assertIn(again.address, outcome.out)
        wait_until(lambda: len(os.listdir(os.path.join(first.state, "pool"))) == 1, "the files of runs before are gone")

    def test_one_that_has_crashed_again_before_it_was_back(self):
        etcd = self.keep(Etcd())
        first, other = self.both(etcd)
        crash(first)
        crash(self.server("http://127.0.0.1:1", *self.NORTH, state=first.state, wait=False))
        again = self.server(etcd.urls, *self.NORTH, state=first.state)
        self.assertEqual(self.addresses(again), sorted([again.address, other.address]))

    def test_one_that_lives_is_left_alone(self):
        """As an old version that waits for its sessions to end: another server of the same folder takes nothing from it."""
        etcd = self.keep(Etcd())
        first, other = self.both(etcd)
        running = self.running(other, *self.IN_NORTH, "-n", "2").wait_for("begun 2")
        self.assertEqual(first.drain().status, 0)
        second = self.server(etcd.urls, *self.NORTH, state=first.state)
        self.assertEqual(self.addresses(second), sorted([first.address, second.address, other.address]))
        self.assertEqual(gpu_run(other, *self.IN_NORTH, "-n", "2", "--wait-for=60").status, 0)
        self.assertIn("works", running.finish())
        self.assertEqual(first.log().count("in the pool lab as"), 1, "it was never forgotten")
        self.assertNotIn("has died", second.log())

    def test_a_stopped_one_is_no_dead_one(self):
        """It does not answer, and is alive."""
        etcd = self.keep(Etcd())
        first, other = self.both(etcd)
        first.process.send_signal(signal.SIGSTOP)
        try:
            second = self.server(etcd.urls, *self.NORTH, state=first.state)
            self.assertIn(first.address, self.addresses(second))
        finally:
            first.process.send_signal(signal.SIGCONT)
        self.assertNotIn("has died", second.log())

    def test_a_copy_of_the_folder_speaks_for_nobody(self):
        etcd = self.keep(Etcd())
        first, other = self.both(etcd)
        folder = tempfile.TemporaryDirectory(prefix="remote-gpu-copy-")
        self.addCleanup(folder.cleanup)
        copy = os.path.join(folder.name, "state")
        shutil.copytree(first.state, copy, ignore=shutil.ignore_patterns("requests"))  # a socket
        second = self.server(etcd.urls, *self.NORTH, state=copy)
        self.assertEqual(self.addresses(second), sorted([first.address, second.address, other.address]))
        self.assertEqual(first.log().count("in the pool lab as"), 1, "it was never forgotten")

    def card(self, etcd, **more):
        return self.server(etcd.urls, gpus=1, driver=CARD, environment={"SOFTGPU_BEHAVE": "nvidia:init=0:context=0"}, **more)

    def test_one_that_was_started_twice_by_mistake_stays_outside(self):
        """Each of a machine's GPUs is in the pool once. The second comes when the first has gone."""
        etcd = self.keep(Etcd())
        first = self.card(etcd)
        second = self.card(etcd, wait=False)
        second.wait_for_log("has this server's GPU-63636363-")
        self.assertEqual(self.addresses(first), [first.address])
        outcome = gpu_run(second)
        self.assert_refused(outcome, "stop one of the two", "CUDA_VISIBLE_DEVICES")
        self.assertEqual(gpu_run(first).status, 0)
        self.assertEqual(second.log().count("has this server's GPU-"), 1, "it is said once")
        first.process.terminate()
        first.process.wait(60)
        second.wait_for_log("in the pool lab as")
        self.assertEqual(self.addresses(second), [second.address])
        self.assertEqual(gpu_run(second, "--wait-for=60").status, 0)

    def test_one_that_has_crashed_and_left_no_trace_is_waited_for(self):
        """Its folder has gone with it: etcd forgets it in its time, and its GPUs are never there twice."""
        etcd = self.keep(Etcd())
        first = self.card(etcd)
        crash(first)
        second = self.card(etcd, wait=False)
        second.wait_for_log("in the pool lab as")
        self.assertEqual(self.addresses(second), [second.address])
        self.assertIn("if it has crashed, etcd forgets it within", second.log())


if __name__ == "__main__":
    main()
