"""What remote-gpud --http tells of a pool: its servers, what is granted of them, and when this one is cut off."""

import json
import os
import re
import tempfile
import urllib.error
import urllib.request

from pool_case import Etcd, PoolCase, end, main, run, wait_until, COMMAND, DAEMON


class Page(PoolCase):
    @staticmethod
    def port_of(server):
        return int(re.search(r"http://127\.0\.0\.1:(\d+)/", server.log())[1])

    def get(self, server, path):
        """Status and text."""
        try:
            with urllib.request.urlopen("http://127.0.0.1:%d%s" % (self.port_of(server), path), timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def members(self, server):
        status, text = self.get(server, "/api/v1/pool")
        return json.loads(text)["members"] if status == 200 else []

    def granted(self, server):
        return [share for member in self.members(server) for gpu in member["gpus"] for share in gpu["granted"]]

    def test_servers_grants_and_a_dead_one(self):
        etcd = self.keep(Etcd())
        a, b = (self.server(etcd.urls, "--http", "127.0.0.1:0", "--pool-label", "rack=<b>%s</b>" % name, gpus=2)
                for name in "ab")
        wait_until(lambda: len(self.members(a)) == 2 and len(self.members(b)) == 2, "both know both")
        self.assertEqual({member["address"] for member in self.members(a)}, {a.address, b.address})
        self.assertEqual({member["labels"]["rack"] for member in self.members(a)}, {"<b>a</b>", "<b>b</b>"})
        self.assertEqual(self.get(a, "/readyz")[0], 200)
        self.assertEqual(self.granted(a), [])
        history = json.loads(self.get(a, "/api/v1/pool")[1])["history"]
        self.assertEqual((history["seconds"], history["granted_percent"][0], history["waiting"][0]), (60, 0, 0))
        outcome = run(COMMAND, "request", "--json", "-s", a.address, "-n", "3", "--spread")
        self.assertEqual(outcome.status, 0, outcome)
        lease = json.loads(outcome.out)["lease"]
        wait_until(lambda: len(self.granted(b)) == 3, "the lease is seen")
        for server in (a, b):
            # whoever has proved nothing shows that a lease is theirs by knowing it
            self.assertNotIn(lease, self.get(server, "/api/v1/pool")[1])
            self.assertIn('rgpu_pool_member{pool="lab"} 1', self.get(server, "/metrics")[1])
            self.assertIn('rgpu_pool_leases{pool="lab"} 1', self.get(server, "/metrics")[1])
        self.running(a, "-n", "2", "--wait-for").wait_for("in the queue")
        for server in (a, b):
            wait_until(lambda: all(line in self.get(server, "/metrics")[1] for line in (
                'rgpu_pool_requests_waiting{pool="lab"} 1', 'rgpu_pool_gpus_waited_for{pool="lab"} 2')), "the queue is in the metrics")
        self.assertRegex(self.get(a, "/metrics")[1], r'rgpu_pool_longest_wait_seconds\{pool="lab"\} [0-9.]+')
        end(b.process)
        wait_until(lambda: len(self.members(a)) == 1, "the dead one is gone")

    def log_in(self, server):
        """The cookie of the server's operator."""
        link = run(DAEMON, "page", "--state-dir", server.state).out.strip()
        request = urllib.request.Request(link.split("#")[0] + "api/v1/login", data=json.dumps({"token": link[-64:]}).encode(),
                                         headers={"X-Remote-Gpu": "1"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.headers["Set-Cookie"].split(";")[0]

    def test_an_operator_sees_who_waits(self):
        etcd = self.keep(Etcd())
        server = self.server(etcd.urls, "--http", "127.0.0.1:0", gpus=1)
        outcome = run(COMMAND, "request", "--json", "-s", server.address, "-n", "1")
        self.assertEqual(outcome.status, 0, outcome)
        lease = json.loads(outcome.out)["lease"]
        self.running(server, "-n", "1", "--wait-for").wait_for("in the queue")
        self.assertEqual(json.loads(self.get(server, "/api/v1/pool")[1])["requests"], [])
        self.assertNotIn(lease, self.get(server, "/api/v1/pool")[1])
        request = urllib.request.Request("http://127.0.0.1:%d/api/v1/pool" % self.port_of(server), headers={"Cookie": self.log_in(server)})
        with urllib.request.urlopen(request, timeout=60) as answer:
            pool = json.load(answer)
        self.assertEqual([(one["place"], one["gpus"]) for one in pool["requests"]], [(1, 1)])
        self.assertIn(lease, json.dumps(pool["members"]))

    def links(self, server, cookie=""):
        request = urllib.request.Request("http://127.0.0.1:%d/api/v1/pool/links" % self.port_of(server), headers={"Cookie": cookie} if cookie else {})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def test_measured_links(self):
        """As they are described, the operator's to see; whoever is not known has measured nothing."""
        etcd = self.keep(Etcd())
        server = self.server(etcd.urls, "--http", "127.0.0.1:0", gpus=1)
        cookie = self.log_in(server)
        self.assertEqual(self.links(server, cookie), {"links": [], "more": False})
        outcome = run(COMMAND, "netperf", "--pool", "--json", "-s", server.address)
        self.assertEqual(outcome.status, 0, outcome)
        measured = json.loads(outcome.out)
        ((latency, bandwidth),) = measured["servers"].values()
        told = wait_until(lambda: self.links(server, cookie)["links"], "what was measured is told")
        (one,) = told
        (link,) = one["servers"]
        self.assertEqual((one["machine"], one["left_out"], link["address"], link["bytes_per_second"]),
                         (measured["machine"], 0, server.address, bandwidth))
        self.assertAlmostEqual(link["round_trip_seconds"], latency * 1e-9, delta=1e-12)
        self.assertEqual(self.links(server), {"links": [], "more": False})
        schema = json.loads(self.get(server, "/api/v1/openapi.json")[1])["components"]["schemas"]["Links"]
        described = schema["properties"]["links"]["items"]
        self.assertEqual(set(described["properties"]), set(one))
        self.assertEqual(set(described["properties"]["servers"]["items"]["properties"]), set(link))
        self.assertEqual(set(schema["properties"]), {"links", "more"})

    def index_of(self, server, lease):
        """Which GPU a lease has, as its owner sees it."""
        (index,) = [gpu["index"] for member in self.pool(server)["servers"] for gpu in member["gpus"]
                    if lease in [share.get("lease") for share in gpu["granted"]]]
        return index

    def test_jobs(self):
        """What a lease is for stands in the file of its GPU, for dcgm-exporter; and of nobody's lease the number, by which others could use it."""
        etcd = self.keep(Etcd())
        folder = tempfile.TemporaryDirectory(prefix="remote-gpu-jobs-")
        self.addCleanup(folder.cleanup)
        server = self.server(etcd.urls, "--job-mapping-dir", folder.name, gpus=2)
        leases = []
        for words in (("--job", "4711"), ()):
            outcome = run(COMMAND, "request", "--json", "-s", server.address, "-n", "1", *words)
            self.assertEqual(outcome.status, 0, outcome)
            leases.append(json.loads(outcome.out))
        for lease in leases:
            self.running(server, "--lease", lease["lease"]).wait_for("begun")
        expected = {str(self.index_of(server, leases[0]["lease"])): "4711\n", str(self.index_of(server, leases[1]["lease"])): "session-2\n"}
        wait_until(lambda: sorted(os.listdir(folder.name)) == ["0", "1"], "both files are there")
        for name, text in expected.items():
            with open(os.path.join(folder.name, name)) as file:
                self.assertEqual(file.read(), text)
        run(COMMAND, "release", "-s", server.address, leases[0]["lease"])
        wait_until(lambda: len(os.listdir(folder.name)) == 1, "the file of a GPU that nobody has is removed")

    def test_cut_off(self):
        etcd = self.keep(Etcd())
        server = self.server(etcd.urls, "--http", "127.0.0.1:0")
        wait_until(lambda: self.get(server, "/readyz")[0] == 200, "it is ready")
        etcd.kill()
        wait_until(lambda: self.get(server, "/readyz")[0] == 503, "it is cut off")
        self.assertIn("cut off from its pool", self.get(server, "/readyz")[1])
        self.assertIn('rgpu_pool_member{pool="lab"} 0', self.get(server, "/metrics")[1])
        self.assertEqual(self.get(server, "/healthz")[0], 200)
        etcd.restart(0)
        wait_until(lambda: self.get(server, "/readyz")[0] == 200, "it is back")


if __name__ == "__main__":
    main()
