"""A cluster for tests of the driver: a pool on real etcd, the test API server, a controller; and what users and Kubernetes do there.

The build folder is the first argument of the test's command line.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "server", "pool"))

from api_server import TOKEN, ApiServer  # noqa: E402
from pool_case import ENVIRONMENT, STAGE, Etcd, UsersCase, end, wait_until  # noqa: E402

DRIVER = "gpu.remote-gpu.io"
FINALIZER = DRIVER + "/lease"
PROTECTION = "resource.kubernetes.io/delete-protection"  # Kubernetes' own, on claims that are allocated


class Program:
    """A part of the driver, with its log."""

    def __init__(self, folder, name, *arguments, **environment):
        self.path = os.path.join(folder, name + ".log")
        self.command = [os.path.join(STAGE, "bin", "remote-gpu-kube-" + name), *arguments]
        self.environment, self.process = environment, None
        self.start()

    def start(self):
        with open(self.path, "a") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                            env=dict(ENVIRONMENT, **self.environment))

    def log(self):
        with open(self.path, errors="replace") as file:
            return file.read()

    def kill(self):
        end(self.process)

    def restart(self):
        self.kill()
        self.start()

    def stop(self):
        """By SIGTERM, as Kubernetes does; returns the exit status."""
        self.process.terminate()
        return self.process.wait(60)

    def close(self):
        self.kill()
        print("--- %s\n%s" % (self.path, self.log()), end="")


class ClusterCase(UsersCase):
    """One server with four GPUs; `robot` is the pool's operator, as whom the controller comes; pods come as `team-a`."""

    api_server = ApiServer
    NAMES = ("robot", "team-a", "pods")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server_options = [*cls.trust, "--pool-operators", "robot", "--pool-label", "room=north"]
        cls.token = os.path.join(cls.class_folder, "token")
        with open(cls.token, "w") as file:
            file.write(TOKEN + "\n")

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="remote-gpu-kube-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.etcd = self.keep(Etcd())
        self.gpu_server = self.server(self.etcd.urls, *self.server_options, gpus=4)
        self.api = self.keep(self.api_server())

    # --- what runs

    def controller(self, *arguments, lease="60s"):
        return self.keep(Program(self.folder, "controller", "--server", self.gpu_server.address, "--kube-api", self.api.url,
                                 "--kube-token", self.token, "--lease", lease, "--interval", "200ms", "--log", "debug",
                                 *arguments, **self.users["robot"]))

    # --- what users and Kubernetes do

    def slices(self):
        return self.api.store.all("resourceslices")

    def devices(self):
        """By name, of the newest generation, if the pool is whole."""
        slices = self.slices()
        newest = max((one["spec"]["pool"]["generation"] for one in slices), default=0)
        slices = [one for one in slices if one["spec"]["pool"]["generation"] == newest]
        if any(one["spec"]["pool"]["resourceSliceCount"] != len(slices) for one in slices):
            return {}
        return {device["name"]: device for one in slices for device in one["spec"]["devices"]}

    def wait_for_devices(self, n):
        wait_until(lambda: len(self.devices()) == n and self.slices(), "%d devices are published" % n)
        return self.devices()

    def claim(self, name, namespace="team-a"):
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"name": name, "finalizers": [PROTECTION]},
                "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]}}, "status": {}}
        return self.api.store.create("resourceclaims", namespace, body)

    def change(self, claim, change):
        meta = claim["metadata"]
        return self.api.store.replace("resourceclaims", meta["namespace"], meta["name"], change)

    def allocate(self, claim, *devices, pod="pod"):
        """What the scheduler does."""
        def change(old):
            old["metadata"].pop("resourceVersion")
            results = [{"driver": DRIVER, "pool": "lab", "device": device, "request": "gpu"} for device in devices]
            old["status"] = {"allocation": {"devices": {"results": results}},
                             "reservedFor": [{"resource": "pods", "name": pod, "uid": pod}]}
            return old
        return self.change(claim, change)

    def deallocate(self, claim):
        """What Kubernetes does when no pod uses it any more."""
        def change(old):
            old["metadata"].pop("resourceVersion")
            old["status"] = {}
            old["metadata"]["finalizers"] = [one for one in old["metadata"].get("finalizers", []) if one != PROTECTION]
            return old
        return self.change(claim, change)

    def delete(self, claim):
        return self.api.store.delete("resourceclaims", claim["metadata"]["namespace"], claim["metadata"]["name"])

    def seen(self, claim):
        """The claim as it stands; None: it is gone."""
        meta = claim["metadata"]
        return self.api.store.objects.get(("resourceclaims", meta["namespace"], meta["name"]))

    def note(self, claim, name):
        seen = self.seen(claim)
        return (seen or claim)["metadata"].get("annotations", {}).get(DRIVER + "/" + name, "") if seen else ""

    # --- what came of it

    def listed(self):
        """The pool, as its operator sees it."""
        outcome = self.by("robot", "list", "--json", "-s", self.gpu_server.address)
        return json.loads(outcome.out)["servers"][0]["pool"]

    def leases(self):
        return {lease["lease"]: lease for lease in self.listed()["leases"]}

    def wait_for_lease(self, claim):
        return wait_until(lambda: self.note(claim, "lease"), "the claim has a lease").split("/")[0]
