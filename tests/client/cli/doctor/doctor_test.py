"""remote-gpu doctor on trees of machines, and live.

A file of trees/ describes what a machine has in /sys, /proc, /dev and /etc, and what doctor must say of it:

    like NAME                           everything of NAME.tree first, but for what it expects
    exit N                              the exit status
    expect LEVEL CHECK: TEXT => MEND    a result whose text contains TEXT (and whose advice contains MEND)
    /path = TEXT                        a file with that content; \\n and \\t are escapes
    /path mode 600 = TEXT               the same with permissions
    /path -> TARGET                     a symbolic link
    /path absent                        not there, though NAME has it
    /path ats on|off                    the configuration space of a PCI device with Address Translation Services

Warnings and problems are expected completely: what is not listed must not be said.
"""

import glob
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest

BUILD, SOURCE = map(os.path.abspath, sys.argv[1:3])
del sys.argv[1:3]
sys.path.insert(0, os.path.join(SOURCE, "scripts"))
from trial import Build, Server  # noqa: E402

COMMAND = os.path.join(BUILD, "stage", "bin", "remote-gpu")
TREES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "trees")


def call(*words, **changes):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REMOTE_GPU_")}
    environment.update(changes)
    return subprocess.run([COMMAND, "doctor", *words], env=environment, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)


class Tree:
    """A description, read."""

    def __init__(self, name):
        self.files, self.status, self.expected = {}, None, []
        with open(os.path.join(TREES, name + ".tree")) as file:
            for line in file:
                line = line.rstrip("\n")
                if line and not line.startswith("#"):
                    self.read(line)

    def read(self, line):
        word, _, rest = line.partition(" ")
        if word == "like":
            self.files.update(Tree(rest).files)
        elif word == "exit":
            self.status = int(rest)
        elif word == "expect":
            level, check, text, mend = re.match(r"(\w+) ([^:]+): (.*?)(?: => (.*))?$", rest).groups()
            self.expected.append((level, check, text, mend or ""))
        else:
            assert word.startswith("/"), line
            self.files[word] = rest

    def build(self, root):
        # links first: what lies behind them is written through them
        for path, what in sorted(self.files.items(), key=lambda item: (not item[1].startswith("-> "), item[0])):
            full = root + path
            if what == "absent":
                continue
            os.makedirs(os.path.dirname(full), exist_ok=True)
            if what.startswith("-> "):
                os.symlink(what[3:], full)
                if os.path.dirname(what):
                    os.makedirs(os.path.realpath(full), exist_ok=True)
                continue
            content = self.content(what)
            with open(full, "wb") as file:
                file.write(content)
            mode = re.match(r"mode (\d+) ", what)
            if mode:
                os.chmod(full, int(mode.group(1), 8))

    @staticmethod
    def content(what):
        if what.startswith("ats "):
            # a capability of another kind before it in the extended space, which the chain leads over
            config = bytearray(4096)
            struct.pack_into("<I", config, 0x100, 0x1c000001 & ~0xfff00000 | 0x150 << 20)
            struct.pack_into("<IHH", config, 0x150, 0x0001000f, 0, 0x8000 if what == "ats on" else 0)
            return bytes(config)
        text = what.split("=", 1)[1].strip()
        return (text.replace("\\n", "\n").replace("\\t", "\t") + "\n").encode()


