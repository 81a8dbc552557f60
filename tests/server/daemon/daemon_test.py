"""Life of remote-gpud from outside: what it refuses, whom it keeps waiting, how it ends, what it leaves behind.

The driver and the worker are stand-ins (fake_driver.c, fake_worker.c); control_client.c says hello in unusual ways.
"""

import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "scripts"))

from control_message import SESSION, hello_for  # noqa: E402
from trial import wait_until  # noqa: E402

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "build"
STAGE = os.path.join(BUILD, "stage")
DAEMON = os.path.join(STAGE, "bin", "remote-gpud")
HELPERS = os.path.join(BUILD, "tests", "daemon")
CLIENT = os.path.join(HELPERS, "control_client")
WORKER = os.path.join(HELPERS, "fake_worker")
DRIVER = os.path.join(HELPERS, "fake_libcuda.so")
ENVIRONMENT = dict(os.environ, REMOTE_GPU_LIBDIR=os.path.join(STAGE, "lib", "remote-gpu"), REMOTE_GPU_LOG="debug")
for name in ("REMOTE_GPU_FILTER", "CUDA_VISIBLE_DEVICES"):
    ENVIRONMENT.pop(name, None)


def children_of(pid):
    """State and command of each child but the frontend, zombies included."""
    return [child for child in all_children_of(pid) if child[2] != "frontend"]


def frontend_of(daemon):
    """The process id of the daemon's frontend; None: there is none."""
    found = [pid for pid, state, name in all_children_of(daemon.process.pid) if name == "frontend" and state != "Z"]
    return found[0] if found else None


