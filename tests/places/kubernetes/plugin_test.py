"""The device plugin from end to end: a real pool, and gRPC as the kubelet's device manager speaks it; and what it does when each part
fails or starts again."""

import json
import os
import subprocess
import sys

from environment import run_in_environment

run_in_environment(sys.argv[1])

import device_manager  # noqa: E402
import grpc  # noqa: E402
from cluster_case import STAGE, ClusterCase, Program  # noqa: E402
from device_manager import RESOURCE, DeviceManager  # noqa: E402
from pool_case import BUILD, COMMAND, main, run, wait_until  # noqa: E402


class Plugin(ClusterCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.messages = device_manager.load(cls.class_folder)

    def setUp(self):
        super().setUp()
        self.kubelet = self.keep(DeviceManager(self.folder, self.messages))
        self.program = None

    def begin(self, *arguments, settle="60s"):
        """Pool, plugin and kubelet, as far as the GPUs are known."""
        self.program = self.keep(Program(
            self.folder, "plugin", "--server", self.gpu_server.address, "--user", "team-a", "--lease", "60s", "--interval", "200ms",
            "--settle", settle, "--client-root", STAGE, "--plugin-dir", self.kubelet.folder, "--pod-resources", self.kubelet.listing,
            "--state-dir", os.path.join(self.folder, "state"), *arguments, **self.users["robot"]))
        registration = self.kubelet.follow()
        wait_until(lambda: len(self.kubelet.healthy()) == 4, "four GPUs are healthy")
        return registration

    def vector_add(self, container, user="team-a"):
        return run(os.path.join(BUILD, "examples", "vector_add"), **dict(device_manager.environment(container), **self.users[user]))

    def wait_for_leases(self, n):
        wait_until(lambda: len(self.leases()) == n, "there are %d leases" % n)

    # --- as it should be

    def test_a_container_from_device_to_program(self):
        registration = self.begin("--env", "MORE=1")
        self.assertEqual((registration.version, registration.resource_name, registration.options.pre_start_required,
                          registration.options.get_preferred_allocation_available), ("v1beta1", RESOURCE, False, True))
        options = self.kubelet.ask("GetDevicePluginOptions", self.kubelet.plugin.Empty(), self.kubelet.plugin.DevicePluginOptions)
        self.assertEqual(options, registration.options)
        ids = self.kubelet.healthy()
        (container,) = self.kubelet.allocate(ids[:1])
        self.kubelet.containers["pod"] = ids[:1]
        self.assertEqual(container.envs["MORE"], "1")
        self.assertTrue(all(mount.read_only for mount in container.mounts))
        (lease,) = self.leases().values()
        self.assertEqual(lease["name"], "team-a")
        outcome = self.vector_add(container)
        self.assertEqual(outcome.status, 0, outcome)
        self.assertNotEqual(self.vector_add(container, "robot").status, 0, "the lease is team-a's")
        self.assertEqual(self.kubelet.healthy(), ids, "what containers of this node have is not unhealthy")
        with open(os.path.join(self.folder, "state", "leases.json")) as file:
            self.assertEqual([one["devices"] for one in json.load(file)], [ids[:1]])
        del self.kubelet.containers["pod"]
        self.wait_for_leases(0)

    def test_several_gpus_for_one_container(self):
        self.begin()
        ids = self.kubelet.healthy()
        self.assertEqual(sorted(self.kubelet.prefer(ids[1:], ids[3:], 3)), ids[1:])
        self.assertEqual(self.kubelet.prefer(ids, ids[2:3], 2)[0], ids[2])
        first, second = self.kubelet.allocate(ids[:3], ids[3:])
        self.kubelet.containers.update(first=ids[:3], second=ids[3:])
        self.assertEqual(sorted(lease["gpus"] for lease in self.leases().values()), [1, 3])
        self.assertNotEqual(first.envs["REMOTE_GPU_LEASE"], second.envs["REMOTE_GPU_LEASE"])
        for container in (first, second):
            self.assertEqual(self.vector_add(container).status, 0)

    # --- others

    def test_what_others_have_is_unhealthy(self):
        self.begin()
        held = run(COMMAND, "request", "--json", "-s", self.gpu_server.address, "-n", "3", "--for", "1h", **self.users["robot"])
        wait_until(lambda: len(self.kubelet.healthy()) == 1, "one GPU is left")
        taken = [one for one in self.kubelet.devices if one not in self.kubelet.healthy()][:1]
        with self.assertRaises(grpc.RpcError) as refused:
            self.kubelet.allocate(taken)
        self.assertEqual(refused.exception.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertIn("lease-not-free", refused.exception.details())
        run(COMMAND, "release", "-s", self.gpu_server.address, json.loads(held.out)["lease"], **self.users["robot"])
        wait_until(lambda: len(self.kubelet.healthy()) == 4, "all are back")
        self.assertEqual(len(self.kubelet.allocate(taken)), 1)

    def test_a_device_is_given_again_before_its_end_was_seen(self):
        self.begin()
        ids = self.kubelet.healthy()
        self.kubelet.allocate(ids[:2])
        (container,) = self.kubelet.allocate(ids[:1])
        self.kubelet.containers["pod"] = ids[:1]
        self.wait_for_leases(1)
        self.assertEqual(self.vector_add(container).status, 0)

    # --- what fails

    def test_the_plugin_starts_again(self):
        self.begin()
        ids = self.kubelet.healthy()
        (container,) = self.kubelet.allocate(ids[:2])
        self.kubelet.containers["pod"] = ids[:2]
        before = set(self.leases())
        self.program.restart()
        self.kubelet.follow()
        wait_until(lambda: self.kubelet.healthy() == ids, "all are healthy again")
        self.assertEqual(set(self.leases()), before)
        self.assertEqual(self.vector_add(container).status, 0)
        self.kubelet.containers.clear()
        self.wait_for_leases(0)

    def test_a_container_ends_while_the_plugin_is_away(self):
        self.begin(settle="1s")
        self.kubelet.allocate(self.kubelet.healthy()[:1])
        self.program.restart()
        self.wait_for_leases(0)

    def test_a_container_that_never_came(self):
        self.begin(settle="1s")
        self.kubelet.allocate(self.kubelet.healthy()[:1])
        self.wait_for_leases(0)

    def test_the_kubelet_starts_again(self):
        self.begin()
        ids = self.kubelet.healthy()
        self.kubelet.allocate(ids[:1])
        self.kubelet.containers["pod"] = ids[:1]
        self.kubelet.restart()
        self.assertEqual(self.kubelet.follow().resource_name, RESOURCE)
        wait_until(lambda: self.kubelet.healthy() == ids, "all are healthy again")
        self.wait_for_leases(1)

    def test_the_list_of_pods_is_away(self):
        """Then nothing is given back that may be in use."""
        self.begin(settle="1s")
        ids = self.kubelet.healthy()
        self.kubelet.allocate(ids[:1])
        self.kubelet.containers["pod"] = ids[:1]
        self.kubelet.lister.stop(None).wait()
        wait_until(lambda: "are not given back" in self.program.log(), "it says so")
        self.wait_for_leases(1)
        del self.kubelet.containers["pod"]
        self.kubelet.start_listing()
        self.wait_for_leases(0)

    def test_a_server_that_drains(self):
        self.begin()
        self.assertEqual(self.gpu_server.drain().status, 0)
        wait_until(lambda: not self.kubelet.healthy(), "nothing is healthy")

    def test_it_ends_when_it_is_told_to(self):
        self.begin()
        self.assertEqual(self.program.stop(), 0)
        self.assertFalse(os.path.exists(os.path.join(self.kubelet.folder, "remote-gpu.sock")))

    def test_mistakes_are_named(self):
        for words, what in (([], "which pool?"), (["-s", "a"], "--user NAME"), (["-s", "a", "--user", "b", "--lease", "1s"], "--lease"),
                            (["-s", "a", "--user", "b", "--resource", "gpu"], "--resource"),
                            (["-s", "a", "--user", "b", "--env", "X"], "--env")):
            result = subprocess.run([os.path.join(STAGE, "bin", "remote-gpu-kube-plugin"), *words], capture_output=True, text=True)
            self.assertEqual(result.returncode, 125)
            self.assertIn(what, result.stderr)


if __name__ == "__main__":
    main()
