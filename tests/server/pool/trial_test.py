"""A pool as docs/pool.md sets it up: three members of etcd with TLS, four servers and a machine of clients, each in a network of its own;
twelve programs with mixed wishes, while one server dies, one is drained, and one member of etcd dies.

The commands are those of docs/pool.md, in its order. What is added to them is said where it is: that the driver is the software device, and
folders of the test's own, since all "machines" share one file system. As root, for the networks; 77 where those cannot be made.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

from pool_case import COMMAND, DAEMON, ENVIRONMENT, PROGRAM, end, need_etcd, run, stop_with_servers, wait_until
from authority import Authority
from etcd import member
from places import STACK, Place, clean_up

CLIENTS, SERVERS, ETCD = 1, (11, 12, 13, 14), (21, 22, 23)
GPUS = 2
FOR_TEST = ("--config", "/dev/null", "--driver", "soft", "--http", "127.0.0.1:7680", "--grace", "1")
SESSION = (sys.executable, "-u", "-c", PROGRAM)


def address(number):
    return "10.78.0.%d" % number


class Machine:
    """A place with a folder, in which programs run."""

    def __init__(self, number, folder):
        self.place, self.folder = Place(number), os.path.join(folder, "machine%d" % number)
        self.address, self.process = address(number), None
        os.mkdir(self.folder, 0o755)

    def path(self, name):
        return os.path.join(self.folder, name)

    def start(self, *words, **environment):
        """A program in the background, as the machine's service manager would start it."""
        with open(self.path("log"), "a") as log:
            self.process = subprocess.Popen(self.place.words(*words), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=dict(ENVIRONMENT, **environment), start_new_session=True)
        STACK.callback(end, self.process)

    def log(self):
        with open(self.path("log"), errors="replace") as file:
            return file.read()

    def do(self, *words, **environment):
        """A command; (status, what it wrote)."""
        outcome = run(*self.place.words(*words), **environment)
        return outcome.status, outcome.out + outcome.err


class Program:
    """One of the twelve: `remote-gpu run` on the clients' machine as a user."""

    def __init__(self, machine, folder, user, server, *wishes):
        self.wishes, self.path = wishes, os.path.join(folder, "out")
        os.mkdir(folder)
        with open(self.path, "w") as out:
            self.process = subprocess.Popen(
                machine.place.words(COMMAND, "run", "-s", server, *wishes, "--", *SESSION), stdin=subprocess.PIPE, stdout=out, stderr=out,
                env=dict(ENVIRONMENT, **user), start_new_session=True)
        STACK.callback(end, self.process)

    def text(self):
        with open(self.path, errors="replace") as file:
            return file.read()

    def has_begun(self):
        return "begun" in self.text()

    def finish(self):
        """Its status, after its input has ended."""
        self.process.stdin.close()
        return self.process.wait(120)


