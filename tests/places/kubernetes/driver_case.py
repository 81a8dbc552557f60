"""A cluster with a node whose kubelet is the test: the part of the driver that runs there, and what containers get of it.

What comes from PyPI (grpcio, to speak as the kubelet does) is installed into a virtual environment of the build folder, in which the
test then runs again.
"""

import json
import os
import sys

from environment import run_in_environment

run_in_environment(sys.argv[1])

import kubelet  # noqa: E402
from cluster_case import STAGE, ClusterCase, Program, wait_until  # noqa: E402
from pool_case import BUILD, run  # noqa: E402


class DriverCase(ClusterCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.messages = kubelet.load(cls.class_folder)

    def setUp(self):
        super().setUp()
        os.mkdir(os.path.join(self.folder, "plugins_registry"))

    def node(self, *arguments):
        program = self.keep(Program(self.folder, "node", "--kube-api", self.api.url, "--kube-token", self.token,
                                    "--plugin-dir", os.path.join(self.folder, "plugin"),
                                    "--registry-dir", os.path.join(self.folder, "plugins_registry"),
                                    "--cdi-dir", os.path.join(self.folder, "cdi"), "--client-root", STAGE, *arguments))
        self.wait_for_node(program)
        return program

    @staticmethod
    def wait_for_node(program, times=1):
        wait_until(lambda: program.log().count("the kubelet can ask") >= times or program.process.poll() is not None,
                   "the node part listens")

    def kubelet(self):
        one = self.keep(kubelet.Kubelet(self.folder, self.messages))
        one.register()
        return one

    def container(self, *ids):
        """The environment that a container runtime makes of CDI devices' edits, with mounts as paths of this machine."""
        environment, folder = {}, os.path.join(self.folder, "cdi")
        specs = []
        for name in os.listdir(folder):
            with open(os.path.join(folder, name)) as file:
                specs.append(json.load(file))
        for wanted in ids:
            kind, _, device = wanted.partition("=")
            spec = next(one for one in specs if one["kind"] == kind and any(d["name"] == device for d in one["devices"]))
            edits = [spec["containerEdits"], next(d for d in spec["devices"] if d["name"] == device)["containerEdits"]]
            variables = [variable for edit in edits for variable in edit.get("env", [])]
            mounts = {mount["containerPath"]: mount["hostPath"] for edit in edits for mount in edit.get("mounts", [])}
            for variable in variables:
                name, _, value = variable.partition("=")
                for inside, outside in mounts.items():
                    value = value.replace(inside + "/", outside + "/") if name == "LD_PRELOAD" else value
                environment[name] = value
        return environment

    def example(self, name, environment, user="team-a"):
        return run(os.path.join(BUILD, "examples", name), **dict(environment, **self.users[user]))