def all_children_of(pid):
    """State and command of each child, zombies included."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % entry) as file:
                head, _, rest = file.read().rpartition(")")
        except OSError:
            continue
        fields = rest.split()
        if int(fields[1]) == pid:
            found.append((int(entry), fields[0], head.partition("(")[2]))
    return found


def descriptors_of(pid):
    """How many descriptors a process has, also one into which its own user may not look."""
    try:
        return len(os.listdir("/proc/%d/fd" % pid))
    except PermissionError:
        return os.stat("/proc/%d/fd" % pid).st_size  # 0 before Linux 6.2


def is_running(pid):
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def built_with_sanitizer():
    with open(os.path.join(BUILD, "CMakeCache.txt")) as file:
        return any(re.match(r"RG_SANITIZE:.*=.*\w", line) for line in file)


def built_with_thread_sanitizer():
    with open(os.path.join(BUILD, "CMakeCache.txt")) as file:
        return any(re.match(r"RG_SANITIZE:.*=.*thread", line) for line in file)


class Daemon:
    def __init__(self, *arguments, environment=None, listen=True, wait=True, worker=WORKER,
                 driver=DRIVER, user=None):
        self.folder = tempfile.TemporaryDirectory(prefix="remote-gpud-test-")
        more = {}
        if user is not None:
            os.chown(self.folder.name, user, user)
            more = {"user": user, "group": user, "extra_groups": []}
        self.ready = os.path.join(self.folder.name, "ready")
        self.log_path = os.path.join(self.folder.name, "log")
        command = [DAEMON, "--worker", worker, "--driver", driver, "--ready-file", self.ready,
                   "--config", "/dev/null", "--log", "debug", *arguments]
        if listen:
            command += ["--listen", "127.0.0.1:0"]
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(command, env=dict(ENVIRONMENT, **(environment or {})), stdout=log,
                                            stderr=log, stdin=subprocess.DEVNULL, **more)
        if wait:
            wait_until(lambda: os.path.exists(self.ready) or self.process.poll() is not None)

    def addresses(self):
        with open(self.ready) as file:
            return file.read().split()

    @property
    def address(self):
        return self.addresses()[0]

    @property
    def near(self):
        """The address by which this machine reaches a server that listens on all of them."""
        return self.address.replace("0.0.0.0", "127.0.0.1").replace("tcp://", "")

    def socket(self):
        host, port = re.fullmatch(r"tcp://(.*):(\d+)", self.address).groups()
        return socket.create_connection((host, int(port)), timeout=20)

    def log(self):
        with open(self.log_path) as file:
            return file.read()

    def stop(self):
        if not os.path.exists(self.folder.name):
            return self.process.returncode
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            if self.process.poll() is None:
                time.sleep(0.05)
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        print(self.log(), end="")  # so that a sanitizer's report is seen
        self.folder.cleanup()
        return status


class Client:
    """A control client that stays, with its output by lines."""

    def __init__(self, address, *words):
        self.process = subprocess.Popen([CLIENT, address, *words], env=ENVIRONMENT, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def line(self, seconds=10):
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        return self.process.stdout.readline().strip() if ready else "nothing"

    def leave(self):
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


def say(address, *words):
    result = subprocess.run([CLIENT, address, *words], env=ENVIRONMENT, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, text=True, timeout=60)
    return result.stdout.strip()


class Case(unittest.TestCase):
    def start(self, *arguments, **options):
        daemon = Daemon(*arguments, **options)
        self.addCleanup(daemon.stop)
        self.assertIsNone(daemon.process.poll(), daemon.log())
        return daemon

    def join(self, address, *words):
        client = Client(address, *words)
        self.addCleanup(client.process.kill)
        return client

    def fails(self, *arguments, **options):
        """A start that must fail: its messages."""
        daemon = Daemon(*arguments, **options)
        self.addCleanup(daemon.stop)
        self.assertEqual(daemon.process.wait(20), 125, daemon.log())
        self.assertFalse(os.path.exists(daemon.ready))
        return daemon.log()


class Starting(Case):
    def test_allows_everybody_when_told_to(self):
        daemon = self.start("--listen", "0.0.0.0:0", "--allow-unauthenticated", listen=False)
        self.assertRegex(daemon.address, r"^tcp://0\.0\.0\.0:[1-9]\d*$")
        self.assertIn("open to everybody", daemon.log())
        self.assertRegex(say(daemon.near), "^hello")

    @unittest.skipUnless(os.path.exists(os.path.join(STAGE, "lib", "remote-gpu", "soft", "libcuda.so.1")),
                         "needs the software device")
    def test_software_device_in_place_of_a_driver_is_not_for_others(self):
        with tempfile.TemporaryDirectory() as folder:
            log = self.fails("--listen", "0.0.0.0:0", "--state-dir", folder, listen=False, driver="auto")
            self.assertIn("--driver soft", log)

    def test_address_in_use(self):
        daemon = self.start()
        self.assertRegex(self.fails("--listen", daemon.address, listen=False), "(?i)in use")

    def test_several_addresses(self):
        name = "unix:@remote-gpud-test-%d" % os.getpid()
        daemon = self.start("--listen", "127.0.0.1:0", "--listen", name, listen=False)
        addresses = daemon.addresses()
        self.assertEqual(len(addresses), 2)
        for address in addresses:
            self.assertEqual(say(address, "purpose=inventory"), "inventory devices=2 sessions=0")

    def test_unknown_option_is_explained(self):
        self.assertIn("did you mean '--listen'", self.fails("--lisen", "x"))

    def test_bad_values(self):
        for words in (["--max-sessions", "0"], ["--grace", "soon"], ["--listen", "127.0.0.1:99999"], ["stray"]):
            with self.subTest(words):
                self.fails(*words)

    def test_configuration_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write("# a comment\n max-sessions = 1 \n\ngrace=2\n")
            file.flush()
            daemon = self.start("--config", file.name)
            client = self.join(daemon.address, "hold")
            self.assertRegex(client.line(), "^hello")
            self.assertRegex(say(daemon.address), "^refusal full ")
            client.leave()
            file.write("max-sesions = 2\n")
            file.flush()
            self.assertRegex(self.fails("--config", file.name), r":5: .*did you mean 'max-sessions'")
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "conf"), "w") as file:
                file.write("listen = 127.0.0.1:0, unix:%s/socket ,\n" % folder)
            daemon = self.start("--config", file.name, listen=False)
            self.assertEqual(len(daemon.addresses()), 2)
            for address in daemon.addresses():
                self.assertRegex(say(address), "^hello")
        self.assertIn("No such file", self.fails("--config", "/nonexistent/file"))

    def test_driver_that_does_not_work(self):
        self.assertIn("CUDA_ERROR_NO_DEVICE", self.fails(environment={"CUDA_FAKE_DRIVER_MODE": "fail"}))
        self.assertRegex(self.fails(environment={"CUDA_FAKE_DRIVER_MODE": "crash"}), "crashed when it was tried")
        self.assertIn("it has no device", self.fails(environment={"CUDA_FAKE_DRIVER_DEVICES": "0"}))
        self.assertIn("/nonexistent/libcuda.so.1", self.fails(driver="/nonexistent/libcuda.so.1"))
        with tempfile.TemporaryDirectory() as folder:
            deep = os.path.join(folder, *["x" * 200] * 6)
            os.makedirs(deep)
            self.assertIn("too long", self.fails(driver=shutil.copy(DRIVER, deep)))

    def test_stops_while_a_driver_hangs(self):
        daemon = Daemon(environment={"CUDA_FAKE_DRIVER_MODE": "hang"}, wait=False)
        self.addCleanup(daemon.stop)
        self.assertTrue(wait_until(lambda: any(name == "probe" for _, _, name in children_of(daemon.process.pid))))
        (probe, _, _), = children_of(daemon.process.pid)
        daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(daemon.process.wait(5), -signal.SIGTERM)
        self.assertTrue(wait_until(lambda: not is_running(probe)))

    def test_driver_that_talks(self):
        daemon = self.start(environment={"CUDA_FAKE_DRIVER_MODE": "print"})
        self.assertEqual(say(daemon.address, "purpose=inventory"), "inventory devices=2 sessions=0")

    def test_worker_that_is_missing(self):
        self.assertIn("installation is incomplete", self.fails(worker="/nonexistent/worker"))

    def test_names_are_cleaned(self):
        daemon = self.start()
        self.assertNotIn("\033", daemon.log())
        self.assertIn("Fake GPU 0 ?[31m", daemon.log())


class Talking(Case):
    def test_session(self):
        daemon = self.start()
        client = self.join(daemon.address, "hold")
        line = client.line()
        self.assertRegex(line, r"^hello session=1 devices=0,1 rdma=yes driver=.*fake_libcuda.so kind=nvidia ")
        self.assertRegex(line, "software=-$")  # all devices: CUDA_VISIBLE_DEVICES is left alone
        self.assertEqual(say(daemon.address, "purpose=status"), "inventory devices=2 sessions=1")
        client.leave()
        self.assertTrue(wait_until(lambda: not children_of(daemon.process.pid)), "the worker is still there")
        self.assertIn("session 1 ended", daemon.log())

    def test_further_connections_reach_their_session(self):
        daemon = self.start()
        clients = []
        for number in (1, 2):
            clients.append(self.join(daemon.address, "hold"))
            self.assertRegex(clients[-1].line(), "^hello session=%d " % number)
        for number in (2, 1, 2):
            self.assertEqual(say(daemon.address, "purpose=bulk:%d" % number), "move to %d" % number)
        self.assertRegex(say(daemon.address, "purpose=bulk:3"), "^refusal unsupported there is no session 3")
        self.assertEqual(say(daemon.address, "purpose=status"), "inventory devices=2 sessions=2")
        clients[0].leave()
        self.assertTrue(wait_until(lambda: len(children_of(daemon.process.pid)) == 1), "the worker is still there")
        self.assertRegex(say(daemon.address, "purpose=bulk:1"), "^refusal unsupported there is no session 1")
        clients[1].leave()

    def test_granted_devices(self):
        daemon = self.start()
        self.assertRegex(say(daemon.address, "gpus=1"),
                         "devices=0 .*software=GPU-10111213-1415-1617-1819-1a1b1c1d1e1f$")
        self.assertRegex(say(daemon.address, "index=1"), "devices=1 .*software=GPU-20")
        self.assertRegex(say(daemon.address, "index=1", "index=0"), "devices=1,0 .*software=GPU-2.*,GPU-1")

    def test_devices_that_are_used_least_come_first(self):
        daemon = self.start(environment={"CUDA_FAKE_DRIVER_DEVICES": "3"})
        clients = []
        for expected, words in (("0", ["gpus=1"]), ("1", ["gpus=1"]), ("2", ["gpus=1"]), ("0,1", ["gpus=2"]),
                                ("2", ["gpus=1"]), ("0,1,2", [])):
            clients.append(self.join(daemon.address, "hold", *words))
            self.assertIn("devices=%s " % expected, clients[-1].line())
        for client in clients:
            client.leave()

    def test_refusals(self):
        daemon = self.start()
        cases = {
            ("major=99",): "refusal version .*version 99 .*same release",
            ("major=0",): "refusal version ",
            ("gpus=3",): "refusal no-such-gpu 3 GPUs were asked for, but this server has 2",
            ("index=2",): "refusal no-such-gpu GPU 2 ",
            ("index=1", "index=1"): "refusal no-such-gpu .*twice",
            ("memory=100",): "refusal unsupported ",
            ("server",): "refusal malformed ",
            ("bulk",): "refusal malformed ",
        }
        for words, expected in cases.items():
            with self.subTest(words):
                self.assertRegex(say(daemon.address, *words), "^" + expected)
        self.assertEqual(children_of(daemon.process.pid), [])

    def test_garbage(self):
        daemon = self.start()
        for data in (b"GET / HTTP/1.1\r\nHost: gpu\r\n\r\n", b"\x00" * 4096, b"\xff" * 4096, os.urandom(100000),
                     b"SSH-2.0-OpenSSH_9.2\r\n"):
            with self.subTest(data[:10]), daemon.socket() as connection:
                try:
                    connection.sendall(data)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65536):
                        pass
                except ConnectionError:
                    pass
        self.assertRegex(say(daemon.address), "^hello")
        self.assertIsNone(daemon.process.poll())

    def test_who_knocks_all_the_time_does_not_fill_the_log(self):
        daemon = self.start("--log", "info")
        for _ in range(100):
            with daemon.socket() as connection:
                connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
                self.assertTrue(connection.recv(4096))
        lines = daemon.log().splitlines()
        self.assertEqual(len([line for line in lines if "audit: event=refuse" in line]), 20)
        self.assertLess(len(lines), 60)

    def test_no_worker_for_who_has_left(self):
        daemon = self.start("--log", "info")
        before = len(daemon.log().splitlines())
        for how in ("reset", "closed"):
            for _ in range(50):
                connection = daemon.socket()
                connection.sendall(hello_for(SESSION, b""))
                if how == "reset":
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()
        self.assertRegex(say(daemon.address), "^hello")
        self.assertTrue(wait_until(lambda: not children_of(daemon.process.pid)))
        # a few may have been there still when they were looked at
        self.assertLess(len(daemon.log().splitlines()) - before, 100, daemon.log())

    def test_half_open_handshakes_keep_nobody_waiting(self):
        daemon = self.start()
        silent = [daemon.socket() for _ in range(40)]
        for connection in silent[::2]:
            connection.send(b"\x00")
        started = time.monotonic()
        self.assertRegex(say(daemon.address), "^hello")
        self.assertLess(time.monotonic() - started, 5)
        # and in the end they are cut off
        self.assertTrue(wait_until(lambda: all(self.ended(connection) for connection in silent), 20))
        for connection in silent:
            connection.close()

    def test_more_half_open_handshakes_than_there_is_room_for(self):
        daemon = self.start()
        silent = [daemon.socket() for _ in range(300)]
        started = time.monotonic()
        self.assertRegex(say(daemon.address), "^hello")
        self.assertLess(time.monotonic() - started, 5)
        for connection in silent:
            connection.close()

    @staticmethod
    def ended(connection):
        connection.setblocking(False)
        try:
            while connection.recv(4096):
                pass
            return True
        except BlockingIOError:
            return False
        except ConnectionError:
            return True

    def test_limit_of_sessions(self):
        daemon = self.start("--max-sessions", "2")
        clients = [self.join(daemon.address, "hold") for _ in range(2)]
        for client in clients:
            self.assertRegex(client.line(), "^hello")
        self.assertRegex(say(daemon.address), "^refusal full .*2 sessions")
        clients[0].leave()
        self.assertTrue(wait_until(lambda: len(children_of(daemon.process.pid)) == 1))
        self.assertRegex(say(daemon.address), "^hello")
        clients[1].leave()

    def test_who_comes_when_another_goes_is_served(self):
        daemon = self.start("--max-sessions", "1")
        first = self.join(daemon.address, "hold")
        self.assertRegex(first.line(), "^hello")
        second = self.join(daemon.address)
        self.assertEqual(second.line(0.5), "nothing")
        first.leave()
        self.assertRegex(second.line(), "^hello")
        second.leave()

    def test_worker_that_crashes_hurts_nobody_else(self):
        daemon = self.start()
        client = self.join(daemon.address, "hold")
        self.assertRegex(client.line(), "^hello")
        self.assertNotRegex(say(daemon.address, "command=worker:crash"), "hello")
        self.assertNotRegex(say(daemon.address, "command=worker:fail"), "hello")
        self.assertTrue(wait_until(lambda: len(children_of(daemon.process.pid)) == 1))
        self.assertRegex(daemon.log(), r"session 2 ended .*signal 6")
        self.assertRegex(daemon.log(), r"session 3 ended .*status 3")
        self.assertEqual(say(daemon.address, "purpose=status"), "inventory devices=2 sessions=1")
        client.leave()

    def test_unix_socket(self):
        daemon = self.start("--listen", "unix:@remote-gpud-unix-%d" % os.getpid(), listen=False)
        self.assertRegex(say(daemon.address), "^hello")

    @unittest.skipUnless(os.geteuid() == 0, "needs a second user")
    def test_unix_socket_is_for_its_user(self):
        def say_as_nobody(*arguments):
            daemon = self.start("--listen", *arguments, listen=False)
            result = subprocess.run([CLIENT, daemon.address], env=ENVIRONMENT, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, text=True, timeout=60, cwd=folder,
                                    user=65534, group=65534, extra_groups=[])
            return result.stdout

        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            for address in ("unix:@remote-gpud-user-%d" % os.getpid(), "unix:%s/socket" % folder):
                with self.subTest(address):
                    self.assertNotRegex(say_as_nobody(address), "^hello")
                    self.assertRegex(say_as_nobody(address + "-2", "--allow-unauthenticated"), "^hello")
            self.assertRegex(say_as_nobody("unix:@remote-gpud-other-%d" % os.getpid()), "^refusal unauthorised ")


class Frontend(Case):
    """The process that talks to clients."""

    def test_one_that_is_killed_is_replaced_and_sessions_go_on(self):
        daemon = self.start()
        client = self.join(daemon.address, "hold")
        self.assertRegex(client.line(), "^hello")
        for _ in range(2):
            before = frontend_of(daemon)
            os.kill(before, signal.SIGKILL)
            self.assertTrue(wait_until(lambda: frontend_of(daemon) not in (None, before)))
            self.assertEqual(say(daemon.address, "purpose=status"), "inventory devices=2 sessions=1")
            self.assertEqual(say(daemon.address, "purpose=bulk:1"), "move to 1")
        self.assertEqual(client.line(0.2), "nothing")
        self.assertIn("another takes its place", daemon.log())
        client.leave()
        self.assertTrue(wait_until(lambda: not children_of(daemon.process.pid)))
        self.assertIn("session 1 ended", daemon.log())

    def test_questions_hold_up_nothing(self):
        """A driver that hangs when it is looked at: old answers, and sessions as ever."""
        with tempfile.TemporaryDirectory(dir=HELPERS) as folder:  # the driver's own, which its sandbox shows
            os.chmod(folder, 0o755)
            hang = os.path.join(folder, "hang")
            daemon = self.start(environment={"CUDA_FAKE_DRIVER_HANG": hang})
            with open(hang, "w"):
                time.sleep(1.1)  # what was known at the start is old by now
            askers = [self.join(daemon.address, "purpose=status") for _ in range(40)]
            self.assertTrue(wait_until(lambda: any(name == "probe" for _, _, name in children_of(daemon.process.pid))))
            started = time.monotonic()
            for _ in range(3):
                self.assertRegex(say(daemon.address), "^hello")
            self.assertLess(time.monotonic() - started, 5)
            answers = [asker.line(20) for asker in askers]
            for asker in askers:
                asker.leave()
            self.assertGreaterEqual(answers.count("inventory devices=2 sessions=0"), 20, answers)
            for answer in answers:  # those for whom there is no room are told so
                self.assertRegex(answer, "^(inventory devices=2 |refusal full .*too many questions)")
            self.assertIsNone(daemon.process.poll())

    def test_one_that_is_stopped_for_ever_keeps_the_server_from_nothing(self):
        daemon = self.start("--grace", "0")
        client = self.join(daemon.address, "hold")
        self.assertRegex(client.line(), "^hello")
        os.kill(frontend_of(daemon), signal.SIGSTOP)
        daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(client.line(), "end the server is shutting down")
        self.assertEqual(daemon.process.wait(10), 0)
        client.leave()

    def test_it_ends_with_a_daemon_that_is_killed(self):
        daemon = self.start()
        frontend = frontend_of(daemon)
        daemon.process.kill()
        self.assertTrue(wait_until(lambda: not is_running(frontend)))

    def test_it_has_no_rights(self):
        daemon = self.start()
        with open("/proc/%d/status" % frontend_of(daemon)) as file:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        self.assertEqual(status["NoNewPrivs"], "1")
        if not built_with_sanitizer():  # those make system calls of their own
            self.assertEqual(status["Seccomp"], "2")
        if os.geteuid() == 0:
            self.assertNotIn("0", status["Uid"].split())
            self.assertNotIn("0", status["Gid"].split())
            self.assertEqual(status["Groups"].strip(), "")
            for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
                self.assertEqual(int(status[name], 16), 0, name)
            self.assertEqual(os.listdir("/proc/%d/root" % frontend_of(daemon)), [])


    def test_nobody_looks_into_the_monitor(self):
        user = None
        if os.geteuid() == 0:
            user = 65534
            if subprocess.run(["test", "-x", DAEMON], user=user, group=user, extra_groups=[]).returncode != 0:
                self.skipTest("another user cannot run what was built here")
        daemon = self.start("--sandbox", "auto", user=user, environment={"HOME": "/nonexistent"})
        self.assertNotEqual(os.stat("/proc/%d" % daemon.process.pid).st_uid, 0)
        self.assertEqual(os.stat("/proc/%d/mem" % daemon.process.pid).st_uid, 0)  # not its user's
        client = self.join(daemon.address, "hold")  # and processes of the same user can be started
        self.assertRegex(client.line(), "^hello")
        self.assertEqual(os.stat("/proc/%d/mem" % children_of(daemon.process.pid)[0][0]).st_uid,
                         os.stat("/proc/%d" % daemon.process.pid).st_uid)
        client.leave()


class Security(Case):
    """Who may come from other machines, and by what."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="remote-gpud-security-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.state = os.path.join(self.folder, "state")

    def serve(self, *arguments):
        """A server that other machines can reach."""
        return self.start("--listen", "0.0.0.0:0", "--state-dir", self.state, *arguments, listen=False)

    def command(self, *words):
        result = subprocess.run([DAEMON, words[0], "--state-dir", self.state, *words[1:]], env=ENVIRONMENT,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                timeout=60)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.strip()

    def join_as(self, daemon, user, *limits):
        """The folder of a new user's credentials."""
        token = self.command("token", "--user", user, "--server", daemon.near, *limits)
        home = os.path.join(self.folder, user)
        environment = dict(ENVIRONMENT, XDG_CONFIG_HOME=home)
        environment.pop("REMOTE_GPU_CREDENTIALS", None)
        result = subprocess.run([os.path.join(STAGE, "bin", "remote-gpu"), "join", token], env=environment,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                timeout=60)
        self.assertEqual(result.returncode, 0, result.stdout + daemon.log())
        return os.path.join(home, "remote-gpu", "servers", daemon.near)

    def test_first_start_says_what_to_do_and_the_next_does_not(self):
        first = self.serve()
        self.assertIn("remote-gpud token --user", first.log())
        self.assertEqual(os.stat(self.state).st_mode & 0o777, 0o700)
        self.assertEqual(os.stat(os.path.join(self.state, "ca.key")).st_mode & 0o777, 0o600)
        first.stop()
        self.assertNotIn("token --user", self.serve().log())

    def test_nobody_comes_without_a_certificate(self):
        daemon = self.serve()
        plain = say(daemon.near)
        self.assertRegex(plain, "^refusal unauthorised .*without TLS.*remote-gpu join")
        for purpose in ("inventory", "status", "netperf", "bulk:1", "resume:1"):
            self.assertRegex(say(daemon.near, "purpose=" + purpose), "^refusal unauthorised .*without TLS")
            self.assertRegex(say(daemon.near, "ca=%s/ca.crt" % self.state, "purpose=" + purpose),
                             "^refusal unauthorised .*without a certificate.*remote-gpu join")
        self.assertEqual(children_of(daemon.process.pid), [])

    def test_nothing_plain_is_read_of_who_comes_from_elsewhere(self):
        daemon = self.serve()
        with socket.create_connection(tuple(daemon.near.split(":")), timeout=10) as connection:
            connection.sendall(b"x")  # not even a header
            self.assertIn(b"without TLS", connection.recv(4096))

    def test_user_joins_and_has_sessions(self):
        daemon = self.serve()
        alice = "credentials=" + self.join_as(daemon, "alice")
        client = self.join(daemon.near, alice, "hold")
        self.assertRegex(client.line(), "^hello session=1 ")
        self.assertEqual(say(daemon.near, alice, "purpose=bulk:1"), "move to 1")
        self.assertRegex(say(daemon.near, alice, "purpose=status", "show"), "session 1 user=alice encrypted=1 ")
        self.assertRegex(say(daemon.near, alice, "gpus=7"), "^refusal no-such-gpu 7 GPUs")
        client.leave()
        self.assertTrue(wait_until(lambda: not children_of(daemon.process.pid)))

    def test_certificate_of_a_foreign_authority(self):
        daemon = self.serve()
        own = self.join_as(daemon, "alice")
        daemon.stop()
        shutil.rmtree(self.state)
        other = self.serve()
        shutil.copy(os.path.join(self.state, "ca.crt"), own)  # it believes the new server, which does not believe it
        self.assertRegex(say(other.near, "credentials=" + own), "^refusal unauthorised ")

    def test_session_goes_on_with_who_began_it_alone(self):
        daemon = self.serve("--listen", "127.0.0.1:0")
        alice = "credentials=" + self.join_as(daemon, "alice")
        bob = "credentials=" + self.join_as(daemon, "bob")
        client = self.join(daemon.near, alice, "hold")
        self.assertRegex(client.line(), "^hello session=1 ")
        near = daemon.addresses()[1]
        for purpose in ("purpose=bulk:1", "purpose=resume:1"):
            self.assertRegex(say(daemon.near, bob, purpose), "^refusal unauthorised session 1 was begun by another")
            self.assertRegex(say(near, purpose), "^refusal unauthorised session 1 was begun by another")
            self.assertRegex(say(near, "ca=%s/ca.crt" % self.state, purpose), "^refusal unauthorised session 1")
        client.leave()

    def test_revoked_user_is_out_within_a_second(self):
        daemon = self.serve()
        alice = "credentials=" + self.join_as(daemon, "alice")
        bob = "credentials=" + self.join_as(daemon, "bob")
        clients = [self.join(daemon.near, who, "hold", *words)
                   for who, words in ((alice, ()), (alice, ("command=worker:stubborn",)), (bob, ()))]
        for client in clients:
            self.assertRegex(client.line(), "^hello")
        self.command("revoke", "alice")
        revoked = time.monotonic()
        self.assertEqual(clients[0].line(), "end revoked")
        self.assertTrue(wait_until(lambda: len(children_of(daemon.process.pid)) == 1))
        self.assertLess(time.monotonic() - revoked, 2)  # a second, on a machine with more to do
        self.assertRegex(say(daemon.near, alice), "^refusal unauthorised .*revoked")
        self.assertRegex(say(daemon.near, alice, "purpose=status"), "^refusal unauthorised .*revoked")
        self.assertRegex(say(daemon.near, bob, "purpose=status"), "inventory devices=2 sessions=1")
        self.assertEqual(clients[2].line(0.2), "nothing")
        for client in clients:
            client.leave()

    def test_limits_of_a_user(self):
        daemon = self.serve("--max-sessions-per-user", "2")
        alice = "credentials=" + self.join_as(daemon, "alice")
        bob = "credentials=" + self.join_as(daemon, "bob", "--max-sessions", "1")
        clients = [self.join(daemon.near, who, "hold") for who in (alice, bob, alice)]
        for client in clients:
            self.assertRegex(client.line(), "^hello")
        self.assertRegex(say(daemon.near, alice), "^refusal full alice has 2 sessions")
        self.assertRegex(say(daemon.near, bob), "^refusal full bob has 1 sessions")
        for client in clients:
            client.leave()

    def test_command_lines_are_not_for_others(self):
        daemon = self.serve("--listen", "127.0.0.1:0", "--listen", "unix:@remote-gpud-list-%d" % os.getpid())
        alice = "credentials=" + self.join_as(daemon, "alice")
        bob = "credentials=" + self.join_as(daemon, "bob")
        _, near, own = daemon.addresses()
        client = self.join(daemon.near, alice, "hold", "command=/opt/app/train --password=hunter2")
        self.assertRegex(client.line(), "^hello")
        for words in ([daemon.near, bob], [near], [near, "ca=%s/ca.crt" % self.state]):
            shown = say(*words, "purpose=status", "show")
            self.assertIn("session 1 user=alice", shown)
            self.assertRegex(shown, "command=train$")
        for words in ([daemon.near, alice], [own]):
            self.assertIn("--password=hunter2", say(*words, "purpose=status", "show"))
        client.leave()

    def test_audit_log(self):
        daemon = self.serve("--log", "error")
        alice = "credentials=" + self.join_as(daemon, "alice")
        client = self.join(daemon.near, alice, "hold", "gpus=1")
        self.assertRegex(client.line(), "^hello")
        self.assertRegex(say(daemon.near, alice, "gpus=7"), "^refusal")
        self.assertRegex(say(daemon.near), "^refusal")
        self.command("revoke", "alice")
        self.assertEqual(client.line(), "end revoked")
        client.leave()
        lines = [line for line in daemon.log().splitlines() if " audit: " in line]
        for number, pattern in enumerate((
                r'event=join user="alice" serial=[0-9a-f]+ from="127\.0\.0\.1:\d+" encrypted=yes$',
                r'event=grant user="alice" serial=[0-9a-f]+ from="127\.0\.0\.1:\d+" session=1 gpus=0 encrypted=yes$',
                r'event=refuse user="alice" serial=[0-9a-f]+ from="\S+" encrypted=yes why="7 GPUs were asked for',
                r'event=refuse user="" from="\S+" encrypted=no why="this server takes nobody',
                r'event=revoke user="alice" serial=[0-9a-f]+ from="\S+" session=1 encrypted=yes why=".*revoked')):
            self.assertRegex(lines[number], pattern)
        with open(os.path.join(alice.split("=", 1)[1], "tls.key")) as file:
            self.assertNotIn(file.read().splitlines()[1], daemon.log())

    def test_handshakes_of_strangers_hold_up_nobody(self):
        daemon = self.serve()
        alice = "credentials=" + self.join_as(daemon, "alice")
        near = tuple(daemon.near.split(":"))
        silent = [socket.create_connection(near, timeout=10) for _ in range(150)]
        for number, connection in enumerate(silent):  # nothing, the beginning of a record, a record that is none
            connection.send([b"\x16", b"\x16\x03\x01\x02\x00\x01", b"\x16" * 600][number % 3])
        started = time.monotonic()
        self.assertRegex(say(daemon.near, alice), "^hello")
        self.assertLess(time.monotonic() - started, 5)
        for connection in silent:
            connection.close()

    def test_certificate_is_read_again(self):
        daemon = self.serve()
        alice = "credentials=" + self.join_as(daemon, "alice")
        client = self.join(daemon.near, alice, "hold")
        self.assertRegex(client.line(), "^hello")
        os.unlink(os.path.join(self.state, "tls.crt"))
        os.unlink(os.path.join(self.state, "tls.key"))
        daemon.process.send_signal(signal.SIGHUP)
        self.assertTrue(wait_until(lambda: "new certificate" in daemon.log()), daemon.log())
        self.assertRegex(say(daemon.near, alice), "^hello")
        self.assertEqual(client.line(0.2), "nothing")
        client.leave()

    def test_rdma_is_offered_where_it_may_be(self):
        for arguments, plain, encrypted in (((), "yes", "no"), (("--encrypt", "control"), "yes", "yes"),
                                            (("--encrypt", "control", "--rdma", "deny"), "no", "no")):
            with self.subTest(arguments):
                daemon = self.serve("--listen", "127.0.0.1:0", *arguments)
                alice = "credentials=" + self.join_as(daemon, "alice")
                self.assertIn(" rdma=%s " % plain, say(daemon.addresses()[1]))
                self.assertIn(" rdma=%s " % encrypted, say(daemon.near, alice))
                daemon.stop()

    def test_new_frontend_has_the_certificate(self):
        daemon = self.serve()
        alice = "credentials=" + self.join_as(daemon, "alice")
        before = frontend_of(daemon)
        os.kill(before, signal.SIGKILL)
        self.assertTrue(wait_until(lambda: frontend_of(daemon) not in (None, before)))
        self.assertRegex(say(daemon.near, alice), "^hello")

    def test_unix_sockets_identify_by_the_kernel(self):
        daemon = self.start("--listen", "unix:@remote-gpud-who-%d" % os.getpid(), listen=False)
        client = self.join(daemon.address, "hold")
        self.assertRegex(client.line(), "^hello")
        self.assertRegex(say(daemon.address, "purpose=status", "show"),
                         r"session 1 user=uid %d\b.* encrypted=0 " % os.geteuid())
        client.leave()


