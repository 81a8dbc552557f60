"""A pool with many: a thousand users with quotas and use, more servers and leases than fit into one answer."""

import json
import os
import time

from pool_case import Etcd, Server, UsersCase, base64_of, main, wait_until

PREFIX = "/remote-gpu/pools/lab/"
USERS, SERVERS, LEASES, QUEUE = 1000, 60, 120, 40
HOUR = 3600000  # GPU milliseconds


def user(i):
    """As long as names of workloads are, and in no order of their numbers."""
    return "spiffe://training.gpus.example.org/ns/team-%02d-of-the-institute/sa/training-job-of-%04d" % (i * 7 % 40, i)


class Many(UsersCase):
    """One real server with two GPUs; `robot` is an operator. Each user may hold one GPU."""

    NAMES = ("robot",)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rules = os.path.join(cls.class_folder, "rules.json")
        with open(rules, "w") as file:
            json.dump({"users": {user(i): {"quota": {"gpus": 1}} for i in range(USERS)},
                       "projects": {"p%02d" % p: {"members": [user(i) for i in range(p, USERS, 40)]} for p in range(40)}}, file)
        cls.etcd = Etcd()
        cls.addClassCleanup(cls.etcd.close)
        cls.server = Server(cls.etcd.urls, *cls.trust, "--rules", rules, "--accounts", "on", "--pool-operators", "robot")
        cls.addClassCleanup(cls.server.close)

    @classmethod
    def put(cls, key, **value):
        cls.etcd.ask("/v3/kv/put", key=base64_of(PREFIX + key), value=base64_of(json.dumps(value))).close()

    def remove(self, folder):
        self.etcd.ask("/v3/kv/deleterange", key=base64_of(PREFIX + folder + "0000"), range_end=base64_of(PREFIX + folder + "0001")).close()

    def ask(self, *words, status=0):
        outcome = self.by("robot", *words, "-s", self.server.address)
        self.assertEqual(outcome.status, status, outcome)
        return outcome

    def listed(self):
        return json.loads(self.ask("list", "--json").out)["servers"][0]["pool"]

    def test_use_of_a_thousand_users(self):
        """Two servers that have gone have left it behind; an operator sees all of it, a page after the other."""
        now = int(time.time())
        halves = [{"3 " + user(i): (i + 1) * HOUR for i in range(begin, USERS, 2)} for begin in range(2)]
        for i, users in enumerate(halves):
            self.put("usage/%016x" % (0xffff << 48 | i), as_of=now, users=users, projects={"p%02d" % p: p * HOUR for p in range(40)})
        used = wait_until(lambda: next((pool for pool in [json.loads(self.ask("quota", "--json").out)["servers"][0]["pool"]]
                                        if len(pool["users"]) >= USERS), None), "all users are told")
        for i in range(USERS):
            self.assertAlmostEqual(used["users"][user(i)], (i + 1) * HOUR, delta=(i + 1) * HOUR / 1000)
        self.assertEqual(len(used["projects"]), 40)
        self.assertNotIn("more", used)
        self.assertEqual(self.ask("quota").out.count("GPU hours, user"), USERS)

    def test_quotas_of_a_thousand_users(self):
        """Each user's is its own: who holds what is allowed gets no more, and nobody else is hurt."""
        for i in (0, 499, USERS - 1):
            wish = ("request", "--json", "--user", user(i), "-p", "0.2")
            lease = json.loads(self.ask(*wish).out)["lease"]
            self.assertIn("[quota-gpus]", self.ask(*wish, status=125).err)
            self.ask("release", lease)
        outcome = self.ask("request", "--user", user(3), "--project", "p04", status=125)
        self.assertIn("[lease-project]", outcome.err)
        self.ask("release", json.loads(self.ask("request", "--json", "--user", user(3), "--project", "p03").out)["lease"])

    def test_more_than_fits_into_an_answer(self):
        """Servers with many GPUs, leases and requests with long names, which an operator sees all of."""
        with self.etcd.ask("/v3/lease/grant", TTL="3600") as answer:
            bound = json.load(answer)["ID"]
        for folder in ("servers/", "leases/", "requests/"):
            self.addCleanup(self.remove, folder)
        for i in range(QUEUE):
            self.put("requests/0000%012x" % i, user="3 " + user(i), name=user(i), project="", agent="00000000000000aa", gpus=2, filters=[],
                     devices=[], spread=False, kept=False, seconds=0, since=int(time.time()))
        for i in range(SERVERS):
            name = "0000%012x" % i
            self.put("servers/" + name, version=1, address="10.9.9.%d:7600" % i, host="machine-%03d.gpus.example.org" % i,
                     etcd_lease=bound, agent=name, draining=False)
            for j in range(8):
                leases = [{"lease": "0000%012x" % (8 * i + j), "memory": 1 << 30}] if 8 * i + j < LEASES else []
                self.put("servers/%s/gpus/%d" % (name, j), index=j, uuid="GPU-%08x-0000-0000-0000-000000000000" % (8 * i + j),
                         name="a GPU with a name of some length", memory=80 << 30, granted=leases)
        for i in range(LEASES):
            self.put("leases/0000%012x" % i, user="3 " + user(i), name=user(i), kept=True, since=int(time.time()), seconds=3600,
                     job="namespace-%04d/%s" % (i, "claim-of-a-pod-with-a-long-name-" * 3), project="p%02d-for-the-training-of-large-models" % (i % 40), by="robot", memory=0,
                     gpus=[{"server": "0000%012x" % (i // 8), "index": i % 8}])
        wait_until(lambda: len(self.listed()["servers"]) == SERVERS + 1, "all servers are listed")
        pool = self.listed()
        self.assertEqual(len(pool["leases"]), LEASES)
        self.assertEqual((pool["waiting"], len(pool["requests"])), (QUEUE, 32))
        self.assertEqual(sum(len(gpu["granted"]) for member in pool["servers"] for gpu in member["gpus"]), LEASES)
        self.assertEqual({lease["name"] for lease in pool["leases"]}, {user(i) for i in range(LEASES)})

    def test_a_server_with_more_leases_than_fit_into_an_answer(self):
        """Its GPUs are told of with less of what is granted; those of others wholly."""
        with self.etcd.ask("/v3/lease/grant", TTL="3600") as answer:
            bound = json.load(answer)["ID"]
        self.addCleanup(self.remove, "servers/")
        self.addCleanup(self.remove, "leases/")
        full = "0000%012x" % 0xfff
        self.put("servers/" + full, version=1, address="10.9.9.9:7600", host="full", etcd_lease=bound, agent=full, draining=False)
        for j in range(12):
            self.put("servers/%s/gpus/%d" % (full, j), index=j, uuid="GPU-%d" % j, name="full", memory=64 << 30,
                     granted=[{"lease": "0000%012x" % (64 * j + k), "memory": 1 << 29} for k in range(64)])
            for k in range(64):
                self.put("leases/0000%012x" % (64 * j + k), user="3 " + user(k), name=user(k), kept=True, since=int(time.time()),
                         seconds=3600, gpus=[{"server": full, "index": j}])
        gpus = wait_until(lambda: next((member["gpus"] for member in self.listed()["servers"] if member["host"] == "full"), None),
                          "the full server is listed")
        self.assertEqual([(gpu["free"], len(gpu["granted"])) for gpu in gpus], [(32 << 30, 64)] * 12)
        self.assertFalse(any("name" in share for gpu in gpus for share in gpu["granted"]))


if __name__ == "__main__":
    main()
