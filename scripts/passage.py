"""Stands in front of a server: passes its connections on, counts them, and lets tests look or interfere."""

import contextlib
import socket
import threading
import time


class Passage:
    """Passes connections on to the server at `address`, from one of its own (`self.address`), until its `with` block ends.

    Without an address `server` (place_of) has to be set before the first connection. Whoever wants to see or change what passes
    overrides `take`. `delay`: seconds that each new connection is held up; `most`: so many connections are taken at most (None: all
    that come).
    """

    def __init__(self, address=None, most=None):
        self.server, self.most = address and self.place_of(address), most
        self.connections = 0
        self.delay = 0
        self.ends = {}  # both of each connection that is there, by its number
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]

    @staticmethod
    def place_of(address):
        """Host and port of an address, with or without a scheme."""
        host, port = address.rsplit("/", 1)[-1].rsplit(":", 1)
        return host, int(port)

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.listener.close()

    def cut(self, number=None):
        """Ends the connection of that number, or all that there are; new ones go through."""
        for one in list(self.ends) if number is None else [number]:
            for end in self.ends.get(one, ()):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def take(self, data, passed, upward, connection):
        """What is passed on of `data`, or None to end the connection.

        `passed`: bytes of this connection before, in this direction; `upward`: from client to server; `connection`: 1 for
        the first.
        """
        return data

    def accept(self):
        """Each client gets a connection of its own to the server."""
        with contextlib.suppress(OSError, ValueError):  # it was closed
            while self.most is None or self.connections < self.most:
                self.accept_one()
        self.listener.close()

    def accept_one(self):
        client, _ = self.listener.accept()
        self.connections += 1
        threading.Thread(target=self.carry, args=(client, self.connections), daemon=True).start()

    def carry(self, client, number):
        """One connection, until both directions have ended."""
        time.sleep(self.delay)
        with client:
            try:
                server = socket.create_connection(self.server)
            except OSError:
                return
            with server:
                self.ends[number] = client, server
                for end in client, server:
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                back = threading.Thread(target=self.forward, args=(server, client, False, number), daemon=True)
                back.start()
                self.forward(client, server, True, number)
                back.join()
                self.ends.pop(number, None)

    def forward(self, source, target, upward, number):
        """One direction; its end is passed on. If it is broken or is to end, so does the other."""
        passed = 0
        try:
            while True:
                data = source.recv(1 << 18)
                if not data:
                    target.shutdown(socket.SHUT_WR)
                    return
                data = self.take(data, passed, upward, number)
                if not data:
                    break
                target.sendall(data)
                passed += len(data)
        except OSError:
            pass
        for end in source, target:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
