"""Whose a lease is: users who prove by certificates who they are, over two servers that trust one authority."""

import json
import os
import subprocess

from pool_case import COMMAND, DAEMON, SESSION, Etcd, UsersCase, main, run, wait_until


class Users(UsersCase):
    """Alice has a lease, which bob knows of."""

    NAMES = ("alice", "bob")

    def setUp(self):
        etcd = self.keep(Etcd())
        self.a, self.b = (self.server(etcd.urls, *self.trust, gpus=1) for _ in range(2))

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

    def test_others_leases_are_not_told(self):
        lease = self.lease()
        for user, told in (("alice", True), ("bob", False)):
            outcome = self.by(user, "list", "--json", "-s", self.b.address)
            self.assertEqual(lease in outcome.out, told, outcome)


if __name__ == "__main__":
    main()
