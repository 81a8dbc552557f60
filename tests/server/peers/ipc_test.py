"""Memory and events that one program has exported on a server, and another one opens whose GPUs are another server's: whether it uses the
exporter's server itself or is a guest there, by TLS, after the exporter's end and the server's; what is refused, and to whom.

usage: ipc_test.py BUILD_FOLDER [UNITTEST…]
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "scripts"))
sys.path.insert(0, os.path.join(HERE, "..", "..", "security"))

from authority import Authority  # noqa: E402
from trial import Build, Server, end_group, stop_with_servers, wait_until  # noqa: E402

IPC, SIZE = os.path.join(HERE, "ipc.py"), 5 << 20
# The server's workers find none of other servers', as on another machine.
APART = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /run && exec "$@"', "sh") if os.geteuid() == 0 else ()
SHARED = ["the same context", "waits", "read"]


class Ipc(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = self.stack.enter_context(tempfile.TemporaryDirectory())

    def server(self, *arguments, apart=False, environment=None):
        environment = dict(environment or {})
        if apart:
            environment["XDG_RUNTIME_DIR"] = self.stack.enter_context(tempfile.TemporaryDirectory())
        return self.stack.enter_context(Server(build, tcp=True, prefix=APART if apart else (), arguments=arguments, environment=environment))

    def file(self, name):
        return os.path.join(self.folder, name)

    def run_both(self, exporters, importers, how="", environment=(None, None), **options):
        """What a process that exports to another prints, and the other one's Result. Each is given as addresses."""
        for name in os.listdir(self.folder):
            os.unlink(self.file(name))
        with contextlib.ExitStack() as stack:
            self.exporter = stack.enter_context(subprocess.Popen(
                [build.command, "run", "-s", ",".join(exporters), "--", sys.executable, IPC, self.folder, "export"], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, text=True, start_new_session=True, env=dict(os.environ, **(environment[0] or {}))))
            stack.callback(end_group, self.exporter.pid)
            result = build.run_remote([sys.executable, IPC, self.folder, "import", *filter(None, [how])], ",".join(importers),
                                      environment=environment[1], **options)
            self.assertFalse(result.hung, result.report())
            self.assertEqual(result.status, 0, result.report())
            return self.exporter.communicate(timeout=60)[0], result

    def test_server_that_both_use(self):
        """A handle is opened on the server it is of; copies go from one server to the other."""
        one, other = self.server().address, self.server().address
        for exporters in ((one, other), (one,)):
            said, result = self.run_both(exporters, (one, other))
            self.assertEqual(said, "written\n", result.report())
            self.assertEqual(result.output.splitlines(), [*SHARED, "no kernel", "closed 1 1"], result.report())
            self.assertEqual(result.stats["peer_direct"], 2 * SIZE, result.report())
            self.assertEqual(result.stats["peer_by_client"], 0, result.report())
            self.assertIn("copies reach it", result.errors)

    def check_guest(self, said, result):
        self.assertEqual(said, "written\n", result.report())
        self.assertEqual(result.output.splitlines(),
                         [*SHARED, "known 1", "no export 1 1 101", "managed", "all copies", "no kernel", "closed 1 1"], result.report())

    def test_guest(self):
        """The importer uses its own server alone: data goes between the servers all the same, and it sees no other devices than before."""
        one, other = self.server(), self.server(apart=True)
        said, result = self.run_both((one.address,), (other.address,), "alone")
        self.check_guest(said, result)
        self.assertEqual(result.stats["peer_by_client"], 0, result.report())
        self.assertGreater(result.stats["peer_direct"], 4 * SIZE, result.report())
        self.assertEqual(result.errors.count("remote-gpu:"), 1, result.report())  # the kernel's

    def test_guest_without_a_connection_between_the_servers(self):
        one, other = self.server("--peers", "deny"), self.server(apart=True)
        said, result = self.run_both((one.address,), (other.address,), "alone")
        self.check_guest(said, result)
        self.assertEqual(result.stats["peer_direct"], 0, result.report())

    def test_guest_with_no_optimisation(self):
        one, other = self.server(), self.server(apart=True)
        self.check_guest(*self.run_both((one.address,), (other.address,), "alone", environment=(None, {"REMOTE_GPU_OPT": "-all"})))

    def test_guest_on_the_gpu_of_the_exporter(self):
        """Also where that has it by a number that is not the server's. The guest asks for no share of it."""
        one, other = self.server(environment={"SOFTGPU_DEVICES": "3"}), self.server(apart=True)
        environment = {"CUDA_VISIBLE_DEVICES": "2", "REMOTE_GPU_FRACTION": "0.75"}, {"REMOTE_GPU_FRACTION": "0.5"}
        said, result = self.run_both((one.address,), (other.address,), "alone", environment=environment)
        self.check_guest(said, result)
        self.assertIn("GPU 2, ", [line for line in one.log().splitlines() if " starts: " in line][-1])

    def test_named_server_whose_gpus_are_not_visible(self):
        one, other = self.server(), self.server(apart=True)
        said, result = self.run_both((one.address,), (one.address, other.address), "alone", environment=(None, {"CUDA_VISIBLE_DEVICES": "1"}))
        self.check_guest(said, result)

    def test_exporter_ends(self):
        """What is open stays, as with processes of one machine; a handle of a process that is gone opens nothing."""
        one, other = self.server(), self.server(apart=True)

        def await_end(_):
            self.assertTrue(wait_until(lambda: "session 1 ended" in one.log(), 60))
            with open(self.file("gone"), "w"):
                pass

        said, result = self.run_both((one.address,), (other.address,), "outlives", while_running=await_end)
        self.assertEqual(said, "written\n", result.report())
        self.assertEqual(result.output.splitlines(), [*SHARED, "outlives", "opened before 1 1"], result.report())
        self.assertIn("what it was of is gone", result.errors)

    def test_server_ends(self):
        """An error of what belongs to it, and no other."""
        one, other = self.server(), self.server(apart=True)

        def kill(_):
            self.assertTrue(wait_until(lambda: os.path.exists(self.file("written")), 60))
            one.kill()

        said, result = self.run_both((one.address,), (other.address,), "lost", while_running=kill)
        self.assertEqual(result.output.splitlines()[3:], ["lost 46 46", "goes on 46"], result.report())

    def test_own_server_ends(self):
        """Nothing goes on then, as without another server."""
        one, other = self.server(), self.server(apart=True)

        def kill(_):
            self.assertTrue(wait_until(lambda: os.path.exists(self.file("written")), 60))
            other.kill()

        said, result = self.run_both((one.address,), (other.address,), "own", while_running=kill)
        self.assertEqual(said, "written\n", result.report())
        self.assertEqual(result.output.splitlines(), [*SHARED, "own lost 46 46 46"], result.report())
        self.assertIn("CUDA calls of this program now fail", result.errors)

    def test_busy_program(self):
        """One session begins, while other threads call."""
        one, other = self.server(), self.server(apart=True)
        said, result = self.run_both((one.address,), (other.address,), "busy")
        self.assertEqual(said, "written\n", result.report())
        self.assertEqual(result.output.splitlines(), ["busy [0, 0, 0, 0, 1]", *SHARED, "no kernel", "closed 1 1"], result.report())
        self.assertEqual(one.log().count(" starts: "), 2, one.log())

    def test_idle_guest(self):
        """A guest that says nothing for long lives, and its server hears of that."""
        one, other = self.server("--keep-alive", "1"), self.server(apart=True)
        said, result = self.run_both((one.address,), (other.address,), "idle")
        self.assertEqual(said, "written\n", result.report())
        self.assertEqual(result.output.splitlines(), [*SHARED, "no kernel", "closed 1 1"], result.report())

    def test_context_ends(self):
        one, other = self.server(), self.server(apart=True)
        said, result = self.run_both((one.address,), (other.address,), "reset")
        self.assertEqual(said, "written\n", result.report())
        self.assertEqual(result.output.splitlines(), [*SHARED, "no kernel", "reset 1 1", "opened again 9090909 0 1"], result.report())

    def test_two_gpus(self):
        """A session for each; what goes from one to the other does so between them."""
        one, other = self.server(environment={"SOFTGPU_DEVICES": "2"}), self.server(apart=True)
        said, result = self.run_both((one.address,), (other.address,), "two")
        self.assertEqual(said, "written\n", result.report())
        self.assertEqual(result.output.splitlines(), [*SHARED, "two 0", "no kernel", "closed 1 1"], result.report())
        self.assertEqual(one.log().count(" starts: "), 3, one.log())
        self.assertEqual(result.stats["peer_by_client"], 0, result.report())

    def test_something_else_answers(self):
        one, other = self.server(), self.server(apart=True)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            def answer():
                with contextlib.suppress(OSError):
                    while True:
                        with listener.accept()[0] as connection:
                            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 20)
            threading.Thread(target=answer, daemon=True).start()
            said, result = self.run_both((one.address,), (other.address,), str(listener.getsockname()[1]))
        self.assertEqual(result.output, "refused 1 1\n", result.report())
        self.assertIn("did not complete the handshake", result.errors)

    def test_refused(self):
        one, other = self.server(), self.server(apart=True)
        said, result = self.run_both((one.address,), (other.address,), "nowhere")
        self.assertEqual(said, "not written\n", result.report())
        self.assertEqual(result.output, 2 * "refused 1 1\n", result.report())
        self.assertEqual(result.errors.count("cannot reach the server tcp://127.0.0.1:1"), 2, result.report())

    def test_full_server(self):
        one, other = self.server("--max-sessions", "1"), self.server(apart=True)
        said, result = self.run_both((one.address,), (other.address,), "refused")
        self.assertEqual(said, "not written\n", result.report())
        self.assertEqual(result.output, "refused 1 1\n", result.report())
        self.assertIn("takes no more at once", result.errors)
        self.assertIn("name both servers", result.errors)

    def test_unix_socket(self):
        """Nobody on another machine could tell which one it is."""
        one, other = self.stack.enter_context(Server(build)), self.server(apart=True)
        said, result = self.run_both((one.address,), (other.address,), "refused")
        self.assertEqual((said, result.output), ("not written\n", "refused 1 1\n"), result.report())
        self.assertIn("uses it by a unix socket", result.errors)
        self.assertIn("let it name the server by its address of TCP", result.errors)

    def test_exclusive_gpu(self):
        one, other = self.server(), self.server(apart=True)
        said, result = self.run_both((one.address,), (other.address,), "refused", environment=({"REMOTE_GPU_EXCLUSIVE": "yes"}, None))
        self.assertEqual((said, result.output), ("not written\n", "refused 1 1\n"), result.report())
        self.assertIn("run the program that exports it without --exclusive", result.errors)

    def test_sixteen_gpus(self):
        """A session for each, and not one more."""
        one, other = self.server(environment={"SOFTGPU_DEVICES": "16"}), self.server(apart=True)
        said, result = self.run_both((one.address,), (other.address,), "many")
        self.assertEqual((said, result.output), ("not written\n", "many 15 1\n"), result.report())
        self.assertIn("at most 16 servers and, as a guest, GPUs", result.errors)

    @unittest.skipUnless(shutil.which("openssl"), "there is no program openssl")
    def test_users(self):
        """By TLS, as oneself; another user's handle is worth nothing, and a server that proves nothing is not used."""
        authority = Authority(self.stack.enter_context(tempfile.TemporaryDirectory()) + "/authority")
        certificate, key = authority.issue("server", "server", alternative="IP:127.0.0.1")
        trust = ("--tls-ca", authority.root, "--tls-cert", certificate, "--tls-key", key)
        users = [{"REMOTE_GPU_CREDENTIALS": authority.credentials(os.path.join(authority.folder, "of-" + name), name)}
                 for name in ("alice", "mallory")]
        one, other = self.server(*trust), self.server(*trust, apart=True)
        self.check_guest(*self.run_both((one.address,), (other.address,), "alone", environment=(users[0], users[0])))
        said, result = self.run_both((one.address,), (other.address,), "refused", environment=users)
        self.assertEqual(said, "not written\n", result.report())
        self.assertEqual(result.output, "refused 1 1\n", result.report())
        self.assertIn("another user's", result.errors)

    @unittest.skipUnless(shutil.which("openssl"), "there is no program openssl")
    def test_joined_by_name(self):
        """The server is called by the name by which it was joined, as its certificate is for that and no number."""
        authority = Authority(self.stack.enter_context(tempfile.TemporaryDirectory()) + "/authority")
        certificate, key = authority.issue("server", "server", alternative="DNS:localhost")
        trust = ("--tls-ca", authority.root, "--tls-cert", certificate, "--tls-key", key)
        own = os.path.join(authority.folder, "own")
        os.makedirs(os.path.join(own, "servers"))
        names = []
        for apart in (False, True):
            port = self.server(*trust, apart=apart).address.rpartition(":")[2]
            names.append("localhost:" + port)
            authority.credentials(os.path.join(own, "servers", names[-1]), "alice" + port)
        self.check_guest(*self.run_both(names[:1], names[1:], "alone", environment=2 * ({"REMOTE_GPU_CREDENTIALS": own},)))


if __name__ == "__main__":
    stop_with_servers()
    build = Build(sys.argv.pop(1))
    build.check()
    unittest.main(verbosity=2)
