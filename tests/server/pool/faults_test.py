"""What goes on, and what is refused, when members of etcd, servers and agents die or are cut off."""

import email.utils
import json
import os
import re
import shutil
import signal
import sys
import time

from pool_case import BUILD, COMMAND, PROGRAM, SESSION, Etcd, PoolCase, agent_of, child_of, gpu_run, main, run, wait_until
from passage import Passage  # where pool_case finds it


class Away(Passage):
    """Leads to an etcd whose clock is so many seconds ahead of this machine's: what it answers says so."""

    def __init__(self, port, seconds):
        super().__init__("127.0.0.1:%d" % port)
        self.seconds = seconds

    def take(self, data, passed, upward, connection):
        date = email.utils.formatdate(time.time() + self.seconds, usegmt=True).encode()
        return data if upward else re.sub(rb"\r\nDate: [^\r]*\r\n", b"\r\nDate: %s\r\n" % date, data)


class Members(PoolCase):
    def test_one_of_three_members_of_etcd_dies(self):
        etcd = self.keep(Etcd(3))
        server = self.server(etcd.urls)
        running = self.running(server).wait_for("begun 1")
        for i in range(3):
            etcd.processes[i].kill()
            etcd.processes[i].wait()
            self.assertEqual(gpu_run(server, "--wait-for=60").status, 0)
            etcd.restart(i)
            wait_until(etcd.is_up, "the member is back")
        self.assertIn("works", running.finish())
        self.wait_free(server, 2)

    def test_all_of_etcd_dies_and_comes_back(self):
        etcd = self.keep(Etcd())
        server = self.server(etcd.urls + ",http://127.0.0.1:1")  # and a member that never was
        running = self.running(server).wait_for("begun 1")
        kept = json.loads(run(COMMAND, "request", "--json", "-s", server.address, "--for", "1h").out)["lease"]
        etcd.kill()
        # what has to be granted, as soon as the agent knows
        wait_until(lambda: "cannot grant GPUs now" in gpu_run(server).err, "new requests are refused with the reason")
        # what was granted before, at the latest when others could be given it
        wait_until(lambda: "cut off from its pool" in
                   self.session_by(server, kept).err, "new sessions are refused with the reason")
        self.assertIn("begun", running.out())
        said = [line for line in server.log().splitlines() if "does not answer" in line and "debug:" not in line]
        self.assertTrue(said)
        self.assertEqual(sorted(said), sorted(set(said)), "each once")
        etcd.restart(0)
        wait_until(etcd.is_up, "etcd is back")
        wait_until(lambda: gpu_run(server, "--wait-for=10", "-p", "0.1").status in (0, 125) and
                   "etcd" not in self.pool(server)["etcd"], "the server is back in the pool")
        self.assertIn("works", running.finish())
        wait_until(lambda: gpu_run(server).status == 0, "GPUs are granted again")
        self.assertEqual(run(COMMAND, "release", "-s", server.address, kept).status, 0)
        self.wait_free(server, 2)

    def test_etcd_is_restored_from_an_older_backup(self):
        """What was granted since then is had by who has it, and what was given back since then is free again."""
        etcd = self.keep(Etcd())
        first, second = self.server(etcd.urls, "--pool-label", "room=north"), self.server(etcd.urls)
        wait_until(lambda: len(self.pool(second)["servers"]) == 2, "both are in the pool")
        over = self.running(second, "--filter", "labels.room=north").wait_for("begun 1")
        etcd.kill()
        data = etcd.data(0)
        shutil.copytree(data, data + ".backup")
        etcd.restart(0)
        wait_until(etcd.is_up, "etcd is back")
        wait_until(lambda: "etcd" not in self.pool(second)["etcd"], "the server is back in the pool")
        self.assertIn("works", over.finish())
        for _ in range(6):  # other revisions than those of the backup, and more of them than will be written at once
            self.assertEqual(gpu_run(first, "--wait-for=60").status, 0)
        running = self.running(second, "--filter", "labels.room=north", "-n", "2", "--wait-for=60").wait_for("begun 2")
        etcd.kill()
        before = agent_of(first.process)
        os.kill(before, signal.SIGKILL)  # the next one has seen nothing, and is told how far etcd was
        wait_until(lambda: agent_of(first.process) not in (None, before), "another agent is there")
        shutil.rmtree(data)
        shutil.move(data + ".backup", data)
        etcd.restart(0)
        wait_until(etcd.is_up, "etcd is back, older than it was")
        first.wait_for_log("has another past than before, as when")
        second.wait_for_log("has another past than before, as when")
        for server in first, second:
            wait_until(lambda: "in the pool lab as" in server.log().rpartition("another past")[2], "a server is in the pool again")
        outcome = gpu_run(first, "-n", "2", "--wait-for=60", program=(sys.executable, "-c", "import os; print(os.environ['REMOTE_GPU_SERVER'])"))
        self.assertEqual(outcome.status, 0, outcome)
        self.assertIn(second.address, outcome.out, "those of the other server alone were free")
        wait_until(lambda: sorted(self.gpus(second).values()) == [0, 0, 1, 1], "they are free again, and no others")
        self.assertIn("works", running.finish())
        self.wait_free(second, 4)

    def session_by(self, server, lease):
        """A session by a lease, without asking the pool first."""
        return run(sys.executable, "-u", "-c", PROGRAM, LD_LIBRARY_PATH=os.path.join(BUILD, "stage", "lib", "remote-gpu"),
                   REMOTE_GPU_SERVER=server.address, REMOTE_GPU_LEASE=lease)

    def test_who_has_ceased_to_ask_for_a_lease_does_not_hold_it(self):
        """etcd answers late, and the client asks anew: what it asked before and has given up does not take the lease from it."""
        etcd = self.keep(Etcd())
        server = self.server(etcd.urls)
        command = self.running(server, "--timeout", "1", REMOTE_GPU_LOG="debug",
                               program=("sh", "-c", "echo first; read line; exec \"$@\"", "sh", *SESSION)).wait_for("first")
        etcd.processes[0].send_signal(signal.SIGSTOP)
        os.kill(child_of(server.process, "frontend"), signal.SIGKILL)
        command.wait_for("was lost")
        time.sleep(5)  # a few times
        etcd.processes[0].send_signal(signal.SIGCONT)
        command.wait_for("is held again")
        command.process.stdin.write(b"go\n")
        command.process.stdin.flush()
        command.wait_for("begun 1")
        self.assertIn("works", command.finish())
        wait_until(lambda: not self.pool(server)["leases"], "the lease ends with the command")
        self.assertEqual(server.log().count("its client has come back"), 1, server.log())


