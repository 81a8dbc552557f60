"""Leases of clients that are out of reach: machines whose cables are pulled, and put in again.

A server and four machines of clients, each in a network of its own. All clients' cables are pulled at once, and one is put in again soon.
What the others had is freed within the times that docs/pool.md has, and each program is told why it has no GPU any more. As root, for the
networks; 77 where those cannot be made.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from pool_case import COMMAND, DAEMON, ENVIRONMENT, SESSION, end, need_etcd, stop_with_servers, wait_until

from etcd import member
from network import why_not
from places import STACK, clean_up
from trial_test import Machine, address

SERVER, ETCD = 11, 21
SILENT, GRACE = 60, 60  # seconds: until a machine that is gone is noticed, and that sessions and leases are waited for
SLACK = 60  # of a machine that is busy with other things
# A session that is used all the time, until it is lost.
USES = """
import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
status = cuda.cuInit(0) or cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
while not status:
    status = cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1000)) or cuda.cuMemFree_v2(memory)
    print("uses", flush=True)
    time.sleep(0.2)
print("lost with status", status, flush=True)
"""
PROGRAM = (sys.executable, "-u", "-c", USES)
ENVIRONMENT["REMOTE_GPU_ALLOW_UNAUTHENTICATED"] = "yes"  # of all commands here


class Client(Machine):
    """A machine on which `remote-gpu run` is started."""

    def run(self, *words):
        with open(self.path("log"), "w") as log:
            self.process = subprocess.Popen(self.place.words(COMMAND, "run", "-s", address(SERVER), *words), stdin=subprocess.PIPE,
                                            stdout=log, stderr=log, env=ENVIRONMENT, start_new_session=True)
        STACK.callback(end, self.process)

    def wait_for(self, text, patience=120):
        wait_until(lambda: text in self.log() or self.process.poll() is not None, "'%s' of a client:\n%s" % (text, self.log()), patience)
        if text not in self.log():
            raise AssertionError("no '%s', status %s:\n%s" % (text, self.process.poll(), self.log()))

    def uses(self):
        return self.log().count("uses\n")


class Cut(unittest.TestCase):
    def setUp(self):
        self.addCleanup(clean_up)
        self.folder = tempfile.mkdtemp(prefix="remote-gpu-cut-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.addCleanup(self.show_logs)
        self.clients = []
        etcd = Machine(ETCD, self.folder)
        url, peer = "http://%s:2379" % address(ETCD), "http://%s:2380" % address(ETCD)
        etcd.start(*member("m", etcd.path("data"), url, peer, "m=" + peer))
        self.server = Machine(SERVER, self.folder)
        self.server.start(DAEMON, "--config", "/dev/null", "--driver", "soft", "--listen", "*", "--listen", self.socket(), "--allow-unauthenticated",
                          "--pool", "lab", "--etcd", url, "--advertise", address(SERVER), "--state-dir", self.server.path("state"), SOFTGPU_DEVICES="4")
        wait_until(lambda: "in the pool lab" in self.server.log() or self.server.process.poll() is not None, "the server is in the pool")
        self.began = time.monotonic()

    def show_logs(self):
        for machine in [self.server, *self.clients]:
            print("--- %s\n%s" % (machine.address, machine.log()[-6000:]))

    def say(self, text):
        print("%6.1f s: %s" % (time.monotonic() - self.began, text), flush=True)

    def client(self):
        self.clients.append(Client(len(self.clients) + 1, self.folder))
        return self.clients[-1]

    def socket(self):
        return "unix:" + self.server.path("socket")

    def ask(self, *words):
        """What a command says to root on the server's own machine, who sees all leases."""
        status, text = self.server.do(COMMAND, words[0], "-s", self.socket(), *words[1:])
        self.assertEqual(status, 0, text)
        return text

    def pool(self):
        return json.loads(self.ask("list", "--json"))["servers"][0]["pool"]

    def leases(self):
        return {lease["lease"] for lease in self.pool()["leases"]}

    def client_with_lease(self, *command):
        """A client that runs a command, and its lease."""
        before, client = self.leases(), self.client()
        client.run("--", *command)
        (lease,) = wait_until(lambda: self.leases() - before, "a client has a lease")
        return client, lease

    def client_with_kept_lease(self, time, *command):
        client = self.client()
        status, text = client.do(COMMAND, "request", "-s", address(SERVER), "--json", "--for", time)
        self.assertEqual(status, 0, text)
        lease = json.loads(text)["lease"]
        client.run("--lease", lease, "--", *command)
        return client, lease

    def freed(self, lease, what, seconds):
        """Waits until a lease is no more, so long after the cables were pulled."""
        wait_until(lambda: lease not in self.leases(), "the lease of %s is freed" % what, self.cut_at + seconds - time.monotonic())
        self.say("the lease of %s was freed %.0f s after the cut" % (what, time.monotonic() - self.cut_at))

    def test_clients_are_cut_off(self):
        soon, soon_lease = self.client_with_lease(*PROGRAM)
        late, late_lease = self.client_with_lease(*PROGRAM)
        idle, idle_lease = self.client_with_lease("sh", "-c", "echo first; read line; exec \"$@\"", "sh", *SESSION)
        kept, kept_lease = self.client_with_kept_lease("45s", *PROGRAM)
        for client in (soon, late, kept):
            client.wait_for("uses")
        idle.wait_for("first")
        self.cut_at = time.monotonic()
        for client in self.clients:
            client.place.cut(True)
        time.sleep(20)
        soon.place.cut(False)
        before = soon.uses()
        wait_until(lambda: soon.uses() > before + 5, "the client that is soon back goes on", SLACK)
        self.assertIn("lost the connection to " + address(SERVER), soon.log())
        self.assertIn("the session goes on after", soon.log())
        self.say("the client that is soon back goes on")

        # its time ends with nobody there to be told
        self.freed(kept_lease, "a kept one", 45 + SLACK)
        self.freed(idle_lease, "who runs nothing", SILENT + GRACE + SLACK)
        self.freed(late_lease, "who runs a program", SILENT + GRACE + SLACK)
        self.assertEqual(self.leases(), {soon_lease})
        for client in (late, kept, idle):
            client.place.cut(False)
        for client in (late, kept):
            client.wait_for("lost with status")
            self.assertNotEqual(client.process.wait(60), None)
        self.assertRegex(late.log(), r"gave up on \S+ after 6\d\.\d s|cannot go on")
        self.assertRegex(kept.log(), r"gave up on \S+ after|cannot go on|lease")
        idle.process.stdin.write(b"go on\n")
        idle.process.stdin.flush()
        idle.wait_for("failed")
        self.assertIn("the lease %s ends" % idle_lease, idle.log())
        self.say("all have been told")
        self.assertEqual(soon.process.poll(), None)
        os.kill(soon.process.pid, 15)
        soon.process.wait(60)
        wait_until(lambda: not self.leases(), "the last lease ends with its command")


if __name__ == "__main__":
    need_etcd()
    why = why_not()
    if why:
        print("networks of their own cannot be made here: " + why)
        sys.exit(77)
    stop_with_servers()
    unittest.main(verbosity=2)
