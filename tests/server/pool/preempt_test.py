"""Requests of higher priority have leases of lower priority suspended, which come back: with one server and several, whole GPUs, parts and
gangs, and whatever dies meanwhile. At each revision of etcd's, what is active of a GPU is no more than the GPU has."""

import json
import os
import shutil
import signal
import sys
import tempfile

from pool_case import COMMAND, Etcd, PoolCase, agent_of, gpu_run, main, run, wait_until

# A program that has memory of each of its GPUs, and says for each line of its input whether all of that is as it was.
HOLDER = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
count, held, handle = ctypes.c_int(), [], ctypes.create_string_buffer(64)
status = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
for i in range(count.value):
    context, memory = ctypes.c_void_p(), ctypes.c_uint64()
    status = status or cuda.cuCtxCreate_v2(ctypes.byref(context), 0, i) or cuda.cuMemAlloc_v2(ctypes.byref(memory), 1 << 20) or \\
        cuda.cuMemsetD8_v2(memory, 7, 1 << 20)
    held.append((context, memory))
if "share" in sys.argv:
    status = status or cuda.cuIpcGetMemHandle(handle, held[0][1])
print("begun %d" % count.value if status == 0 else "failed %d" % status, flush=True)
for line in sys.stdin:
    for context, memory in held:
        there = ctypes.create_string_buffer(16)
        status = status or cuda.cuCtxSetCurrent(context) or cuda.cuMemcpyDtoH_v2(there, memory, ctypes.c_size_t(16))
        status = status or (0 if there.raw == b"\\x07" * 16 else -1)
    print("same" if status == 0 else "lost %d" % status, flush=True)