class Trial(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="remote-gpu-trial-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.addCleanup(clean_up)
        self.addCleanup(self.show_logs)
        self.etcd, self.servers, self.programs = {}, {}, []
        os.chmod(self.folder, 0o755)
        self.clients = Machine(CLIENTS, self.folder)
        self.began = time.monotonic()

    def show_logs(self):
        """All that servers have said, and the end of what etcd has: for who looks into a failure."""
        for machine in self.servers.values():
            print("--- %s\n%s" % (machine.address, machine.log()))
        for machine in self.etcd.values():
            print("--- %s\n%s" % (machine.address, machine.log()[-3000:]))
        for program in self.programs:
            print("--- %s\n%s" % (program.wishes, program.text()))

    def say(self, text):
        print("%6.1f s: %s" % (time.monotonic() - self.began, text), flush=True)

    def certificates(self):
        users, etcd = (Authority(os.path.join(self.folder, name)) for name in ("users", "etcd"))
        self.users = {name: {"REMOTE_GPU_CREDENTIALS": users.credentials(os.path.join(self.folder, "of-" + name), name)}
                      for name in ("alice", "bob", "carol")}
        self.ca, self.etcd_ca = users.root, etcd.root
        self.of_server = {n: users.issue("server", "gpu%d" % n, alternative="IP:" + address(n)) for n in SERVERS}
        self.of_etcd = {n: etcd.issue("both", "e%d" % n, alternative="IP:" + address(n)) for n in ETCD}
        self.for_etcd = {n: etcd.issue("client", "gpu%d-etcd" % n) for n in SERVERS}

    def start_etcd(self):
        self.etcd = {n: Machine(n, self.folder) for n in ETCD}
        cluster = ",".join("e%d=https://%s:2380" % (n, address(n)) for n in ETCD)
        for n, machine in self.etcd.items():
            certificate, key = self.of_etcd[n]
            url, peer = "https://%s:2379" % address(n), "https://%s:2380" % address(n)
            machine.start(*member("e%d" % n, machine.path("data"), url, peer, cluster, "--client-cert-auth", "--trusted-ca-file", self.etcd_ca,
                                  "--cert-file", certificate, "--key-file", key, "--peer-client-cert-auth", "--peer-trusted-ca-file",
                                  self.etcd_ca, "--peer-cert-file", certificate, "--peer-key-file", key))
        self.urls = ",".join("https://%s:2379" % address(n) for n in ETCD)

    def start_servers(self):
        self.servers = {n: Machine(n, self.folder) for n in SERVERS}
        for n, machine in self.servers.items():
            certificate, key = self.of_server[n]
            etcd_certificate, etcd_key = self.for_etcd[n]
            machine.start(DAEMON, "--listen", "*", "--tls-ca", self.ca, "--tls-cert", certificate, "--tls-key", key, "--pool", "lab",
                          "--etcd", self.urls, "--etcd-ca", self.etcd_ca, "--etcd-cert", etcd_certificate, "--etcd-key", etcd_key,
                          "--pool-label", "room=" + ("north" if n < SERVERS[2] else "south"), "--state-dir", machine.path("state"),
                          "--advertise", address(n), *FOR_TEST, SOFTGPU_DEVICES=str(GPUS), SOFTGPU_MEMORY="256M")
        for machine in self.servers.values():
            wait_until(lambda machine=machine: "in the pool lab" in machine.log() or machine.process.poll() is not None,
                       "a server is in the pool")
            self.assertIsNone(machine.process.poll(), machine.log())

    def ask(self, *words, user="alice", n=SERVERS[0]):
        """A command of a user on the clients' machine; its output."""
        status, text = self.clients.do(COMMAND, words[0], "-s", address(n), *words[1:], **self.users[user])
        self.assertEqual(status, 0, (words, text))
        return text

    def pool(self, n=SERVERS[0]):
        """The pool by `list`, by the address of each server."""
        pool = json.loads(self.ask("list", "--json", n=n))["servers"][0]["pool"]
        return {member["address"].split(":")[0]: member for member in pool["servers"]}

    def page(self, n):
        """What a server's page shows of the pool."""
        status, text = self.servers[n].do("curl", "-s", "-m", "20", "http://127.0.0.1:7680/api/v1/pool")
        self.assertEqual(status, 0, text)
        return json.loads(text)

    def program(self, user, n, *wishes):
        program = Program(self.clients, os.path.join(self.folder, "program%d" % len(self.programs)), self.users[user], address(n), *wishes)
        self.programs.append(program)
        return program

    def test_as_an_operator_and_twelve_programs(self):
        self.certificates()
        self.start_etcd()
        self.start_servers()
        self.say("three members of etcd and four servers are there")
        wait_until(lambda: len(self.pool()) == 4, "all servers are in the pool")
        self.assertIn("pool lab: 4 servers, 8 GPUs, 8 free, 0 waiting", self.ask("list"))
        a, b, dies, drains = SERVERS

        # ten programs at once on five GPUs, after a gang and one by a lease
        lease = json.loads(self.ask("request", "-n", "1", "--filter", "labels.room=north", "--for", "4h", "--json", user="carol"))["lease"]
        self.program("carol", a, "--lease", lease)
        self.program("alice", a, "-n", "2", "--filter", "labels.room=south", "--wait-for=10m")
        wait_until(self.programs[-1].has_begun, "the gang begins")  # before there are no two GPUs where it may run, and will not be again
        self.program("bob", b, "-m", "64M", "--wait-for=10m")
        self.program("bob", dies, "-m", "64M", "--wait-for=10m")
        self.program("alice", drains, "-p", "0.5", "--wait-for=10m")
        self.program("carol", b, "-n", "3", "--spread", "--wait-for=10m")
        for i, user in enumerate(("alice", "bob", "carol", "alice", "bob", "carol")):
            self.program(user, SERVERS[i % 2], "--wait-for=10m", *(["--filter", "device.memory>=100M"] if i % 2 else []))
        wait_until(lambda: sum(program.has_begun() for program in self.programs) >= 7, "programs begin")
        wait_until(lambda: all(program.has_begun() or "waiting since" in program.text() for program in self.programs), "the others wait")
        self.say("%d of 12 programs run, the others wait" % sum(program.has_begun() for program in self.programs))

        end(self.etcd[ETCD[0]].process)
        self.say("a member of etcd has died")
        end(self.servers[dies].process)
        killed = time.monotonic()
        wait_until(lambda: address(dies) not in self.pool(), "the dead server is gone", 30)
        self.say("a server has died, and was gone after %.1f s" % (time.monotonic() - killed))
        status, text = self.servers[drains].do(DAEMON, "drain", "--state-dir", self.servers[drains].path("state"))
        self.assertEqual(status, 0, text)
        wait_until(lambda: self.pool()[address(drains)]["draining"], "the server is drained")
        self.say("a server is drained")
        shown = {member["address"].split(":")[0]: member["draining"] for member in self.page(b)["members"]}
        self.assertEqual(shown, {address(a): False, address(b): False, address(drains): True})

        # all end well but those that lost their GPUs with the server, or the server that they had asked
        lost, done = [], set()
        deadline = time.monotonic() + 180
        while len(done) < len(self.programs) and time.monotonic() < deadline:
            for program in self.programs:
                if program in done or (program.process.poll() is None and not program.has_begun()):
                    continue
                done.add(program)
                if program.finish() != 0 or "works" not in program.text():
                    lost.append(program)
            time.sleep(0.05)
        self.assertEqual(len(done), 12, [program.text() for program in self.programs if program not in done])
        self.say("all programs have ended, %d of them with the server that died" % len(lost))
        for program in lost:
            self.assertTrue(program.text().strip(), program.wishes)  # never without a word
        self.assertLessEqual(len(lost), 2 * GPUS + 1, [(program.wishes, program.text()) for program in lost])

        self.ask("release", lease, user="carol")
        wait_until(lambda: all(gpu["free"] == gpu["memory"] for member in self.pool().values() for gpu in member["gpus"]), "all GPUs are free")
        self.assertEqual(self.page(a)["waiting"], 0)
        status, text = self.servers[drains].do(DAEMON, "drain", "--undo", "--state-dir", self.servers[drains].path("state"))
        self.assertEqual(status, 0, text)
        wait_until(lambda: not self.pool()[address(drains)]["draining"], "the server is back")
        self.ask("run", "--filter", "labels.room=south", "--", "true")
        self.say("the drained server is back and serves")


if __name__ == "__main__":
    need_etcd()
    if os.geteuid() != 0 or subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode != 0:
        print("networks of their own cannot be made here: that needs root")
        sys.exit(77)
    stop_with_servers()
    unittest.main(verbosity=2)
