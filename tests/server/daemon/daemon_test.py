"""Life of remote-gpud from outside: how it starts, what it answers, how it ends, what it leaves behind."""

import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import unittest

from daemon_case import (CLIENT, DAEMON, DRIVER, ENVIRONMENT, STAGE, WORKER, Case, Daemon, built_with_thread_sanitizer,
                         children_of, descriptors_of, is_running, say)
from control_message import SESSION, hello_for
from trial import wait_until


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

    def test_output_that_cannot_be_written(self):
        with tempfile.TemporaryDirectory() as folder, open("/dev/full", "w") as full:
            self.start("--listen", "0.0.0.0:0", "--state-dir", os.path.join(folder, "state"), listen=False)
            for words in (["--help"], ["--version"], ["users", "--json", "--state-dir", os.path.join(folder, "state")]):
                with self.subTest(words):
                    result = subprocess.run([DAEMON, *words], env=ENVIRONMENT, stdout=full, stderr=subprocess.PIPE, text=True,
                                            timeout=60)
                    self.assertEqual(result.returncode, 125)
                    self.assertIn("cannot write to standard output", result.stderr)

    def test_the_ready_file_is_written_through_no_link(self):
        """In a folder in which everybody writes, who foresees a name has no other file written by it."""
        with tempfile.TemporaryDirectory() as folder:
            ready, other = os.path.join(folder, "ready"), os.path.join(folder, "other")
            with open(other, "w") as file:
                file.write("as it was")
            process = subprocess.Popen(
                ["sh", "-c", 'ln -s other "$0.$$" && exec "$@"', ready, DAEMON, "--config", "/dev/null", "--driver", DRIVER,
                 "--worker", WORKER, "--listen", "127.0.0.1:0", "--ready-file", ready],
                env={**ENVIRONMENT, "STATE_DIRECTORY": os.path.join(folder, "state")})
            self.addCleanup(process.kill)
            self.assertTrue(wait_until(lambda: os.path.exists(ready) or process.poll() is not None))
            with open(ready) as file:
                self.assertRegex(file.read(), r"^tcp://127\.0\.0\.1:[1-9]\d*\n$")
            self.assertFalse(os.path.islink(ready))
            with open(other) as file:
                self.assertEqual(file.read(), "as it was")
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(20), 0)

    def test_few_descriptors(self):
        with tempfile.TemporaryDirectory() as folder:
            ready = os.path.join(folder, "ready")
            for limits, starts in (("20:20", False), ("20:4096", True)):
                with self.subTest(limits), subprocess.Popen(
                        ["prlimit", "--nofile=" + limits, DAEMON, "--listen", "127.0.0.1:0", "--driver", DRIVER, "--ready-file",
                         ready], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as process:
                    wait_until(lambda: process.poll() is not None or os.path.exists(ready), 30)
                    process.terminate()
                    errors = process.communicate(timeout=30)[1]
                    self.assertEqual(os.path.exists(ready), starts, errors)
                    self.assertEqual("ulimit -n" in errors, not starts, errors)

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
        self.assertIn("it is of CUDA 11.8, and drivers from CUDA 12.0 on are served; install a newer driver",
                      self.fails(environment={"CUDA_FAKE_DRIVER_VERSION": "11080"}))
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

    def test_kernels_that_reach_their_worker(self):
        reach = {"CUDA_FAKE_DRIVER_PAGEABLE": "1"}
        daemon = self.start(environment=reach)
        self.assertRegex(daemon.log(), r"warning: GPU 0 \(.*\(HMM\).*uvm_disable_hmm=1")
        shown = subprocess.run([os.path.join(STAGE, "bin", "remote-gpu"), "doctor", "-s", daemon.address], env=ENVIRONMENT,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=60).stdout
        self.assertIn("those of 2 of the server's 2 GPUs reach all memory of their worker (HMM)", shown)
        strict = self.fails("--sandbox", "strict", environment=reach)
        if "but this is not to be had here" not in strict:  # as with sanitizers
            self.assertIn("could take over their workers", strict)
        self.assertNotIn("reach all memory", self.start().log())

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

    def test_a_device_that_there_is_not_ends_the_list(self):
        daemon = self.start()
        self.assertRegex(say(daemon.address, "index=1", "index=2", "index=0"), "devices=1 ")

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
            ("memory=0x1000000000000",): "refusal limit 256 TiB of each GPU's memory were asked for, but GPU 0 has ",
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

    def test_a_log_file_that_is_rotated(self):
        """Copied and truncated: what comes then is at its beginning."""
        daemon = self.start(log_mode="a")
        self.assertIn("listening on", daemon.log())
        os.truncate(daemon.log_path, 0)
        self.assertRegex(say(daemon.near), "^hello")
        self.assertTrue(wait_until(daemon.log))
        self.assertNotIn("\0", daemon.log())

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
