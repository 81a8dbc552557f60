"""What servers of a pool are told: at rest what concerns them alone, however large the pool is, and all of it when they are asked."""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
import urllib.request

from pool_case import COMMAND, ENVIRONMENT, Etcd, PoolCase, Server, base64_of, gpu_run, main, run, wait_until

OTHERS = 200  # servers that are there in etcd alone
AT_REST = 5   # ranges that a server at rest watches at least


def name_of(i):
    return "%016x" % (0xabc0000 + i)


def is_stopped(process):
    with open("/proc/%d/stat" % process) as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


class Crowd:
    """Servers of which only their keys are there."""

    def __init__(self, etcd, n):
        self.etcd, self.n = etcd, n
        with etcd.ask("/v3/lease/grant", TTL="3600") as answer:
            self.lease = json.load(answer)["ID"]
        for i in range(n):
            self.change([self.put("servers/" + name_of(i), version=1, address="10.9.9.9:%d" % i, host="h%d" % i, etcd_lease=self.lease,
                                  agent=name_of(i), draining=False), self.gpu(i, [])])

    def change(self, operations):
        self.etcd.ask("/v3/kv/txn", success=operations).close()

    def put(self, key, **value):
        return {"request_put": {"key": base64_of("/remote-gpu/pools/lab/" + key), "value": base64_of(json.dumps(value)),
                                "lease": self.lease}}

    def gpu(self, i, granted):
        return self.put("servers/%s/gpus/0" % name_of(i), index=0, uuid="GPU-%d" % i, name="crowd", memory=1 << 30, granted=granted)

    def work(self, n):
        """So many leases of the others' GPUs come and go: four changes each."""
        for i in range(n):
            lease = name_of(1 << 20 | i)
            self.change([self.gpu(i % self.n, [{"lease": lease, "memory": 1 << 30}]),
                         self.put("leases/" + lease, user="3 x", kept=True, since=0, seconds=1, gpus=[])])
            self.etcd.ask("/v3/kv/deleterange", key=base64_of("/remote-gpu/pools/lab/leases/" + lease)).close()
            self.change([self.gpu(i % self.n, [])])