class Servers(PoolCase):
    def test_a_server_dies(self):
        etcd = self.keep(Etcd())
        first, second = self.server(etcd.urls), self.server(etcd.urls)
        wait_until(lambda: len(self.pool(second)["servers"]) == 2, "both are in the pool")
        first.process.kill()
        first.process.wait()
        wait_until(lambda: [member["address"] for member in self.pool(second)["servers"]] == [second.address],
                   "the dead server is gone")

    def test_a_server_stops(self):
        etcd = self.keep(Etcd())
        first, second = self.server(etcd.urls), self.server(etcd.urls)
        wait_until(lambda: len(self.pool(second)["servers"]) == 2, "both are in the pool")
        first.process.send_signal(signal.SIGTERM)
        first.process.wait(60)
        self.assertIn("has left the pool", first.log())
        wait_until(lambda: len(self.pool(second)["servers"]) == 1, "the server that has stopped is gone", 8)

    def test_what_was_granted_of_a_server_that_was_cut_off(self):
        """By another, which still took it for alive: the lease has its GPU when the server is back."""
        etcd = self.keep(Etcd())
        first, second = self.server(etcd.urls, "--pool-label", "room=north"), self.server(etcd.urls)
        wait_until(lambda: len(self.pool(second)["servers"]) == 2, "both are in the pool")
        agent = first.agent()
        os.kill(agent, signal.SIGSTOP)
        try:
            outcome = run(COMMAND, "request", "--json", "-s", second.address, "--filter", "labels.room=north", "--for", "1h")
            self.assertEqual(outcome.status, 0, outcome)
            wait_until(lambda: len(self.pool(second)["servers"]) == 1, "the server is taken for dead")
        finally:
            os.kill(agent, signal.SIGCONT)
        wait_until(lambda: len(self.pool(second)["servers"]) == 2, "it is back")
        lease = json.loads(outcome.out)
        self.assertEqual(self.gpus(second)[(first.address, lease["devices"][0]["index"])], 0)
        running = self.running(second, "--lease", lease["lease"]).wait_for("begun 1")
        self.assertIn("works", running.finish())
        self.assertEqual(run(COMMAND, "release", "-s", second.address, lease["lease"]).status, 0)
        self.wait_free(second, 4)

    def test_a_clock_jumps(self):
        """An hour ahead, an hour behind, right again, every three seconds, on one of two servers."""
        etcd = self.keep(Etcd())
        wrong = self.server(etcd.urls, environment={"LD_PRELOAD": os.path.join(BUILD, "tests", "moved_clock.so"),
                                                     "SHIFT_SECONDS": "3600,-3600,0"})
        right = self.server(etcd.urls)
        kept = json.loads(run(COMMAND, "request", "--json", "-s", wrong.address, "--for", "1h").out)["lease"]
        running = self.running(wrong, "--lease", kept).wait_for("begun 1")
        end = time.monotonic() + 10  # each of the times, and more than a server's place in etcd lasts
        while time.monotonic() < end:
            for server in (wrong, right):
                outcome = gpu_run(server, "--wait-for=60")
                self.assertEqual(outcome.status, 0, outcome)
                self.assertIn(kept, [lease["lease"] for lease in self.pool(server)["leases"]])
        self.assertIn("works", running.finish())
        self.assertEqual(wrong.log().count("in the pool lab as"), 1, "it has never been forgotten")
        self.assertEqual(run(COMMAND, "release", "-s", right.address, kept).status, 0)
        self.wait_free(right, 4)

    def test_a_clock_that_is_an_hour_off(self):
        """It is said once, with what to do; leases and the queue go by etcd's."""
        etcd = self.keep(Etcd())
        for shift, text in ((3600, r"clock is 3(600|599|601) s behind that of etcd .* set the clock"),
                            (-3600, r"clock is 3(600|599|601) s ahead of that of etcd .* set the clock")):
            away = self.keep(Away(etcd.ports[0], shift)).__enter__()
            server = self.server("http://" + away.address)
            wait_until(lambda: re.search(text, server.log()), "the clock is said to be wrong")
            outcome = run(COMMAND, "request", "--json", "-s", server.address, "--for", "100s", "--filter", "server.addr=" + server.address)
            self.assertEqual(outcome.status, 0, outcome)
            self.assertAlmostEqual(json.loads(outcome.out)["expires"], time.time() + shift + 100, delta=60)
            self.assertEqual(gpu_run(server, "--wait-for").status, 0)
            self.assertEqual(len(re.findall(text, server.log())), 1)


