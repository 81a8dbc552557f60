"""A pool while everything around it fails at random: members of etcd and servers are killed, cut off and healed, each in a network of
its own, while users come, wait, run, leave, and keep, renew and release leases.

usage: random_test.py BUILD [SECONDS [SEED]]

After each step is checked, by what etcd has and by what each server says itself:

- no GPU is granted twice: what is granted of it, but to leases that are suspended, is no more than it has, and no two sessions run on one,
  but for those that are suspended;
- no lease is lost: a lease that was acknowledged and not released is there, and its GPUs, where their server is, are granted to it;
- no request is forgotten: at the end, when all is healed, each run that waits is served, or was told why not.

A run may fail where what it hangs on was hurt: the server that it asked or whose GPUs it has. All others must end well, whatever
etcd went through. As root, for the networks; 77 where those cannot be made.
"""

import base64
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

DURATION = float(sys.argv.pop(2)) if len(sys.argv) > 2 else 600
SEED = int(sys.argv.pop(2)) if len(sys.argv) > 2 else int(time.time())

from pool_case import (BUILD, COMMAND, DAEMON, ENVIRONMENT, PATIENCE, PROGRAM, agent_of, end, need_etcd, run,  # noqa: E402
                       stop_with_servers, wait_until)

from etcd import member  # noqa: E402
from places import STACK, Place, clean_up  # noqa: E402

N_ETCD, N_SERVERS, GPUS = 3, 4, 2
FORGOTTEN_S = 12  # so long the pool takes a server for alive that is not, while etcd has the same leader
PREFIX = "/remote-gpu/pools/random/"


class Failed(AssertionError):
    pass


class Member:
    """Of etcd."""

    def __init__(self, number, folder):
        self.place, self.folder, self.name = Place(number), folder, "m%d" % number
        self.process = None

    def start(self, members):
        peers = ",".join("%s=http://%s:2380" % (one.name, one.place.address) for one in members)
        url = "http://%s:2379" % self.place.address
        command = member(self.name, os.path.join(self.folder, self.name), url, "http://%s:2380" % self.place.address, peers,
                         listen=url + ",http://127.0.0.1:2379")
        with open(os.path.join(self.folder, self.name + ".log"), "a") as log:
            self.process = subprocess.Popen(self.place.words(*command), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        STACK.callback(end, self.process)

    def is_well(self):
        return self.process.poll() is None and not self.place.is_cut

    def read(self, serializable=False):
        """All of the pool's keys at one revision; None: it does not answer. `serializable`: as it has them itself, whatever the others have."""
        key = base64.b64encode(PREFIX.encode()).decode()
        last = base64.b64encode((PREFIX[:-1] + "0").encode()).decode()
        asked = subprocess.run(self.place.words("curl", "-s", "-m", "4", "http://127.0.0.1:2379/v3/kv/range", "-d",
                                                json.dumps({"key": key, "range_end": last, "serializable": serializable})),
                               capture_output=True, text=True)
        try:
            answer = json.loads(asked.stdout)
        except ValueError:
            return None
        if "header" not in answer:
            return None
        return {base64.b64decode(pair["key"]).decode()[len(PREFIX):]: json.loads(base64.b64decode(pair["value"]))
                for pair in answer.get("kvs", [])}


class Server:
    def __init__(self, number, folder):
        self.place, self.folder = Place(number), os.path.join(folder, "server%d" % number)
        os.mkdir(self.folder)
        self.socket = os.path.join(self.folder, "socket")
        self.address, self.log_path = "unix:" + self.socket, os.path.join(self.folder, "log")
        self.rules = os.path.join(self.folder, "rules")
        with open(self.rules, "w") as file:
            json.dump({"default": {"preempt": True}}, file)
        self.hurt, self.hurt_at = 0, -100.0  # how often sessions may have suffered, and when last
        self.process = None

    def start(self, urls):
        ready = os.path.join(self.folder, "ready")
        if os.path.exists(ready):
            os.unlink(ready)
        command = self.place.words(DAEMON, "--config", "/dev/null", "--driver", "soft", "--listen", self.address, "--ready-file",
                                   ready, "--log", "debug", "--state-dir", os.path.join(self.folder, "state"), "--pool", "random",
                                   "--etcd", urls, "--grace", "1", "--pool-preempt", "0", "--rules", self.rules)
        with open(self.log_path, "a") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                            env=dict(ENVIRONMENT, SOFTGPU_DEVICES=str(GPUS)))
        STACK.callback(end, self.process)
        wait_until(lambda: os.path.exists(ready) or self.process.poll() is not None, "a server is ready")
        if self.process.poll() is not None:
            raise Failed("a server does not start:\n" + self.log()[-3000:])

    def log(self):
        with open(self.log_path, errors="replace") as file:
            return file.read()

    def agent(self):
        return agent_of(self.process)

    def lives(self):
        return self.process.poll() is None

    def sessions(self):
        """How many sessions run on each GPU, as the server itself says; None: it does not answer now."""
        outcome = run(COMMAND, "list", "--json", "-s", self.address, "--timeout", "20")
        try:
            server = json.loads(outcome.out)["servers"][0]
        except (ValueError, KeyError, IndexError):
            return None
        if "sessions" not in server:
            return None
        counts = {}
        for session in server["sessions"]:
            for device in session["devices"] if session["share"]["state"] != "suspended" else ():
                counts.setdefault(device, []).append(session["id"])
        return counts


