"""remote-gpu cdi generate: files that a container runtime takes, with what a container needs in them, and what is refused."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "build"
COMMAND = os.path.join(BUILD, "stage", "bin", "remote-gpu")
LIBRARY = os.path.join(BUILD, "stage", "lib", "remote-gpu")

# What CDI 0.5.0 has (SPEC.md and schema.json of container-device-interface): type, whether it must be there, what is in it.
EDITS = {"env": ([str], False), "deviceNodes": ([{
    "path": (str, True), "hostPath": (str, False), "type": (str, False), "major": (int, False), "minor": (int, False),
    "fileMode": (int, False), "permissions": (str, False), "uid": (int, False), "gid": (int, False)}], False),
    "mounts": ([{"hostPath": (str, True), "containerPath": (str, True), "options": ([str], False), "type": (str, False)}], False)}
SPEC = {"cdiVersion": (str, True), "kind": (str, True), "containerEdits": (EDITS, False),
        "devices": ([{"name": (str, True), "containerEdits": (EDITS, True)}], True)}


def complaints(value, wanted, where="spec"):
    """What a runtime would refuse."""
    if isinstance(wanted, list):
        if not isinstance(value, list):
            return [where + " is no list"]
        return [one for i, item in enumerate(value) for one in complaints(item, wanted[0], "%s[%d]" % (where, i))]
    if isinstance(wanted, dict):
        if not isinstance(value, dict):
            return [where + " is no object"]
        found = ["%s has the unknown member %s" % (where, name) for name in value if name not in wanted]
        for name, (kind, required) in wanted.items():
            if name in value:
                found += complaints(value[name], kind, where + "." + name)
            elif required:
                found.append("%s lacks %s" % (where, name))
        return found
    return [] if type(value) is wanted else ["%s is no %s" % (where, wanted.__name__)]


def check(spec):
    """All that CDI says of a specification of its version 0.5.0."""
    found = complaints(spec, SPEC)
    if found:
        return found
    if spec["cdiVersion"] != "0.5.0":
        found.append("version " + spec["cdiVersion"])
    if not re.fullmatch(r"[A-Za-z]([\w.-]*[A-Za-z0-9])?/[A-Za-z]([\w-]*[A-Za-z0-9])?", spec["kind"], re.ASCII):
        found.append("kind " + spec["kind"])
    names = [device["name"] for device in spec["devices"]]
    if not names or len(set(names)) != len(names):
        found.append("devices are missing or there twice")
    found += ["device " + name for name in names if not re.fullmatch(r"[A-Za-z0-9]([\w.:-]*[A-Za-z0-9])?", name, re.ASCII)]
    for edits in [spec.get("containerEdits", {})] + [device["containerEdits"] for device in spec["devices"]]:
        found += ["variable " + one for one in edits.get("env", []) if not re.match(r"\w+=", one)]
        found += ["relative path" for one in edits.get("mounts", []) for name in ("hostPath", "containerPath")
                  if not one[name].startswith("/")]
        found += ["device file " + one["path"] for one in edits.get("deviceNodes", []) if not one["path"].startswith("/")]
    found += ["device %s has no edits" % device["name"] for device in spec["devices"] if not any(device["containerEdits"].values())]
    return found


class Generate(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="remote-gpu-cdi-test-")
        self.addCleanup(shutil.rmtree, self.folder)

    def call(self, *words, **changes):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("REMOTE_GPU_", "LD_"))}
        environment.update(HOME=self.folder, XDG_CONFIG_HOME=os.path.join(self.folder, "config"), **changes)
        return subprocess.run([COMMAND, "cdi", *words], env=environment, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, cwd=self.folder)

    def generate(self, *words, **changes):
        """The specification; its variables and mounts, by name and place in the container."""
        result = self.call("generate", *words, **changes)
        self.assertEqual(result.returncode, 0, result.stderr)
        spec = json.loads(result.stdout)
        self.assertEqual(check(spec), [])
        edits = spec["containerEdits"]
        return spec, dict(one.split("=", 1) for one in edits["env"]), {
            one["containerPath"]: one["hostPath"] for one in edits["mounts"]}

    def refused(self, *words, says, **changes):
        result = self.call(*words, **changes)
        self.assertEqual((result.returncode, result.stdout), (125, ""))
        self.assertRegex(result.stderr, says)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)

    def credentials(self, *names):
        """A folder with three files."""
        folder = os.path.join(self.folder, *names)
        os.makedirs(folder)
        for name in ("ca.crt", "tls.crt", "tls.key"):
            with open(os.path.join(folder, name), "w") as file:
                file.write("-\n")
            os.chmod(os.path.join(folder, name), 0o600)
        return folder

    def test_the_check_checks(self):
        good, _, _ = self.generate("-s", "unix:/run/remote-gpu/socket")
        for spoil in (lambda s: s.update(annotations={}), lambda s: s.pop("kind"), lambda s: s.update(cdiVersion="9"),
                      lambda s: s["devices"].append(s["devices"][0]), lambda s: s["devices"][0].update(containerEdits={}),
                      lambda s: s["containerEdits"]["env"].append("no variable"),
                      lambda s: s["containerEdits"]["mounts"][0].update(hostPath="relative"),
                      lambda s: s["containerEdits"]["mounts"][0].update(extra=1), lambda s: s.update(kind="a/b/c")):
            bad = json.loads(json.dumps(good))
            spoil(bad)
            self.assertNotEqual(check(bad), [], bad)

    def test_unix_socket(self):
        spec, variables, mounts = self.generate("-s", "unix:/run/remote-gpu/socket")
        self.assertEqual(spec["kind"], "remote-gpu.io/gpu")
        self.assertEqual(variables["REMOTE_GPU_SERVER"], "unix:/opt/remote-gpu/sockets/0/socket")
        self.assertEqual(mounts, {"/opt/remote-gpu/lib/remote-gpu": LIBRARY, "/opt/remote-gpu/bin/remote-gpu": COMMAND,
                                  "/opt/remote-gpu/sockets/0": "/run/remote-gpu"})
        for library in variables["LD_PRELOAD"].split(":"):
            self.assertTrue(os.path.exists(library.replace("/opt/remote-gpu/lib/remote-gpu", LIBRARY)), library)
        self.assertTrue(variables["LD_PRELOAD"].startswith("/opt/remote-gpu/lib/remote-gpu/libcuda.so.1:"))
        self.assertNotIn("LD_LIBRARY_PATH", variables)
        self.assertNotIn("REMOTE_GPU_CREDENTIALS", variables)
        for mount in spec["containerEdits"]["mounts"]:
            self.assertIn("ro", mount["options"])

    def test_devices(self):
        spec, _, _ = self.generate("-s", "unix:/run/remote-gpu/socket", "--count", "3", "--kind", "lab.example.com/a100")
        self.assertEqual(spec["kind"], "lab.example.com/a100")
        self.assertEqual([(one["name"], one["containerEdits"]["env"]) for one in spec["devices"]], [
            ("1", ["REMOTE_GPU_GPUS=1"]), ("2", ["REMOTE_GPU_GPUS=2"]), ("3", ["REMOTE_GPU_GPUS=3"]),
            ("all", ["REMOTE_GPU_GPUS="])])
        # what this user wants of GPUs otherwise is not the devices'
        spec, variables, _ = self.generate("-s", "unix:/run/remote-gpu/socket", REMOTE_GPU_GPUS="7", REMOTE_GPU_STATS="-")
        self.assertFalse({"REMOTE_GPU_GPUS", "REMOTE_GPU_STATS"} & set(variables))

    @unittest.skipIf("REMOTE_GPU_TEST_SANITIZED" in os.environ, "a sanitizer's runtime must come before what run preloads")
    def test_variables_are_those_of_run(self):
        """What run gives to a command of this machine, but what names files and folders of it."""
        words = ["-m", "2G", "--compute", "25%", "--weight", "7", "--priority", "low", "--exclusive", "--idle-timeout", "30",
                 "--project", "p", "--transport", "tcp", "--wait", "spin", "--keep-alive", "9", "--connections", "2", "--rails",
                 "off", "--compress", "lz4", "--opt=-all", "--log", "info", "--encrypt", "control", "--rdma", "deny"]
        _, variables, _ = self.generate("-s", "unix:/run/remote-gpu/socket", *words)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("REMOTE_GPU_", "LD_"))}
        shown = subprocess.run([COMMAND, "run", "--no-check", "-s", "unix:/run/remote-gpu/socket", *words, "--", "env"],
                               env={**environment, "XDG_CONFIG_HOME": self.folder}, stdout=subprocess.PIPE, text=True, check=True)
        run = dict(line.split("=", 1) for line in shown.stdout.splitlines() if line.startswith(("REMOTE_GPU_", "LD_PRELOAD=")))
        self.assertGreater(len(run), 15)
        run.update(REMOTE_GPU_SERVER=variables["REMOTE_GPU_SERVER"],
                   LD_PRELOAD=run["LD_PRELOAD"].replace(LIBRARY, "/opt/remote-gpu/lib/remote-gpu"))
        self.assertEqual(variables, run)

    def test_credentials(self):
        own = self.credentials("joined", "servers", "a.example:7000")
        other = self.credentials("joined", "servers", "b.example:7600")
        _, variables, mounts = self.generate("-s", "a.example:7000|b.example,unix:/x/s", "--credentials", "joined")
        self.assertEqual(variables["REMOTE_GPU_SERVER"], "a.example:7000|b.example,unix:/opt/remote-gpu/sockets/0/s")
        self.assertEqual(variables["REMOTE_GPU_CREDENTIALS"], "/opt/remote-gpu/credentials")
        self.assertEqual(mounts["/opt/remote-gpu/credentials/servers/a.example:7000"], own)
        self.assertEqual(mounts["/opt/remote-gpu/credentials/servers/b.example:7600"], other)
        self.assertEqual(mounts["/opt/remote-gpu/sockets/0"], "/x")

    def test_credentials_for_all_servers(self):
        base = self.credentials("secret")
        _, _, mounts = self.generate("-s", "c.example|e.example", "--credentials", "secret")
        # not for the named ones alone: in a pool, a lease may be on any server
        self.assertEqual({place: folder for place, folder in mounts.items() if "credentials" in place},
                         {"/opt/remote-gpu/credentials": base})
        # keys of servers that the container has nothing to do with are not for it
        self.credentials("secret", "servers", "d.example:7600")
        self.refused("generate", "-s", "c.example", "--credentials", "secret", says="with those of other servers in it")

    def test_without_credentials(self):
        self.refused("generate", "-s", "a.example", says="there are no credentials for it")
        _, variables, _ = self.generate("-s", "a.example", "--allow-unauthenticated")
        self.assertEqual(variables["REMOTE_GPU_ALLOW_UNAUTHENTICATED"], "yes")
        result = self.call("generate", "-s", "127.0.0.1")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stderr, "127.0.0.1 is the container's own machine")

    def test_client_root(self):
        root = os.path.join(self.folder, "tree")
        self.refused("generate", "-s", "unix:/x/s", "--client-root", root, says="No such file")
        os.makedirs(os.path.join(root, "lib", "remote-gpu"))
        self.refused("generate", "-s", "unix:/x/s", "--client-root", root, says="libcuda.so.1 is not there")
        open(os.path.join(root, "lib", "remote-gpu", "libcuda.so.1"), "w").close()
        _, variables, mounts = self.generate("-s", "unix:/x/s", "--client-root", "tree")
        self.assertEqual(mounts["/opt/remote-gpu/lib/remote-gpu"], os.path.join(root, "lib", "remote-gpu"))
        self.assertNotIn("/opt/remote-gpu/bin/remote-gpu", mounts)
        self.assertEqual(variables["LD_PRELOAD"], "/opt/remote-gpu/lib/remote-gpu/libcuda.so.1")

    def test_output(self):
        path = os.path.join(self.folder, "gpus.json")
        result = self.call("generate", "-s", "unix:/x/s", "--output", path)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        with open(path) as file:
            first = json.load(file)
        self.assertEqual(check(first), [])
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o644)
        self.assertEqual(self.call("generate", "-s", "unix:/y/s", "-o", path).returncode, 0)
        with open(path) as file:
            self.assertNotEqual(json.load(file), first)
        self.refused("generate", "-s", "unix:/x/s", "-o", "gpus.yaml", says="end in .json")
        self.refused("generate", "-s", "unix:/x/s", "-o", "nowhere/gpus.json", says="cannot write nowhere/gpus.json: No such file")
        self.refused("generate", "-s", "a.example", "-o", path, says="no credentials")
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("gpus")], ["gpus.json"])

    def test_infiniband(self):
        if os.path.isdir("/dev/infiniband") and os.listdir("/dev/infiniband"):
            spec, _, _ = self.generate("-s", "unix:/x/s", "--infiniband")
            self.assertTrue(spec["containerEdits"]["deviceNodes"])
        else:
            self.refused("generate", "-s", "unix:/x/s", "--infiniband", says="no device files in /dev/infiniband")

    def test_mistakes(self):
        self.refused(says="cdi does what")
        self.refused("list", says="cdi knows no 'list'")
        self.refused("generate", "more", says="takes no 'more'")
        self.refused("generate", "--kind", "gpu", says="--kind: 'gpu' is not VENDOR/CLASS")
        self.refused("generate", "--count", "0", says="--count")
        self.refused("generate", "-m", "1G", "-p", "0.5", says="do not go together")
        self.refused("generate", "-s", "", says="list of servers is empty")
        self.refused("generate", "-s", "unix:@name", says="sockets that are no files")
        self.refused("generate", "-s", "unix:relative/s", says="neither an absolute path")
        for path in ("/socket", "/run/socket", "/tmp/socket"):
            self.refused("generate", "-s", "unix:" + path, says="would be given to containers")
        self.refused("generate", "-s", "unix:/x/s", "-n", "2", says="unknown option '-n'")


if __name__ == "__main__":
    unittest.main(verbosity=2)
