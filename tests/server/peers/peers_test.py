"""Two servers that serve one program: copies between them go from one to the other, in both ways at once; what an operator does
not allow, and what the servers cannot reach, goes through the program's machine; secrets are good once; a server that dies in
the middle is an error.

usage: peers_test.py BUILD_FOLDER
"""

import contextlib
import os
import socket
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "scripts"))

from passage import Passage  # noqa: E402
from trial import Build, Server, stop_with_servers, wait_until  # noqa: E402

PROGRAM, WAITS = (os.path.join(os.path.dirname(os.path.abspath(__file__)), name) for name in ("copies.py", "waits.py"))
SIZE, COUNT = 5 << 20, 4
PEER = b"(\x8c\x01"  # the key of a hello's purpose, and RG_PURPOSE_PEER
PEER_SECRET = b"\xea\x08\x10"  # the key and the length of peer_secret in a hello


def is_peer(data):
    """Whether a server begins so to say to another one that it comes for a program."""
    return PEER in data and PEER_SECRET in data


class Relay(Passage):
    """A port that leads to a server, for other servers only if it takes them; what each connection sends first is kept."""

    def __init__(self, stack, target, most=None, takes_peers=True):
        super().__init__(target, most)
        self.takes_peers, self.first, self.peer, self.answered = takes_peers, [], None, False
        stack.enter_context(self)

    def take(self, data, passed, upward, connection):
        if upward and not passed:
            if is_peer(data) and not self.takes_peers:
                return None
            self.first.append(data)
            self.peer = connection if is_peer(data) else self.peer
        self.answered |= not upward and connection == self.peer
        return data

    def cut_peer(self):
        self.cut(self.peer)

    def has_peer(self):
        return any(map(is_peer, self.first))


def say(address, data):
    """What a server answers to these bytes on a new connection, up to its end."""
    host, _, port = address.rpartition("//")[2].rpartition(":")
    answer = b""
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(data)
        with contextlib.suppress(OSError):
            while b"invitation" not in answer:
                more = connection.recv(4096)
                if not more:
                    break
                answer += more
    return answer