class Run:
    """A program that asks for GPUs, waits, and works until it is told to end."""

    def __init__(self, server, servers, gpus, lease=None, priority="normal"):
        self.server, self.servers, self.lease, self.excuse = server, servers, lease, None
        self.hurt = {one: one.hurt for one in servers}
        if any(one.place.is_cut or not one.lives() or time.monotonic() < one.hurt_at + FORGOTTEN_S for one in servers):
            self.excuse = "a server is not there"
        self.folder = tempfile.TemporaryDirectory(prefix="remote-gpu-random-")
        wishes = ["--lease", lease] if lease else ["-n", str(gpus), "--wait-for", *(["--spread"] if gpus > GPUS else []),
                                                     "--priority", priority]
        with open(self.path("out"), "w") as out, open(self.path("err"), "w") as err:
            self.process = subprocess.Popen([COMMAND, "run", "-s", server.address, *wishes, "--", sys.executable, "-u", "-c", PROGRAM],
                                            env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=out, stderr=err, start_new_session=True)
        STACK.callback(self.kill)
        self.ending = False

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def text(self, name):
        with open(self.path(name), errors="replace") as file:
            return file.read()

    def has_begun(self):
        return "begun" in self.text("out")

    def let_end(self):
        if not self.ending:
            self.process.stdin.close()
        self.ending = True

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def judge(self):
        """It has ended: whether it may have ended so."""
        well = self.process.returncode == 0 and "works" in self.text("out")
        hurt = self.excuse or any(one.hurt != before for one, before in self.hurt.items())
        if not well and not hurt:
            raise Failed("a run that nothing has happened to failed with status %d: %s%s" %
                         (self.process.returncode, self.text("out"), self.text("err")))
        if not well and not self.text("err").strip() and "lost" not in self.text("out"):
            raise Failed("a run ended without a word, status %d: %s" % (self.process.returncode, self.text("out")))
        self.folder.cleanup()
        return well


