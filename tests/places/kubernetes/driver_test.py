"""The driver of Kubernetes' dynamic resource allocation from end to end: a real pool, a test API server, gRPC as the kubelet speaks
it; and what it does when each part fails."""

import json
import os
import signal
import subprocess
import sys

from driver_case import DriverCase, wait_until
from cluster_case import DRIVER, FINALIZER
from pool_case import COMMAND, ENVIRONMENT, PROGRAM, end, main, run

import kubernetes_validate


class Driver(DriverCase):
    def cluster(self, **more):
        """Everything; returns the names of the devices."""
        self.control, self.part = self.controller(**more), self.node()
        self.kube = self.kubelet()
        return sorted(self.wait_for_devices(4))

    def prepared(self, claim):
        answer = self.kube.prepare(claim)[claim["metadata"]["uid"]]
        self.assertEqual(answer.error, "")
        return answer

    def allocated(self, name, *devices):
        claim = self.claim(name)
        self.allocate(claim, *devices)
        return claim

    def session(self, environment, **options):
        """A program whose session goes on until its input ends."""
        process = subprocess.Popen([sys.executable, "-u", "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env=dict(ENVIRONMENT, **environment, **self.users["team-a"]), **options)
        self.addCleanup(end, process)
        self.addCleanup(process.stdout.close)
        self.assertIn("begun", process.stdout.readline())
        return process

    def gone(self, claim, lease):
        wait_until(lambda: lease not in self.leases(), "the lease is given back")
        wait_until(lambda: FINALIZER not in (self.seen(claim) or claim)["metadata"].get("finalizers", []), "the claim is let go of")

    # --- as it should be

    def test_a_claim_from_slice_to_program(self):
        names = self.cluster()
        info = self.kube.info
        self.assertEqual((info.type, info.name, list(info.supported_versions)), ("DRAPlugin", DRIVER, ["v1.DRAPlugin"]))
        for one in self.slices():
            kubernetes_validate.validate(one, "1.34", strict=True)
        claim = self.allocated("one", names[0])
        lease = self.wait_for_lease(claim)
        self.assertIn(FINALIZER, self.seen(claim)["metadata"]["finalizers"])
        self.assertEqual(self.leases()[lease]["name"], "team-a")
        answer = self.prepared(claim)
        self.assertEqual([(one.pool_name, one.device_name, list(one.request_names)) for one in answer.devices],
                         [("lab", names[0], ["gpu"])])
        self.assertEqual(answer, self.prepared(claim), "the kubelet may ask again")
        (name,) = os.listdir(os.path.join(self.folder, "cdi"))  # it names a lease
        self.assertEqual(os.stat(os.path.join(self.folder, "cdi", name)).st_mode & 0o777, 0o600)
        outcome = self.example("vector_add", self.container(*answer.devices[0].cdi_device_ids))
        self.assertEqual(outcome.status, 0, outcome)
        for _ in range(2):
            self.assertEqual(self.kube.unprepare(claim)[claim["metadata"]["uid"]].error, "")
        self.assertEqual(os.listdir(os.path.join(self.folder, "cdi")), [])
        self.deallocate(claim)
        self.gone(claim, lease)

    def test_a_claim_of_several_gpus_and_others_beside_it(self):
        names = self.cluster()
        two, one = self.allocated("two", names[0], names[3]), self.allocated("one", names[1])
        answers = self.kube.prepare(two, one)
        devices = answers[two["metadata"]["uid"]].devices
        self.assertEqual([device.device_name for device in devices], [names[0], names[3]])
        ids = {identity for device in devices for identity in device.cdi_device_ids}
        self.assertEqual(len(ids), 1)
        session = self.session(self.container(*ids))
        out, _ = session.communicate("\n", timeout=60)
        self.assertIn("works", out)
        self.assertNotEqual(ids, set(answers[one["metadata"]["uid"]].devices[0].cdi_device_ids))

    def test_gpus_of_others_are_not_published_and_come_back(self):
        self.cluster()
        held = self.by_robot("request", "--json", "-s", self.gpu_server.address, "-n", "3", "--for", "1h")
        self.wait_for_devices(1)
        self.by_robot("release", "-s", self.gpu_server.address, json.loads(held.out)["lease"])
        self.wait_for_devices(4)

    def by_robot(self, *words):
        outcome = run(COMMAND, *words, **self.users["robot"])
        self.assertEqual(outcome.status, 0, outcome)
        return outcome

    def test_a_server_that_drains_is_not_published(self):
        self.cluster()
        self.assertEqual(self.gpu_server.drain().status, 0)
        self.wait_for_devices(0)
        self.assertEqual(self.gpu_server.drain("--undo").status, 0)
        self.wait_for_devices(4)

    # --- what users do meanwhile

    def test_a_pod_that_is_killed_before_it_was_prepared(self):
        names = self.cluster()
        claim = self.allocated("one", names[0])
        lease = self.wait_for_lease(claim)
        self.deallocate(claim)
        self.delete(claim)
        self.gone(claim, lease)
        self.assertIsNone(self.seen(claim))
        self.assertIn("not found", self.kube.prepare(claim)[claim["metadata"]["uid"]].error)

    def test_a_claim_that_is_deleted_while_the_session_runs(self):
        names = self.cluster()
        claim = self.allocated("one", names[0])
        lease = self.wait_for_lease(claim)
        session = self.session(self.container(*self.prepared(claim).devices[0].cdi_device_ids))
        self.delete(claim)
        self.control.restart()
        wait_until(lambda: self.control.log().count("has lease") == 2, "the controller has found the lease again")
        out, _ = session.communicate("\n", timeout=60)
        self.assertIn("works", out, "the pod keeps its GPU")
        self.kube.unprepare(claim)
        self.deallocate(claim)
        self.gone(claim, lease)

    def test_a_claim_whose_finalizer_was_taken_off_by_hand(self):
        names = self.cluster()
        claim = self.allocated("one", names[0])
        lease = self.wait_for_lease(claim)

        def without(old):
            old["metadata"]["finalizers"], old["metadata"]["deletionTimestamp"] = [], "2026-01-01T00:00:00Z"
            del old["metadata"]["resourceVersion"]
            return old
        self.change(claim, without)
        wait_until(lambda: lease not in self.leases(), "the lease is given back")

    def test_a_claim_that_is_allocated_anew(self):
        names = self.cluster()
        claim = self.allocated("one", names[0])
        before = self.wait_for_lease(claim)
        self.allocate(claim, names[1])
        wait_until(lambda: self.note(claim, "lease").split("/")[0] not in ("", before), "it has another lease")
        wait_until(lambda: before not in self.leases(), "the first is given back")
        self.assertEqual(self.prepared(claim).devices[0].device_name, names[1])

    def test_annotations_of_others_take_no_lease_away(self):
        names = self.cluster()
        claim, other = self.allocated("one", names[0]), self.claim("other", "team-b")
        lease = self.wait_for_lease(claim)

        def steal(old):
            old["metadata"]["annotations"] = dict(self.seen(claim)["metadata"]["annotations"])
            del old["metadata"]["resourceVersion"]
            return old
        self.change(other, steal)
        wait_until(lambda: not self.note(other, "devices"), "the controller has cleared it away")
        self.assertIn(lease, self.leases())

    # --- what fails

    def test_conflicts_are_tried_again(self):
        names = self.cluster()
        claim = self.allocated("one", names[0])
        self.api.store.conflicts = 2
        lease = self.wait_for_lease(claim)
        self.deallocate(claim)
        self.api.store.conflicts = 1
        self.gone(claim, lease)
        self.assertEqual(self.api.store.conflicts, 0)

    def test_the_history_is_forgotten(self):
        names = self.cluster()
        claim = self.claim("one")
        self.api.down()
        self.allocate(claim, names[0])
        self.api.store.forget()
        self.api.page = 1  # and the list comes in pieces
        others = [self.claim("more-%d" % i) for i in range(3)]
        self.api.store.forget()
        self.api.up()
        self.wait_for_lease(claim)
        self.assertEqual(self.note(others[2], "lease"), "")

    def test_the_api_server_is_gone_for_a_while(self):
        names = self.cluster()
        claim, new = self.allocated("one", names[0]), self.claim("new")
        lease = self.wait_for_lease(claim)
        answer = self.prepared(claim)
        session = self.session(self.container(*answer.devices[0].cdi_device_ids))
        self.api.down()
        wait_until(lambda: "cannot ask the API server" in self.control.log(), "the controller says so")
        self.assertEqual(self.prepared(claim), answer, "what was prepared is known without it")
        self.assertIn(lease, self.leases())
        out, _ = session.communicate("\n", timeout=60)
        self.assertIn("works", out)
        self.allocate(new, names[1])
        self.deallocate(claim)
        self.api.up()
        self.gone(claim, lease)
        self.wait_for_lease(new)

    def test_the_controller_is_killed_at_any_point(self):
        names = self.cluster()
        claims = [self.allocated("c%d" % i, names[i]) for i in range(4)]
        leases = []
        for claim in claims:
            self.control.restart()
            leases.append(self.wait_for_lease(claim))
        self.assertEqual(set(self.leases()), set(leases))
        self.control.kill()
        for claim in claims[:2]:
            self.deallocate(claim)
            self.delete(claim)
        self.control.start()
        for claim, lease in zip(claims[:2], leases):
            self.gone(claim, lease)
        self.assertEqual(set(self.leases()), set(leases[2:]))
        self.wait_for_devices(4)

    def test_the_controller_is_out_of_reach_for_longer_than_a_lease(self):
        """The lease ends, and with it the pod's session, whose program is told; when the controller is back the claim has a lease again."""
        names = self.cluster()
        claim = self.allocated("one", names[0])
        lease = self.wait_for_lease(claim)
        environment = self.container(*self.prepared(claim).devices[0].cdi_device_ids)
        session = self.session(environment, stderr=subprocess.PIPE)
        self.control.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: lease not in self.leases(), "the lease has ended", 180)
        out, errors = session.communicate("\n", timeout=60)
        self.assertIn("lost", out)
        self.assertIn("lease", errors)
        self.control.process.send_signal(signal.SIGCONT)
        wait_until(lambda: lease in self.leases(), "the claim has its lease again")
        outcome = self.example("vector_add", environment)
        self.assertEqual(outcome.status, 0, outcome)
        self.deallocate(claim)
        self.gone(claim, lease)

    def test_the_node_part_is_killed(self):
        names = self.cluster()
        claim = self.allocated("one", names[0])
        answer = self.prepared(claim)
        self.part.kill()
        for name in os.listdir(os.path.join(self.folder, "cdi")):  # as a reboot empties /run
            os.unlink(os.path.join(self.folder, "cdi", name))
        self.api.down()
        self.part.start()
        self.wait_for_node(self.part, 2)
        self.kube.register()
        self.assertEqual(self.prepared(claim), answer)
        outcome = self.example("vector_add", self.container(*answer.devices[0].cdi_device_ids))
        self.assertEqual(outcome.status, 0, outcome)
        self.assertEqual(self.part.stop(), 0)

    def test_the_controller_is_not_there(self):
        self.part = self.node("--wait", "500ms")
        self.kube = self.kubelet()
        claim = self.allocated("one", "gpu-73")
        self.assertIn("does that run?", self.kube.prepare(claim)[claim["metadata"]["uid"]].error)
        self.control = self.controller()
        wait_until(lambda: self.note(claim, "waiting"), "the controller says why there is no lease")
        self.assertRegex(self.kube.prepare(claim)[claim["metadata"]["uid"]].error, r"no server of the pool has a GPU")
        self.deallocate(claim)
        wait_until(lambda: not self.note(claim, "waiting"), "it is cleared away")

    def test_a_server_that_is_lost_costs_no_claim_its_lease(self):
        """The other has the same GPUs to whoever asks, as one that comes back with another address: the machine is the same."""
        names = self.cluster()
        other = self.server(self.etcd.urls, *self.server_options, gpus=4)
        claim = self.allocated("one", names[0])
        lease = self.wait_for_lease(claim)
        lost = self.gpu_server
        self.gpu_server = other
        end(lost.process)
        wait_until(lambda: [one["address"] for one in self.listed()["servers"]] == [other.address], "the server is out of the pool")
        claim_before = self.seen(claim)
        later = self.allocated("later", names[1])
        wait_until(lambda: self.note(later, "lease") or self.note(later, "waiting"), "the controller goes on")
        self.assertIn(lease, self.leases())
        self.assertEqual(self.seen(claim), claim_before)
        self.assertNotIn("was given back", self.control.log())


if __name__ == "__main__":
    main()
