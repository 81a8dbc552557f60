"""Jobs whose ranks train on GPUs of a pool: on three client machines and two servers with two devices each, which are network namespaces
at a switch, one user's lease for all ranks, started by a launcher such as torchrun and by Open MPI; no gradient comes to a client,
counted on its link; a server that is killed is an error on all ranks.

usage: jobs_test.py BUILD_FOLDER [UNITTEST…]
"""

import contextlib
import glob
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "scripts"))
sys.path.insert(0, os.path.join(HERE, "..", "..", "security"))

import network  # noqa: E402
from authority import Authority  # noqa: E402
from trial import Build, Server, end_group, run_program, stop_with_servers, wait_until  # noqa: E402

RANKS, PATIENCE = 4, 120
# Servers of different machines: their workers find none of each other's.
APART = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /run && exec "$@"', "sh")
SERVERS, CLIENTS = ("server-a", "server-b"), ("client-a", "client-b", "client-c")


class Jobs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.addClassCleanup(cls.stack.close)
        cls.folder = cls.stack.enter_context(tempfile.TemporaryDirectory(prefix="remote-gpu-jobs-"))
        cls.network = network.Network(cls.stack, "etcd", *SERVERS, *CLIENTS)
        cls.store, *places = cls.network.machines
        cls.places, cls.clients = places[:len(SERVERS)], places[len(SERVERS):]
        cls.start_etcd()
        # A lease is its user's, from whatever machine that comes.
        authority = Authority(os.path.join(cls.folder, "authority"))
        certificate, key = authority.issue("server", "server", alternative=",".join("IP:" + place.address for place in cls.places))
        cls.trust = ("--tls-ca", authority.root, "--tls-cert", certificate, "--tls-key", key)
        cls.user = {"REMOTE_GPU_CREDENTIALS": authority.credentials(os.path.join(cls.folder, "trainer"), "trainer")}

    @classmethod
    def start_etcd(cls):
        cls.etcd, peer = ("http://%s:%d" % (cls.store.address, port) for port in (2379, 2380))
        process = subprocess.Popen(
            cls.store.command("etcd", "--name", "one", "--data-dir", os.path.join(cls.folder, "etcd"), "--listen-client-urls", cls.etcd,
                              "--advertise-client-urls", cls.etcd, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                              "--initial-cluster", "one=" + peer),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        cls.stack.callback(process.wait)
        cls.stack.callback(end_group, process.pid)

    def setUp(self):
        self.temporary = tempfile.mkdtemp(dir=self.folder)  # the ranks'
        self.servers = [Server(build, listen=place.address + ":0", prefix=(*place.command(), *APART),
                               arguments=(*self.trust, "--pool", self.id().rpartition(".")[2], "--etcd", self.etcd),
                               environment={"SOFTGPU_DEVICES": "2", "SOFTGPU_NCCL_TIMEOUT": "20"}) for place in self.places]
        for server in self.servers:
            server.__enter__()
            self.addCleanup(server.__exit__)
        self.assertTrue(wait_until(lambda: len(self.pool()["servers"]) == len(SERVERS), PATIENCE), "the servers are not in the pool")

    def command(self, client, *words):
        """Runs the command on a client's machine: a Result."""
        return run_program(client.command(build.command, *words), environment=self.user, timeout=PATIENCE)

    def pool(self):
        answer = json.loads(self.command(self.clients[0], "list", "--json", "-s", self.servers[0].address).output)["servers"][0]
        return answer.get("pool") or {"servers": []}

    def rank(self, case):
        return [sys.executable, os.path.join(HERE, "rank.py"), os.path.join(build.folder, "tests", "nccl_ranks"), case]

    def launch(self, case, ranks=RANKS, first=0):
        return [sys.executable, os.path.join(HERE, "launch.py"), "--ranks", str(ranks), "--first", str(first), "--of", str(RANKS),
                "--master", self.clients[0].address + ":29500", *self.rank(case)]

    def direct(self):
        """What the ranks get in one process, directly on the software device."""
        result = build.run_direct([os.path.join(build.folder, "tests", "nccl_ranks"), os.path.join(self.folder, "direct"), str(RANKS), "0",
                                   str(RANKS), "all"], environment={"SOFTGPU_DEVICES": str(RANKS)})
        self.assertEqual(result.status, 0, result.report())
        return sorted(result.output.splitlines())

    def check(self, *results):
        for result in results:
            self.assertEqual(result.status, 0, result.report())
        self.assertEqual(sorted(line for result in results for line in result.output.splitlines()), self.direct())

    def lease(self):
        """All GPUs of the pool, for several runs."""
        result = self.command(self.clients[0], "request", "--json", "-s", self.servers[0].address, "-n", str(RANKS), "--spread",
                              "--for", "1h")
        self.assertEqual(result.status, 0, result.report())
        return json.loads(result.output)["lease"]

    def run_words(self, *more):
        return [build.command, "run", "-s", self.servers[0].address, *more, "--"]

    def on_all_clients(self, lease, case, while_running=None):
        """Two ranks on the first client and one on each other: Results."""
        with contextlib.ExitStack() as stack:
            shares = ((0, 2), (2, 1), (3, 1))
            processes = []
            for client, (first, ranks) in zip(self.clients, shares):
                process = subprocess.Popen(
                    client.command(*self.run_words("--lease", lease), *self.launch(case, ranks, first)), env=dict(os.environ, **self.user, TMPDIR=self.temporary),
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
                stack.callback(end_group, process.pid)
                processes.append(process)
            if while_running:
                while_running()
            outputs = [process.communicate(timeout=PATIENCE) for process in processes]
        return [(process.returncode, *output) for process, output in zip(processes, outputs)]

    def test_one_command_for_all_ranks(self):
        """`run -n 4 --spread`: a lease of two servers' GPUs, which ends with the command; its ranks are children of one launcher."""
        client = self.clients[0]
        carried = {}
        for case in ("all", "small", "large"):
            before = client.bytes_on_the_wire()
            result = run_program(client.command(*self.run_words("-n", str(RANKS), "--spread"), *self.launch(case)), environment=self.user,
                                 timeout=PATIENCE)
            carried[case] = client.bytes_on_the_wire() - before
            if case == "all":
                self.check(result)
            self.assertEqual(result.status, 0, result.report())
        # 20 sums of 4 MiB by each of four ranks, instead of 4 bytes; the rest is what starting takes, which is not always the same.
        self.assertLess(carried["large"] - carried["small"], 400000, carried)
        self.assertTrue(wait_until(lambda: not self.pool()["leases"], PATIENCE), "the lease is still there")

    def test_three_clients(self):
        lease = self.lease()
        carried = {}
        for case in ("all", "small", "large"):
            before = [client.bytes_on_the_wire() for client in self.clients]
            outputs = self.on_all_clients(lease, case)
            carried[case] = [client.bytes_on_the_wire() - bytes_before for client, bytes_before in zip(self.clients, before)]
            self.assertEqual([status for status, _, _ in outputs], [0, 0, 0], outputs)
            if case == "all":
                self.assertEqual(sorted(line for _, output, _ in outputs for line in output.splitlines()), self.direct())
        for small, large in zip(carried["small"], carried["large"]):  # as below one command
            self.assertLess(large - small, 400000, carried)

    def share_memory(self, exporter, importer):
        """One rank exports memory, another opens it. Each: words for the command, and for what comes before the program."""
        def command(client, words, role):
            return client.command(*self.run_words(*words[0]), *words[1], sys.executable, os.path.join(HERE, "..", "peers", "ipc.py"),
                                  self.temporary, *role)

        with subprocess.Popen(command(self.clients[0], exporter, ["export"]), env=dict(os.environ, **self.user), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
            try:
                result = run_program(command(self.clients[1], importer, ["import", "alone"]), environment=self.user, timeout=PATIENCE)
                self.assertEqual(result.status, 0, result.report())
                self.assertEqual(process.communicate(timeout=PATIENCE)[0], "written\n", result.report())
            finally:
                end_group(process.pid)
        self.assertEqual(result.output.split("\n")[3:6], ["known 1", "no export 1 1 101", "managed"], result.report())
        self.assertRegex(result.errors, '"peer_direct":[1-9][0-9]*,"peer_rdma":0,"peer_by_client":0,')
        self.assertEqual(sorted(server.log().count(" starts: ") for server in self.servers), [1, 2], result.report())

    def test_memory_of_another_rank(self):
        """Each rank sees its own GPU alone, of another server than the other's; their lease is of both."""
        lease, env = self.lease(), ["env", "CUDA_VISIBLE_DEVICES=0"]
        self.share_memory((("--lease", lease), env), (("--lease", lease, "--stats"), [env[0], "CUDA_VISIBLE_DEVICES=%d" % (RANKS - 1)]))

    def test_memory_of_another_lease(self):
        """Each has a lease of its own, of one server."""
        self.share_memory((("-n", "2"), ()), (("-n", "1", "--stats"), ()))

    def test_a_server_is_killed(self):
        def kill():
            self.assertTrue(wait_until(lambda: glob.glob(os.path.join(self.temporary, "*", "id.working")), PATIENCE), "no rank is at work")
            self.servers[1].kill()

        outputs = self.on_all_clients(self.lease(), "fails", kill)
        told = [line for _, output, _ in outputs for line in output.splitlines() if " is told " in line or "remote" in line]
        self.assertEqual(len(told), RANKS, outputs)
        for line in told:
            self.assertIn(" is told 6: ", line)  # ncclRemoteError

    @unittest.skipUnless(shutil.which("mpirun"), "Open MPI is not installed (apt-get install openmpi-bin)")
    def test_by_mpirun(self):
        """mpirun on one client starts its daemons on the others as it does by ssh."""
        agent = os.path.join(self.folder, "agent")
        with open(agent, "w") as file:
            file.write("#!/bin/sh\nhost=$1; shift\ncase $host in\n%sesac\n" % "".join(
                '%s) exec %s sh -c "$*" ;;\n' % (client.address, " ".join(client.command())) for client in self.clients))
        os.chmod(agent, stat.S_IRWXU)
        hosts = ",".join("%s:%d" % (client.address, slots) for client, slots in zip(self.clients, (2, 1, 1)))
        result = run_program(self.clients[0].command(
            "mpirun", "--allow-run-as-root", "--host", hosts, "--mca", "plm_rsh_agent", agent, "--mca", "plm", "rsh", "--mca",
            "oob_tcp_if_include", "eth0", "--mca", "btl", "self,tcp", "-x", "REMOTE_GPU_CREDENTIALS", "-x",
            "MASTER_ADDR=" + self.clients[0].address, "-x", "MASTER_PORT=29501", "-n", str(RANKS),
            *self.run_words("--lease", self.lease()), *self.rank("all")), environment=self.user, timeout=PATIENCE)
        self.check(result)


if __name__ == "__main__":
    why = network.why_not() or ("" if shutil.which("etcd") else "etcd is not installed (scripts/setup, or apt-get install etcd-server)")
    if why:
        print("skipped: " + why)
        sys.exit(77)
    stop_with_servers()
    build = Build(sys.argv.pop(1))
    build.check()
    unittest.main(verbosity=2)
