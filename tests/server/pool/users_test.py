"""Whose a lease is: users who prove by certificates who they are, over two servers that trust one authority."""

import json
import os
import shutil
import subprocess
import time

from pool_case import COMMAND, DAEMON, PATIENCE, SESSION, Etcd, UsersCase, base64_of, main, run, wait_until


class Users(UsersCase):
    """Alice has a lease, which bob knows of."""

    NAMES = ("alice", "bob")

    def setUp(self):
        self.etcd = self.keep(Etcd())
        self.a, self.b = (self.server(self.etcd.urls, *self.trust, gpus=1) for _ in range(2))

    def free(self):
        """How many GPUs are free, as bob sees it."""
        pool = json.loads(self.by("bob", "list", "--json", "-s", self.b.address).out)["servers"][0]["pool"]
        return sum(gpu["free"] == gpu["memory"] for member in pool["servers"] for gpu in member["gpus"])

    def leases(self):
        """What etcd has of leases."""
        folder = "/remote-gpu/pools/lab/leases"
        with self.etcd.ask("/v3/kv/range", key=base64_of(folder + "/"), range_end=base64_of(folder + "0")) as answer:
            return [json.loads(self.etcd.text(pair["value"])) for pair in json.load(answer).get("kvs", ())]

    def lease(self, *words):
        """A new one of alice's."""
        outcome = self.by("alice", "request", "--json", "-s", self.a.address, *words)
        self.assertEqual(outcome.status, 0, outcome)
        return json.loads(outcome.out)["lease"]

    def test_a_lease_is_its_users_alone(self):
        lease = self.lease("-n", "2", "--spread")
        for server in (self.a, self.b):
            self.assert_refused(self.by("bob", "run", "-s", server.address, "--lease", lease, "--", "true"),
                                "you have no such lease")
            self.assert_refused(self.by("bob", "release", "-s", server.address, lease), "somebody else's")
        outcome = self.by("alice", "run", "-s", self.b.address, "--lease", lease, "--", *SESSION)
        self.assertIn("begun 2", outcome.out, outcome)
        self.assertIn("works", outcome.out, outcome)
        self.assertEqual(self.by("alice", "release", "-s", self.b.address, lease).status, 0)

    def test_servers_check_by_themselves_whose_it_is(self):
        lease = self.lease("-n", "2", "--spread")
        stage = os.path.join(os.path.dirname(os.path.dirname(COMMAND)), "lib", "remote-gpu")
        for server in (self.a, self.b):
            outcome = run(*SESSION, LD_LIBRARY_PATH=stage, REMOTE_GPU_SERVER=server.address, REMOTE_GPU_LEASE=lease + "/0",
                          **self.users["bob"])
            self.assertIn("failed", outcome.out, outcome)
            self.assertRegex(outcome.err, "the lease is alice's, and you are .*bob")
        outcome = run(*SESSION, LD_LIBRARY_PATH=stage, REMOTE_GPU_SERVER=self.b.address, REMOTE_GPU_LEASE=lease + "/0",
                      **self.users["alice"])
        self.assertIn("begun 1", outcome.out, outcome)

    def test_a_lease_is_of_a_name_and_a_certificate_that_is_revoked_has_none(self):
        """Alice's second certificate, of another key, uses her leases until it alone is revoked; the first goes on."""
        folder = self.authority.credentials(os.path.join(self.class_folder, "second"), "alice")
        lease, second = self.lease(), {"REMOTE_GPU_CREDENTIALS": folder}
        command = (COMMAND, "run", "-s", self.a.address, "--lease", lease, "--", *SESSION)
        self.assertIn("works", run(*command, **second).out)
        serial = subprocess.run(["openssl", "x509", "-noout", "-serial", "-in", os.path.join(folder, "tls.crt")], capture_output=True,
                                text=True, check=True).stdout.strip().split("=")[1].lower()
        outcome = run(DAEMON, "revoke", "--state-dir", self.a.state, serial)  # which this authority counts: it could be a name
        self.assertIn("remote-gpud revoke serial:" + serial, outcome.err, outcome)
        outcome = run(DAEMON, "revoke", "--state-dir", self.a.state, "serial:" + serial)
        self.assertEqual(outcome.status, 0, outcome)
        wait_until(lambda: "revoked" in run(*command, **second).err, "the certificate is refused")
        outcome = run(COMMAND, "release", "-s", self.a.address, lease, **second)
        self.assertIn("revoked", outcome.err)
        self.assertIn("works", run(*command, **self.users["alice"]).out)

    def test_who_is_revoked_while_it_waits_and_holds(self):
        """What it has of the pool ends at once, whether it has a session or not; other users' go on."""
        holds = self.running(self.a, program=("sleep", "1000"), **self.users["alice"])
        wait_until(lambda: self.free() == 1, "alice holds a GPU")
        other = self.running(self.a, **self.users["bob"]).wait_for("begun 1")
        waits = self.running(self.a, "--wait-for", **self.users["alice"]).wait_for("in the queue")
        self.assertEqual(run(DAEMON, "revoke", "--state-dir", self.a.state, "nobody").status, 0)
        self.a.wait_for_log("asked about")  # and nothing comes of it
        self.assertEqual(len(self.leases()), 2)
        outcome = run(DAEMON, "revoke", "--state-dir", self.a.state, "alice")
        self.assertEqual(outcome.status, 0, outcome)
        waits.wait_for("revoked")
        self.assertEqual(waits.process.wait(60), 125)
        wait_until(lambda: self.free() == 1, "what alice held is free")
        self.assertEqual([lease["name"] for lease in self.leases()], ["bob"])
        self.assertIsNone(holds.process.poll())  # her command goes on, without GPUs
        self.assertIn("works", other.finish())

    def with_a_life_of(self, name, seconds):
        """A folder of credentials that are valid for so long, and the environment that names it."""
        folder = self.authority.credentials(os.path.join(self.class_folder, name), name, ends=seconds)
        return folder, {"REMOTE_GPU_CREDENTIALS": folder, "REMOTE_GPU_LOG": "debug"}

    def test_a_certificate_that_expires_while_its_lease_is_held(self):
        """Who has another by then goes on holding it; who has none leaves it to its sessions, of which there are none."""
        began = time.monotonic()
        self.free()
        life = 20 + int(30 * (time.monotonic() - began))  # enough for two commands to begin, however busy the machine is
        folder, renewed = self.with_a_life_of("carol", life)
        _, old = self.with_a_life_of("dave", life)
        carol = self.running(self.a, program=("sleep", "1000"), **renewed)
        self.running(self.a, program=("sleep", "1000"), **old)
        wait_until(lambda: self.free() == 0, "both hold a GPU")
        for source, target in zip(self.authority.issue("client", "carol"), ("tls.crt", "tls.key")):
            os.replace(shutil.copy(source, folder), os.path.join(folder, target))
        wait_until(lambda: self.a.log().count("the certificate of its client has expired") == 2, "both have expired", PATIENCE + life)
        carol.wait_for("is held again")
        held = wait_until(lambda: next((found for found in [{lease["name"]: bool(lease["holder"]) for lease in self.leases()}]
                                        if not found.get("dave")), None), "nobody holds dave's lease")
        self.assertTrue(held["carol"], held)

    def test_others_leases_are_not_told(self):
        lease = self.lease()
        for user, told in (("alice", True), ("bob", False)):
            outcome = self.by(user, "list", "--json", "-s", self.b.address)
            self.assertEqual(lease in outcome.out, told, outcome)


if __name__ == "__main__":
    main()