class Ending(Case):
    @unittest.skipIf(built_with_thread_sanitizer(), "the sanitizer has a thread that runs")
    def test_at_rest_nothing_runs(self):
        daemon = self.start()
        say(daemon.address, "purpose=inventory")
        time.sleep(0.3)

        def switches():
            total = 0
            for task in os.listdir("/proc/%d/task" % daemon.process.pid):
                with open("/proc/%d/task/%s/status" % (daemon.process.pid, task)) as file:
                    total += sum(int(line.split()[1]) for line in file if "ctxt_switches" in line)
            return total
        before = switches()
        time.sleep(1.5)
        self.assertEqual(switches(), before)
        self.assertEqual(len(os.listdir("/proc/%d/task" % daemon.process.pid)), 1)

    def test_folders_and_level_reach_the_workers(self):
        cache = tempfile.TemporaryDirectory()
        self.addCleanup(cache.cleanup)
        daemon = self.start("--log", "error", environment={"CACHE_DIRECTORY": cache.name + "/one:" + cache.name + "/two",
                                                           "REMOTE_GPU_IMAGE_CACHE": ""})
        client = self.join(daemon.address, "hold")
        self.assertRegex(client.line(), "^hello")
        with open("/proc/%d/environ" % children_of(daemon.process.pid)[0][0], "rb") as file:
            environment = file.read().split(b"\0")
        self.assertIn(b"REMOTE_GPU_LOG=error", environment)
        # a folder for this identity, under a name of its own where it has a mount namespace
        (kept,) = os.listdir(cache.name + "/one/identities")
        folders = [text.partition(b"=")[2] for text in environment if text.startswith(b"REMOTE_GPU_IMAGE_CACHE=")]
        self.assertIn(folders, ([b"/run/remote-gpu/own/images"], [os.fsencode(cache.name + "/one/identities/" + kept)]))

    def test_service_manager_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in (os.path.join(folder, "notify"), "@remote-gpud-notify-%d" % os.getpid()):
                with self.subTest(name), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
                    manager.bind(name.replace("@", "\0"))
                    manager.settimeout(10)
                    daemon = self.start(environment={"NOTIFY_SOCKET": name})
                    self.assertEqual(manager.recv(100), b"READY=1")
                    daemon.process.send_signal(signal.SIGTERM)
                    self.assertEqual(manager.recv(100), b"STOPPING=1")
                    self.assertEqual(daemon.process.wait(20), 0)
        # one that is not there is no reason not to serve
        daemon = self.start(environment={"NOTIFY_SOCKET": "/nonexistent/notify"})
        self.assertIn("cannot tell the service manager", daemon.log())
        self.assertRegex(say(daemon.address), "^hello")

    def test_stops_at_once_without_sessions(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            daemon = self.start()
            started = time.monotonic()
            daemon.process.send_signal(number)
            self.assertEqual(daemon.process.wait(10), 0)
            self.assertLess(time.monotonic() - started, 5)

    def test_hangup_is_ignored(self):
        daemon = self.start()
        daemon.process.send_signal(signal.SIGHUP)
        self.assertTrue(wait_until(lambda: "SIGHUP is ignored" in daemon.log()))
        self.assertRegex(say(daemon.address), "^hello")

    def test_waits_for_sessions(self):
        daemon = self.start("--grace", "30")
        client = self.join(daemon.address, "hold")
        self.assertRegex(client.line(), "^hello")
        daemon.process.send_signal(signal.SIGTERM)
        self.assertTrue(wait_until(lambda: "no new sessions" in daemon.log()))
        self.assertRegex(say(daemon.address), "^unreachable")
        self.assertIsNone(daemon.process.poll())
        client.leave()
        self.assertEqual(daemon.process.wait(10), 0)

    def test_ends_sessions_after_the_grace_time(self):
        daemon = self.start("--grace", "500ms")
        client = self.join(daemon.address, "hold")
        self.assertRegex(client.line(), "^hello")
        daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(client.line(), "end the server is shutting down")
        self.assertEqual(daemon.process.wait(10), 0)
        client.leave()

    def test_second_signal_ends_them_at_once(self):
        daemon = self.start("--grace", "60")
        client = self.join(daemon.address, "hold")
        self.assertRegex(client.line(), "^hello")
        daemon.process.send_signal(signal.SIGTERM)
        self.assertTrue(wait_until(lambda: "no new sessions" in daemon.log()))
        daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(client.line(), "end the server is shutting down")
        self.assertEqual(daemon.process.wait(10), 0)
        client.leave()

    def test_stubborn_worker_is_killed(self):
        daemon = self.start("--grace", "0")
        client = self.join(daemon.address, "hold", "command=worker:stubborn")
        self.assertRegex(client.line(), "^hello")
        started = time.monotonic()
        daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(daemon.process.wait(10), 0)
        self.assertGreater(time.monotonic() - started, 1.5)
        self.assertIn("killing 1", daemon.log())
        client.leave()

    def test_workers_end_with_a_daemon_that_is_killed(self):
        daemon = self.start()
        client = self.join(daemon.address, "hold")
        self.assertRegex(client.line(), "^hello")
        (worker, _, _), = children_of(daemon.process.pid)
        daemon.process.kill()
        self.assertEqual(client.line(), "end the server is shutting down")
        self.assertTrue(wait_until(lambda: not is_running(worker)))
        client.leave()

    def test_a_client_that_vanishes_leaves_nothing(self):
        daemon = self.start()
        descriptors = descriptors_of(daemon.process.pid)
        for _ in range(5):
            client = self.join(daemon.address, "hold")
            self.assertRegex(client.line(), "^hello")
            client.process.kill()
            client.process.wait()
            client.process.stdin.close()
            client.process.stdout.close()
        self.assertTrue(wait_until(lambda: not children_of(daemon.process.pid)))
        # the last worker may have ended and not been noticed yet
        wait_until(lambda: descriptors_of(daemon.process.pid) == descriptors)
        self.assertEqual(descriptors_of(daemon.process.pid), descriptors)


if __name__ == "__main__":
    unittest.main(verbosity=2)
