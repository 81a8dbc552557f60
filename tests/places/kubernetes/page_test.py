"""The commands of docs/kubernetes.md, as they stand there: kubectl and helm against a test API server, where the test is the cluster.

What the chart makes is started: controller and node's part, or the device plugin, with the arguments, credentials and folders that its
objects say. A Job's pod gets a claim and a device, or an extended resource, as scheduler and kubelet would do it; in the place of
PyTorch, which would need its image, vector_add runs with what the container was given.
"""

import base64
import json
import os
import subprocess
import sys
import threading

from environment import run_in_environment, tool

run_in_environment(sys.argv[1])

import device_manager  # noqa: E402
import kubelet  # noqa: E402
from cluster_case import DRIVER, ClusterCase, Program  # noqa: E402
from pool_case import BUILD, COMMAND, ENVIRONMENT, STAGE, main, run, wait_until  # noqa: E402
from whole_api import WholeServer  # noqa: E402

import page  # noqa: E402

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
PAGE = os.path.join(SOURCE, "docs", "kubernetes.md")
TOOLS = {name: tool(BUILD, name) for name in ("kubectl", "helm")}
# Of the page: a server of the pool.
SERVER = "gpu-1.example.com"


class Page(ClusterCase):
    api_server = WholeServer

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.messages = kubelet.load(cls.class_folder), device_manager.load(cls.class_folder)

    def setUp(self):
        super().setUp()
        self.done, self.failure, self.seen_objects = threading.Event(), None, set()
        self.node_folder = os.path.join(self.folder, "node")
        os.mkdir(self.node_folder)
        self.jobs = {}
        for namespace in ("kube-system", "team-a"):
            self.api.store.create("namespaces", "", {"metadata": {"name": namespace}, "kind": "Namespace", "apiVersion": "v1"})
        self.manager = self.keep(device_manager.DeviceManager(self.node_folder, self.messages[1]))
        self.kubelet = None
        thread = threading.Thread(target=self.be_a_cluster)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.done.set)

    # --- the cluster

    def be_a_cluster(self):
        while not self.done.wait(0.05):
            try:
                self.act()
            except Exception as failure:  # noqa: BLE001 - the test's thread says it
                self.failure = failure
                self.api.down()  # nobody need wait any longer
                raise

    def act(self):
        actions = {"Deployment": self.begin_deployment, "DaemonSet": self.begin_daemon_set, "Job": self.begin_job}
        for kind in ("deployments", "daemonsets", "jobs"):
            for one in self.api.store.all(kind):
                if one["metadata"]["uid"] not in self.seen_objects:
                    self.seen_objects.add(one["metadata"]["uid"])
                    actions[one["kind"]](one)
        names = {one["metadata"]["name"] for one in self.api.store.all("jobs")}
        for name in [name for name in self.jobs if name not in names]:
            self.end_job(name)

    def update(self, plural, one, change):
        meta = one["metadata"]
        self.api.store.replace(plural, meta["namespace"], meta["name"], change)

    def begin_program(self, spec, part):
        """A container's program, by its arguments, with its Secret's credentials, and folders of the node below one of the test's."""
        pod = spec["template"]["spec"]
        container = pod["containers"][0]
        self.assertEqual(container["command"], ["remote-gpu-kube-" + part])
        words = [word.replace(SERVER, self.gpu_server.address) for word in container["args"] if "gpu-2" not in word]
        words = [word.replace("=/var/", "=%s/" % self.node_folder) for word in words]
        words = ["--client-root=" + STAGE if word.startswith("--client-root") else word for word in words]
        words = [word for word in words if not word.startswith("--http")]
        if part != "plugin":
            words += ["--kube-api", self.api.url, "--kube-token", self.token]
        words = ["--interval=200ms" if word.startswith("--interval") else word for word in words]
        environment = {}
        for volume in pod["volumes"]:
            if "secret" in volume:
                environment["REMOTE_GPU_CREDENTIALS"] = self.mounted("remote-gpu", volume["secret"]["secretName"])
            elif "hostPath" in volume:
                os.makedirs(volume["hostPath"]["path"].replace("/var/", self.node_folder + "/", 1), exist_ok=True)
        return self.keep(Program(self.folder, part, *words, **environment))

    def mounted(self, namespace, name):
        """A Secret's files in a folder."""
        secret = self.api.store.get("secrets", namespace, name)
        folder = os.path.join(self.folder, "%s-%s-mounted" % (namespace, name))
        os.makedirs(folder, mode=0o700, exist_ok=True)
        for key, value in secret["data"].items():
            with open(os.open(os.path.join(folder, key), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(base64.b64decode(value))
        return folder

    def begin_deployment(self, one):
        self.begin_program(one["spec"], "controller")

        def ready(old):
            old["metadata"]["generation"] = 1
            old["status"] = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}
            return old
        self.update("deployments", one, ready)

    def begin_daemon_set(self, one):
        part = one["spec"]["template"]["spec"]["containers"][0]["command"][0].rpartition("-")[2]
        if part == "plugin":
            # the manager's folders, where the chart has them
            os.makedirs(os.path.join(self.node_folder, "lib", "kubelet"))
            os.symlink(self.manager.folder, os.path.join(self.node_folder, "lib", "kubelet", "device-plugins"))
            os.mkdir(os.path.join(self.node_folder, "lib", "kubelet", "pod-resources"))
            os.symlink(self.manager.listing, os.path.join(self.node_folder, "lib", "kubelet", "pod-resources", "kubelet.sock"))
        program = self.begin_program(one["spec"], part)
        if part == "plugin":
            self.manager.follow()
            wait_until(lambda: len(self.manager.healthy()) == 4, "four GPUs are healthy")
            self.api.store.create("nodes", "", {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "node-1"},
                                                "status": {"allocatable": {device_manager.RESOURCE: str(len(self.manager.healthy()))}}})
        else:
            wait_until(lambda: "the kubelet can ask" in program.log() or program.process.poll() is not None, "the node part listens")
            self.kubelet = self.keep(kubelet.Kubelet(os.path.join(self.node_folder, "lib", "kubelet"), self.messages[0]))
            self.kubelet.register()

        def ready(old):
            old["metadata"]["generation"] = 1
            old["spec"]["updateStrategy"] = {"type": "RollingUpdate"}
            old["status"] = {"observedGeneration": 1, "desiredNumberScheduled": 1, "currentNumberScheduled": 1, "numberReady": 1,
                             "updatedNumberScheduled": 1, "numberAvailable": 1}
            return old
        self.update("daemonsets", one, ready)

    # --- a Job's pod

    def begin_job(self, job):
        meta, pod = job["metadata"], job["spec"]["template"]["spec"]
        container = pod["containers"][0]
        if "resourceClaims" in pod:
            environment = self.claimed(meta, pod)
        else:
            environment = self.extended(meta, container)
        (secret,) = [volume["secret"]["secretName"] for volume in pod["volumes"]]
        self.assertIn({"name": "REMOTE_GPU_CREDENTIALS", "value": container["volumeMounts"][0]["mountPath"]}, container["env"])
        environment["REMOTE_GPU_CREDENTIALS"] = self.mounted(meta["namespace"], secret)
        outcome = run(os.path.join(BUILD, "examples", "vector_add"), **environment)
        self.assertEqual(outcome.status, 0, outcome)
        self.manager.containers.pop(meta["name"], None)  # the kubelet lists no pod that has ended
        labels = {"batch.kubernetes.io/job-name": meta["name"]}
        self.api.store.create("pods", meta["namespace"], {
            "kind": "Pod", "apiVersion": "v1", "metadata": {"name": meta["name"] + "-x", "labels": labels}, "spec": pod,
            "status": {"phase": "Succeeded"}, "test-log": outcome.out + outcome.err})

        def complete(old):
            old["spec"]["selector"] = {"matchLabels": labels}
            old["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
            return old
        self.update("jobs", job, complete)

    def claimed(self, meta, pod):
        """What scheduler and kubelet do of a claim of the pod's: the container's variables."""
        template = self.api.store.get("resourceclaimtemplates", meta["namespace"], pod["resourceClaims"][0]["resourceClaimTemplateName"])
        request = template["spec"]["spec"]["devices"]["requests"][0]
        self.assertIn(request["exactly"]["deviceClassName"], [one["metadata"]["name"] for one in self.api.store.all("deviceclasses")])
        claim = self.claim(meta["name"] + "-gpu", meta["namespace"])
        self.jobs[meta["name"]] = claim
        self.allocate(claim, sorted(self.wait_for_devices(4))[0])
        self.wait_for_lease(claim)
        answer = self.kubelet.prepare(claim)[claim["metadata"]["uid"]]
        self.assertEqual(answer.error, "")
        (identity,) = answer.devices[0].cdi_device_ids
        name = identity.partition("=")[2]
        folder = os.path.join(self.node_folder, "run", "cdi")
        (path,) = [os.path.join(folder, one) for one in os.listdir(folder) if name in one]
        with open(path) as file:
            spec = json.load(file)
        edits = [spec["containerEdits"], spec["devices"][0]["containerEdits"]]
        found = dict(variable.split("=", 1) for edit in edits for variable in edit["env"])
        for mount in spec["containerEdits"]["mounts"]:
            found["LD_PRELOAD"] = found["LD_PRELOAD"].replace(mount["containerPath"] + "/", mount["hostPath"] + "/")
        return found

    def extended(self, meta, container):
        (name, number), = container["resources"]["limits"].items()
        self.assertEqual((name, int(number)), (device_manager.RESOURCE, 1))
        ids = self.manager.healthy()[:1]
        (answer,) = self.manager.allocate(ids)
        self.manager.containers[meta["name"]] = ids
        self.jobs[meta["name"]] = None
        return device_manager.environment(answer)

    def end_job(self, name):
        claim = self.jobs.pop(name)
        self.manager.containers.pop(name, None)
        if claim:
            self.kubelet.unprepare(claim)
            self.deallocate(claim)
            self.delete(claim)

    # --- the page

    def run_blocks(self, name, user):
        """Each block in a shell of its own, beside credentials: of the user, or of the pool's operator where it is about those."""
        configuration = os.path.join(self.folder, "kubeconfig")
        self.api.write_kubeconfig(configuration)
        tools = os.path.join(self.folder, "tools")
        os.mkdir(tools)
        for one, path in TOOLS.items():
            os.symlink(path, os.path.join(tools, one))
        with open(os.path.join(tools, "remote-gpu"), "w") as file:
            file.write('#!/bin/sh\nexec %s "$1" -s %s\n' % (COMMAND, self.gpu_server.address))
        os.chmod(os.path.join(tools, "remote-gpu"), 0o755)
        said = ""
        for block in page.blocks(PAGE, name):
            whose = "robot" if "remote-gpu-operator" in block or "remote-gpu list" in block else user
            folder = os.path.join(self.folder, "shell-" + whose)
            if not os.path.exists(folder):
                os.mkdir(folder)
                os.symlink(os.path.join(SOURCE, "places"), os.path.join(folder, "places"))
                for file in ("ca.crt", "tls.crt", "tls.key"):
                    os.symlink(os.path.join(self.users[whose]["REMOTE_GPU_CREDENTIALS"], file), os.path.join(folder, file))
            result = subprocess.run(["bash", "-c", "set -euxo pipefail\n" + block], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True, cwd=folder, timeout=300, env=dict(
                                        ENVIRONMENT, PATH=tools + os.pathsep + ENVIRONMENT["PATH"], KUBECONFIG=configuration,
                                        HOME=self.folder, **self.users[whose]))
            print(result.stdout, flush=True)
            self.assertIsNone(self.failure)
            self.assertEqual(result.returncode, 0, result.stdout)
            said += result.stdout
        return said

    def test_claims(self):
        said = self.run_blocks("kubernetes", "team-a")
        self.assertIn("the cluster has resource.k8s.io/v1", said)
        self.assertIn("successfully rolled out", said)
        self.assertIn("vector_add: ok", said)
        wait_until(lambda: not self.leases(), "no lease is left")
        spaces = {one["metadata"]["name"]: one["metadata"].get("labels", {}) for one in self.api.store.all("namespaces")}
        self.assertEqual(spaces["remote-gpu"]["pod-security.kubernetes.io/enforce"], "privileged")
        self.assertEqual([one["spec"]["driver"] for one in self.slices()], [DRIVER])

    def test_extended_resource(self):
        self.api.store.create("namespaces", "", {"metadata": {"name": "remote-gpu"}, "kind": "Namespace", "apiVersion": "v1"})
        operator = {}
        for key in ("ca.crt", "tls.crt", "tls.key"):
            with open(os.path.join(self.users["robot"]["REMOTE_GPU_CREDENTIALS"], key), "rb") as file:
                operator[key] = base64.b64encode(file.read()).decode()
        self.api.store.create("secrets", "remote-gpu", {"metadata": {"name": "remote-gpu-operator"}, "kind": "Secret", "apiVersion": "v1",
                                                        "data": operator})
        said = self.run_blocks("kubernetes-plugin", "pods")
        self.assertRegex(said, r"node-1 +4")
        self.assertIn("vector_add: ok", said)
        wait_until(lambda: not self.leases(), "no lease is left")


if __name__ == "__main__":
    main()
