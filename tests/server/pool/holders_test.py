"""Who holds a lease that ends with its client, where connections end late, several ask for it, or a client dies before it has listened."""

import json
import os
import select
import socket
import sys

from pool_case import TESTS, Etcd, PoolCase, Server, main, wait_until

sys.path.append(os.path.join(TESTS, "..", "scripts"))

from control_message import field, fields_of, hello_for, message_of  # noqa: E402

POOL = 130  # purpose of a ClientHello
ANSWER = 7  # a control message


class Talk:
    """One question to a pool, asked as clients ask it, and a connection that is closed as a test wants it."""

    def __init__(self, server, **question):
        self.connection = socket.create_connection(server.address.rsplit(":", 1), timeout=60)
        self.connection.sendall(hello_for(POOL, field(16, json.dumps(question).encode())))

    def answer(self):
        """The next that is said."""
        control = dict(fields_of(message_of(self.connection)))
        return json.loads(dict(fields_of(control[ANSWER]))[1])

    def wait_for_answer(self):
        """Until one is there to be read."""
        select.select([self.connection], [], [], 60)

    def close(self):
        self.connection.close()


class Holders(PoolCase):
    @classmethod
    def setUpClass(cls):
        cls.etcd = Etcd()
        cls.addClassCleanup(cls.etcd.close)
        cls.a, cls.b = Server(cls.etcd.urls), Server(cls.etcd.urls)
        for server in cls.a, cls.b:
            cls.addClassCleanup(server.close)

    def setUp(self):
        wait_until(lambda: len(self.pool(self.b)["servers"]) == 2, "both are in the pool")

    def talk(self, server, **question):
        return self.keep(Talk(server, **question))

    def granted(self, server, **question):
        talk = self.talk(server, **question)
        answer = talk.answer()
        self.assertEqual(answer["state"], "granted", answer)
        return talk, answer

    def leases(self):
        return [lease["lease"] for lease in self.pool(self.b)["leases"]]

    def test_a_connection_that_ends_late_takes_the_lease_from_nobody(self):
        """Its client holds it by another server meanwhile."""
        before, lease = self.granted(self.a, ask="request")
        after, _ = self.granted(self.b, ask="hold", lease=lease["lease"], hold=lease.get("hold", ""))
        ended = self.a.log().count("is held elsewhere")
        before.close()
        self.a.wait_for_log("is held elsewhere", ended + 1)
        self.assertIn(lease["lease"], self.leases())
        after.close()
        wait_until(lambda: lease["lease"] not in self.leases(), "it ends with the connection that holds it")

    def test_a_lease_is_not_taken_from_another_process_that_holds_it(self):
        first, lease = self.granted(self.a, ask="request")
        again, held = self.granted(self.a, ask="hold", lease=lease["lease"], hold=lease.get("hold", ""))
        self.assertNotEqual(held.get("hold"), lease.get("hold"))
        answer = self.talk(self.b, ask="hold", lease=lease["lease"], hold=lease.get("hold", "")).answer()
        self.assertEqual((answer["state"], answer["code"]), ("refused", "lease-busy"), answer)
        self.assertIn(lease["lease"], self.leases())
        again.close()
        wait_until(lambda: lease["lease"] not in self.leases(), "it ends with the connection that holds it")
        first.close()

    def test_a_client_of_this_machine_that_dies_before_it_has_listened_leaves_nothing(self):
        """Its kernel resets the connection, since something is unread, and says no goodbye."""
        lost = self.a.log().count("the connection of its client was lost")
        talk = self.talk(self.a, ask="request")
        talk.wait_for_answer()
        self.assertEqual(len(self.leases()), 1)
        talk.close()
        wait_until(lambda: not self.leases(), "the lease is over")
        self.assertEqual(self.a.log().count("the connection of its client was lost"), lost, "it was not waited for")


if __name__ == "__main__":
    main()
