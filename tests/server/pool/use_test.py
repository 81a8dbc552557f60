"""What the pool remembers of use, and commands that speak for all of a pool: fair shares over time, quota, usage, smi, health."""

import base64
import json
import os
import signal
import time
import urllib.request

from pool_case import Etcd, Server, UsersCase, main, wait_until

PREFIX = "/remote-gpu/pools/lab/"


class Use(UsersCase):
    """Two servers with one GPU each."""

    NAMES = ("alice", "bob", "carol", "robot")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.etcd = Etcd()
        cls.addClassCleanup(cls.etcd.close)
        cls.options = (*cls.trust, "--accounts", "on", "--pool-operators", "robot")
        cls.a, cls.b = (Server(cls.etcd.urls, *cls.options, gpus=1) for _ in range(2))
        for server in (cls.a, cls.b):
            cls.addClassCleanup(server.close)

    def etcd_call(self, path, **body):
        request = urllib.request.Request(self.etcd.urls + path, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def pool_of(self, user, *words):
        """What `quota` says of the pool; its exit status says that no quota is used up."""
        outcome = self.by(user, "quota", "--json", "-s", self.b.address, *words)
        self.assertEqual(outcome.status, 0, outcome)
        return json.loads(outcome.out)["servers"][0]["pool"]

    def test_who_has_used_less_comes_first(self):
        outcome = self.by("alice", "run", "-s", self.a.address, "--project", "p", "--", "sleep", "1")
        self.assertEqual(outcome.status, 0, outcome)
        wait_until(lambda: self.pool_of("alice")["users"].get("alice", 0) >= 900, "alice's use is known in the pool")
        self.assertEqual(self.pool_of("bob")["users"], {})
        self.assertGreaterEqual(self.pool_of("alice", "--project", "p")["projects"]["p"], 900)
        self.assertIn("alice", self.pool_of("robot")["users"])
        outcome = self.by("carol", "request", "--json", "-s", self.a.address, "-n", "2", "--spread")
        lease = json.loads(outcome.out)["lease"]
        self.assertEqual(self.pool_of("carol")["held"]["gpus"], 2)
        first = self.running(self.a, "--wait-for", **self.users["alice"]).wait_for("in the queue")
        second = self.running(self.b, "--wait-for", **self.users["bob"]).wait_for("in the queue")
        wait_until(lambda: (self.position(second), self.position(first)) == (1, 2), "bob comes before alice, who asked earlier")
        self.assertEqual(self.by("robot", "release", "-s", self.a.address, lease).status, 0)
        for running in (first, second):
            running.wait_for("begun 1")
            self.assertIn("works", running.finish())

    @staticmethod
    def position(running):
        """The place in the queue that it was told last."""
        return int(running.err().rsplit(" in the queue", 1)[0].rsplit(": ", 1)[1].split(" of ")[0])

    def test_what_a_server_has_left_behind(self):
        value = {"as_of": int(time.time()) - 100, "users": {"3 dave": 3600000}, "projects": {}}
        key = base64.b64encode((PREFIX + "usage/ffffffffffffffff").encode()).decode()
        self.etcd_call("/v3/kv/put", key=key, value=base64.b64encode(json.dumps(value).encode()).decode())
        wait_until(lambda: "kvs" not in self.etcd_call("/v3/kv/range", key=key), "a server has taken it over")
        used = wait_until(lambda: self.pool_of("robot")["users"].get("dave"), "it is known")
        self.assertAlmostEqual(used, 3600000, delta=3600)
        for server in (self.a, self.b):
            os.kill(server.agent(), 9)
            server.wait_for_log("in the pool lab as", times=server.log().count("in the pool lab as") + 1)
        self.assertAlmostEqual(self.pool_of("robot")["users"]["dave"], 3600000, delta=3600)

    def test_all_of_the_pool(self):
        for command in ("smi", "usage", "health"):
            outcome = self.by("alice", command, "--json", "-s", self.b.address)
            self.assertEqual(outcome.status, 0, outcome)
            self.assertEqual({server["address"] for server in json.loads(outcome.out)["servers"]},
                             {self.a.address, self.b.address}, command)
            outcome = self.by("alice", command, "--json", "-s", self.b.address, "--server-only")
            self.assertEqual(len(json.loads(outcome.out)["servers"]), 1, command)
        self.assertIn("pool lab", self.by("alice", "quota", "-s", self.a.address).out)

    def test_health(self):
        other = Server(self.etcd.urls, *self.options, gpus=1)
        self.addCleanup(other.close)
        wait_until(lambda: other.address in self.by("alice", "health", "-s", self.a.address).out, "it is in the pool")
        self.assertEqual(other.drain().status, 0)
        outcome = wait_until(lambda: next((o for o in [self.by("alice", "health", "-s", self.a.address)] if "note" in o.out), None),
                             "the pool knows that it drains")
        self.assertEqual(outcome.status, 0, outcome)
        self.assertIn("it is draining", outcome.out)
        os.kill(other.process.pid, signal.SIGSTOP)
        try:
            outcome = self.by("alice", "health", "-s", self.a.address, "--timeout", "1")
        finally:
            os.kill(other.process.pid, signal.SIGCONT)
        self.assertEqual(outcome.status, 1, outcome)
        self.assertIn(other.address + ": not well", outcome.out)
        self.assertEqual(self.by("alice", "health", "-s", "127.0.0.1:1").status, 1)


if __name__ == "__main__":
    main()
