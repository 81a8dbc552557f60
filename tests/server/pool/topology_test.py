"""Where GPUs and servers are: gangs get GPUs that are linked with each other, and clients near servers where they have measured the way."""

import json
import time

from pool_case import COMMAND, Etcd, PoolCase, main, run
from passage import Passage  # where pool_case finds it

FOUR = {"SOFTGPU_TOPOLOGY": "numa=0,0,1,1:nvlink=0,1,0,1:pcie=-,2,2,-"}
SLOW_S = 0.02


class SlowWay(Passage):
    """A port that leads to a server by a long way: whatever arrives goes on later."""

    def take(self, data, passed, upward, connection):
        time.sleep(SLOW_S)
        return data


class Topology(PoolCase):
    def request(self, server, *words):
        """The servers and numbers of the GPUs of a new lease, and its id."""
        outcome = run(COMMAND, "request", "--json", "-s", server.address, *words)
        self.assertEqual(outcome.status, 0, outcome)
        lease = json.loads(outcome.out)
        return [(gpu["address"], gpu["index"]) for gpu in lease["devices"]], lease["lease"]

    @staticmethod
    def groups(gpus, name):
        """The numbers of the GPUs that share a number."""
        found = {}
        for gpu in gpus:
            found.setdefault(gpu.get(name), set()).add(gpu["index"])
        found.pop(None, None)
        return sorted(found.values(), key=min)

    def test_a_gang_gets_gpus_that_are_linked(self):
        etcd = self.keep(Etcd())
        server = self.server(etcd.urls, gpus=4, environment=FOUR)
        linked, _ = self.request(server, "-n", "2")
        others, lease = self.request(server, "-n", "2")
        self.assertEqual(sorted([linked, others]), [[(server.address, 0), (server.address, 2)], [(server.address, 1), (server.address, 3)]])
        self.assertEqual(run(COMMAND, "release", "-s", server.address, lease).status, 0)
        gpus = self.pool(server)["servers"][0]["gpus"]
        self.assertEqual([gpu["numa"] for gpu in gpus], [0, 0, 1, 1])
        self.assertEqual(self.groups(gpus, "nvlink"), [{0, 2}, {1, 3}])
        self.assertEqual(self.groups(gpus, "pcie"), [{1, 2}])

    def test_it_is_shown(self):
        etcd = self.keep(Etcd())
        server = self.server(etcd.urls, gpus=4, environment=FOUR)
        shown = run(COMMAND, "list", "--topology", "-s", server.address).out.splitlines()
        matrix = [line.split() for line in shown if line.startswith("  GPU")]
        self.assertEqual(matrix, [["GPU", "0", "-", "node", "NVLink", "far", "0"], ["GPU", "1", "node", "-", "PCIe", "NVLink", "0"],
                                  ["GPU", "2", "NVLink", "PCIe", "-", "node", "1"], ["GPU", "3", "far", "NVLink", "node", "-", "1"]], shown)
        self.assertIn("were not measured: remote-gpu netperf --pool", "\n".join(shown))
        devices = json.loads(run(COMMAND, "list", "--json", "-s", server.address).out)["servers"][0]["devices"]
        self.assertEqual(self.groups(devices, "pcie"), [{1, 2}])

    def test_a_setting_that_is_wrong_is_said(self):
        for text, said in (("nvlink=0", "nvlink says it of 1 devices, and there are 2"), ("nvlink", "'nvlink' has no '='"),
                           ("link=0,0", "'link' is none of numa, nvlink, pcie"), ("numa=0,x", "SOFTGPU_TOPOLOGY: 'x'")):
            etcd = self.keep(Etcd())
            server = self.server(etcd.urls, environment={"SOFTGPU_TOPOLOGY": text})
            self.assertIn(said, server.log())
            self.assertNotIn("nvlink", self.pool(server)["servers"][0]["gpus"][0])

    def test_requests_go_to_near_servers_once_the_way_is_measured(self):
        etcd = self.keep(Etcd())
        way = self.keep(SlowWay()).__enter__()
        near = self.server(etcd.urls, gpus=1)
        # what is smaller goes first while nothing is known of the way
        far = self.server(etcd.urls, "--advertise", way.address, gpus=1, environment={"SOFTGPU_MEMORY": "256M"})
        way.server = way.place_of(far.address)
        gpus, lease = self.request(near)
        self.assertEqual(gpus, [(way.address, 0)])
        self.assertEqual(run(COMMAND, "release", "-s", near.address, lease).status, 0)
        self.wait_free(near, 2)

        outcome = run(COMMAND, "netperf", "--pool", "--json", "-s", near.address)
        self.assertEqual(outcome.status, 0, outcome)
        measured = json.loads(outcome.out)["servers"]
        self.assertEqual(set(measured), {near.address, way.address})
        self.assertGreater(measured[way.address][0], 2 * SLOW_S * 1e9)
        self.assertLess(measured[near.address][0], measured[way.address][0])
        self.assertEqual(self.pool(near)["links"], measured)
        for more in (("--topology",), ()):
            self.assertEqual(run(COMMAND, "list", *more, "-s", near.address).out.count(" MB/s from here\n"), 2)

        gpus, lease = self.request(near)
        self.assertEqual(gpus, [(near.address, 0)])
        self.assertEqual(run(COMMAND, "release", "-s", near.address, lease).status, 0)
        # what comes again replaces what was there; what nobody measured is not taken
        again = run(COMMAND, "netperf", "--pool", "--json", "-s", near.address)
        self.assertEqual(again.status, 0, again)
        self.assertEqual(self.pool(near)["links"], json.loads(again.out)["servers"])


if __name__ == "__main__":
    main()
