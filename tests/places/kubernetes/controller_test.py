"""The controller against a real pool and the test API server."""

import http.client
import re
import socket
import time

from cluster_case import FINALIZER, ClusterCase, wait_until
from pool_case import main


class Controller(ClusterCase):
    def test_slices_and_leases(self):
        controller = self.controller()
        names = sorted(self.wait_for_devices(4))
        device = self.devices()[names[0]]
        self.assertEqual(device["attributes"]["model"], {"string": "Software GPU"})
        self.assertEqual(device["attributes"]["label.remote-gpu.io/room"], {"string": "north"})
        self.assertRegex(device["capacity"]["memory"]["value"], "^[1-9][0-9]*[MG]i$")
        claim = self.claim("one")
        self.allocate(claim, names[0], names[2])
        lease = self.wait_for_lease(claim)
        self.assertIn(FINALIZER, self.seen(claim)["metadata"]["finalizers"])
        self.assertEqual((self.leases()[lease]["name"], self.leases()[lease]["gpus"]), ("team-a", 2))
        self.delete(claim)
        self.assertTrue(self.seen(claim), "a pod uses it")
        self.deallocate(claim)
        wait_until(lambda: self.seen(claim) is None, "the claim is let go of")
        self.assertEqual(self.leases(), {}, "its lease was given back before")
        self.assertEqual(len(self.devices()), 4)
        self.assertEqual(controller.stop(), 0)

    def test_an_answer_that_comes_too_late_brings_no_claim_back(self):
        self.controller()
        names = sorted(self.wait_for_devices(4))
        claim, other = self.claim("one"), self.claim("other")
        self.api.store.answers.clear()
        self.allocate(claim, names[0])
        wait_until(lambda: self.note(claim, "devices"), "the controller has begun")

        def removed(old):
            old["metadata"].update(finalizers=[], deletionTimestamp="2026-01-01T00:00:00Z")
            return old
        version = int(self.change(claim, removed)["metadata"]["resourceVersion"])
        wait_until(lambda: self.api.store.sent >= version, "the controller is told that the claim is gone")
        self.api.store.answers.set()
        self.allocate(other, names[1])
        lease = self.wait_for_lease(other)
        self.assertEqual(list(self.leases()), [lease])

    def test_probes_and_metrics(self):
        controller = self.controller("--http", "127.0.0.1:0")
        self.find_port(controller, 1)
        claim = self.claim("one")
        self.allocate(claim, sorted(self.wait_for_devices(4))[0])
        self.wait_for_lease(claim)
        wait_until(lambda: self.asked("/readyz") == (200, "ok\n"), "it is ready")
        self.assertEqual(self.asked("/healthz")[0], 200)
        self.assertEqual(self.asked("/other")[0], 404)
        wait_until(lambda: {"remote_gpu_kube_devices 4", "remote_gpu_kube_claims 1", "remote_gpu_kube_leases 1",
                            "remote_gpu_kube_leases_taken_total 1"} <= set(self.asked("/metrics")[1].splitlines()),
                   "metrics say what there is")
        self.api.down()
        wait_until(lambda: self.asked("/readyz") == (503, "the API server cannot be asked\n"), "it is not ready")
        self.assertEqual(self.asked("/healthz")[0], 200)

    def test_one_address_keeps_no_probes_out(self):
        controller = self.controller("--http", "127.0.0.1:0")
        self.find_port(controller, 1)
        for _ in range(100):
            one = socket.create_connection(("127.0.0.1", self.port), timeout=30, source_address=("127.0.0.2", 0))
            self.addCleanup(one.close)
        self.assertEqual(self.asked("/other")[0], 404)

    def test_a_claims_gpu_stays_published_while_a_new_controller_does_not_know_the_claim(self):
        controller = self.controller("--http", "127.0.0.1:0")
        claim = self.claim("one")
        self.allocate(claim, sorted(self.wait_for_devices(4))[0])
        self.wait_for_lease(claim)
        store = self.api.store
        controller.kill()
        store.claims_are_listed.clear()
        store.writes.clear()
        store.watched.clear()
        controller.start()
        self.find_port(controller, 2)
        wait_until(lambda: "resourceslices" in store.watched and "remote_gpu_kube_pool_up 1\n" in self.asked("/metrics")[1],
                   "it knows pool and slices")
        time.sleep(1)  # some rounds of it
        store.claims_are_listed.set()
        wait_until(lambda: "remote_gpu_kube_leases 1\n" in self.asked("/metrics")[1], "it knows the claim")
        self.assertEqual([one for one in store.writes if "resourceslices" in one[1]], [])

    def find_port(self, controller, starts):
        def ports():
            return re.findall("answered on port ([0-9]+)", controller.log())
        wait_until(lambda: len(ports()) == starts, "it listens")
        self.port = int(ports()[-1])

    def asked(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text


if __name__ == "__main__":
    main()