class ScopeCase(PoolCase):
    """A crowd, and two servers, A in the north and B in the south."""

    SOUTH = ()  # what B is told beside that

    @classmethod
    def setUpClass(cls):
        cls.etcd = Etcd()
        cls.addClassCleanup(cls.etcd.close)
        cls.crowd = Crowd(cls.etcd, OTHERS)
        cls.a = Server(cls.etcd.urls, "--pool-label", "room=north")
        cls.addClassCleanup(cls.a.close)
        cls.b = Server(cls.etcd.urls, "--pool-label", "room=south", *cls.SOUTH)
        cls.addClassCleanup(cls.b.close)

    def metric(self, name, etcd=None):
        with urllib.request.urlopen((etcd or self.etcd).client_url(0) + "/metrics", timeout=60) as answer:
            return float(re.search("^%s ([^ ]+)$" % name, answer.read().decode(), re.M).group(1))

    def told(self):
        return self.metric("etcd_debugging_mvcc_events_total")

    def look(self, server):
        """Returns when a server has been told of all that has changed: a change of its own comes back to it."""
        for undo in ((), ("--undo",)):
            outcome = server.drain(*undo)
            self.assertEqual(outcome.status, 0, outcome)

    def rest(self):
        """Has both servers come to rest: what they are asked is forgotten, and enough happens elsewhere."""
        self.crowd.work(OTHERS // 2 + 20)  # more changes than the pool has keys
        wait_until(lambda: self.metric("etcd_debugging_mvcc_watcher_total") >= 2 * AT_REST, "both servers watch single keys")
        self.look(self.a), self.look(self.b)

    def request(self, server, *arguments):
        outcome = run(COMMAND, "request", "--json", "-s", server.address, "--filter", "labels.room=south", *arguments)
        self.assertEqual(outcome.status, 0, outcome)
        return json.loads(outcome.out)["lease"]

    def granted(self):
        """What etcd says of the GPUs of B."""
        with self.etcd.ask("/v3/kv/range", key=base64_of("/remote-gpu/pools/lab/servers/"),
                           range_end=base64_of("/remote-gpu/pools/lab/servers0")) as answer:
            values = [json.loads(self.etcd.text(pair["value"])) for pair in json.load(answer)["kvs"]
                      if "/gpus/" in self.etcd.text(pair["key"])]
        return [share["lease"] for value in values if value["name"] != "crowd" for share in value["granted"]]

    def decider(self):
        """The server that decides for those at rest, as etcd has it; None: there is none."""
        with self.etcd.ask("/v3/kv/range", key=base64_of("/remote-gpu/pools/lab/decider")) as answer:
            pairs = json.load(answer).get("kvs", ())
        return json.loads(self.etcd.text(pairs[0]["value"]))["server"] if pairs else None

    def let_a_decide(self):
        self.rest()
        wait_until(lambda: not self.decider(), "a server at rest decides for nobody")
        name = next(server["id"] for server in self.pool(self.a)["servers"] if server["address"] == self.a.address)
        wait_until(lambda: self.decider() == name, "who is asked decides for others")
        self.look(self.b)

    def bound_for(self, lease):
        """For how many seconds etcd keeps a lease of the pool, if nothing else happens."""
        with self.etcd.ask("/v3/kv/range", key=base64_of("/remote-gpu/pools/lab/leases/" + lease)) as answer:
            (pair,) = json.load(answer)["kvs"]
        with self.etcd.ask("/v3/lease/timetolive", ID=pair["lease"]) as answer:
            return int(json.load(answer)["TTL"])


class Scope(ScopeCase):
    def test_a_server_that_nobody_asks_comes_to_rest(self):
        """Also one that has counted for all how much of the pool is granted."""
        etcd = self.keep(Etcd())
        for _ in range(2):
            self.server(etcd.urls)
        wait_until(lambda: self.metric("etcd_debugging_mvcc_watcher_total", etcd) >= 2 * AT_REST, "both watch single keys")

    def test_a_server_at_rest_is_told_of_nothing_that_is_not_its_own(self):
        self.rest()
        before = self.told()
        self.crowd.work(100)
        self.look(self.a), self.look(self.b)
        self.assertLess(self.told() - before, 40)  # of 400 changes, and two servers; some are their own
        servers = self.pool(self.a)["servers"]
        self.assertEqual(len(servers), OTHERS + 2)

    def test_who_is_asked_now_and_then_does_not_read_all_of_it_again(self):
        self.rest()
        self.pool(self.a)
        self.look(self.a)  # it watches by now what it was told
        watchers = self.metric("etcd_debugging_mvcc_watcher_total")
        self.crowd.work(OTHERS * 2 // 5)  # fewer changes than there are keys
        self.look(self.a)
        self.assertEqual(self.metric("etcd_debugging_mvcc_watcher_total"), watchers)

    def test_who_is_asked_knows_all(self):
        self.rest()
        self.crowd.change([self.crowd.gpu(7, [{"lease": name_of(9), "memory": 1 << 29}])])
        self.assertEqual(self.gpus(self.b)[("10.9.9.9:7", 0)], 0.5)
        self.crowd.change([self.crowd.gpu(7, [])])
        wait_until(lambda: self.gpus(self.b)[("10.9.9.9:7", 0)] == 1, "what changes is shown")

    def test_a_server_at_rest_serves_leases_that_others_grant(self):
        self.rest()
        for _ in range(3):
            outcome = gpu_run(self.a, "--filter", "labels.room=south", "-n", "2", "--wait-for")
            self.assertEqual(outcome.status, 0, outcome)
        running = self.running(self.a, "--filter", "labels.room=south", "--wait-for").wait_for("begun 1")
        before = self.told()
        self.crowd.work(20)
        self.look(self.b)
        self.assertIn("works", running.finish())
        self.assertLess(self.told() - before, 20 * 4 + 40)  # A alone is told of the others
        wait_until(lambda: self.gpus(self.a)[(self.b.address, 0)] == 1 == self.gpus(self.a)[(self.b.address, 1)], "B is free")

    def test_a_lease_is_renewed_by_a_server_at_rest(self):
        """It needs to know nothing of the rest of the pool for that."""
        lease = self.request(self.a, "--for", "1h")
        self.rest()
        outcome = run(COMMAND, "renew", lease, "-s", self.a.address, "--for", "2h")
        self.assertEqual(outcome.status, 0, outcome)
        self.look(self.a), self.look(self.b)
        self.assertGreaterEqual(self.metric("etcd_debugging_mvcc_watcher_total"), 2 * AT_REST)
        self.assertEqual(run(COMMAND, "release", "-s", self.a.address, lease).status, 0)
        wait_until(lambda: not self.granted(), "what was given back is free")

    def test_what_is_over_is_freed_by_a_server_at_rest(self):
        self.rest()
        kept, short = self.request(self.a, "--for", "1h"), self.request(self.a, "--for", "3s")
        self.assertEqual(sorted(self.granted()), sorted([kept, short]))
        wait_until(lambda: self.granted() == [kept], "the time of a lease is over")
        self.assertEqual(run(COMMAND, "renew", kept, "-s", self.a.address, "--for", "2h").status, 0)
        self.look(self.b)
        self.assertEqual(self.granted(), [kept])
        self.assertEqual(run(COMMAND, "run", "-s", self.a.address, "--lease", kept, "--", "true").status, 0)
        self.assertEqual(run(COMMAND, "release", "-s", self.a.address, kept).status, 0)
        wait_until(lambda: not self.granted(), "what was given back is free")

    def test_what_nobody_holds_any_more_is_freed_by_a_server_at_rest(self):
        """The agent that holds a lease for its client dies, and the client does not come back: no other change tells of it than its server's key."""
        self.rest()
        command = self.running(self.a, "--filter", "labels.room=south", program=("sleep", "1000"))
        wait_until(self.granted, "a GPU of B is granted")
        os.kill(command.process.pid, signal.SIGSTOP)
        wait_until(lambda: is_stopped(command.process.pid), "the client is stopped")  # not while it is starting its program
        os.kill(self.a.agent(), signal.SIGKILL)
        wait_until(lambda: not self.granted(), "it is free")

    def test_a_server_at_rest_has_another_decide_for_its_clients(self):
        self.let_a_decide()
        alone, done = self.b.log().count("decides itself"), self.a.log().count("granted for server")
        before = self.told()
        south = ("--filter", "labels.room=south", "--wait-for")
        running = [self.running(self.b, *south, *more).wait_for("begun 1") for more in ((), ("--project", "ml"))]
        self.crowd.work(20)
        self.look(self.b)
        self.assertLess(self.told() - before, 20 * 4 + 80)  # A alone is told of the others
        self.assertEqual(self.a.log().count("granted for server"), done + 2)
        self.assertEqual(self.b.log().count("decides itself"), alone)
        for one in running:
            self.assertIn("works", one.finish())
        wait_until(lambda: not self.granted(), "all is given back")
        self.assertEqual(self.pool(self.a)["leases"], [])

    def test_a_lease_that_is_kept_is_decided_by_another_as_well(self):
        """Where no quota is about what its owner holds, the server at rest needs to know nothing of the pool."""
        self.let_a_decide()
        alone, done = self.b.log().count("decides itself"), self.a.log().count("granted for server")
        before = self.told()
        kept, short = self.request(self.b, "--for", "1h"), self.request(self.b, "--for", "3s")
        self.crowd.work(20)
        self.look(self.b)
        self.assertLess(self.told() - before, 20 * 4 + 80)  # A alone is told of the others
        self.assertEqual(self.a.log().count("granted for server"), done + 2)
        self.assertEqual(self.b.log().count("decides itself"), alone)
        self.assertGreater(self.bound_for(kept), 3500)
        (lease,) = [one for one in self.pool(self.a)["leases"] if one["lease"] == kept]
        self.assertTrue(lease["kept"])
        self.assertAlmostEqual(lease["expires"], time.time() + 3600, delta=60)
        wait_until(lambda: self.granted() == [kept], "the time of the short one is over")
        os.kill(self.b.agent(), signal.SIGKILL)  # whoever held it before it was kept
        self.b.wait_for_log("in the pool lab as", times=self.b.log().count("in the pool lab as") + 1)
        self.look(self.b)
        self.assertEqual(self.granted(), [kept])
        self.assertEqual(run(COMMAND, "run", "-s", self.b.address, "--lease", kept, "--", "true").status, 0)
        self.assertEqual(run(COMMAND, "release", "-s", self.b.address, kept).status, 0)
        wait_until(lambda: not self.granted(), "what was given back is free")

    def test_a_lease_that_is_kept_and_has_to_wait(self):
        """The decider cannot grant it: its server decides when something is free, and its time begins then."""
        self.let_a_decide()
        held = self.running(self.a, "--filter", "labels.room=south", "-n", "2").wait_for("begun 2")
        south = ("request", "--json", "-s", self.b.address, "--filter", "labels.room=south", "--for", "1h")
        self.assert_refused(run(COMMAND, *south), "lease-not-free")
        waiting = subprocess.Popen([COMMAND, *south, "--wait-for=60"], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: self.pool(self.a)["waiting"] == 1, "it waits")
        time.sleep(1)
        self.assertIn("works", held.finish())
        out, err = waiting.communicate(timeout=240)
        self.assertEqual(waiting.returncode, 0, err)
        lease = json.loads(out)["lease"]
        self.assertGreater(self.bound_for(lease), 3500)
        self.assertEqual(run(COMMAND, "release", "-s", self.b.address, lease).status, 0)
        wait_until(lambda: not self.granted(), "what was given back is free")

    def test_a_server_whose_decider_does_not_answer_decides_itself(self):
        self.let_a_decide()
        alone, agent = self.b.log().count("decides itself"), self.a.agent()
        os.kill(agent, signal.SIGSTOP)
        try:
            outcome = gpu_run(self.b, "--filter", "labels.room=south", "--wait-for")
            self.assertEqual(outcome.status, 0, outcome)
        finally:
            os.kill(agent, signal.SIGCONT)
        self.assertEqual(self.b.log().count("decides itself"), alone + 1)
        wait_until(lambda: not self.granted(), "it is given back")

    def test_a_server_whose_decider_dies_decides_itself(self):
        self.let_a_decide()
        os.kill(self.a.agent(), signal.SIGKILL)
        for _ in range(3):
            outcome = gpu_run(self.b, "--filter", "labels.room=south", "--wait-for")
            self.assertEqual(outcome.status, 0, outcome)
        self.look(self.a)
        wait_until(lambda: not self.granted(), "all is given back")

    def test_what_cannot_be_granted_is_refused_where_another_decides(self):
        self.let_a_decide()
        held = self.running(self.a, "--filter", "labels.room=south", "-n", "2").wait_for("begun 2")
        south = ("--filter", "labels.room=south")
        self.assert_refused(gpu_run(self.b, *south), "lease-not-free")
        self.rest()
        self.assert_refused(gpu_run(self.b, *south, "-n", "9"), "lease-impossible")
        self.rest()
        self.assert_refused(gpu_run(self.b, *south, "--wait-for=1"), "lease-waited")
        waiting = self.running(self.b, *south, "--wait-for").wait_for("waiting")
        self.assertIn("works", held.finish())
        self.assertIn("works", waiting.wait_for("begun 1").finish())
        wait_until(lambda: not self.granted(), "all is given back")

    def test_a_lease_of_a_version_before_is_watched_with_all_servers(self):
        """It does not say on which server its holder is."""
        self.rest()
        lease = name_of(5 << 20)
        with self.etcd.ask("/v3/kv/range", key=base64_of("/remote-gpu/pools/lab/servers/"),
                           range_end=base64_of("/remote-gpu/pools/lab/servers0")) as answer:
            pair = next(pair for pair in json.load(answer)["kvs"] if "/gpus/0" in self.etcd.text(pair["key"])
                        and json.loads(self.etcd.text(pair["value"]))["name"] != "crowd")
        key, value = (self.etcd.text(pair[part]) for part in ("key", "value"))
        server = key.split("/")[-3]
        gpu = dict(json.loads(value), granted=[{"lease": lease, "memory": 1 << 20}])
        held = {"user": "3 x", "name": "x", "holder": name_of(3), "kept": False, "gpus": [{"server": server, "index": 0}], "since": 1}
        self.crowd.change([{"request_put": {"key": pair["key"], "value": base64_of(json.dumps(gpu)), "lease": pair["lease"]}},
                           self.crowd.put("leases/" + lease, **held)])
        self.look(self.a), self.look(self.b)
        self.assertEqual(self.granted(), [lease])
        self.crowd.change([{"request_delete_range": {"key": base64_of("/remote-gpu/pools/lab/servers/" + name_of(3))}}])
        wait_until(lambda: not self.granted(), "its holder has gone, and it is free")
        self.crowd.change([self.crowd.put("servers/" + name_of(3), version=1, address="10.9.9.9:3", host="h3", etcd_lease=self.crowd.lease,
                                          agent=name_of(3), draining=False)])


class Quotas(ScopeCase):
    """B allows everybody one GPU of the pool."""

    @classmethod
    def setUpClass(cls):
        with tempfile.NamedTemporaryFile("w", prefix="remote-gpu-rules-", suffix=".json", delete=False) as file:
            json.dump({"default": {"quota": {"gpus": 1}}}, file)
        cls.addClassCleanup(os.unlink, file.name)
        cls.SOUTH = ("--rules", file.name)
        super().setUpClass()

    def test_a_lease_that_is_kept_counts_where_a_quota_is_about_that(self):
        """Then the server at rest reads all of the pool first."""
        self.let_a_decide()
        done = self.a.log().count("granted for server")
        wish = ("request", "--json", "-s", self.b.address, "--filter", "labels.room=south", "--for", "1h")
        outcome = run(COMMAND, *wish)
        self.assertEqual(outcome.status, 0, outcome)
        self.assert_refused(run(COMMAND, *wish), "quota-gpus")
        self.assertEqual(self.a.log().count("granted for server"), done)
        self.assertEqual(run(COMMAND, "release", "-s", self.b.address, json.loads(outcome.out)["lease"]).status, 0)
        wait_until(lambda: not self.granted(), "what was given back is free")


if __name__ == "__main__":
    main()