"""
LOW, HIGH = ("--priority", "low"), ("--priority", "high")
TOLD = "suspended for one of higher priority"


class PreemptCase(PoolCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.mkdtemp(prefix="remote-gpu-preempt-")
        self.addCleanup(shutil.rmtree, folder)
        self.rules = os.path.join(folder, "rules")
        self.write_rules({"default": {"max-priority": "high", "preempt": True}})
        self.etcd = self.keep(Etcd())

    def write_rules(self, rules):
        with open(self.rules, "w") as file:
            json.dump(rules, file)

    def server(self, *arguments, rest="0", gpus=1, **more):
        return super().server(self.etcd.urls, "--rules", self.rules, "--pool-preempt", rest, *arguments, gpus=gpus, **more)

    def holder(self, server, *arguments, words=(), **more):
        return self.running(server, *arguments, program=(sys.executable, "-u", "-c", HOLDER, *words), **more).wait_for("begun")

    def ask(self, holder):
        """Has a holder look at its memory; what it says comes when it comes."""
        holder.process.stdin.write(b"go\n")
        holder.process.stdin.flush()

    def wait_told(self, holder):
        """Of one that is suspended: its call waits, and it is told. Without a call that is so when its client next gives a sign of life."""
        self.ask(holder)
        holder.wait_for(TOLD)

    def leases(self, server):
        return {lease["lease"]: lease for lease in self.pool(server)["leases"]}

    def states(self, server):
        """Of the parts of each GPU, the states: '' of one that is active."""
        return [sorted(share.get("state", "") for share in gpu["granted"])
                for member in self.pool(server)["servers"] for gpu in member["gpus"]]

    def wait_states(self, server, *states):
        wait_until(lambda: self.states(server) == list(states), "parts of GPUs are %s, and not %s" % (states, self.states(server)))

    def session_states(self, server):
        outcome = run(COMMAND, "list", "--json", "-s", server.address)
        return sorted(session["share"]["state"] for session in json.loads(outcome.out)["servers"][0]["sessions"])

    def check_back(self, holder):
        """It has its memory, with what was in it."""
        self.ask(holder)
        said = holder.finish()
        self.assertIn("same", said)
        self.assertNotIn("lost", said)

    def check_returns(self, low, high):
        """One that is still suspended, with a call that waits, comes back when the other one ends."""
        self.assertNotIn("same", low.out())
        self.assertIn("works", high.finish())
        low.wait_for("same")
        self.check_back(low)

    def check_history(self):
        """Whatever etcd had at any time: what was active of a GPU was no more than that has, and no lease had two parts of one."""
        gpus = [json.loads(value) for key, value in self.etcd.events() if "/gpus/" in key and value]
        self.assertTrue(gpus)
        for gpu in gpus:
            active = sum(share["memory"] for share in gpu["granted"] if share.get("state") != "suspended")
            self.assertLessEqual(active, gpu["memory"], gpu)
            self.assertEqual(len({share["lease"] for share in gpu["granted"]}), len(gpu["granted"]), gpu)


class Preempt(PreemptCase):
    def test_who_has_a_higher_priority_gets_the_gpu_and_the_other_one_comes_back(self):
        server = self.server()
        low = self.holder(server, *LOW, "--keep-alive=20")  # a sign of life each 5 s
        high = self.running(server, *HIGH).wait_for("begun 1")
        low.wait_for(TOLD)
        self.assertEqual(self.states(server), [["", "suspended"]])
        self.assertEqual(self.session_states(server), ["running", "suspended"])
        self.assertEqual(sorted((lease["priority"], lease.get("state")) for lease in self.leases(server).values()),
                         [("high", None), ("low", "suspended")])
        shown = run(COMMAND, "list", "-s", server.address).out
        self.assertIn("priority low, suspended for a request of higher priority", shown)
        self.assertIn("granted, 1 lease suspended", shown)
        self.ask(low)
        self.assertIn("works", high.finish())
        low.wait_for("same")
        self.wait_states(server, [""])
        self.check_back(low)
        self.wait_free(server, 1)
        self.check_history()

    def test_nobody_is_suspended_where_that_is_not_allowed(self):
        """By the server, by the rules, or as the priority is no higher."""
        server = super(PreemptCase, self).server(self.etcd.urls, "--rules", self.rules, gpus=1, pool="other")
        low = self.holder(server, *LOW)
        self.assert_refused(gpu_run(server, *HIGH), r"\[lease-not-free\]")
        self.check_back(low)
        server = self.server()
        low = self.holder(server)
        self.assert_refused(gpu_run(server), r"\[lease-not-free\]")
        self.write_rules({"default": {"max-priority": "high"}})
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_log("hold for new sessions")
        self.assert_refused(gpu_run(server, *HIGH), r"\[lease-not-free\]")
        self.write_rules({"default": {"max-priority": "normal", "preempt": True}})
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_log("hold for new sessions", 2)
        self.assert_refused(gpu_run(server, *HIGH), r"priority high was asked for, and you may have normal", r"\[lease-priority\]")
        self.assert_refused(run(COMMAND, "request", "-s", server.address, *HIGH), r"\[lease-priority\]")
        self.assertNotIn(TOLD, low.err())
        self.check_back(low)

    def test_rules_give_priorities_to_who_asks_for_none(self):
        self.write_rules({"default": {"priority": "high", "max-priority": "high", "preempt": True}})
        server = self.server()
        low = self.holder(server, *LOW)
        self.assertIn("works", self.running(server).wait_for("begun 1").finish())
        self.wait_told(low)
        self.check_back(low)

    def test_a_lease_is_spared_for_the_time_that_its_server_says(self):
        server = self.server(rest="6")
        low = self.holder(server, *LOW)
        self.assert_refused(gpu_run(server, *HIGH), r"\[lease-not-free\]")
        high = self.running(server, *HIGH, "--wait-for=60").wait_for("waits for 1 whole GPU")
        high.wait_for("begun 1")
        self.assertIn("works", high.finish())
        self.check_back(low)

    def test_a_kept_lease_without_sessions(self):
        """Its next run waits, and says so; the lease is there all the time."""
        server = self.server()
        kept = json.loads(run(COMMAND, "request", "--json", "-s", server.address, "--for", "1h", *LOW).out)
        high = self.running(server, *HIGH).wait_for("begun 1")
        self.assertEqual(self.leases(server)[kept["lease"]]["state"], "suspended")
        low = self.running(server, "--lease", kept["lease"], program=(sys.executable, "-u", "-c", HOLDER))
        low.wait_for("waiting: ").wait_for("suspended for a request of higher priority")
        self.assertEqual(run(COMMAND, "renew", kept["lease"], "-s", server.address, "--for", "2h").status, 0)
        self.assertNotIn("begun", low.out())
        self.assertIn("works", high.finish())
        low.wait_for("begun 1")
        self.assertNotIn("event=refuse", server.log())  # though it has asked again and again
        self.check_back(low)
        self.assertEqual(run(COMMAND, "release", "-s", server.address, kept["lease"]).status, 0)
        self.wait_free(server, 1)
        self.check_history()

    def test_a_kept_lease_that_is_given_back_while_it_is_suspended(self):
        server = self.server()
        kept = json.loads(run(COMMAND, "request", "--json", "-s", server.address, "--for", "1h", *LOW).out)
        high = self.running(server, *HIGH).wait_for("begun 1")
        self.assertEqual(run(COMMAND, "release", "-s", server.address, kept["lease"]).status, 0)
        self.wait_states(server, [""])
        self.assertIn("works", high.finish())
        self.wait_free(server, 1)

    def test_what_cannot_be_suspended(self):
        """The request goes on waiting, with the reason; nothing is half done."""
        server = self.server()
        low = self.holder(server, *LOW, words=("share",))
        high = self.running(server, *HIGH, "--wait-for=60")
        high.wait_for("could not be suspended for it: it shares memory")
        self.wait_states(server, [""])
        self.assertNotIn(TOLD, low.err())
        self.check_back(low)
        self.assertIn("works", high.wait_for("begun 1").finish())
        self.check_history()

    def test_what_was_suspended_beside_what_cannot_be(self):
        """It comes back, though who has a higher priority goes on waiting."""
        server = self.server(gpus=2)
        stays, goes = self.holder(server, *LOW, words=("share",)), self.holder(server, *LOW)
        high = self.running(server, *HIGH, "-n", "2", "--wait-for=60")
        high.wait_for("could not be suspended for it: it shares memory")
        server.wait_for_log("is suspended for one of higher priority")
        self.wait_told(goes)
        self.check_back(goes)
        self.check_back(stays)
        self.assertIn("works", high.wait_for("begun 2").finish())
        self.check_history()

    def test_who_does_not_wait_is_told_why_it_cannot_be(self):
        server = self.server()
        low = self.holder(server, *LOW, words=("share",))
        self.assert_refused(gpu_run(server, *HIGH), r"could not be suspended for it: it shares memory", r"\[lease-not-free\]")
        self.check_back(low)

    def test_three_priorities(self):
        """The highest of those that are suspended comes back first."""
        server = self.server()
        low = self.holder(server, *LOW)
        normal = self.holder(server)
        self.wait_told(low)
        high = self.running(server, *HIGH).wait_for("begun 1")
        self.wait_told(normal)
        self.assertEqual(self.states(server), [["", "suspended", "suspended"]])
        self.assertIn("works", high.finish())
        normal.wait_for("same")
        self.assertEqual(self.states(server), [["", "suspended"]])
        self.assertNotIn("same", low.out())
        normal.finish()
        low.wait_for("same")
        self.check_back(low)
        self.check_history()

    def test_nobody_passes_who_is_to_come_back(self):
        """One of the same priority that came later waits behind it, and one of a higher one goes before it."""
        server = self.server()
        low = self.holder(server, *LOW)
        high = self.running(server, *HIGH).wait_for("begun 1")
        later = self.running(server, *LOW, "--wait-for=60").wait_for("waiting since")
        other = self.running(server, *HIGH, "--wait-for=60").wait_for("waiting since")
        self.assertIn("works", high.finish())
        other.wait_for("begun 1")
        self.assertEqual(self.states(server), [["", "suspended"]])
        self.assertIn("works", other.finish())
        self.check_back(low)
        self.assertIn("works", later.wait_for("begun 1").finish())
        self.wait_free(server, 1)

    def test_parts_of_a_gpu(self):
        """As few as it takes, the youngest first; what fits beside it stays."""
        server = self.server()
        first = self.holder(server, *LOW, "-p", "0.4")
        second = self.holder(server, *LOW, "-p", "0.4")
        high = self.running(server, *HIGH, "-p", "0.5").wait_for("begun 1")
        self.ask(first)
        self.ask(second)
        wait_until(lambda: TOLD in first.err() + second.err(), "one of them is told")
        self.assertEqual(self.states(server), [["", "", "suspended"]])
        self.assertIn("works", high.finish())
        self.wait_states(server, ["", ""])
        self.check_back(first)
        self.check_back(second)
        self.check_history()

    def test_gangs(self):
        """A gang is suspended as one, and comes back when all of its GPUs are free; a gang has several suspended."""
        server = self.server(gpus=2)
        gang = self.holder(server, *LOW, "-n", "2")
        one = self.running(server, *HIGH).wait_for("begun 1")
        self.wait_told(gang)
        self.assertEqual(sorted(self.states(server)), [["", "suspended"], ["suspended"]])
        self.assert_refused(gpu_run(server, *LOW), r"is kept for a request", r"\[lease-not-free\]")
        other = self.holder(server)  # what is left is others' meanwhile, of a higher priority
        self.assertIn("works", one.finish())
        self.check_back(other)
        gang.wait_for("same")
        self.check_back(gang)
        self.wait_free(server, 2)
        singles = [self.holder(server, *LOW) for _ in range(2)]
        two = self.running(server, *HIGH, "-n", "2").wait_for("begun 2")
        for single in singles:
            self.wait_told(single)
        self.assertEqual(self.states(server), [["", "suspended"], ["", "suspended"]])
        self.assertIn("works", two.finish())
        for single in singles:
            self.check_back(single)
        self.check_history()

    def test_several_servers(self):
        """Who asks another server than the one that has the GPUs, which is at rest; what lies on two servers stays as it is."""
        north, south = self.server("--pool-label", "room=north"), self.server("--pool-label", "room=south")
        wait_until(lambda: len(self.pool(south)["servers"]) == 2, "both are in the pool")
        low = self.holder(south, *LOW, "--filter", "labels.room=north")
        high = self.running(south, *HIGH, "--filter", "labels.room=north").wait_for("begun 1")
        self.wait_told(low)
        self.assertIn("works", high.finish())
        self.check_back(low)
        self.wait_free(south, 2)
        both = self.holder(south, *LOW, "-n", "2", "--spread")
        self.assert_refused(gpu_run(south, *HIGH), r"\[lease-not-free\]")
        self.check_back(both)
        self.check_history()

    def test_an_exclusive_session_makes_room(self):
        server = self.server()
        low = self.holder(server, *LOW, "--exclusive")
        high = self.running(server, *HIGH, "--exclusive").wait_for("begun 1")
        self.assertIn("works", high.finish())
        self.check_back(low)


class Deaths(PreemptCase):
    """Whoever dies while a lease is suspended, or about to be."""

    def pair(self):
        """Two servers, one of which has the GPU; of the other's clients, one is suspended, and one has the GPU."""
        granted, asked = self.server("--pool-label", "room=north"), self.server()
        wait_until(lambda: len(self.pool(asked)["servers"]) == 2, "both are in the pool")
        low = self.holder(granted, *LOW, "--filter", "labels.room=north")
        high = self.running(asked, *HIGH, "--filter", "labels.room=north").wait_for("begun 1")
        self.wait_told(low)
        return granted, asked, low, high

    def test_the_client_that_has_the_gpu(self):
        granted, _, low, high = self.pair()
        os.killpg(high.process.pid, signal.SIGKILL)
        low.wait_for("same")
        self.wait_states(granted, [""], [])
        self.check_back(low)
        self.check_history()

    def test_the_client_that_waits_for_the_gpu(self):
        """While what it waits for is being suspended: that comes back by itself."""
        server = self.server()
        low = self.holder(server, *LOW)
        high = self.running(server, *HIGH)
        wait_until(lambda: self.states(server) != [[""]], "it is being suspended")
        os.killpg(high.process.pid, signal.SIGKILL)
        self.ask(low)
        low.wait_for("same")
        self.wait_states(server, [""])
        self.check_back(low)
        self.check_history()

    def test_the_server_that_was_asked(self):
        """Its client's session goes on, and then the other one comes back."""
        granted, asked, low, high = self.pair()
        asked.process.kill()
        asked.process.wait()
        self.check_returns(low, high)
        wait_until(lambda: self.states(granted) == [[]], "all is free")
        self.check_history()

    def test_the_client_that_is_suspended(self):
        granted, _, low, high = self.pair()
        os.killpg(low.process.pid, signal.SIGKILL)
        self.wait_states(granted, [""], [])
        self.assertIn("works", high.finish())
        self.wait_free(granted, 2)
        self.check_history()

    def test_the_server_that_has_both(self):
        granted, asked, low, high = self.pair()
        granted.process.kill()
        granted.process.wait()
        low.wait_for("lost")
        wait_until(lambda: self.states(asked) == [[]], "the dead server is gone")
        self.assertEqual(gpu_run(asked, *HIGH).status, 0)
        high.process.stdin.close()
        high.process.wait(60)
        self.check_history()

    def test_agents(self):
        """That of the server that has both, and that of the one that was asked: their successors know all."""
        granted, asked, low, high = self.pair()
        for server in (granted, asked):
            before = server.agent()
            os.kill(before, signal.SIGKILL)
            wait_until(lambda s=server, b=before: agent_of(s.process) not in (None, b), "another agent is there")
            server.wait_for_log("in the pool lab as", 2)
        wait_until(lambda: sorted(self.states(asked)) == [[], ["", "suspended"]], "all is as it was")
        self.check_returns(low, high)
        self.check_history()

    def test_the_agent_while_a_lease_is_being_suspended(self):
        server = self.server()
        low = self.holder(server, *LOW)
        high = self.running(server, *HIGH, "--wait-for=60")
        wait_until(lambda: self.states(server) != [[""]], "it is being suspended")
        os.kill(server.agent() or 0x7ffffff, signal.SIGKILL)
        high.wait_for("begun 1")
        self.wait_told(low)
        self.assertIn("works", high.finish())
        self.check_back(low)
        self.check_history()

    def test_etcd(self):
        """While it is down nothing changes; when it is back the one that is suspended comes back."""
        granted, asked, low, high = self.pair()
        self.etcd.kill()
        self.assertIn("works", high.finish())
        self.assertNotIn("same", low.out())
        self.etcd.restart(0)
        low.wait_for("same")
        self.check_back(low)
        self.wait_free(asked, 2)
        self.check_history()

    def test_etcd_forgets_the_server(self):
        """It is down for longer than servers are waited for: the server comes back into the pool with all as it is there."""
        granted, asked, low, high = self.pair()
        os.kill(granted.agent(), signal.SIGSTOP)
        try:
            wait_until(lambda: len(self.pool(asked)["servers"]) == 1, "the server is taken for dead")
        finally:
            os.kill(granted.agent(), signal.SIGCONT)
        granted.wait_for_log("in the pool lab as", 2)
        wait_until(lambda: sorted(self.states(asked)) == [[], ["", "suspended"]], "all is as it was")
        self.check_returns(low, high)
        self.check_history()

    def test_etcd_is_restored_from_a_backup_of_before(self):
        """Who was suspended since then is so, and who has its GPU since then has it: what runs is what is true."""
        server = self.server()
        low = self.holder(server, *LOW)
        self.etcd.kill()
        data = self.etcd.data(0)
        shutil.copytree(data, data + ".backup")
        self.etcd.restart(0)
        wait_until(self.etcd.is_up, "etcd is back")
        high = self.running(server, *HIGH, "--wait-for=60").wait_for("begun 1")
        self.wait_told(low)
        self.etcd.kill()
        shutil.rmtree(data)
        shutil.move(data + ".backup", data)
        self.etcd.restart(0)
        wait_until(self.etcd.is_up, "etcd is back, older than it was")
        server.wait_for_log("has another past than before, as when")
        wait_until(lambda: "in the pool lab as" in server.log().rpartition("another past")[2], "the server is in the pool again")
        self.wait_states(server, ["", "suspended"])
        self.check_returns(low, high)


if __name__ == "__main__":
    main()