class Agents(PoolCase):
    def test_the_agent_is_killed(self):
        etcd = self.keep(Etcd())
        server = self.server(etcd.urls)
        running = self.running(server).wait_for("begun 1")
        os.kill(server.agent(), signal.SIGKILL)
        server.wait_for_log("in the pool lab as", times=2)
        wait_until(lambda: sum(free < 1 for free in self.gpus(server).values()) == 1, "the session keeps its GPU")
        self.assertIn("works", running.finish())
        self.wait_free(server, 2)

    def test_nobody_looks_into_the_agent(self):
        """Which has etcd's key and password: they are in no core dump, nor open to processes of the same user."""
        server = self.server(self.keep(Etcd()).urls)
        agent = "/proc/%d" % server.agent()
        if os.stat(agent).st_uid == 0:
            self.skipTest("the agent has no user of its own")
        self.assertEqual(os.stat(agent + "/mem").st_uid, 0)

    def test_the_agent_is_killed_while_a_session_runs_by_a_lease_that_is_kept(self):
        """The next one knows from the monitor that there is a session, and from etcd alone that the lease outlasts it."""
        etcd = self.keep(Etcd())
        server = self.server(etcd.urls)
        outcome = run(COMMAND, "request", "--json", "-s", server.address, "--for", "1h")
        self.assertEqual(outcome.status, 0, outcome)
        lease = json.loads(outcome.out)
        running = self.running(server, "--lease", lease["lease"]).wait_for("begun 1")
        os.kill(server.agent(), signal.SIGKILL)
        server.wait_for_log("in the pool lab as", times=2)
        self.assertEqual([one["expires"] for one in self.pool(server)["leases"]], [lease["expires"]])
        self.assertIn("works", running.finish())
        again = self.running(server, "--lease", lease["lease"]).wait_for("begun 1")
        self.assertIn("works", again.finish())
        self.assertEqual(run(COMMAND, "release", "-s", server.address, lease["lease"]).status, 0)
        self.wait_free(server, 2)

    def test_the_connection_that_holds_a_lease_is_lost_between_two_programs(self):
        """The process that talks to clients dies, or the agent, or the server that was asked: the command's next program has its GPUs."""
        etcd = self.keep(Etcd())
        granted, asked = self.server(etcd.urls, "--pool-label", "room=north"), self.server(etcd.urls)
        for victim in ("frontend", "pool-agent", "server"):
            command = self.running(asked, "--filter", "labels.room=north", REMOTE_GPU_LOG="debug",
                                   program=("sh", "-c", "echo first; read line; exec \"$@\"", "sh", *SESSION)).wait_for("first")
            self.assertEqual(len(self.pool(granted)["leases"]), 1)
            os.kill(asked.process.pid if victim == "server" else child_of(asked.process, victim), signal.SIGKILL)
            command.wait_for("is held again")
            command.process.stdin.write(b"go\n")
            command.process.stdin.flush()
            command.wait_for("begun 1")
            self.assertIn("works", command.finish())
            wait_until(lambda: not self.pool(granted)["leases"], "the lease ends with the command")


if __name__ == "__main__":
    main()
