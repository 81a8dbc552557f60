"""The controller against a real pool and the test API server."""

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


if __name__ == "__main__":
    main()
