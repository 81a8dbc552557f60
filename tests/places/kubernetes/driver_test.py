"""The driver of Kubernetes' dynamic resource allocation from end to end: a real pool, a test API server, gRPC as the kubelet speaks it."""

from driver_case import DriverCase, wait_until
from cluster_case import DRIVER, FINALIZER
from pool_case import main


class Driver(DriverCase):
    def test_a_claim_from_slice_to_program(self):
        self.controller()
        self.node()
        kubelet = self.kubelet()
        self.assertEqual((kubelet.info.type, kubelet.info.name, list(kubelet.info.supported_versions)),
                         ("DRAPlugin", DRIVER, ["v1.DRAPlugin"]))
        name, device = sorted(self.wait_for_devices(4).items())[0]
        self.assertEqual(device["attributes"]["rdma"], {"bool": False})
        claim = self.claim("one")
        self.allocate(claim, name)
        lease = self.wait_for_lease(claim)
        self.assertIn(FINALIZER, self.seen(claim)["metadata"]["finalizers"])
        self.assertEqual(self.leases()[lease]["name"], "team-a")
        answer = kubelet.prepare(claim)[claim["metadata"]["uid"]]
        self.assertEqual(answer.error, "")
        self.assertEqual([(one.pool_name, one.device_name, list(one.request_names)) for one in answer.devices],
                         [("lab", name, ["gpu"])])
        environment = self.container(*answer.devices[0].cdi_device_ids)
        outcome = self.example("vector_add", environment)
        self.assertEqual(outcome.status, 0, outcome)
        self.assertEqual(kubelet.unprepare(claim)[claim["metadata"]["uid"]].error, "")
        self.deallocate(claim)
        wait_until(lambda: lease not in self.leases(), "the lease is given back")
        wait_until(lambda: FINALIZER not in self.seen(claim)["metadata"].get("finalizers", []), "the claim is let go of")


if __name__ == "__main__":
    main()