class World:
    def __init__(self, folder):
        self.random = random.Random(SEED)
        self.members = [Member(i + 1, folder) for i in range(N_ETCD)]
        self.servers = [Server(i + 11, folder) for i in range(N_SERVERS)]
        for member in self.members:
            member.start(self.members)
        self.urls = ",".join("http://%s:2379" % member.place.address for member in self.members)
        wait_until(lambda: self.read() is not None, "etcd answers")
        for server in self.servers:
            server.start(self.urls)
        wait_until(lambda: self.n_gpus(self.read() or {}) == N_SERVERS * GPUS, "all servers are in the pool")
        self.runs, self.kept, self.figures, self.suspended = [], {}, {}, set()
        self.quorum_lost = None

    @staticmethod
    def n_gpus(keys):
        return sum("/gpus/" in key for key in keys)

    def read(self):
        for member in self.members:
            if member.process and member.is_well():
                keys = member.read()
                if keys is not None:
                    return keys
        return None

    def count(self, what):
        self.figures[what] = self.figures.get(what, 0) + 1

    # --- steps

    def some(self, things, condition=lambda thing: True):
        fit = [thing for thing in things if condition(thing)]
        return self.random.choice(fit) if fit else None

    def hurt(self, server):
        server.hurt += 1
        server.hurt_at = time.monotonic()

    def hurt_etcd(self):
        """Another leader counts the time of what it has anew, and takes a server that has gone for alive for so much longer."""
        now = time.monotonic()
        for server in self.servers:
            if now < server.hurt_at + FORGOTTEN_S:
                server.hurt_at = now

    def step_kill_member(self):
        if sum(not member.is_well() for member in self.members) >= (2 if self.random.random() < 0.2 else 1):
            return self.step_heal_members()
        self.hurt_etcd()
        return end(self.random.choice([member for member in self.members if member.is_well()]).process)

    def step_cut_member(self):
        if any(not member.is_well() for member in self.members):
            return self.step_heal_members()
        self.hurt_etcd()
        return self.random.choice(self.members).place.cut(True)

    def step_kill_all_members(self):
        self.hurt_etcd()
        for member in self.members:
            end(member.process)

    def step_heal_members(self):
        self.hurt_etcd()
        for member in self.members:
            if member.place.is_cut:
                member.place.cut(False)
            if member.process.poll() is not None:
                member.start(self.members)

    def step_cut_server(self):
        server = self.some(self.servers, lambda one: not one.place.is_cut)
        if server:
            self.hurt(server)
            server.place.cut(True)

    def step_heal_servers(self):
        for server in self.servers:
            if server.place.is_cut:
                server.place.cut(False)
            if not server.lives():
                server.start(self.urls)

    def step_kill_server(self):
        server = self.some(self.servers, Server.lives)
        if not server:
            return
        self.hurt(server)
        agent = server.agent()
        if agent and self.random.random() < 0.5:  # else it leaves the pool by itself
            os.kill(agent, signal.SIGKILL)
        end(server.process)

    def step_kill_agent(self):
        server = self.some(self.servers, lambda one: one.lives() and one.agent())
        if server:
            self.hurt(server)
            try:
                os.kill(server.agent() or 0x7ffffff, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def step_run(self):
        server = self.some(self.servers, Server.lives)
        if server and len(self.runs) < 10:
            self.runs.append(Run(server, self.servers, self.random.choice((1, 1, 1, 2, 2, 3)),
                                 priority=self.random.choice(("low", "normal", "normal", "high"))))

    def step_end_run(self):
        one = self.some(self.runs, lambda run_: not run_.ending and run_.has_begun())
        if one:
            one.let_end()

    def step_leave(self):
        one = self.some(self.runs, lambda run_: not run_.ending)
        if one:
            one.kill()
            one.excuse = "it was killed"
            self.runs.remove(one)

    def step_request(self):
        server = self.some(self.servers, Server.lives)
        if not server or len(self.kept) >= 3:
            return
        wanted = "%016x" % self.random.getrandbits(64)
        wish = ("request", "--json", "-s", server.address, "--id", wanted, "--for", "1h", "--timeout", "10")
        outcome = run(COMMAND, *wish)
        if outcome.status == 0:
            self.kept[wanted] = json.loads(outcome.out)["devices"]
            if self.random.random() < 0.5:
                self.runs.append(Run(server, self.servers, 0, wanted))
        elif "[lease-not-free]" not in outcome.err:
            self.kept[wanted] = None  # nobody knows yet: it may be there

    def step_renew(self):
        server, lease = self.some(self.servers, Server.lives), self.some(list(self.kept), lambda one: self.kept[one])
        if server and lease:
            outcome = run(COMMAND, "renew", lease, "-s", server.address, "--for", "2h", "--timeout", "10")
            if "[lease-gone]" in outcome.err:
                raise Failed("the lease %s is lost: %s" % (lease, outcome))
            self.count("renewed" if outcome.status == 0 else "not renewed")

    def step_release(self):
        server, lease = self.some(self.servers, Server.lives), self.some(list(self.kept))
        if not server or not lease:
            return
        for one in self.runs:
            if one.lease == lease:
                one.excuse = "its lease was given back"
        outcome = run(COMMAND, "release", "-s", server.address, lease, "--timeout", "10")
        if outcome.status == 0 or "[lease-gone]" in outcome.err:
            if self.kept[lease] and outcome.status != 0:
                raise Failed("the lease %s is lost: %s" % (lease, outcome))
            del self.kept[lease]
        else:
            self.kept[lease] = None

    # --- checks

    def check(self):
        keys = self.read()
        if keys is None:
            if self.quorum_lost is None:
                self.quorum_lost = time.monotonic()
        else:
            self.quorum_lost = None
            self.check_grants(keys)
            self.check_kept(keys)
        if self.quorum_lost is not None:  # sessions cannot begin meanwhile, and say so
            for one in self.runs:
                if not one.has_begun():
                    one.excuse = "etcd was lost"
        for server in self.servers:
            self.check_sessions(server)
        for one in [one for one in self.runs if one.process.poll() is not None]:
            if one.lease and one.lease not in self.kept:
                one.excuse = "its lease was given back"
            self.count("runs that worked" if one.judge() else "runs that were hurt")
            self.runs.remove(one)

    def count_suspended(self, key, granted):
        for share in granted:
            if share.get("state") == "suspended" and (key, share["lease"], share["since"]) not in self.suspended:
                self.suspended.add((key, share["lease"], share["since"]))
                self.count("suspended")

    def check_grants(self, keys):
        for key, gpu in keys.items():
            if "/gpus/" not in key:
                continue
            granted = gpu["granted"]
            self.count_suspended(key, granted)
            if sum(share["memory"] for share in granted if share.get("state") != "suspended") > gpu["memory"] or \
                    len({share["lease"] for share in granted}) != len(granted):
                raise Failed("%s is granted twice: %s" % (key, granted))

    def check_kept(self, keys):
        for lease, devices in self.kept.items():
            if not devices:
                continue
            if "leases/" + lease not in keys:
                have = {member.name: member.read(serializable=True) for member in self.members if member.process and member.is_well()}
                raise Failed("the lease %s is lost; which members of etcd have it: %s" % (
                    lease, {name: there and "leases/" + lease in there for name, there in have.items()}))
            for device in devices:
                gpu = keys.get("servers/%s/gpus/%d" % (device["server"], device["index"]))
                if gpu is not None and lease not in [share["lease"] for share in gpu["granted"]]:
                    raise Failed("the lease %s has lost GPU %d of %s: %s" % (lease, device["index"], device["address"], gpu))

    def check_sessions(self, server):
        counts = server.sessions() if server.lives() else None
        for device, ids in (counts or {}).items():
            if len(ids) > 1:
                raise Failed("sessions %s run on GPU %d of %s at once" % (ids, device, server.address))

    # --- life

    STEPS = {"run": 8, "end_run": 7, "leave": 2, "request": 3, "renew": 2, "release": 2, "kill_member": 3, "cut_member": 2,
             "kill_all_members": 0.4, "heal_members": 3, "cut_server": 2, "heal_servers": 4, "kill_server": 1.5, "kill_agent": 1.5}

    def live(self):
        until = time.monotonic() + DURATION
        rest = time.monotonic() + 60
        while time.monotonic() < until:
            name = self.random.choices(list(self.STEPS), list(self.STEPS.values()))[0]
            print("%.1f %s" % (time.monotonic(), name), flush=True)
            getattr(self, "step_" + name)()
            self.count(name)
            time.sleep(self.random.choice((0.05, 0.1, 0.3, 1.5)))
            self.check()
            if time.monotonic() > rest:
                self.settle()
                rest = time.monotonic() + 60

    def settle(self):
        """All is healed: whoever waits is served, and nothing is left over."""
        print("%.1f settle" % time.monotonic(), flush=True)
        self.step_heal_members()
        self.step_heal_servers()
        wait_until(lambda: self.n_gpus(self.read() or {}) == N_SERVERS * GPUS, "all servers are back in the pool")
        for lease in list(self.kept):
            self.check()
            for one in self.runs:
                if one.lease == lease:
                    one.excuse = "its lease was given back"
            outcome = wait_until(lambda l=lease: next((o for o in [run(COMMAND, "release", "-s", self.servers[0].address, l)]
                                                       if o.status == 0 or "[lease-gone]" in o.err), None), "a lease is released")
            if outcome.status and self.kept[lease]:
                raise Failed("the lease %s is lost: %s" % (lease, outcome))
            del self.kept[lease]
        for one in self.runs:
            one.let_end()
        try:
            wait_until(lambda: all(one.process.poll() is not None for one in self.runs), "each run was served or told", 3 * PATIENCE)
        except AssertionError:
            raise Failed("requests are forgotten: %s" % [(one.server.address, one.text("out"), one.text("err")[-300:])
                                                         for one in self.runs if one.process.poll() is None])
        self.check()
        wait_until(self.is_quiet, "all GPUs are free and nobody waits")
        self.count("settled")

    def is_quiet(self):
        keys = self.read()
        return keys is not None and self.n_gpus(keys) == N_SERVERS * GPUS and \
            not any(key.startswith(("requests/", "leases/")) or ("/gpus/" in key and value["granted"]) for key, value in keys.items())


def main():
    need_etcd()
    stop_with_servers()
    if os.geteuid() != 0 or subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode != 0:
        print("skipped: network namespaces need root")
        sys.exit(77)
    print("%g s, seed %d, build %s" % (DURATION, SEED, BUILD))
    with tempfile.TemporaryDirectory(prefix="remote-gpu-random-") as folder:
        world = None
        try:
            world = World(folder)
            world.live()
            world.settle()
        except AssertionError:
            for server in world.servers if world else []:
                print("--- %s\n%s" % (server.address, server.log()[-20000:]))
            if world:
                print(json.dumps(world.read(), indent=1))
            raise
        finally:
            if world:
                print(json.dumps(world.figures))
            clean_up()


if __name__ == "__main__":
    main()
