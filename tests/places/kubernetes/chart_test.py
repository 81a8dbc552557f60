"""The chart, rendered by helm as it is and with every value changed; objects and examples against Kubernetes' own schemas."""

import copy
import json
import os
import re
import subprocess
import sys
import unittest

from environment import run_in_environment, tool

run_in_environment(sys.argv[1])

import kubernetes_validate  # noqa: E402
import yaml  # noqa: E402

BUILD = sys.argv.pop(1)
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "places", "kubernetes")
CHART, HELM = os.path.join(SOURCE, "chart"), tool(BUILD, "helm")
VERSIONS = ("1.31", "1.32", "1.33", "1.34")
LEAST = {"pool": {"servers": ["gpu-1", "gpu-2:7601"]}}
# Every value, another than its default.
ALL = {
    "mode": "dra",
    "image": {"repository": "r.example/x", "tag": "v9", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "pull"}],
    "pool": {"servers": ["gpu-1"], "user": "cluster-{namespace}", "operatorSecret": "other", "lease": "30min", "interval": "7s",
             "port": 7777},
    "controller": {"nodes": ["room=north", "gpu-users"], "httpPort": 9999, "extraArgs": ["--log=debug"],
                   "resources": {"limits": {"cpu": "1"}}, "nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}]},
    "node": {"wait": "11s", "env": ["REMOTE_GPU_ENCRYPT=control"], "kubeletFolder": "/k/kubelet", "cdiFolder": "/k/cdi",
             "clientFolder": "/k/client", "extraArgs": ["--log=warn"], "resources": {"limits": {"cpu": "2"}},
             "nodeSelector": {"c": "d"}, "tolerations": [{"key": "x", "operator": "Exists"}]},
    "devicePlugin": {"resource": "example.com/rgpu"},
    "deviceClass": {"create": True, "name": "gpu.example.com"},
    "networkPolicy": {"enabled": True, "monitoringNamespaces": {"team": "watchers"}},
    "podMonitor": {"enabled": True, "interval": "90s", "labels": {"release": "prometheus"}},
}


# The same for a cluster that has no claims.
PLUGIN = {**ALL, "mode": "device-plugin", "pool": {**ALL["pool"], "user": "pods"}}
# What only one of them has.
OF_CLAIMS = {"controller", "deviceClass", "podMonitor", "wait", "cdiFolder"}
OF_PLUGIN = {"devicePlugin"}


def without(values, names):
    """Values but those of these names, at any depth."""
    if isinstance(values, dict):
        return {name: without(value, names) for name, value in values.items() if name not in names}
    return values


def texts_in(value):
    """The leaves of a tree of values, as texts."""
    if isinstance(value, dict):
        return [text for one in value.values() for text in texts_in(one)]
    if isinstance(value, list):
        return [text for one in value for text in texts_in(one)]
    return [str(value)]


def template(values):
    return subprocess.run([HELM, "template", "rg", CHART, "--namespace", "remote-gpu", "--kube-version", "1.34.0", "-f", "-"],
                          input=json.dumps(values), capture_output=True, text=True)


def objects(values):
    result = template(values)
    assert result.returncode == 0, result.stderr
    return [one for one in yaml.safe_load_all(result.stdout) if one]


def by_kind(values, kind, part=""):
    return next(one for one in objects(values) if one["kind"] == kind and one["metadata"]["name"].endswith(part))


