"""What a pool gives out: membership, grants to one and several servers, waiting, shares, leases that are kept, draining."""

import json
import os
import re
import shutil
import signal
import sys
import unittest
import urllib.request

from pool_case import (BUILD, COMMAND, PROGRAM, Etcd, PoolCase, Running, Server, child_of, gpu_run, main, run, wait_until)

ECHO = ("sh", "-c", "echo lease $REMOTE_GPU_LEASE on $REMOTE_GPU_SERVER")


class Grants(PoolCase):
    """Two servers with two GPUs each, and one etcd, for all of these."""

    @classmethod
    def setUpClass(cls):
        cls.etcd = Etcd()
        cls.addClassCleanup(cls.etcd.close)
        cls.a = Server(cls.etcd.urls, "--pool-label", "room=north")
        cls.addClassCleanup(cls.a.close)
        cls.b = Server(cls.etcd.urls, "--pool-label", "room=south")
        cls.addClassCleanup(cls.b.close)

    def setUp(self):
        wait_until(lambda: len(self.pool(self.a)["servers"]) == 2, "both servers are in the pool")
        self.wait_free(self.a, 4)

    def test_any_member_shows_the_pool(self):
        for server in (self.a, self.b):
            self.assertEqual({member["address"] for member in self.pool(server)["servers"]},
                             {self.a.address, self.b.address})
        text = run(COMMAND, "list", "-s", self.b.address).out
        self.assertIn("pool lab: 2 servers, 4 GPUs, 4 free, 0 waiting", text)

    def test_a_server_says_by_itself_that_it_is_in_the_pool_and_who_gets_what(self):
        server = self.server(self.etcd.urls, "--pool-label", "room=west", gpus=1, log=())
        self.assertEqual(gpu_run(server, "--filter", "labels.room=west").status, 0)
        server.wait_for_log("gets 1 GPU of the pool")

    def transactions(self):
        """How many etcd was asked for so far."""
        with urllib.request.urlopen(self.etcd.client_url(0) + "/metrics", timeout=60) as answer:
            return sum(float(n) for n in re.findall(r'^grpc_server_handled_total\{.*grpc_method="Txn".*\} (\S+)$', answer.read().decode(), re.M))

    def test_what_is_free_is_granted_without_the_queue(self):
        n, before = 10, self.etcd.revision()
        for i in range(n):
            asked = (self.a, self.b)[i % 2]
            kept = run(COMMAND, "request", "--json", "-s", asked.address, "--filter", "labels.room=north")
            self.assertEqual(kept.status, 0, kept)
            self.assertEqual(run(COMMAND, "release", "-s", asked.address, json.loads(kept.out)["lease"]).status, 0)
            self.assertEqual(gpu_run(asked, "-n", "2").status, 0)
            for server in (self.a, self.b):
                self.wait_free(server, 4)
        changes = self.etcd.changes(before)
        self.assertEqual([key for key in changes if key.startswith("requests/")], [])
        self.assertEqual(sum(key.startswith("leases/") for key in changes), 2 * 2 * n)  # each is written, and removed
        self.assertEqual(sum("/gpus/" in key for key in changes), 2 * 3 * n)

    def test_who_comes_to_a_queue_is_behind_it(self):
        first = self.running(self.a, "-n", "2", "--filter", "labels.room=north").wait_for("begun 2")
        big = self.running(self.b, "-n", "2", "--filter", "labels.room=north", "--wait-for", program=ECHO)
        big.wait_for("1 of 1 in the queue")
        self.assertRegex(run(COMMAND, "list", "-s", self.b.address).out, r"\n  waits at place 1, for \d+ s: .*, for 2 GPUs\n")
        before = self.etcd.revision()
        small = self.running(self.a, "--wait-for", program=ECHO)
        self.assertEqual(small.process.wait(60), 0, small.err())
        self.assertIn("on " + self.b.address, small.out())
        self.assertEqual(sum(key.startswith("requests/") for key in self.etcd.changes(before)), 2)
        first.finish()
        self.assertEqual(big.process.wait(60), 0, big.err())
        self.wait_free(self.a, 4)

    def test_etcd_is_asked_for_nothing_that_cannot_succeed(self):
        """A grant and its GPU's freeing are a transaction each; what is used is written now and then."""
        n, before = 10, self.transactions()
        for _ in range(n):
            outcome = run(COMMAND, "request", "--json", "-s", self.a.address, "--filter", "labels.room=north")
            self.assertEqual(outcome.status, 0, outcome)
            self.assertEqual(run(COMMAND, "release", "-s", self.a.address, json.loads(outcome.out)["lease"]).status, 0)
            self.wait_free(self.a, 4)
        self.assertLess(self.transactions() - before, 5 * n)

    def test_a_program_runs_where_its_filter_says(self):
        for asked in (self.a, self.b):
            outcome = gpu_run(asked, "--filter", "labels.room=south", program=ECHO)
            self.assertEqual(outcome.status, 0, outcome)
            self.assertRegex(outcome.out, r"^lease [0-9a-f]{16}/[01] on %s$" % self.b.address)
        outcome = gpu_run(self.a, "--filter", "labels.room=south",
                          program=(os.path.join(BUILD, "examples", "vector_add"),))
        self.assertIn("vector_add: ok", outcome.out, outcome)
        self.assertIn("session 1 starts", self.b.log())
        self.wait_free(self.a, 4)

    def test_several_servers(self):
        outcome = gpu_run(self.a, "-n", "3")
        self.assert_refused(outcome, "3 .*GPUs on one server", "--spread")
        running = self.running(self.a, "-n", "3", "--spread").wait_for("begun 3")
        self.assertEqual(sum(free < 1 for free in self.gpus(self.b).values()), 3)
        self.assertIn("works", running.finish())
        self.wait_free(self.b, 4)

    def test_who_waits_is_told_and_served(self):
        first = self.running(self.a, "-n", "2", "--filter", "labels.room=north").wait_for("begun 2")
        outcome = gpu_run(self.b, "--filter", "labels.room=north")
        self.assert_refused(outcome, "waits for", "--wait-for", r"\[lease-not-free\]")
        outcome = gpu_run(self.b, "--filter", "labels.room=north", "--wait-for=1")
        self.assert_refused(outcome, "no GPUs in the time of --wait-for", r"\[lease-waited\]")
        second = self.running(self.b, "--filter", "labels.room=north", "--wait-for", program=ECHO)
        second.wait_for("1 of 1 in the queue")
        self.assertEqual(self.pool(self.a)["waiting"], 1)
        os.kill(first.process.pid, signal.SIGKILL)  # and with it its hold
        self.assertEqual(second.process.wait(60), 0)
        self.assertIn("on " + self.a.address, second.out())
        self.wait_free(self.a, 4)

    def test_who_leaves_the_queue_is_forgotten(self):
        self.running(self.a, "-n", "2", "--filter", "labels.room=north").wait_for("begun 2")
        second = self.running(self.b, "--filter", "labels.room=north", "--wait-for", program=ECHO)
        second.wait_for("1 of 1 in the queue")
        second.close()
        wait_until(lambda: self.pool(self.a)["waiting"] == 0, "nobody waits")

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("unshare"), "only root makes namespaces of processes")
    def test_the_first_process_of_a_container_that_waits_ends_when_told(self):
        """Signals do nothing to it by themselves."""
        self.running(self.a, "-n", "2", "--filter", "labels.room=north").wait_for("begun 2")
        second = self.keep(Running(self.b, "--filter", "labels.room=north", "--wait-for", program=ECHO,
                                   prefix=("unshare", "--pid", "--fork", "--mount-proc")))
        second.wait_for("in the queue")
        os.kill(child_of(second.process, "remote-gpu"), signal.SIGTERM)
        self.assertEqual(second.process.wait(60), 128 + signal.SIGTERM, second.err())
        wait_until(lambda: self.pool(self.a)["waiting"] == 0, "the queue is empty")

    def test_no_gpu_is_granted_twice(self):
        """Twelve at once for four GPUs by both members: each notes when it has its GPU and when it has not any more."""
        folder = self.a.folder.name
        note = ("sh", "-c", "gpu=$(echo $REMOTE_GPU_SERVER/${REMOTE_GPU_LEASE#*/} | tr /: __); mkdir %s/held.$gpu || exit 9; "
                "sleep 0.1; rmdir %s/held.$gpu" % (folder, folder))
        runs = [self.running((self.a, self.b)[i % 2], "--wait-for", program=note) for i in range(12)]
        for one in runs:
            self.assertEqual(one.process.wait(120), 0, one.err())
        self.wait_free(self.a, 4)

    def test_parts_of_a_gpu(self):
        here = ("--filter", "labels.room=north", "--filter", "device.index=0")
        first = self.running(self.a, "-p", "0.5", *here).wait_for("begun 1")
        second = self.running(self.b, "-p", "0.5", *here).wait_for("begun 1")
        self.assertAlmostEqual(self.gpus(self.a)[(self.a.address, 0)], 0, 3)
        self.assert_refused(gpu_run(self.a, "-p", "0.25", *here))
        sessions = json.loads(run(COMMAND, "list", "--json", "-s", self.a.address).out)["servers"][0]["sessions"]
        limits = [device["memory_limit"] for session in sessions for device in session["share"]["devices"]]
        self.assertEqual(len(limits), 2)
        self.assertTrue(all(limits), "a part of a GPU is a limit of its session")
        first.finish(), second.finish()

    def test_a_lease_that_is_kept(self):
        outcome = run(COMMAND, "request", "--json", "-s", self.a.address, "-n", "2", "--for", "1h")
        self.assertEqual(outcome.status, 0, outcome)
        lease = json.loads(outcome.out)["lease"]
        for asked in (self.a, self.b):
            outcome = gpu_run(asked, "--lease", lease, program=ECHO)
            self.assertIn("lease " + lease, outcome.out, outcome)
        self.assertEqual(sum(free < 1 for free in self.gpus(self.b).values()), 2)
        running = self.running(self.b, "--lease", lease).wait_for("begun 2")
        outcome = run(COMMAND, "release", "-s", self.b.address, lease)
        self.assertEqual(outcome.status, 0, outcome)
        wait_until(lambda: "ends: the lease of the pool" in self.a.log() + self.b.log(), "the session has ended")
        running.close()
        self.wait_free(self.a, 4)
        self.assert_refused(gpu_run(self.a, "--lease", lease), "no such lease")
        self.assert_refused(run(COMMAND, "release", "-s", self.b.address, lease), "no such lease")

    def test_the_time_of_a_kept_lease(self):
        outcome = run(COMMAND, "request", "-s", self.a.address, "--for", "2")
        self.assertEqual(outcome.status, 0, outcome)
        self.wait_free(self.b, 4)

    def test_sessions_need_a_lease(self):
        program = (sys.executable, "-u", "-c", PROGRAM)
        stage = os.path.join(BUILD, "stage", "lib", "remote-gpu")
        for lease, text in (("", "given out by the pool lab"), ("00000000deadbeef/0", "no GPU of this server")):
            outcome = run(*program, LD_LIBRARY_PATH=stage, REMOTE_GPU_SERVER=self.a.address, REMOTE_GPU_LEASE=lease)
            self.assertIn("failed", outcome.out, outcome)
            self.assertIn(text, outcome.err)

    def test_a_session_has_no_gpu_beyond_its_lease(self):
        here = ("--filter", "labels.room=north", "--filter", "device.index=0")
        other = "REMOTE_GPU_LEASE=${REMOTE_GPU_LEASE%%/*}/1; export REMOTE_GPU_LEASE; exec \"$0\" -u -c \"$1\""
        outcome = gpu_run(self.a, *here, program=("sh", "-c", other, sys.executable, PROGRAM))
        self.assertIn("does not have the GPUs", outcome.err, outcome)

    def test_taints(self):
        kept_away = Server(self.etcd.urls, "--pool-taint", "team=red", "--pool-label", "room=east", gpus=1)
        self.addCleanup(kept_away.close)
        here = ("--filter", "labels.room=east")
        wait_until(lambda: len(self.pool(self.a)["servers"]) == 3, "it is in the pool")
        shown = next(line for line in run(COMMAND, "list", "-s", self.a.address).out.splitlines() if "  %s: " % kept_away.address in line)
        self.assertTrue(shown.endswith(", room=east, taints: team=red"), shown)
        for words in ((), ("--tolerate", "team=blue"), ("--tolerate", "other")):
            self.assert_refused(gpu_run(self.a, *here, *words, "--wait-for"), "does not tolerate their taints", r"\[lease-impossible\]")
        for words in (("--tolerate", "team"), ("--tolerate", "team=red,other")):
            # the GPU of the one before is free once its server has seen that the lease is over
            self.assertEqual(gpu_run(self.b, *here, *words, "--wait-for").status, 0)

    def test_draining(self):
        running = self.running(self.a, "--filter", "labels.room=north").wait_for("begun 1")
        outcome = self.a.drain()
        self.assertEqual(outcome.status, 0, outcome)
        # at once: no waiting here
        self.assert_refused(gpu_run(self.b, "--filter", "labels.room=north"))
        other = self.running(self.b, "--filter", "labels.room=south", program=ECHO)
        self.assertEqual(other.process.wait(60), 0, other.err())
        self.assertIn("works", running.finish())
        self.assertEqual(self.a.drain("--wait").status, 0)
        self.assertEqual(self.a.drain("--undo").status, 0)
        self.assertEqual(gpu_run(self.b, "--filter", "labels.room=north").status, 0)


if __name__ == "__main__":
    main()
