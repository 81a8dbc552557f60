"""The network between client and server: several cables that a session uses together, addresses of links, slow ones.

usage: networks.py BUILD_FOLDER CASE

The machines are those of run.py, and so is what they need.
"""

import json
import os
import re
import shutil
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))
sys.path.insert(0, HERE)

from machines import NAME, PORT, Background, World, checked, expect, skip, works  # noqa: E402
from trial import run_case, wait_until  # noqa: E402


def run_by_rails(world, done, stats, *options):
    """A program that moves bulk data by all rails, until there is the file `done`."""
    command = world.client.command(world.build.command, "run", "--rails", "always", "--stats=" + stats, *options, "--",
                                   world.marker_path(), "32", "3", "until", done)
    program = Background(command, world.client.environment(REMOTE_GPU_LOG="info"), world.fresh("rails"))
    world.stack.callback(program.stop)
    return program


def end_by_itself(program, done):
    """Lets it end, and sees that all it moved came back as it was."""
    with open(done, "w"):
        pass
    expect(wait_until(lambda: program.process.poll() is not None, 30) and program.process.poll() == 0 and
           "ok" in program.output().split(), "it did not end well:\n" + program.output())


def case_rails(world):
    """Two cables: bulk data goes by both; that of the calls is cut in the middle of copies and comes back, and nothing is lost."""
    world.add_cable("eth1", "10.78.0")
    checked(*world.server.command("ip", "address", "add", "10.79.0.1/24", "dev", "eth1"))  # which leads the client nowhere
    world.start_server()
    world.join("alice")
    unused = ("10.79.0.1", "no interface of this machine leads there")
    told = json.loads(works(world.remote_gpu("list", "--json")).output)["servers"][0]["rails"]["tcp"]
    expect(all("%s (eth" % address in told for address in ("10.77.0.1", "10.78.0.1", unused[0])), "list says of rails: %s" % told)
    expect("rails over TCP: " + told in works(world.remote_gpu("list")).output, "list shows no rails over TCP")
    doctor = world.remote_gpu("doctor", "-s", "gpu-machine").output
    expect("bulk data over TCP can go by 10.77.0.1, 10.78.0.1" in doctor and
           "not by %s: %s" % unused in doctor, "doctor does not say it:\n" + doctor)
    done, stats, profile = world.path("done"), world.path("rails-stats"), world.path("rails-profile")
    program = run_by_rails(world, done, stats, "--profile=" + profile)

    def flows(name, least=64 << 20):
        """Waits until so much more has gone both ways by a cable."""
        before = world.carried(name)
        expect(wait_until(lambda: program.process.poll() is not None or
                          all(count - earlier > least for count, earlier in zip(world.carried(name), before)), 60) and
               program.process.poll() is None, "nothing goes by %s:\n%s" % (name, program.output()))

    for name in ("eth0", "eth1"):
        flows(name)
    checked(*world.server.command("ip", "link", "set", "eth0", "down"))
    flows("eth1")
    checked(*world.server.command("ip", "link", "set", "eth0", "up"))
    flows("eth0")
    expect(wait_until(lambda: "calls are back" in program.output(), 20), "calls are not back:\n" + program.output())
    flows("eth1", 8 << 20)
    end_by_itself(program, done)
    told = json.loads(open(stats).read())
    expect(told["resumed"] >= 1 and told["encrypted"] is True and
           {rail["address"] for rail in told["rails"]} == {"10.77.0.1", "10.78.0.1"} and
           all(min(rail["sent"], rail["received"]) > 64 << 20 for rail in told["rails"]),
           "the statistics do not say it: %s" % told)
    expect([one["address"] for one in told["rails_unused"]] == [unused[0]] and unused[1] in told["rails_unused"][0]["why"],
           "the statistics do not say what is not used: %s" % told["rails_unused"])
    (session,) = json.loads(open(profile).read())["remoteGpu"]["sessions"]
    expect({rail["address"]: rail["sent"] for rail in session["tcp_rails"]} == {rail["address"]: rail["sent"] for rail in told["rails"]} and
           "; by 10.78.0.1 " in program.output(), "the profile does not say it: %s\n%s" % (session, program.output()))


def case_foreign_rail(world):
    """An address that the server has named and that is another's gets nothing; the session goes on by its own."""
    world.add_cable("eth1", "10.78.0")
    world.start_server("--rails", "10.77.0.1,10.78.0.1,127.0.0.1,224.0.0.1", listen="10.77.0.1:%d" % PORT)
    stranger = world.start_server(listen="10.78.0.1:%d" % PORT, state=world.path("stranger"))
    world.join("alice")
    done, stats = world.path("done"), world.path("rails-stats")
    program = run_by_rails(world, done, stats)
    refused = "no further connection to %s at 10.78.0.1:%d" % (NAME, PORT)
    expect(wait_until(lambda: refused in program.output() or program.process.poll() is not None, 60), "it tries nothing")
    end_by_itself(program, done)
    said = program.output()
    expect(refused in said and "127.0.0.1" not in said and "224.0.0.1" not in said, "the address was not refused:\n" + said)
    rails = json.loads(open(stats).read())["rails"]
    expect([rail["address"] for rail in rails] == ["10.77.0.1"], "something went there: %s" % rails)
    expect("session" not in stranger.output(), "it began something there:\n" + stranger.output())


def case_link_local(world):
    """A server by an address that every link has, with the link's name: join, by TLS, with connections for bulk data, after a loss."""
    shown = checked(*world.server.command("ip", "-6", "address", "show", "dev", "eth0", "scope", "link"))
    address = re.search("inet6 (fe80[0-9a-f:]+)/", shown)
    if not address:
        skip("there are no addresses of links here")
    expect(wait_until(lambda: "tentative" not in checked(*world.server.command("ip", "-6", "address", "show", "dev", "eth0")), 20),
           "the address is not to be had")
    server = "[%s%%eth0]:%d" % (address.group(1), PORT)
    world.start_server("--tls-name", address.group(1), listen="*:%d" % PORT)
    made = world.manage("token", "--user", "alice", "--server", server)
    expect(made.status == 0 and "is not for" not in made.errors, "the token's server is not found in the certificate", made)
    works(world.remote_gpu("join", re.search("^rgpu1:.*$", made.output, re.MULTILINE).group(0)))
    result = works(world.marker("16", "4", REMOTE_GPU_CONNECTIONS="2"))
    expect(result.stats.get("bulk_connections") == 2, "there are no connections for bulk data", result)
    program = world.hold(REMOTE_GPU_LOG="info")
    if world.run("ss", "-K", "dst", "[%s]" % address.group(1)).status != 0:
        skip("connections cannot be ended here (ss -K)")
    wait_until(lambda: "goes on" in program.output() or "lost the connection" in program.output(), 20)
    expect("goes on" in program.output(), "the session did not go on:\n" + program.output())


def case_slow_network(world):
    """A message that takes longer than a peer may be silent is no silence while the peer takes it."""
    if not shutil.which("tc"):
        skip("there is no program tc")
    world.start_server("--reconnect-grace", "0")
    world.join("alice")
    checked(*world.client.command("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "8mbit", "burst", "32kbit",
                                  "latency", "400ms"))
    began = time.monotonic()
    result = works(world.marker("8", "1", REMOTE_GPU_CONNECTIONS="0", REMOTE_GPU_KEEP_ALIVE="1", REMOTE_GPU_OPT="-all"))
    expect("ok" in result.output, "the program did not work", result)
    expect(time.monotonic() - began > 7, "the network is not slow", result)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    run_case(globals(), World)