class Chart(unittest.TestCase):
    def check(self, one, versions=VERSIONS):
        """Against the schema of each version that has the kind; returns in how many."""
        known = 0
        for version in versions:
            try:
                kubernetes_validate.validate(one, version, strict=True)
            except kubernetes_validate.SchemaNotFoundError:
                continue
            known += 1
        return known

    def test_lint(self):
        result = subprocess.run([HELM, "lint", "--strict", CHART, "-f", "-"], input=json.dumps(LEAST), capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_objects_are_as_kubernetes_wants_them(self):
        for values in (LEAST, ALL, PLUGIN):
            kinds = {}
            for one in objects(values):
                with self.subTest(kind=one["kind"], name=one["metadata"]["name"]):
                    kinds[one["kind"]] = self.check(one)
            if values is PLUGIN:
                self.assertEqual(set(kinds), {"DaemonSet", "NetworkPolicy"})
            else:
                self.assertEqual(kinds.pop("DeviceClass"), 1, "resource.k8s.io/v1 is of 1.34")
            self.assertEqual(kinds.pop("PodMonitor", 0), 0, "it is not Kubernetes'")
            self.assertEqual(set(kinds.values()), {len(VERSIONS)}, kinds)
        with self.assertRaises(kubernetes_validate.ValidationError):
            self.check({**by_kind(LEAST, "Deployment"), "spec": {"replicas": "many"}})

    def test_every_value_arrives(self):
        with open(os.path.join(CHART, "values.yaml")) as file:
            defaults = yaml.safe_load(file)
        self.assertEqual({(a, b) for a, of in ALL.items() if isinstance(of, dict) for b in of},
                         {(a, b) for a, of in defaults.items() if isinstance(of, dict) for b in of}, "ALL names every value")
        for values, others in ((ALL, OF_PLUGIN), (PLUGIN, OF_CLAIMS | {"monitoringNamespaces"})):
            rendered = template(values).stdout
            for text in texts_in(without(values, others)):
                if text not in ("True", "Exists", "dra", "device-plugin"):
                    self.assertIn(text, rendered)
        off = copy.deepcopy(ALL)
        for part, name in (("deviceClass", "create"), ("networkPolicy", "enabled"), ("podMonitor", "enabled")):
            off[part][name] = False
        self.assertEqual({one["kind"] for one in objects(ALL)} - {one["kind"] for one in objects(off)},
                         {"DeviceClass", "NetworkPolicy", "PodMonitor"})

    def test_wrong_values_are_refused(self):
        for values, what in (({}, "servers"), ({"pool": {"servers": []}}, "servers"),
                             ({**LEAST, "nod": {}}, "nod"), ({**LEAST, "controller": {"httpPort": 0}}, "httpPort"),
                             ({**LEAST, "node": {"env": ["NOT ONE"]}}, "env"), ({**LEAST, "node": {"cdiFolder": "run"}}, "cdiFolder"),
                             ({"pool": {"servers": ["a"], "lease": "soon"}}, "lease"), ({**LEAST, "mode": "csi"}, "mode"),
                             ({**LEAST, "mode": "device-plugin"}, "user"), ({**LEAST, "devicePlugin": {"resource": "gpu"}}, "resource")):
            result = template(values)
            with self.subTest(what):
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(what, result.stderr)

    def test_options_are_the_programs(self):
        for values, kind, name in ((ALL, "Deployment", "controller"), (ALL, "DaemonSet", "node"), (PLUGIN, "DaemonSet", "plugin")):
            text = subprocess.run([os.path.join(BUILD, "stage", "bin", "remote-gpu-kube-" + name), "--help"],
                                  capture_output=True, text=True, check=True).stdout
            known = set(re.findall(r"--([\w-]+)", text))
            container = by_kind(values, kind)["spec"]["template"]["spec"]["containers"][0]
            given = {word[2:].split("=")[0] for word in container["args"]}
            self.assertGreater(len(given), 5)
            self.assertEqual(given - known, set())

    def test_pods_have_no_more_rights_than_they_need(self):
        for values, kind, part in ((LEAST, "Deployment", "controller"), (LEAST, "DaemonSet", "node"), (PLUGIN, "DaemonSet", "node")):
            spec = by_kind(values, kind, part)["spec"]["template"]["spec"]
            for name in ("hostPID", "hostNetwork", "hostIPC"):
                self.assertFalse(spec.get(name))
            for container in spec["containers"] + spec.get("initContainers", []):
                security = container["securityContext"]
                self.assertEqual((security["allowPrivilegeEscalation"], security["readOnlyRootFilesystem"],
                                  security["capabilities"], security.get("privileged", False)),
                                 (False, True, {"drop": ["ALL"]}, False))
        self.assertEqual(by_kind(LEAST, "ClusterRole", "node")["rules"],
                         [{"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get"]}])

    def test_examples(self):
        n = 0
        for name in sorted(os.listdir(os.path.join(SOURCE, "examples"))):
            with open(os.path.join(SOURCE, "examples", name)) as file:
                for one in yaml.safe_load_all(file):
                    n += 1
                    with self.subTest(name, kind=one["kind"]):
                        self.assertEqual(self.check(one, ["1.34"]), 1)
                        if name == "device-plugin.yaml":
                            self.assertEqual(self.check(one), len(VERSIONS), "it is for older ones")
        self.assertGreaterEqual(n, 4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