class Trees(unittest.TestCase):
    def test_all(self):
        names = [os.path.basename(path)[:-len(".tree")] for path in sorted(glob.glob(os.path.join(TREES, "*.tree")))]
        self.assertGreater(len(names), 10)
        for name in names:
            with self.subTest(name), tempfile.TemporaryDirectory() as root:
                tree = Tree(name)
                tree.build(root)
                result = call("--root", root, "--json")
                self.assertEqual((result.returncode, result.stderr), (tree.status, ""), result.stdout)
                answer = json.loads(result.stdout)
                for level, check, text, mend in tree.expected:
                    self.assertTrue(any(one["level"] == level and one["check"] == check and text in one["saw"] and
                                        mend in one.get("mend", "") for one in answer["checks"]),
                                    "%s %s: %s => %s\n%s" % (level, check, text, mend, result.stdout))
                for level in ("warning", "problem"):
                    self.assertEqual(sorted(one["check"] for one in answer["checks"] if one["level"] == level),
                                     sorted(check for its, check, _, _ in tree.expected if its == level), result.stdout)
                    self.assertEqual(answer[level + "s"], sum(its == level for its, _, _, _ in tree.expected))
                for one in answer["checks"]:
                    if one["level"] != "ok":
                        self.assertIn("mend", one)

    def test_text(self):
        with tempfile.TemporaryDirectory() as root:
            Tree("pvrdma-order").build(root)
            result = call("--root", root)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertRegex(result.stdout, r"(?m)^warning  module order  vmw_pvrdma .*\n +-> modprobe -r vmw_pvrdma;")
            self.assertRegex(result.stdout, r"(?m)^\d+ checks: 0 problems, 1 warning$")

    def test_large_table(self):
        """Soft-RoCE has a table of 1024 GIDs, nearly all of them empty."""
        with tempfile.TemporaryDirectory() as root:
            tree = Tree("pvrdma")
            port = "/sys/class/infiniband/vmw_pvrdma0/ports/1/"
            used = tree.files[port + "gids/1"]
            tree.files.update({port + "gids/%d" % i: tree.files[port + "gids/2"] for i in range(1024)})
            tree.files[port + "gids/700"] = used
            tree.files[port + "gid_attrs/types/700"] = "= RoCE v2"
            tree.build(root)
            result = call("--root", root)
            self.assertIn("RoCE v2, GID 700 for 192.168.77.3", result.stdout)

    def test_many_pci_devices(self):
        """A GPU among many other devices is found, wherever the folder lists it."""
        with tempfile.TemporaryDirectory() as root:
            tree = Tree("mlx5-far")
            for i in range(1500):
                device = "/sys/bus/pci/devices/%04x:%02x:00.0/" % (1 + i // 256, i % 256)
                tree.files.update({device + "vendor": "= 0x8086", device + "class": "= 0x060400"})
            tree.build(root)
            self.assertRegex(call("--root", root).stdout, r"(?m)^warning +numa +.* GPUs are on another")

    def test_hostile_files(self):
        """What a device says of itself is text of strangers."""
        with tempfile.TemporaryDirectory() as root:
            tree = Tree("pvrdma")
            tree.files["/sys/class/infiniband/vmw_pvrdma0/hca_type"] = "= \033[31m\xff" + "x" * 5000
            tree.files["/proc/modules"] = "= "
            tree.build(root)
            result = call("--root", root)
            self.assertEqual(result.returncode, 1)
            self.assertNotIn("\033", result.stdout)
            json.loads(call("--root", root, "--json").stdout)


class Live(unittest.TestCase):
    """On this machine, whatever it has."""

    def check(self, answer, name):
        return [one for one in answer["checks"] if one["check"] == name]

    def test_local(self):
        result = call("--json")
        answer = json.loads(result.stdout)
        self.assertEqual(result.returncode, 1 if answer["problems"] else 0)
        if not os.listdir("/sys/class/infiniband") if os.path.isdir("/sys/class/infiniband") else True:
            self.assertEqual(result.returncode, 0)
            self.assertIn("TCP is used", self.check(answer, "device")[0]["saw"])

    def test_server(self):
        with Server(Build(BUILD), tcp=True) as server:
            answer = json.loads(call("-s", server.address, "--json").stdout)
            for name in ("server", "version", "driver", "system", "clock", "path mtu"):
                self.assertEqual([one["level"] for one in self.check(answer, name)], ["ok"], name)
            self.assertRegex(self.check(answer, "round trip")[0]["saw"], r"^tcp: [\d.]+ us")
            self.assertRegex(self.check(answer, "bandwidth")[0]["saw"], r"^tcp: \d+ MB/s to the server, \d+ MB/s from it")
            self.assertIn(os.uname().release, self.check(answer, "system")[0]["saw"])
            slow = json.loads(call("-s", server.address, "--json", REMOTE_GPU_FILTER="delay:oneway=1ms").stdout)
            trip = self.check(slow, "round trip")[0]
            self.assertEqual(trip["level"], "warning")
            self.assertIn("same network", trip["mend"])

    def test_server_that_is_not_there(self):
        result = call("-s", "127.0.0.1:1", "--json")
        self.assertEqual(result.returncode, 1)
        (check,) = self.check(json.loads(result.stdout), "server")
        self.assertEqual(check["level"], "problem")
        self.assertIn("firewall", check["mend"])

    def test_what_to_do_fits_the_address(self):
        for address, words in (("127.0.0.1:1", "ufw allow 1/tcp"), ("unix:/nonexistent", "ss -lx"),
                               ("one:two:three", "[IPV6]:PORT")):
            with self.subTest(address):
                answer = json.loads(call("-s", address, "--json").stdout)
                (check,) = self.check(answer, "server")
                self.assertIn(words, check["mend"])

    def test_server_without_measurements(self):
        with Server(Build(BUILD), tcp=True, arguments=["--no-netperf"]) as server:
            answer = json.loads(call("-s", server.address, "--json").stdout)
            (trip,) = self.check(answer, "round trip")
            self.assertEqual(trip["level"], "warning")
            self.assertIn("--no-netperf", trip["saw"])

    def test_mistakes(self):
        for words in (["--root", os.path.join(TREES, "none")], ["word"], ["--jsn"]):
            result = call(*words)
            self.assertEqual((result.returncode, result.stdout), (125, ""))
            self.assertIn("remote-gpu: ", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
