"""The frontend from outside: its rights, its end, and what strangers cannot hold up."""

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "daemon"))

from daemon_case import (  # noqa: E402
                         DAEMON, HELPERS, Case, built_with_sanitizer, children_of, frontend_of, is_running, say)
from control_message import INTRODUCE, field, hello_for  # noqa: E402
from trial import wait_until  # noqa: E402


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
            for answer in answers:  # those for whom there was no room have waited for it
                self.assertRegex(answer, "^inventory devices=2 ")
            self.assertIsNone(daemon.process.poll())

    def test_who_asks_much_leaves_room_for_others(self):
        """One address has all the questions under way that it may have: another one's is answered before any of them."""
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            daemon = self.start("--listen", "unix:" + os.path.join(folder, "socket"))
            unix, tcp = daemon.addresses()
            session = self.join(tcp, "hold")
            self.assertRegex(session.line(), "^hello session=1 ")
            with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:  # another server, which says nothing
                hello = hello_for(INTRODUCE, field(140, 1) + field(141, bytes(16)) + field(143, 1) + field(144, bytes(16)) +
                                  field(142, b"tcp://127.0.0.1:%d" % silent.getsockname()[1]))
                server = ("127.0.0.1", int(tcp.rpartition(":")[2]))
                askers, under_way = [socket.create_connection(server) for _ in range(40)], []
                for asker in askers:
                    self.addCleanup(asker.close)
                    asker.sendall(hello)
                silent.settimeout(1)  # as long as more come
                try:
                    while len(under_way) < len(askers):
                        under_way.append(silent.accept()[0])
                        self.addCleanup(under_way[-1].close)
                except socket.timeout:
                    pass
                self.assertGreater(len(under_way), 8)
                self.assertLess(len(under_way), len(askers))
                self.assertEqual(say(unix, "purpose=status"), "inventory devices=2 sessions=1")
                self.assertEqual(select.select(askers, [], [], 0)[0], [])
            session.leave()

    def test_one_that_is_stopped_for_ever_keeps_the_server_from_nothing(self):
        daemon = self.start("--grace", "0")
        client = self.join(daemon.address, "hold")
        self.assertRegex(client.line(), "^hello")
        os.kill(frontend_of(daemon), signal.SIGSTOP)
        daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(client.line(), "end the server is shutting down")
        self.assertEqual(daemon.process.wait(10), 0)
        client.leave()

    def test_one_that_hangs_is_replaced(self):
        daemon = self.start()
        client = self.join(daemon.address, "hold")
        self.assertRegex(client.line(), "^hello")
        hanging = frontend_of(daemon)
        os.kill(hanging, signal.SIGSTOP)
        self.assertTrue(wait_until(lambda: frontend_of(daemon) not in (hanging, None), 60), daemon.log())
        self.assertIn("the frontend is killed: it hangs", daemon.log())
        self.assertRegex(say(daemon.address, "purpose=status"), "inventory devices=2 sessions=1")
        self.assertEqual(client.line(0.2), "nothing")
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


if __name__ == "__main__":
    unittest.main(verbosity=2)
