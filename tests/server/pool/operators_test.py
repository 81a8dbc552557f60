"""Leases that operators of a pool take for others, by ids of their choice; renewing; quotas of those whose they are."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

from pool_case import BUILD, COMMAND, DAEMON, ENVIRONMENT, SESSION, Etcd, PoolCase, Server, UsersCase, end, main, run, wait_until

ID = "00c0ffee00000001"
RULES = {"users": {"alice": {"quota": {"gpus": 3}}}, "projects": {"ml": {"members": ["alice"]}}}


class Operators(UsersCase):
    """Two servers with two GPUs each; `robot` is an operator, alice may hold three GPUs."""

    NAMES = ("alice", "bob", "robot")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rules = os.path.join(cls.class_folder, "rules.json")
        with open(rules, "w") as file:
            json.dump(RULES, file)
        etcd = cls.etcd = Etcd()
        cls.addClassCleanup(etcd.close)
        cls.servers = []
        for _ in range(2):
            server = Server(etcd.urls, *cls.trust, "--rules", rules, "--pool-operators", "nobody,robot")
            cls.addClassCleanup(server.close)
            cls.servers.append(server)
        cls.a, cls.b = cls.servers

    def setUp(self):
        wait_until(lambda: self.free() == 4, "all GPUs of both servers are free")

    def tearDown(self):
        for lease in self.leases("robot"):
            self.by("robot", "release", "-s", self.a.address, lease)

    def listed(self, user):
        return json.loads(self.by(user, "list", "--json", "-s", self.b.address).out)["servers"][0]["pool"]

    def leases(self, user):
        return {lease["lease"]: lease for lease in self.listed(user)["leases"]}

    def free(self):
        return sum(gpu["free"] == gpu["memory"] for member in self.listed("robot")["servers"] for gpu in member["gpus"])

    def request(self, user, *words, server=None):
        outcome = self.by(user, "request", "--json", "-s", (server or self.a).address, *words)
        self.assertEqual(outcome.status, 0, outcome)
        return json.loads(outcome.out)

    def test_a_lease_for_somebody_else(self):
        before = time.time()
        lease = self.request("robot", "--user", "alice", "--id", ID, "-n", "2", "--for", "1h")
        self.assertEqual((lease["lease"], lease["user"], lease["gpus"]), (ID, "alice", 2))
        self.assertEqual(len({device["uuid"] for device in lease["devices"]}), 2)
        self.assertAlmostEqual(lease["expires"], before + 3600, delta=60)
        outcome = self.by("alice", "run", "-s", self.b.address, "--lease", ID, "--", *SESSION)
        self.assertIn("begun 2", outcome.out, outcome)
        stage = os.path.join(BUILD, "stage", "lib", "remote-gpu")
        for user in ("bob", "robot"):
            outcome = run(*SESSION, LD_LIBRARY_PATH=stage, REMOTE_GPU_SERVER=lease["servers"],
                          REMOTE_GPU_LEASE=lease["variable"], **self.users[user])
            self.assertRegex(outcome.err, "the lease is alice's, and you are %s" % user)
        self.assert_refused(self.by("bob", "run", "-s", self.b.address, "--lease", ID, "--", "true"),
                            r"\[lease-not-yours\]")
        shown = {user: self.leases(user) for user in self.users}
        self.assertEqual(shown["bob"], {})
        self.assertEqual(shown["alice"][ID]["by"], "robot")
        self.assertEqual(shown["robot"][ID]["expires"], lease["expires"])
        self.assertIn('event=lease user="alice"', self.a.log())
        self.assertEqual(self.by("alice", "release", "-s", self.b.address, ID).status, 0)

    def test_asked_again(self):
        wish = ("--user", "alice", "--id", ID, "-n", "2", "--spread")
        first = self.request("robot", *wish)
        for server in (self.b, self.a):
            again = self.request("robot", *wish, "--for", "2h", server=server)
            self.assertEqual(again["devices"], first["devices"])
            self.assertEqual(again["expires"], first["expires"])
        self.assertEqual(self.free(), 2)
        for other in (("--user", "bob", "--id", ID, "-n", "2", "--spread"), ("--user", "alice", "--id", ID, "-n", "1"),
                      (*wish, "--filter", "device.index>=0"), (*wish, "-p", "0.5"), (*wish, "--project", "ml")):
            self.assert_refused(self.by("robot", "request", "-s", self.b.address, *other), r"\[lease-taken\]")
        self.assertEqual(self.by("robot", "release", "-s", self.b.address, ID).status, 0)
        self.request("robot", "--user", "bob", "--id", ID, "-n", "1", "--wait-for=60")  # once its GPUs are free

    def test_projects_have_members(self):
        """What a lease holds counts to its project, so nobody else names it: neither for one that is kept nor for a run."""
        said = r"bob is no member of a project 'ml' .*\[lease-project\]"
        self.assert_refused(self.by("bob", "request", "-s", self.a.address, "--project", "ml"), said)
        self.assert_refused(self.by("bob", "run", "-s", self.a.address, "--project", "ml", "--", "true"), said)
        self.assert_refused(self.by("robot", "request", "-s", self.a.address, "--user", "bob", "--project", "ml"), said)
        self.assertEqual(self.free(), 4)
        self.request("robot", "--user", "alice", "--project", "ml")
        self.request("alice", "--project", "ml")
        outcome = self.by("alice", "run", "-s", self.a.address, "--project", "ml", "--", "true")
        self.assertEqual(outcome.status, 0, outcome)

    def test_who_asked_by_an_id_and_died(self):
        self.request("robot", "-n", "4", "--spread", "--id", "00c0ffee00000002")
        wish = ("request", "--json", "-s", self.a.address, "--user", "alice", "--id", ID, "--wait-for")
        first = subprocess.Popen((COMMAND, *wish), env=dict(ENVIRONMENT, **self.users["robot"]),
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(first.stderr.close)
        self.assertIn("in the queue", first.stderr.readline())
        self.assert_refused(self.by("robot", *wish), r"\[lease-busy\]")
        first.send_signal(signal.SIGKILL)
        first.wait()
        self.assertEqual(self.by("robot", "release", "-s", self.b.address, "00c0ffee00000002").status, 0)
        outcome = wait_until(lambda: next((o for o in [self.by("robot", *wish)] if "lease-busy" not in o.err), None),
                             "the first has been forgotten")
        self.assertEqual(json.loads(outcome.out)["lease"], ID, outcome)

    def test_named_gpus(self):
        here = ("--filter", "server.addr=" + self.b.address)
        gpus = [member["gpus"] for member in self.listed("bob")["servers"] if member["address"] == self.b.address][0]
        lease = self.request("bob", "--device", gpus[1]["uuid"], *here)
        self.assertEqual([device["index"] for device in lease["devices"]], [gpus[1]["index"]])
        self.assert_refused(self.by("bob", "request", "-s", self.a.address, "--device", gpus[1]["uuid"].lower()[4:], *here),
                            r"of those that it names.*\[lease-not-free\]")
        for words, code in ((("--device", "GPU-12345678-0000-0000-0000-000000000000"), "lease-device-unknown"),
                            (("--device", gpus[0]["uuid"], "-n", "2"), "lease-devices"),
                            (("--device", gpus[0]["uuid"], "--device", gpus[0]["uuid"]), "lease-devices")):
            self.assert_refused(self.by("bob", "request", "-s", self.a.address, *words), r"\[%s\]" % code)

    def test_what_is_not_an_operators(self):
        for words in (("--user", "bob"), ("--id", ID)):
            self.assert_refused(self.by("alice", "request", "-s", self.a.address, *words),
                                r"you are alice here.*\[lease-not-operator\]")
        for words, code in ((("--id", "12"), "lease-id"), (("--id", ID.upper()), "lease-id"), (("--user", "uid:x"), "lease-user"),
                            (("--user", "a\tb"), "lease-user"), (("--for", "721h"), "lease-time")):
            self.assert_refused(self.by("robot", "request", "-s", self.a.address, *words), r"\[%s\]" % code)
        self.assertEqual(self.free(), 4)

    def test_renewing(self):
        lease = self.request("robot", "--user", "alice", "--id", ID, "--for", "5")
        renewed = {}
        for user, server, seconds in (("alice", self.b, 600), ("robot", self.a, 1200)):
            words = ["renew", "--json", "-s", server.address, "--for", str(seconds)]
            words.insert(1 if user == "alice" else 4, ID)  # before the options, and among them
            outcome = self.by(user, *words)
            self.assertEqual(outcome.status, 0, outcome)
            renewed[user] = json.loads(outcome.out)["expires"]
        self.assertGreater(renewed["alice"], lease["expires"] + 500)
        self.assertGreater(renewed["robot"], renewed["alice"] + 500)
        self.assert_refused(self.by("bob", "renew", ID, "-s", self.b.address), r"\[lease-not-yours\]")
        self.assert_refused(self.by("robot", "renew", ID, "-s", self.b.address, "--for", "721h"), r"\[lease-time\]")
        self.assert_refused(self.by("alice", "renew", "00c0ffee00000009", "-s", self.b.address), r"\[lease-gone\]")
        end = lease["expires"] + 2
        wait_until(lambda: time.time() > end, "the first time is over")
        self.assertIn(ID, self.leases("alice"))
        self.assert_refused(self.by("alice", "renew", ID, "-s", self.b.address, "--for", "720h"),
                            r"30 days at most from its beginning.*\[lease-time\]")
        self.assertEqual(self.by("robot", "renew", ID, "-s", self.b.address, "--for", "720h").status, 0)

    def test_the_time_that_was_renewed(self):
        self.request("robot", "--user", "alice", "--id", ID, "--for", "1h")
        self.assertEqual(self.by("alice", "renew", ID, "-s", self.b.address, "--for", "2").status, 0)
        wait_until(lambda: self.free() == 4, "the lease is over after the time that it was renewed for")

    def test_quotas_are_the_owners(self):
        self.request("robot", "--user", "alice", "--id", ID, "-n", "2")
        wish = ("request", "-s", self.b.address, "--user", "alice", "-n", "2")
        self.assert_refused(self.by("robot", *wish), r"alice holds 2 GPUs of the pool.*\[quota-gpus\]")
        self.request("robot", "--user", "bob", "-n", "2")

    def test_a_server_that_is_started_anew_has_nothing_of_a_lease(self):
        """What is gone of a lease that is kept is shown, and does not count for quotas."""
        first = Server(self.etcd.urls, *self.trust, "--pool-label", "room=short")
        self.addCleanup(first.close)
        wait_until(lambda: len(self.listed("robot")["servers"]) == 3, "it is in the pool")
        lease = self.request("robot", "--user", "alice", "--id", ID, "-n", "2", "--filter", "labels.room=short")
        self.assert_refused(self.by("robot", "request", "-s", self.a.address, "--user", "alice", "-n", "2"), r"\[quota-gpus\]")
        self.assertNotIn("gone", self.leases("alice")[ID])
        end(first.process, signal.SIGTERM)
        wait_until(lambda: self.leases("alice")[ID].get("gone") == 2, "both GPUs are gone")
        second = Server(self.etcd.urls, *self.trust, "--listen", first.address, "--advertise", first.address, "--pool-label", "room=short")
        self.addCleanup(second.close)
        wait_until(lambda: len(self.listed("robot")["servers"]) == 3, "it is in the pool again")
        self.assertEqual(self.leases("alice")[ID]["gone"], 2)
        self.assertRegex(self.by("alice", "list", "-s", self.b.address).out, ID + r": 2 GPUs, .*, 2 of them gone with their servers: release it")
        outcome = self.by("alice", "run", "-s", self.b.address, "--lease", ID, "--", *SESSION)
        self.assertIn("if it was started anew", outcome.err, outcome)
        self.request("robot", "--user", "alice", "-n", "2")
        self.assertEqual(self.by("alice", "release", "-s", self.a.address, lease["lease"]).status, 0)

    def test_many_leases_are_listed(self):
        """More than a page of them."""
        n = 40
        for i in range(n):
            self.request("robot", "--user", "bob", "-p", "0.02", "--id", "00c0ffee000001%02x" % i)
        self.assertEqual(len(self.leases("robot")), n)
        self.assertEqual(len(self.leases("bob")), n)


class Local(PoolCase):
    """Root by a unix socket is an operator."""

    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("root is the operator here")
        self.etcd = self.keep(Etcd())
        self.folder = tempfile.mkdtemp(prefix="remote-gpu-pool-local-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.socket = "unix:" + os.path.join(self.folder, "socket")

    def request(self, *words):
        outcome = run(COMMAND, "request", "--json", "-s", self.socket, *words)
        self.assertEqual(outcome.status, 0, outcome)
        return json.loads(outcome.out)

    def session(self, address, variable):
        return run(*SESSION, LD_LIBRARY_PATH=os.path.join(BUILD, "stage", "lib", "remote-gpu"), REMOTE_GPU_SERVER=address,
                   REMOTE_GPU_LEASE=variable)

    def test_a_user_of_the_machine(self):
        server = self.server(self.etcd.urls, "--listen", self.socket)
        lease = self.request("--user", "uid:0", "--id", ID)
        self.assertIn("begun 1", self.session(self.socket, lease["variable"]).out)
        self.assertIn("the lease is uid:0's", self.session(server.address, lease["variable"]).err)
        other = self.request("--user", "uid:1", "--id", "00c0ffee00000002")
        self.assertIn("the lease is uid:1's", self.session(self.socket, other["variable"]).err)
        self.assert_refused(run(COMMAND, "request", "-s", server.address, "--user", "uid:0"), r"\[lease-not-operator\]")

    def test_where_nobody_proves_anything(self):
        server = self.server(self.etcd.urls, "--listen", self.socket, "--allow-unauthenticated")
        lease = self.request("--user", "alice", "--id", ID)
        outcome = self.session(server.address, lease["variable"])
        self.assertIn("begun 1", outcome.out, outcome)
        outcome = run(COMMAND, "run", "-s", server.address, "--lease", ID, "--", "true")
        self.assertEqual(outcome.status, 0, outcome)

    def test_settings(self):
        outcome = run(DAEMON, "--config", "/dev/null", "--driver", "soft", "--listen", "127.0.0.1:0", "--pool-operators", "robot")
        self.assert_refused(outcome, "--pool-operators is of a pool's servers")


if __name__ == "__main__":
    main()