class Peers(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)

    def servers(self, *arguments_of_each):
        return [self.stack.enter_context(Server(build, tcp=True, arguments=arguments)) for arguments in arguments_of_each]

    def run_on(self, addresses, size=SIZE, count=COUNT, more="", environment=None, **options):
        return build.run_remote([sys.executable, PROGRAM, str(size), str(count), more], ",".join(addresses),
                                environment=dict(environment or {}, REMOTE_GPU_LOG="info"), **options)

    def check(self, result, copies, direct):
        self.assertEqual(result.status, 0, result.report())
        self.assertEqual(result.output.split(), ["same"] * copies, result.report())
        self.assertEqual(result.stats["peer_direct"], direct, result.report())

    def test_both_ways_at_once(self):
        addresses = [server.address for server in self.servers((), ())]
        result = self.run_on(addresses)
        copied = 2 * COUNT * SIZE
        self.check(result, 2 * COUNT, copied)
        self.assertEqual(result.stats["peer_by_client"], 0, result.report())
        # What the program looks at comes to it; of the copies themselves comes next to nothing.
        self.assertLess(result.stats["bytes_sent"] + result.stats["bytes_received"] - copied, 1 << 20, result.report())
        self.assertLess(result.stats["bytes_sent"], 1 << 18, result.report())

    def test_switched_off(self):
        addresses = [server.address for server in self.servers((), ())]
        result = self.run_on(addresses, environment={"REMOTE_GPU_OPT": "-peers"})
        self.check(result, 2 * COUNT, 0)
        self.assertEqual(result.stats["peer_by_client"], 2 * COUNT * SIZE, result.report())

    def test_rdma_is_offered_where_the_user_allows_it(self):
        servers = self.servers((), ())
        for arguments, environment, offered in (((), {}, True), ((), {"REMOTE_GPU_RDMA_POLICY": "deny"}, False),
                                                (("--transport", "tcp"), {}, False)):
            relays = [Relay(self.stack, server.address) for server in servers]
            result = self.run_on([relay.address for relay in relays], count=1, environment=environment, arguments=arguments)
            self.check(result, 2, 2 * SIZE)
            hellos = [data for relay in relays for data in relay.first if is_peer(data)]
            self.assertEqual([b"rdma" in hello for hello in hellos], [offered], result.report())

    def test_denied(self):
        for denies in ((("--peers", "deny"), ()), ((), ("--peers", "deny"))):
            addresses = [server.address for server in self.servers(*denies)]
            result = self.run_on(addresses, count=1)
            self.check(result, 2, 0)
            self.assertIn("--peers deny", result.errors)

    def test_unreachable(self):
        one, other = self.servers((), ())
        for addresses in ([one.address, None], [None, one.address]):
            environment = {"REMOTE_GPU_CONNECTIONS": "0"}
            counted = Relay(self.stack, other.address)
            self.run_on([address or counted.address for address in addresses], count=1,
                        environment=dict(environment, REMOTE_GPU_OPT="-peers"))
            # A relay that takes what a program needs that has no servers connected, and then is not there any more.
            relay = Relay(self.stack, other.address, counted.connections)
            result = self.run_on([address or relay.address for address in addresses], count=1, environment=environment)
            self.check(result, 2, 0)
            self.assertIn(relay.address, result.errors)
            self.assertIn("refused", result.errors)

    def test_secrets_are_good_once(self):
        one, other = self.servers((), ())
        relay = Relay(self.stack, one.address)
        with tempfile.TemporaryDirectory() as folder:
            go_on = os.path.join(folder, "go-on")

            def attack(_):
                # Not before the server has taken it: what comes first is good.
                self.assertTrue(wait_until(lambda: relay.answered, 60))
                hello = next(filter(is_peer, relay.first))
                at = hello.index(PEER_SECRET) + len(PEER_SECRET)
                # What has been shown already, and what nobody was given.
                for data in (hello, hello[:at] + bytes(16) + hello[at + 16:]):
                    self.assertIn(b"none of an invitation that is still open", say(one.address, data))
                with open(go_on, "w"):
                    pass

            result = self.run_on([relay.address, other.address], count=1, more=go_on, while_running=attack)
            self.check(result, 4, 2 * 2 * SIZE)

    def test_killed_server(self):
        one, other = self.servers((), ())
        relay = Relay(self.stack, one.address)

        def kill(_):
            self.assertTrue(wait_until(relay.has_peer, 60))
            other.kill()

        result = self.run_on([relay.address, other.address], size=32 << 20, count=2, more="ever", while_running=kill)
        self.assertFalse(result.hung, result.report())
        self.assertEqual(result.status, 3, result.report())
        self.assertNotIn("another", result.output)

    def test_lost_connection(self):
        """Of the connection between the servers alone: an error where a copy was under way, else another way; no hang."""
        one, other = self.servers((), ())
        relay = Relay(self.stack, one.address)
        with tempfile.TemporaryDirectory() as folder:
            go_on = os.path.join(folder, "go-on")

            def cut(_):
                self.assertTrue(wait_until(relay.has_peer, 60))
                relay.cut_peer()
                with open(go_on, "w"):
                    pass

            result = self.run_on([relay.address, other.address], size=32 << 20, count=2, more=go_on, while_running=cut)
        self.assertFalse(result.hung, result.report())
        self.assertIn(result.status, (0, 3), result.report())
        if result.status == 3:
            self.assertIn("error", result.output)
        else:
            self.assertEqual(result.output.split(), ["same"] * 8, result.report())
            self.assertGreater(result.stats["peer_by_client"], 0, result.report())

    def waits(self, addresses, more=(), environment=None, **options):
        return build.run_remote([sys.executable, WAITS, "40", *more], ",".join(addresses), environment=environment, **options)

    def test_waits(self):
        """A stream waits for another server's by a message of that, and else by the program's machine."""
        addresses = [server.address for server in self.servers((), ())]
        for environment, direct in (({}, True), ({"REMOTE_GPU_OPT": "-peers"}, False)):
            result = self.waits(addresses, environment=environment)
            self.assertEqual(result.status, 0, result.report())
            self.assertEqual(result.output.splitlines(), ["waits", "goes on", "in turns"], result.report())
            counted = [result.stats["peer_waits_direct"], result.stats["peer_waits_by_client"]]
            self.assertGreaterEqual(counted[not direct], 81, result.report())
            self.assertEqual(counted[direct], 0, result.report())

    def test_host_functions_one_at_a_time(self):
        """As drivers run them: none of them may wait for the other server, where another stream waits for this one."""
        servers = [self.stack.enter_context(Server(build, tcp=True, environment={"SOFTGPU_BEHAVE": "nvidia:init=0:context=0"}))
                   for _ in range(2)]
        addresses = [server.address for server in servers]
        for options in ("", "-peers"):
            with self.subTest(options=options):
                result = self.run_on(addresses, environment={"REMOTE_GPU_OPT": options}, timeout=100)
                self.check(result, 2 * COUNT, 0 if options else 2 * COUNT * SIZE)
                result = self.waits(addresses, environment={"REMOTE_GPU_OPT": options}, timeout=100)
                self.assertEqual(result.output.splitlines(), ["waits", "goes on", "in turns"], result.report())

    def test_waits_of_what_is_lost(self):
        one, other = self.servers((), ())
        relay = Relay(self.stack, other.address)  # it is the first that is asked to connect
        with tempfile.TemporaryDirectory() as folder:
            held = os.path.join(folder, "held")

            def cut(_):
                self.assertTrue(wait_until(lambda: relay.has_peer() and os.path.exists(held), 60))
                relay.cut_peer()

            result = self.waits([one.address, relay.address], [held], while_running=cut)
        self.assertFalse(result.hung, result.report())
        self.assertEqual(result.status, 3, result.report())
        self.assertIn("cuStreamSynchronize: error", result.output)


if __name__ == "__main__":
    stop_with_servers()
    build = Build(sys.argv.pop(1))
    build.check()
    unittest.main(verbosity=2)
