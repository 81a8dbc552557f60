"""Whose a lease is: users who prove by certificates who they are, over two servers that trust one authority."""

import json
import os
import shutil
import sys
import tempfile

from pool_case import COMMAND, PROGRAM, Etcd, PoolCase, main, run

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "security"))

from authority import Authority  # noqa: E402

SESSION = (sys.executable, "-u", "-c", PROGRAM)


class Users(PoolCase):
    """Alice has a lease, which bob knows of."""

    def setUp(self):
        folder = tempfile.mkdtemp(prefix="remote-gpu-pool-users-")
        self.addCleanup(shutil.rmtree, folder)
        authority = Authority(os.path.join(folder, "authority"))
        certificate, key = authority.issue("server", "server", alternative="IP:127.0.0.1")
        self.users = {name: {"REMOTE_GPU_CREDENTIALS": authority.credentials(os.path.join(folder, name), name)}
                      for name in ("alice", "bob")}
        etcd = self.keep(Etcd())
        trust = ("--tls-ca", authority.root, "--tls-cert", certificate, "--tls-key", key)
        self.a, self.b = (self.server(etcd.urls, *trust, gpus=1) for _ in range(2))

    def by(self, user, *words):
        return run(COMMAND, *words, **self.users[user])

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

    def test_others_leases_are_not_told(self):
        lease = self.lease()
        for user, told in (("alice", True), ("bob", False)):
            outcome = self.by(user, "list", "--json", "-s", self.b.address)
            self.assertEqual(lease in outcome.out, told, outcome)


if __name__ == "__main__":
    main()
